"""Requests of the native library on HDF5 datasets."""

from __future__ import annotations

import os
from time import perf_counter_ns
from typing import Any, NamedTuple, TypeVar

from penstock import request, transfer
from penstock._native import NULL, CData, ffi, lib, new_report, pointer
from penstock._options import OptionKeys, resolve
from penstock.arrays import View
from penstock.errors import check
from penstock.hdf5.library import lock, writable
from penstock.hdf5.selection import Selected
from penstock.request import Finished, Request
from penstock.streams import stream_handle, wait_for

A = TypeVar("A")


# Bytes of host memory that one call moves, with h5py's lock held throughout: its thread takes part,
# and none has to be woken. Other threads may read a file that nobody writes meanwhile, so the lock
# is held no longer than waking a worker is worth: decoding takes more time than copying does.
_AT_ONCE = 64 << 20
_AT_ONCE_READING = 8 << 20
_AT_ONCE_DECODING = 1 << 20


class Manner(NamedTuple):
    """What a caller says of how, judged before it is known who does it."""

    stream: int | None
    """The handle of the stream that was given."""
    options: CData
    began: int
    """When the call began, by ``perf_counter_ns``: reports count from there."""

    @classmethod
    def of(cls, stream: Any, options: OptionKeys) -> Manner:
        return cls(stream_handle(stream), resolve(options), perf_counter_ns())


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
    how: Manner,
    *,
    waits: bool,
    array: A,
) -> Request[A]:
    """Start to move the selected elements of a dataset from or to an array."""
    view = memory.view
    reading = operation == request.READ
    if waits and view.device < 0 and memory.strides is None and _is_short(dataset, view.nbytes):
        return _run(reading, dataset, selected, memory, how, array)
    described = ffi.new("penstock_array *")
    described.struct_size = ffi.sizeof("penstock_array")
    described.data = pointer(view.pointer)
    described.type = memory.type.id
    described.rank = len(selected.shape)
    shape = ffi.new("uint64_t[]", selected.shape)
    strides = NULL if memory.strides is None else ffi.new("int64_t[]", memory.strides)
    described.shape, described.strides = shape, strides
    flags = transfer.stream_flags(view.stream, explicit=how.stream is not None)
    start = lib.penstock_dataset_read_submit if reading else lib.penstock_dataset_write_submit
    with lock():
        return request.submit_with(
            lambda made: int(
                start(
                    dataset.id.id,
                    _space_id(selected.space),
                    described,
                    how.options,
                    NULL if view.stream is None else pointer(view.stream),
                    flags | (request.CALLER_WAITS if waits else 0),
                    made,
                )
            ),
            array,
            (view, dataset),
            before_ns=perf_counter_ns() - how.began,
        )


def _is_short(dataset: Any, nbytes: int) -> bool:
    """Whether the lock may be held while so many bytes of host memory are moved."""
    if not _AT_ONCE_DECODING < nbytes <= _AT_ONCE or writable(dataset):
        return nbytes <= _AT_ONCE
    decodes = dataset.id.get_create_plist().get_nfilters() > 0
    return nbytes <= (_AT_ONCE_DECODING if decodes else _AT_ONCE_READING)


def _run(
    reading: bool, dataset: Any, selected: Selected, memory: Memory, how: Manner, array: A
) -> Finished[A]:
    """As submit, for C-contiguous host memory: done on return, with the lock held throughout."""
    import h5py

    space = None
    if selected.space is not None:
        shape = selected.shape
        space = h5py.h5s.create_simple(shape) if shape else h5py.h5s.create(h5py.h5s.SCALAR)
    move = lib.penstock_dataset_read if reading else lib.penstock_dataset_write
    done = new_report()
    wait_for(memory.view.stream, memory.view.device)
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
                how.options,
                done,
            )
        )
    done.elapsed_ns = perf_counter_ns() - how.began
    return Finished(array, done)


def _space_id(space: Any) -> int:
    return 0 if space is None else int(space.id)  # H5S_ALL


unsettled = lib.penstock_hdf5_unsettled()
"""``unsettled[0]`` is 0 only if :func:`is_settled`, and takes no call to ask."""


def is_settled() -> bool:
    """Whether no request is under way, and no failure left to be told."""
    return not unsettled[0] or bool(lib.penstock_hdf5_is_settled())


def settle(dataset: Any, operation: int) -> None:
    """Wait for the requests that h5py's own access to a dataset comes after.

    The caller holds the lock until that access is over, so that nothing new starts before. What
    went wrong with the requests is told to those who wait for them, or when the file is closed.
    """
    if not is_settled():
        check(lib.penstock_dataset_settle(dataset.id.id, operation))


def settle_path(name: Any) -> None:
    """Wait for all requests of the file with this name, if it is one. The caller holds the lock."""
    if isinstance(name, (str, bytes, os.PathLike)) and not is_settled():
        check(lib.penstock_hdf5_settle_path(os.fsencode(name)))


def settle_file(item: Any) -> None:
    """Wait for all requests of the file of an object.

    Raises:
        Error: A write has failed, and nobody was told.
    """
    if not is_settled():
        with lock():
            check(lib.penstock_hdf5_settle(item.id.id))
