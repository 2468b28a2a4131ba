"""Requests of the native library on HDF5 datasets."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from penstock import request, transfer
from penstock._native import NULL, CData, ffi, lib, new_report, pointer
from penstock.arrays import View
from penstock.errors import Error, check
from penstock.hdf5_library import lock
from penstock.request import Finished, Request
from penstock.selection import Selected

A = TypeVar("A")

# Writes that may not be finished, by the identifier of their file. They need HDF5 now and then,
# so whoever goes on with the file must have them finished first.
_writes: WeakKeyDictionary[Request[Any], int] = WeakKeyDictionary()


# Bytes of host memory that one call moves: its thread takes part, and none has to be woken.
_AT_ONCE = 64 << 20


class Memory(NamedTuple):
    """An array as HDF5 and the library see it."""

    view: View
    type: Any
    """The ``h5py.h5t.TypeID`` of an element."""
    strides: tuple[int, ...] | None
    """Bytes from one element to the next in each dimension; ``None`` for C order."""


def submit(
    operation: int,
    dataset: Any,
    selected: Selected,
    memory: Memory,
    options: CData,
    *,
    explicit_stream: bool,
    waits: bool,
    array: A,
) -> Request[A]:
    """Start to move the selected elements of a dataset from or to an array."""
    view = memory.view
    reading = operation == request.READ
    if waits and view.device < 0 and memory.strides is None and view.nbytes <= _AT_ONCE:
        return _run(reading, dataset, selected, memory, options, array)
    described = ffi.new("penstock_array *")
    described.struct_size = ffi.sizeof("penstock_array")
    described.data = pointer(view.pointer)
    described.type = memory.type.id
    described.rank = len(selected.shape)
    shape = ffi.new("uint64_t[]", selected.shape)
    strides = NULL if memory.strides is None else ffi.new("int64_t[]", memory.strides)
    described.shape, described.strides = shape, strides
    flags = transfer.stream_flags(view.stream, explicit=explicit_stream)
    start = lib.penstock_dataset_read_submit if reading else lib.penstock_dataset_write_submit
    made = ffi.new("penstock_request **")
    with lock():
        check(
            start(
                dataset.id.id,
                _space_id(selected.space),
                described,
                options,
                NULL if view.stream is None else pointer(view.stream),
                flags | (request.CALLER_WAITS if waits else 0),
                made,
            )
        )
        started = Request(made[0], array, (view, dataset), None)
        if not reading:
            _writes[started] = _file_of(dataset)
    return started


def _run(
    reading: bool, dataset: Any, selected: Selected, memory: Memory, options: CData, array: A
) -> Finished[A]:
    """As submit, for C-contiguous host memory: done on return, with the lock held throughout."""
    import h5py

    space = None
    if selected.space is not None:
        shape = selected.shape
        space = h5py.h5s.create_simple(shape) if shape else h5py.h5s.create(h5py.h5s.SCALAR)
    move = lib.penstock_dataset_read if reading else lib.penstock_dataset_write
    done = new_report()
    with lock():
        check(
            move(
                dataset.id.id,
                memory.type.id,
                _space_id(space),
                _space_id(selected.space),
                0,
                pointer(memory.view.pointer),
                NULL,
                options,
                done,
            )
        )
    return Finished(array, done)


def _space_id(space: Any) -> int:
    return 0 if space is None else int(space.id)  # H5S_ALL


def settle(dataset: Any = None) -> None:
    """Wait for the writes under way to the file of a dataset, or to all files.

    What went wrong with them is told to those who wait for them.
    """
    if not _writes:
        return
    file = None if dataset is None else _file_of(dataset)
    for write, written in list(_writes.items()):
        if file is None or written == file:
            with suppress(Error):
                write.wait()
            _writes.pop(write, None)


def _file_of(item: Any) -> int:
    """HDF5's identifier of the open file of an object, which HDF5 does not use again."""
    import h5py

    return int(h5py.h5i.get_file_id(item.id).id)
