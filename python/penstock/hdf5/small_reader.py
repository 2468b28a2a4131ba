"""Small reads of datasets that cannot change: by one native call, without HDF5 and its lock."""

from __future__ import annotations

import math
import os
from threading import local
from time import perf_counter_ns
from typing import Any, Final

import numpy as np

from penstock import frameworks, request
from penstock._native import NULL, CData, ffi, lib, new_report, pointer
from penstock._options import resolve
from penstock.device_array import DeviceArray
from penstock.dtypes import element_type
from penstock.errors import check
from penstock.hdf5 import memory_types
from penstock.hdf5.library import is_writable, lock
from penstock.placement import Device, allocate
from penstock.report import remember
from penstock.request import Request

MOST: Final = 1 << 20
"""The most bytes of such a read. The library itself decides whether it is one."""

_MOST_DIMENSIONS: Final = 32
_AFTER_STREAM: Final = request.CALLER_WAITS | request.AFTER_STREAM
_NO_READER: Final = (None, None)
_NO_KEYS: Final[dict[str, Any]] = {}
_FOR_OTHERS: Final = (lib.PENSTOCK_PENDING, lib.PENSTOCK_ERR_FORKED)
"""What a reader returns for reads of another kind, and in a forked child, where h5py reads."""


class _Call:
    """What a call passes to the library."""

    __slots__ = ("address", "array", "axes", "selection", "shape")

    def __init__(self) -> None:
        self.axes = ffi.new("penstock_axis[]", _MOST_DIMENSIONS)
        self.selection = ffi.new("penstock_selection *")
        self.selection.struct_size = ffi.sizeof("penstock_selection")
        self.selection.axes = self.axes
        self.shape = ffi.new("uint64_t[]", _MOST_DIMENSIONS)
        self.array = ffi.new("penstock_array *")
        self.array.struct_size = ffi.sizeof("penstock_array")
        self.array.shape = self.shape
        # An integer is stored faster than it becomes a pointer.
        self.address = ffi.cast("uintptr_t *", ffi.addressof(self.array[0], "data"))


class _Calls(local):
    """A thread's :class:`_Call`, while no call uses it.

    A signal handler, or whatever else runs between two steps of a call, may read as well, and then
    finds none.
    """

    def __init__(self) -> None:
        self.idle: _Call | None = _Call()

    def take(self) -> _Call:
        call, self.idle = self.idle, None
        return call or _Call()


_calls = _Calls()


class SmallReader:
    """Reads what integers and slices select of a dataset of a file that is open for reading."""

    def __init__(self, dataset: Any, shape: tuple[int, ...], stored: np.dtype[Any]) -> None:
        self._dataset = dataset
        self._id = dataset.id
        self._shape = shape
        self._stored = stored
        self._itemsize: int = stored.itemsize
        self._readers: dict[Any, tuple[CData | None, Any]] = {}
        """By the type of an array: a ``penstock_reader *`` and the ``h5py.h5t.TypeID``, if any."""
        self._torch_dtype: Any = None

    @classmethod
    def of(cls, dataset: Any) -> SmallReader | None:
        """Return a reader; ``None`` if the dataset may change, or has no numbers."""
        if is_writable(dataset):
            return None
        shape, stored = dataset.shape, dataset.dtype
        is_plain = shape and stored.kind in "iuf" and not stored.metadata
        return cls(dataset, shape, stored) if is_plain else None

    def read(self, selection: Any) -> Any | None:
        """Return the elements in a new NumPy array, or a scalar; ``None`` if they are not small."""
        began = perf_counter_ns()
        call = _calls.take()
        try:
            shape = self._select(selection, call)
            if shape is None or math.prod(shape) * self._itemsize > MOST:
                return None
            out = np.empty(shape, self._stored)
            if not self._read_host(out, call, began):
                return None
            return out if shape else out[()]
        finally:
            _calls.idle = call

    def read_to(self, selection: Any, device: Device) -> Any | None:
        """Return the elements in a new array on a GPU; ``None`` if they are not small."""
        began = perf_counter_ns()
        call = _calls.take()
        try:
            shape = self._select(selection, call)
            if shape is None or math.prod(shape) * self._itemsize > MOST:
                return None
            out = self._allocate(shape, device)
            if out is None:
                return None
            if type(out) is DeviceArray:
                return out if self._read_gpu(shape, out, call, began) else None
            reader, kind = self._readers.get(out.dtype) or self._open(out.dtype)
            if reader is None or request.has_stream_holders():
                return None
            call.address[0] = out.data_ptr()
            call.array.type = kind.id
            return out if self._move_after(reader, call, out, began) else None
        finally:
            _calls.idle = call

    def read_into(self, selection: Any, out: Any) -> bool:
        """Fill an array of NumPy, or one on a GPU: a tensor of torch, or a ``DeviceArray``.

        Returns false if the elements are not small, or other than those of the array.
        """
        began = perf_counter_ns()
        call = _calls.take()
        try:
            shape = self._select(selection, call)
            if shape is None:
                return False
            if type(out) is not np.ndarray:
                return self._read_gpu(shape, out, call, began)
            if out.shape != shape or not out.flags.carray or out.nbytes > MOST:
                return False
            return self._read_host(out, call, began)
        finally:
            _calls.idle = call

    def read_async(self, selection: Any, out: Any) -> Request[Any] | None:
        """Start to fill an array on a GPU; ``None`` if the elements are not those of the array."""
        began = perf_counter_ns()
        call = _calls.take()
        try:
            shape = self._select(selection, call)
            if shape is None or self._describe(shape, out, call) is None:
                return None
            made = self._submit(out, call, began)
        finally:
            _calls.idle = call
        if type(out) is not DeviceArray:
            frameworks.note_write(frameworks.loaded("torch"), out)
        return made

    def _submit(self, out: Any, call: _Call, began: int) -> Request[Any]:
        is_torch = type(out) is not DeviceArray
        pending = frameworks.torch_pending(out.get_device()) if is_torch else None
        stream = NULL if pending is None else pointer(pending)
        flags = 0 if pending is None else request.AFTER_STREAM
        options = resolve(_NO_KEYS)
        with lock():
            return request.submit_with(
                lambda place: int(
                    lib.penstock_dataset_read_selected(
                        self._id.id,
                        call.selection,
                        call.array,
                        options,
                        stream,
                        flags,
                        NULL,
                        place,
                    )
                ),
                out,
                (out, self._dataset),
                before_ns=perf_counter_ns() - began,
                step_lock=lock(),
            )

    def _read_host(self, out: np.ndarray[Any, Any], call: _Call, began: int) -> bool:
        reader, _ = self._readers.get(out.dtype) or self._open(out.dtype)
        if reader is None:
            return False
        call.array.data = ffi.from_buffer(out, require_writable=True)
        return self._move(reader, call, NULL, request.CALLER_WAITS, began)

    def _read_gpu(self, shape: tuple[int, ...], out: Any, call: _Call, began: int) -> bool:
        reader = self._describe(shape, out, call)
        if reader is None or out.nbytes > MOST or request.has_stream_holders():
            return False
        if type(out) is DeviceArray:
            return self._move(reader, call, NULL, request.CALLER_WAITS, began)
        if not self._move_after(reader, call, out, began):
            return False
        frameworks.note_write(frameworks.loaded("torch"), out)
        return True

    def _move_after(self, reader: CData, call: _Call, tensor: Any, began: int) -> bool:
        """Move the elements after the work that is queued on torch's current stream."""
        handle = frameworks.torch_stream(frameworks.loaded("torch"), tensor.get_device())
        stream = pointer(handle) if handle else NULL
        return self._move(reader, call, stream, _AFTER_STREAM, began)

    def _move(self, reader: CData, call: _Call, stream: CData, flags: int, began: int) -> bool:
        report = new_report()
        status = lib.penstock_reader_read(
            reader, call.selection, call.array, resolve(_NO_KEYS), stream, flags, report
        )
        # Another thread may have closed the file meanwhile: then it is an error, as told elsewhere.
        if status in _FOR_OTHERS or not self._id.id:
            return False
        if status:
            check(status)
        report.elapsed_ns = perf_counter_ns() - began
        remember(report)
        return True

    def _allocate(self, shape: tuple[int, ...], device: Device) -> Any | None:
        """Return a new array on a GPU; ``None`` for a device that is none."""
        if type(device) is not str or not device.startswith("cuda"):
            return None
        if self._torch_dtype is None or os.environ.get("PENSTOCK_ARRAYS", "torch") != "torch":
            out = allocate(shape, element_type(self._stored.newbyteorder("=")), device)
            if frameworks.is_torch(out):
                self._torch_dtype = out.dtype
            return out
        torch = frameworks.loaded("torch")
        assert torch is not None
        return torch.empty(shape, dtype=self._torch_dtype, device=device)

    def _describe(self, shape: tuple[int, ...], out: Any, call: _Call) -> CData | None:
        """Describe an array on a GPU to the library and return the reader for its type.

        ``None`` for what a reader cannot fill.
        """
        if type(out) is DeviceArray:
            address = out.data_ptr
        else:
            torch = frameworks.loaded("torch")
            if torch is None or type(out) is not torch.Tensor or not out.is_cuda:
                return None
            if not out.is_contiguous() or out.is_neg():
                return None
            address = out.data_ptr()
        reader, kind = self._readers.get(out.dtype) or self._open(out.dtype)
        if reader is None or out.shape != shape:
            return None
        call.address[0] = address
        call.array.type = kind.id
        return reader

    def _select(self, selection: Any, call: _Call) -> tuple[int, ...] | None:
        """Describe what integers and slices select, and return its shape; ``None`` for others."""
        parts = selection if type(selection) is tuple else (selection,)
        given = len(parts)
        if given > len(self._shape) or not self._id.id:  # h5py clears it when the file is closed
            return None
        axes, result = call.axes, call.shape
        shape: list[int] = []
        for number, size in enumerate(self._shape):
            axis = axes[number]
            if number >= given:
                axis.start, axis.step, axis.count = 0, 1, size
            else:
                part = parts[number]
                if type(part) is int:
                    if not -size <= part < size:
                        return None
                    axis.start, axis.step, axis.count = part % size, 1, 1
                    continue
                if type(part) is not slice:
                    return None
                try:
                    indices = range(*part.indices(size))
                except (TypeError, ValueError):
                    return None
                if indices.step < 1:
                    return None
                axis.start, axis.count = indices.start, len(indices)
                # The step of one index means nothing, and may be larger than 64 bits.
                axis.step = indices.step if axis.count > 1 else 1
                size = len(indices)
            if size == 0:
                return None
            result[len(shape)] = size
            shape.append(size)
        call.selection.rank = len(self._shape)
        call.array.rank = len(shape)
        return tuple(shape)

    def _open(self, dtype: Any) -> tuple[CData | None, Any]:
        """Return the reader of elements of a type of NumPy or torch, and the HDF5 type."""
        self._readers[dtype] = _NO_READER
        wanted = element_type(dtype)
        kind = memory_types.memory_type(wanted, self._stored)
        if kind is None or memory_types.needs_numpy(self._stored, wanted.numpy):
            return _NO_READER
        place = ffi.new("penstock_reader **")
        with lock():
            status = lib.penstock_reader_open(self._id.id, kind.id, place)
        if status not in _FOR_OTHERS:
            check(status)
        if place[0] == NULL:
            return _NO_READER
        self._readers[dtype] = found = (ffi.gc(place[0], lib.penstock_reader_close), kind)
        return found


def read_once(
    dataset: Any, kind: Any, selection: CData, array: CData, options: CData, stream: int | None
) -> CData | None:
    """Read selected elements of an ``h5py.Dataset`` on this thread, without HDF5's lock.

    Args:
        dataset: The dataset.
        kind: The ``h5py.h5t.TypeID`` of an element in memory.
        selection: The ``penstock_selection *``, or NULL for all elements.
        array: The ``penstock_array *`` to fill.
        options: The ``penstock_options *`` of the call, or NULL.
        stream: The stream whose queued work precedes the read.

    Returns:
        The ``penstock_report``; ``None`` if workers, or HDF5, are to carry out the read.
    """
    place = ffi.new("penstock_reader **")
    with lock():
        status = lib.penstock_reader_open(dataset.id.id, kind.id, place)
    if status not in _FOR_OTHERS:
        check(status)
    if place[0] == NULL:
        return None
    flags = request.CALLER_WAITS if stream is None else _AFTER_STREAM
    handle = NULL if stream is None else pointer(stream)
    report = new_report()
    try:
        status = lib.penstock_reader_read(
            place[0], selection, array, options, handle, flags, report
        )
    finally:
        lib.penstock_reader_close(place[0])
    if status in _FOR_OTHERS:
        return None
    check(status)
    return report
