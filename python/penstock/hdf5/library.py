"""h5py's copy of HDF5, as the native library uses it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from penstock._native import lib
from penstock.errors import check

_lock: Any = None


def lock() -> Any:
    """The lock under which HDF5 is called, h5py's own."""
    return _lock or _bind()


def _bind() -> Any:
    """Tell the native library which HDF5 of the process is meant, and where nvCOMP is, which
    decodes chunks on the GPU, if a wheel has brought it."""
    global _lock
    import h5py
    from h5py._objects import phil

    with phil:
        if _lock is None:
            check(lib.penstock_hdf5_bind(os.fsencode(h5py.h5.__file__)))
            for path in nvcomp_libraries():
                check(lib.penstock_nvcomp_path(os.fsencode(path)))
                break
            _lock = phil
    return phil


def writable(dataset: Any) -> bool:
    """Whether the file of a dataset is open for writing."""
    import h5py

    if getattr(dataset, "_readonly", False):  # what h5py knows already is quicker than to ask
        return False
    return bool(h5py.h5i.get_file_id(dataset.id).get_intent() & h5py.h5f.ACC_RDWR)


def nvcomp_libraries() -> Iterator[Path]:
    """nvCOMP's library in the wheels that bring it, found without importing them."""
    spec = find_spec("nvidia")
    for folder in (spec and spec.submodule_search_locations) or ():
        for package in ("libnvcomp", "nvcomp"):
            found = Path(folder, package).glob("**/libnvcomp.so.*")
            yield from sorted(found, key=lambda path: len(path.name))
