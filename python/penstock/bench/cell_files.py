"""h5ad files of cells: a CSR matrix of counts in gzip chunks, as anndata writes it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from .hdf5_files import create, deflated, write_chunks
from .measure import WrongBytesError

GENES = 20_000
FILLED = 1_000
"""Mean number of genes of a cell that are not zero: 5 %."""
DISTINCT = 2_000
"""The cells repeat after this number of them."""
CHUNK = 25_000
"""Elements of a chunk: about what h5py chooses for some 100 million elements."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class CellFile:
    """A file of cells."""

    path: Path
    count: int

    def check(self, x: Any, rows: Array) -> None:
        """Raise an error if a CSR matrix of SciPy does not have these cells."""
        data, indices, indptr = _cells()
        for at, row in list(enumerate((rows % DISTINCT).tolist()))[:: max(len(rows) // 200, 1)]:
            mine, theirs = slice(*x.indptr[at : at + 2]), slice(*indptr[row : row + 2])
            same = np.array_equal(x.data[mine], data[theirs])
            if not same or not np.array_equal(x.indices[mine], indices[theirs]):
                raise WrongBytesError(f"cell {rows[at]} is wrong")


@lru_cache(maxsize=1)
def _cells() -> tuple[Array, Array, Array]:
    """Return values, indices and index pointers of the distinct cells, in whole chunks."""
    source = np.random.default_rng(7)
    counts = source.integers(FILLED // 2, FILLED * 3 // 2, DISTINCT)
    spare = counts.sum() - DISTINCT * FILLED
    at = 0
    while spare:  # a multiple of the chunk
        step = np.sign(spare)
        if FILLED // 2 <= counts[at] - step <= FILLED * 3 // 2:
            counts[at] -= step
            spare -= step
        at = (at + 1) % DISTINCT
    chosen = [np.sort(source.choice(GENES, count, replace=False)) for count in counts]
    values = np.log1p(source.negative_binomial(1, 0.3, counts.sum()) + 1).astype("f4")
    indptr = np.concatenate([[0], np.cumsum(counts)])
    return values, np.concatenate(chosen).astype("i4"), indptr


def made(folder: Path, count: int) -> CellFile:
    """Make a file of a multiple of the distinct cells. Afterwards it is in the page cache."""
    data, indices, indptr = _cells()
    repeats = max(count // DISTINCT, 1)
    path = folder / f"cells-{repeats * DISTINCT}.h5ad"

    def fill(file: Any) -> None:
        group = file.create_group("X")
        group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0"})
        group.attrs["shape"] = (repeats * DISTINCT, GENES)
        for name, array in (("data", data), ("indices", indices)):
            keys = {"chunks": (CHUNK,), "maxshape": (None,), "compression": "gzip"}
            size = repeats * array.size
            dataset = group.create_dataset(name, (size,), array.dtype, **keys)
            write_chunks(dataset, deflated(array.reshape(-1, CHUNK)), CHUNK, size // CHUNK)
        starts = np.arange(repeats)[:, None] * indptr[-1] + indptr[:-1]
        group["indptr"] = np.append(starts.reshape(-1), repeats * indptr[-1])
        _annotate(file, repeats * DISTINCT)

    create(path, repeats * data.nbytes * 2, fill)
    return CellFile(path, repeats * DISTINCT)


def _annotate(file: Any, count: int) -> None:
    pandas, write = import_module("pandas"), import_module("anndata.io").write_elem
    kinds = np.array(["B", "NK", "T"])[np.arange(count) % 3]
    obs = pandas.DataFrame({"cell_type": pandas.Categorical(kinds)}, index=_names("cell", count))
    write(file, "obs", obs)
    write(file, "var", pandas.DataFrame(index=_names("gene", GENES)))
    for name in ("layers", "obsm", "obsp", "uns", "varm", "varp"):
        write(file, name, {})
    file.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})


def _names(what: str, count: int) -> list[str]:
    return [f"{what}{at}" for at in range(count)]
