"""Cells of h5ad files: whole, by row, and in batches for training.

>>> import penstock.anndata as pa
>>> adata = pa.read_h5ad("cells.h5ad", device="cuda")
>>> rows = pa.Rows(["a.h5ad", "b.h5ad"])
>>> batches = pa.Batches(["a.h5ad", "b.h5ad"], 4096, obs=["cell_type"], device="cuda")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.anndata.batches import Batch, Batches
    from penstock.anndata.reading import read_h5ad
    from penstock.anndata.rows import Rows

_MODULES = {"Batch": "batches", "Batches": "batches", "Rows": "rows", "read_h5ad": "reading"}
"""The module of each name, imported when it is first used."""

__all__ = ["Batch", "Batches", "Rows", "read_h5ad"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
