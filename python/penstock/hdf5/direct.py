"""``read_direct`` and ``write_direct``: transfers between parts of a dataset and of an array."""

from __future__ import annotations

from typing import Any

from penstock import request
from penstock.dtypes import element_type
from penstock.hdf5 import by_h5py, memory_types, reading, writing
from penstock.hdf5 import selection as selections
from penstock.hdf5.library import is_virtual, lock, plain, wait_for_dataset


def read(dataset: Any, array: Any, source: Any, destination: Any) -> None:
    """Read the elements ``source`` of an ``h5py.Dataset`` into the elements of an array.

    h5py does what only its dataspaces can: broadcast, or fill elements that no view consists of.
    """
    if dataset.shape is None:
        raise TypeError("a dataset without data cannot fill an array")
    chosen = () if source is None else source
    part = array if destination is None else _part(array, destination)
    if part is not None and tuple(part.shape) == _shape(dataset, chosen):
        reading.read(dataset, chosen, out=part)
        return
    # h5py repeats elements by an offset of a dataspace, which HDF5 (2.0.0) ignores for virtual
    # datasets, and has HDF5 convert narrow integers wrongly.
    if is_virtual(dataset) or memory_types.has_narrow_integers(dataset.id.get_type()):
        is_plain = array.dtype.kind in "biufcV" and not array.dtype.hasobject
        wanted = array.dtype if is_plain else None
        if is_plain:
            stored = selections.stored_type(dataset, chosen).base
            by_h5py.refuse_more_fields(stored, element_type(wanted))
        found = reading.read(dataset, chosen, dtype=wanted)
        array[() if destination is None else destination] = found
        return
    with lock():
        wait_for_dataset(dataset, request.READ)
        plain(dataset).read_direct(array, source, destination)


def write(dataset: Any, array: Any, source: Any, destination: Any) -> None:
    """Write the elements ``source`` of an array to the elements of an ``h5py.Dataset``."""
    if dataset.shape is None:
        raise TypeError("a dataset without data cannot be written to")
    part = array if source is None else array[source]
    writing.write(dataset, part, () if destination is None else destination)


def _part(array: Any, index: Any) -> Any:
    """Return the view of selected elements of an array; ``None`` if the index makes a copy."""
    parts = index if isinstance(index, tuple) else (index,)
    is_basic = all(part is Ellipsis or isinstance(part, slice) for part in parts)
    return array[index] if is_basic else None


def _shape(dataset: Any, index: Any) -> tuple[int, ...]:
    """Return the shape of the selected elements, in which those of an array type are counted."""
    inner: tuple[int, ...] = dataset.dtype.shape
    if not dataset.shape:
        return inner
    indices, names = selections.split(index)
    if names:
        return ()
    return selections.select(dataset, dataset.shape, indices).shape + inner
