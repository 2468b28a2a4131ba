"""Skips all of this folder without anndata, and writes files of cells."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

pytest.importorskip("anndata", reason="anndata is not installed")

import anndata
import pandas as pd
import scipy.sparse as sp

CELLS, GENES = 150, 40


def matrix(cells: int = CELLS, genes: int = GENES, seed: int = 0, density: float = 0.2) -> Any:
    """Return a CSR matrix with empty rows among others."""
    rng = np.random.default_rng(seed)
    made = sp.random(cells, genes, density, "csr", np.float32, rng)
    made.data = np.arange(1, len(made.data) + 1, dtype=np.float32)
    return made


def cells_of(x: Any, seed: int = 0, genes: list[str] | None = None) -> anndata.AnnData:
    """Return cells with annotations of each kind."""
    rng = np.random.default_rng(seed)
    count, width = x.shape
    obs = pd.DataFrame(
        {
            "kind": pd.Categorical(rng.choice(["B", "T", "NK"], count)),
            "depth": rng.random(count),
            "batch": rng.choice(["one", "two"], count),
        },
        index=[f"cell{seed}-{at}" for at in range(count)],
    )
    names = [f"gene{at}" for at in range(width)] if genes is None else genes
    return anndata.AnnData(x, obs, pd.DataFrame(index=names))


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Writes cells with small chunks, and returns the path."""

    def write(made: anndata.AnnData, name: str = "cells.h5ad", chunk: int = 64) -> str:
        path = tmp_path / name
        made.write_h5ad(path)
        rechunk(path, chunk)
        return str(path)

    return write


def rechunk(path: Path, chunk: int) -> None:
    """Store the datasets of sparse matrices anew, in gzip chunks of this length."""
    with h5py.File(path, "r+") as file:
        groups: list[Any] = []
        file.visititems(lambda _, item: groups.append(item) if is_sparse(item) else None)
        for group in groups:
            for name in ("data", "indices"):
                old = group[name][:]
                del group[name]
                group.create_dataset(
                    name, data=old, chunks=(chunk,), maxshape=(None,), compression="gzip"
                )


def is_sparse(item: Any) -> bool:
    return str(item.attrs.get("encoding-type", "")) in ("csr_matrix", "csc_matrix")


def same(found: Any, wanted: Any) -> bool:
    """Whether two sparse matrices have the same elements, in whatever order in a row."""
    a, b = sp.csr_matrix(found), sp.csr_matrix(wanted)
    a.sort_indices()
    b.sort_indices()
    return bool(
        a.shape == b.shape
        and np.array_equal(a.indptr, b.indptr)
        and np.array_equal(a.indices, b.indices)
        and np.array_equal(a.data, b.data)
    )
