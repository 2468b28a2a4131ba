"""Train a classifier of cell types from an h5ad file: cells a second by Penstock and by anndata.

    python examples/train_on_cells.py                        # makes a file of cells
    python examples/train_on_cells.py cells.h5ad cell_type   # a file of yours, with CSR as X

The classifier is trained twice from the same start, for one epoch of shuffled batches: by
penstock.anndata.Batches, and by anndata's backed mode, whose rows are read in order of their
numbers. It runs on the GPU if torch can use one.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anndata
import h5py
import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch

from penstock.anndata import Batches

GENES = 2_000
KINDS = ["B", "NK", "T", "monocyte"]


def make(path: Path, count: int) -> None:
    """Write cells of which each type has genes that it expresses more."""
    source = np.random.default_rng(0)
    kinds = source.integers(0, len(KINDS), count)
    x = sp.random(count, GENES, 0.05, "csr", np.float32, source)
    own = sp.csr_matrix(
        (np.ones(4 * count, np.float32), (np.repeat(np.arange(count), 4), _markers(kinds))),
        (count, GENES),
    )
    obs = pd.DataFrame({"cell_type": pd.Categorical.from_codes(kinds, KINDS)})
    obs.index = [f"cell{number}" for number in range(count)]
    var = pd.DataFrame(index=[f"gene{number}" for number in range(GENES)])
    anndata.AnnData((x + own).tocsr(), obs, var).write_h5ad(path, compression="gzip")


def _markers(kinds: Any) -> Any:
    return (kinds[:, None] * 100 + np.arange(4)).reshape(-1)


def backed(path: Path, column: str, size: int, device: str) -> Iterator[tuple[Any, Any]]:
    """Yield shuffled batches by anndata's backed mode."""
    with h5py.File(path) as file:
        x = anndata.io.sparse_dataset(file["X"])
        codes = anndata.io.read_h5ad(path, backed="r").obs[column].cat.codes.to_numpy()
        order = np.random.default_rng(0).permutation(x.shape[0])
        for start in range(0, len(order), size):
            rows = np.sort(order[start : start + size])
            found = x[rows]
            kinds = torch.from_numpy(codes[rows].astype("i8"))
            yield torch.from_numpy(found.toarray()).to(device), kinds.to(device)


def train(batches: Iterable[tuple[Any, Any]], genes: int, classes: int, device: str) -> str:
    """Train for one epoch, and return the rate and the last loss."""
    torch.manual_seed(0)
    layers = (torch.nn.Linear(genes, 64), torch.nn.ReLU(), torch.nn.Linear(64, classes))
    model = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    count, loss = 0, torch.zeros(())
    began = time.perf_counter()
    for x, kind in batches:
        loss = torch.nn.functional.cross_entropy(model(x), kind)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        count += len(kind)
    last = loss.item()  # waits for the GPU
    return f"{count / (time.perf_counter() - began):10,.0f} cells/s, last loss {last:.3f}"


def main() -> None:
    warnings.filterwarnings("ignore", "Sparse CSR tensor support")
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("path", nargs="?", type=Path, help="an h5ad file with CSR as X")
    parser.add_argument("column", nargs="?", default="cell_type", help="the classes, in obs")
    parser.add_argument("--cells", type=int, default=40_000, help="cells of the file it makes")
    parser.add_argument("--batch", type=int, default=1024)
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with TemporaryDirectory() as folder:
        path = arguments.path
        if path is None:
            path = Path(folder) / "cells.h5ad"
            make(path, arguments.cells)
        batches = Batches(
            path,
            arguments.batch,
            obs=[arguments.column],
            device=device,
            like="torch",
            dtype="float32",
            dense=True,
        )
        classes = len(batches.categories[arguments.column])
        cells, genes = batches.rows.shape
        print(f"{path}: {cells} cells, {genes} genes, batches of {arguments.batch}, on {device}")
        first = next(iter(batches))
        train([(first.x, first.obs[arguments.column])], genes, classes, device)  # warms torch up
        ours = ((batch.x, batch.obs[arguments.column]) for batch in batches)
        print(f"penstock.anndata.Batches   {train(ours, genes, classes, device)}")
        theirs = backed(path, arguments.column, arguments.batch, device)
        print(f"anndata, backed            {train(theirs, genes, classes, device)}")
        batches.rows.close()


if __name__ == "__main__":
    main()
