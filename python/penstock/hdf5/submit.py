"""Submission of transfers between the selected elements of a dataset and the memory of an array."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any, NamedTuple, TypeVar

from penstock import request, transfer
from penstock._native import NULL, CData, ffi, lib, new_report, pointer
from penstock._options import OptionKeys, resolve
from penstock.arrays import View
from penstock.errors import check
from penstock.hdf5.library import is_writable, lock
from penstock.hdf5.selection import Selection
from penstock.request import Finished, Request
from penstock.streams import stream_handle, wait_for

A = TypeVar("A")


# Up to so many bytes of host memory, a blocking transfer is one call that holds h5py's lock to its
# end: the calling thread takes part, and no worker has to be woken. While a file is open only for
# reading, other threads may use the lock to read it as well, so the call may take no longer than
# it saves by not waking a worker. Decoding takes longer than copying, so its limit is lower.
_ONE_CALL = 64 << 20
_ONE_CALL_READ_ONLY = 8 << 20
_ONE_CALL_DECODED = 1 << 20


class SubmitOptions(NamedTuple):
    """The stream and the options of a call, checked before anything else."""

    stream: int | None
    """The handle of the stream that the caller passed."""
    options: CData
    """The ``penstock_options *`` of the call, or NULL."""
    began: int
    """The start of the call by ``perf_counter_ns``, from which the report counts."""

    @classmethod
    def of(cls, stream: Any, options: OptionKeys) -> SubmitOptions:
        """Check the stream and the options of a call, which starts now."""
        return cls(stream_handle(stream), resolve(options), perf_counter_ns())


class TypedMemory(NamedTuple):
    """The memory of an array, with the HDF5 type of its elements."""

    view: View
    type: Any
    """The ``h5py.h5t.TypeID`` of an element."""
    strides: tuple[int, ...] | None
    """Bytes from one element to the next in each dimension; ``None`` for C order."""


def submit(
    operation: int,
    dataset: Any,
    selection: Selection,
    memory: TypedMemory,
    submit_options: SubmitOptions,
    *,
    blocking: bool,
    array: A,
) -> Request[A]:
    """Start to move the selected elements of a dataset from or to memory.

    Args:
        operation: ``request.READ`` or ``request.WRITE``.
        dataset: The ``h5py.Dataset``.
        selection: The elements in the dataset.
        memory: The elements in memory, in the selection's shape.
        submit_options: The stream and the options of the call.
        blocking: Whether the caller waits for the request before it does anything else.
        array: What the request returns when it is finished.
    """
    view = memory.view
    reading = operation == request.READ
    on_host = view.device < 0
    if blocking and on_host and memory.strides is None and _is_one_call(dataset, view.nbytes):
        return _move(reading, dataset, selection, memory, submit_options, array)
    described = ffi.new("penstock_array *")
    described.struct_size = ffi.sizeof("penstock_array")
    described.data = pointer(view.pointer)
    described.type = memory.type.id
    described.rank = len(selection.shape)
    shape = ffi.new("uint64_t[]", selection.shape)
    strides = NULL if memory.strides is None else ffi.new("int64_t[]", memory.strides)
    described.shape, described.strides = shape, strides
    flags = transfer.stream_flags(view.stream, explicit=submit_options.stream is not None)
    start = lib.penstock_dataset_read_submit if reading else lib.penstock_dataset_write_submit
    with lock():
        return request.submit_with(
            lambda made: int(
                start(
                    dataset.id.id,
                    _space_id(selection.space),
                    described,
                    submit_options.options,
                    NULL if view.stream is None else pointer(view.stream),
                    flags | (request.CALLER_WAITS if blocking else 0),
                    made,
                )
            ),
            array,
            (view, dataset),
            before_ns=perf_counter_ns() - submit_options.began,
            step_lock=lock(),
            holds_stream=bool(flags & request.STREAM_WAITS),
        )


def _is_one_call(dataset: Any, nbytes: int) -> bool:
    """Whether one call that holds the lock may move so many bytes of host memory."""
    if not _ONE_CALL_DECODED < nbytes <= _ONE_CALL or is_writable(dataset):
        return nbytes <= _ONE_CALL
    decodes = dataset.id.get_create_plist().get_nfilters() > 0
    return nbytes <= (_ONE_CALL_DECODED if decodes else _ONE_CALL_READ_ONLY)


def _move(
    reading: bool,
    dataset: Any,
    selection: Selection,
    memory: TypedMemory,
    submit_options: SubmitOptions,
    array: A,
) -> Finished[A]:
    """Move the elements in one call that holds the lock. The memory is C-contiguous host memory."""
    import h5py

    # Also for a whole dataset, which may have grown: another thread may refresh it before the call.
    shape = selection.shape
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
                _space_id(selection.space),
                0,
                pointer(memory.view.pointer),
                NULL,
                submit_options.options,
                done,
            )
        )
    done.elapsed_ns = perf_counter_ns() - submit_options.began
    return Finished(array, done)


def _space_id(space: Any) -> int:
    return 0 if space is None else int(space.id)  # 0 is H5S_ALL
