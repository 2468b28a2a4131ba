"""Writes files of cells. Without anndata, there are no tests here."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import h5py
import pytest

collect_ignore_glob = [] if find_spec("anndata") else ["test_*.py"]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Writes cells with small chunks, and returns the path."""

    def write(made: Any, name: str = "cells.h5ad", chunk: int = 64) -> str:
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
