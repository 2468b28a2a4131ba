"""Virtual datasets that h5py reads: only where HDF5 reads the elements that the mappings say.

A source may have another shape than its mapping says. Then HDF5 returns other elements, or crashes;
the library has the rule (``virtual_dataset/fit.rs``), and is asked before h5py reads.
"""

from __future__ import annotations

from typing import Any

from penstock._native import NULL, CData, ffi, lib
from penstock.errors import check
from penstock.hdf5 import selection as selections
from penstock.hdf5.library import is_virtual, lock

_alike = ffi.new("int *")
"""Where the library puts its answer; used under HDF5's lock."""


def is_read_alike(dataset: Any, elements: Any = None) -> bool:
    """Whether h5py certainly reads the same elements of a virtual dataset as the library.

    Args:
        dataset: The ``h5py.Dataset``.
        elements: What is selected, an object with the address of a ``penstock_selection``; all
            by default.
    """
    with lock():
        status = lib.penstock_virtual_is_read_alike(dataset.id.id, _address(elements), _alike)
        return status == lib.PENSTOCK_OK and bool(_alike[0])


def refuse_misread(dataset: Any, argument: Any) -> None:
    """Raise an error if h5py would read other elements than ``dataset[argument]``.

    The caller holds the lock until h5py has read.
    """
    if not dataset.shape or not is_virtual(dataset):
        return
    elements = selections.select(dataset, dataset.shape, selections.split(argument)[0]).elements
    if not is_read_alike(dataset, elements):
        check(lib.penstock_virtual_check(dataset.id.id, _address(elements)))


def _address(elements: Any) -> CData:
    return NULL if elements is None else ffi.cast("penstock_selection *", elements.selection)
