"""Submission of transfers between the selected elements of a dataset and the memory of an array."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any, NamedTuple, TypeVar

from penstock import request, transfer
from penstock._native import NULL, CData, ffi, lib, new_report, pointer
from penstock._options import OptionKeys, resolve
from penstock.arrays import View, c_strides
from penstock.errors import check
from penstock.hdf5 import dropped, small
from penstock.hdf5.library import lock
from penstock.hdf5.selection import Selection
from penstock.request import Finished, Request
from penstock.streams import stream_handle, wait_for

A = TypeVar("A")


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
    rules: CData | None = None
    """The ``penstock_decoding`` of a read; ``None`` if it converts by HDF5's rules."""


def submit(
    operation: int,
    dataset: Any,
    selection: Selection,
    memory: TypedMemory,
    submit_options: SubmitOptions,
    *,
    blocking: bool,
    may_change: bool,
    array: A,
    is_new: bool = False,
) -> Request[A]:
    """Start to move the selected elements of a dataset from or to memory.

    Args:
        operation: ``request.READ`` or ``request.WRITE``.
        dataset: The ``h5py.Dataset``.
        selection: The elements in the dataset.
        memory: The elements in memory, in the selection's shape.
        submit_options: The stream and the options of the call.
        blocking: Whether the caller waits for the request before it does anything else.
        may_change: Whether the file is open for writing.
        array: What the request returns when it is finished.
        is_new: Whether the memory has never been written, so that a read may leave none of it.
    """
    view = memory.view
    reading = operation == request.READ
    is_plain = selection.parsed is None and memory.strides is None
    holes = request.ZERO_HOLES if is_new else 0
    is_one_call = blocking and is_plain and view.device < 0
    if is_one_call and _is_one_call(selection, view.nbytes, may_change=may_change):
        return _move(reading, dataset, selection, memory, submit_options, array, holes)
    described = Described(selection, memory)
    flags = transfer.stream_flags(view.stream, explicit=submit_options.stream is not None)
    parsed = selection.parsed
    start = _start_of(reading, by_space=parsed is not None)
    which = described.selection if parsed is None else int(parsed.id.id)
    # Only the functions without a dataspace have a report.
    report = (NULL,) if parsed is None else ()
    on_loss = request.warn if reading else dropped.keeper(dataset)

    with lock():
        return request.submit_with(
            lambda made: int(
                start(
                    dataset.id.id,
                    which,
                    described.array,
                    submit_options.options,
                    NULL if view.stream is None else pointer(view.stream),
                    flags | holes | (request.CALLER_WAITS if blocking else 0),
                    *report,
                    made,
                )
            ),
            array,
            (view, dataset),
            before_ns=perf_counter_ns() - submit_options.began,
            step_lock=lock(),
            holds_stream=bool(flags & request.STREAM_WAITS),
            on_loss=on_loss,
        )


class Described:
    """What a call of the C API takes for a selection and the memory of an array.

    The library copies it, so it has to live only until the call returns.
    """

    def __init__(self, selection: Selection, memory: TypedMemory) -> None:
        shape, strides = selection.shape, memory.strides
        found = self._elements = selection.elements
        self.selection: CData = NULL
        if found is not None:
            self.selection = ffi.cast("penstock_selection *", found.selection)
            if found.order is not None:
                # The library wants the dimensions in the dataset's order.
                strides = strides or c_strides(shape, memory.type.get_size())
                strides = tuple(strides[at] for at in found.order)
            shape = found.lengths
        self.array = ffi.new("penstock_array *")
        self._rules = memory.rules
        self._shape = ffi.new("uint64_t[]", shape)
        self._strides = NULL if strides is None else ffi.new("int64_t[]", strides)
        self.array[0] = (
            ffi.sizeof("penstock_array"),
            pointer(memory.view.pointer),
            memory.type.id,
            len(shape),
            0,
            self._shape,
            self._strides,
            NULL if memory.rules is None else memory.rules,
        )


def _start_of(reading: bool, *, by_space: bool) -> Any:
    """Return the function of the C API that starts a transfer."""
    if by_space:
        return lib.penstock_dataset_read_submit if reading else lib.penstock_dataset_write_submit
    if reading:
        return lib.penstock_dataset_read_selected
    return lib.penstock_dataset_write_selected


def _is_one_call(selection: Selection, nbytes: int, *, may_change: bool) -> bool:
    """Whether one call that holds the lock to its end may move these bytes of host memory.

    The calling thread takes part, and no worker has to be woken. While a file is open only for
    reading, other threads may use the lock to read it as well, so fewer bytes may hold it up.
    """
    if nbytes > (small.ROWS if may_change else small.DECODED):
        return False
    return not nbytes or selection.span * (nbytes // selection.size) <= small.SPAN


def _move(
    reading: bool,
    dataset: Any,
    selection: Selection,
    memory: TypedMemory,
    submit_options: SubmitOptions,
    array: A,
    holes: int,
) -> Finished[A]:
    """Move the elements in one call that holds the lock.

    The memory is C-contiguous host memory. The selection is not one that h5py has parsed.
    """
    view = memory.view
    described = Described(selection, memory)
    move = _start_of(reading, by_space=False)
    done = new_report()
    wait_for(view.stream, view.device)
    with lock():
        check(
            move(
                dataset.id.id,
                described.selection,
                described.array,
                submit_options.options,
                NULL,
                request.CALLER_WAITS | holes,
                done,
                NULL,
            )
        )
    done.elapsed_ns = perf_counter_ns() - submit_options.began
    return Finished(array, done)
