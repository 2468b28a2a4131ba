"""Transfers between a described array and memory: from slabs and arrays to requests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index as as_index
from typing import Any, TypeAlias

import numpy as np

from penstock import arrays, request, transfer
from penstock._native import NULL, CData, ffi, lib, new_report, pointer
from penstock.dist.description import Description, StoredArray, converts, number_code, place_of
from penstock.dtypes import ElementType, element_type
from penstock.errors import IncompatibleError, InvalidError, check
from penstock.files import NativeFile
from penstock.placement import Device, allocate, is_numpy
from penstock.records import converted
from penstock.request import Request

Ranges: TypeAlias = "tuple[range, ...]"
"""The indices of a slab along each dimension; each has the step 1."""


def ranges_of(slab: Any, shape: Sequence[int]) -> Ranges:
    """Return the indices of a slab, a tuple of slices. Missing dimensions are taken whole.

    Unlike in NumPy, a slab that ends outside the array is an error.
    """
    parts = slab if isinstance(slab, tuple) else (slab,)
    if Ellipsis in parts:
        at = parts.index(Ellipsis)
        missing = len(shape) - len(parts) + 1
        parts = (*parts[:at], *[slice(None)] * max(missing, 0), *parts[at + 1 :])
    if len(parts) > len(shape):
        raise InvalidError(f"the slab has {len(parts)} dimensions, the array {len(shape)}")
    found = []
    for part, side in zip((*parts, *[slice(None)] * (len(shape) - len(parts))), shape, strict=True):
        if not isinstance(part, slice) or part.step not in (None, 1):
            raise InvalidError(
                f"{part!r} is not a part of a slab", remedy="give slices without a step"
            )
        start = 0 if part.start is None else as_index(part.start)
        stop = side if part.stop is None else as_index(part.stop)
        if not 0 <= start <= stop <= side:
            raise InvalidError(
                f"the slab from {start} to {stop} is outside a dimension of length {side}"
            )
        found.append(range(start, stop))
    return tuple(found)


def lengths(ranges: Ranges) -> tuple[int, ...]:
    """Return the shape of a slab."""
    return tuple(map(len, ranges))


class Call:
    """The structs that the C API takes for a slab and the memory of an array.

    The library copies them, so they are needed only until the call returns.
    """

    def __init__(self, description: Description, ranges: Ranges, view: arrays.View) -> None:
        inner = description.dtype.shape
        strides = view.outer_strides(len(inner))
        shape = lengths(ranges)
        self._shape = ffi.new("uint64_t[]", shape)
        self._strides = NULL if strides is None else ffi.new("int64_t[]", strides)
        self.array = ffi.new("penstock_array *")
        self.array[0] = (
            ffi.sizeof("penstock_array"),
            pointer(view.pointer),
            number_code(view.dtype) if description.has_numbers else 0,
            len(shape),
            0,
            self._shape,
            self._strides,
        )
        self._axes = ffi.new("penstock_axis[]", [(r.start, 1, len(r), NULL) for r in ranges])
        self.selection: CData = ffi.new("penstock_selection *")
        self.selection.struct_size = ffi.sizeof("penstock_selection")
        self.selection.rank = len(ranges)
        self.selection.axes = self._axes


def read(
    stored: StoredArray,
    file: NativeFile | None,
    ranges: Ranges,
    *,
    out: Any,
    device: Device,
    dtype: Any,
    stream: int | None,
    options: CData,
) -> Any:
    """Read a slab into ``out`` or into a new array. ``file`` may be ``None`` for an empty slab."""
    description = stored.description
    inner = description.dtype.shape
    shape = lengths(ranges) + inner
    copy_back, is_new = None, out is None
    if out is None:
        wanted = element_wanted(description.dtype, device, dtype)
        out = allocate(shape, wanted, device, stream)
        view = arrays.view(out, stream)
    else:
        if dtype is not None:
            raise InvalidError("give out or dtype, not both: the elements become those of out")
        transfer.check_device(out, device)
        view = arrays.strided_destination(out, stream)
        if not view.is_dense(len(inner)):
            view, copy_back = arrays.destination(out, stream, keeps=True)
    if view.shape != shape:
        raise InvalidError(f"out has shape {view.shape}, and the slab has shape {shape}")
    check_type(description, view.dtype)
    if math.prod(shape):
        assert file is not None
        flags = request.CALLER_WAITS | (request.ZERO_HOLES if is_new else 0)
        transfer.finish(start_read(stored, file, ranges, view, options, flags=flags))
    transfer.complete(view, copy_back)
    return out


def start_read(
    stored: StoredArray,
    file: NativeFile,
    ranges: Ranges,
    view: arrays.View,
    options: CData,
    *,
    flags: int = request.CALLER_WAITS,
) -> Request[None]:
    """Start to read a slab that is not empty into the memory of a view of the slab's shape."""
    call = Call(stored.description, ranges, view)
    read = lib.penstock_stored_read_submit
    return _submit(read, file, stored, call, view, options, flags)


def write(
    stored: StoredArray, file: NativeFile, ranges: Ranges, view: arrays.View, options: CData
) -> None:
    """Write an array to a slab whose elements have storage."""
    call = Call(stored.description, ranges, view)
    transfer.finish(_submit(lib.penstock_stored_write_submit, file, stored, call, view, options))


def source(description: Description, ranges: Ranges, data: Any, stream: int | None) -> arrays.View:
    """Return the memory of the array for a slab, after a check of its shape and type."""
    # Bytes are one element of the dataset, not an array.
    is_element = isinstance(data, bytes) and description.dtype.base.kind == "S"
    view = None if is_element else arrays.find(data, stream)
    if view is None or (view.dtype.numpy is not None and view.dtype.numpy.kind in "UT"):
        view = arrays.view(made_from(description.name, data, description.dtype.base), stream)
    inner = description.dtype.shape
    shape = lengths(ranges) + inner
    if view.shape != shape:
        raise InvalidError(f"the array has shape {view.shape}, and the slab has shape {shape}")
    is_numpy = view.device < 0 and view.dtype.numpy is not None
    if is_numpy and not converts(description.dtype, view.dtype):
        base, given = description.dtype.base, view.dtype.numpy
        assert given is not None
        # NumPy would turn numbers into text, and truncate text and opaque elements.
        is_opaque = base.kind == given.kind == "V" and base.names is None
        if is_opaque or (base.kind == "S" and given.kind != "S"):
            raise _no_conversion(description.name, base, view.dtype.name)
        made = converted(view.array, description.dtype.base, casting="same_kind")
        view = arrays.view(made, stream)
    check_type(description, view.dtype)
    return view if view.is_dense(len(inner)) else arrays.source(view.array, stream)


def made_from(name: str, data: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return an array of a dataset's type from lists, or from NumPy's own strings.

    NumPy would turn numbers into text and truncate it, and text into numbers.
    """
    if dtype.kind == "S" or isinstance(data, (np.ndarray, np.generic)):
        given = np.asarray(data)
        if given.size and (dtype.kind != "S" or given.dtype.kind not in "SUT"):
            raise _no_conversion(name, dtype, given.dtype.name)
    return np.asarray(data, dtype=dtype)


class EncodedChunks:
    """Encoded chunks of a slab that have no storage yet."""

    def __init__(
        self, stored: StoredArray, ranges: Ranges, view: arrays.View, options: CData
    ) -> None:
        self._opened = place_of("penstock_encoded **", lib.penstock_encoded_close)
        call = Call(stored.description, ranges, view)
        done = new_report()
        check(
            lib.penstock_stored_encode(
                stored.handle,
                call.selection,
                call.array,
                options,
                NULL if view.stream is None else pointer(view.stream),
                transfer.stream_flags(view.stream, explicit=False) | request.CALLER_WAITS,
                done,
                self._opened,
            )
        )
        count = self._list(NULL, NULL, NULL, NULL)
        self.numbers = np.empty(count, np.uint64)
        self.sizes = np.empty(count, np.uint64)
        self.masks = np.empty(count, np.uint32)
        if count:
            self._list(
                ffi.from_buffer("uint64_t[]", self.numbers),
                ffi.from_buffer("uint64_t[]", self.sizes),
                ffi.from_buffer("uint32_t[]", self.masks),
                NULL,
            )

    def _list(self, *columns: CData) -> int:
        """Fill numbers, sizes, masks and addresses of the chunks; return their number."""
        count = ffi.new("uint64_t *")
        check(lib.penstock_encoded_list(self._opened[0], count, *columns))
        return int(count[0])

    def table(self) -> np.ndarray[Any, Any]:
        """Return number, size and mask of each chunk, a row each."""
        columns = (self.numbers, self.sizes, self.masks)
        return np.stack([column.astype(np.int64) for column in columns], axis=1)

    def data(self) -> np.ndarray[Any, Any]:
        """Return a copy of the bytes of all chunks, one after the other."""
        places = ffi.new("const void *[]", max(len(self.sizes), 1))
        self._list(NULL, NULL, NULL, places)
        found = np.empty(int(self.sizes.sum()), np.uint8)
        end = 0
        for size, place in zip(self.sizes.tolist(), places, strict=False):
            found[end : end + size] = np.frombuffer(ffi.buffer(place, size), np.uint8)
            end += size
        return found

    def write(self, file: NativeFile, addresses: np.ndarray[Any, Any], options: CData) -> None:
        """Write each chunk at its address."""
        given = np.ascontiguousarray(addresses, dtype=np.uint64)
        if not given.size:
            return
        transfer.finish(
            request.submit_with(
                lambda made: int(
                    lib.penstock_encoded_write_submit(
                        self._opened[0],
                        file.handle,
                        ffi.from_buffer("uint64_t[]", given),
                        len(given),
                        options,
                        made,
                    )
                ),
                None,
                (self, file),
            )
        )


def _submit(
    start: Any,
    file: NativeFile,
    stored: StoredArray,
    call: Call,
    view: arrays.View,
    options: CData,
    flags: int = request.CALLER_WAITS,
) -> Request[None]:
    after = NULL if view.stream is None else pointer(view.stream)
    flags |= transfer.stream_flags(view.stream, explicit=False)
    return request.submit_with(
        lambda made: int(
            start(
                file.handle, stored.handle, call.selection, call.array, options, after, flags, made
            )
        ),
        None,
        (view, stored, file),
    )


def element_wanted(stored: np.dtype[Any], device: Device, dtype: Any) -> ElementType:
    """Return the type of the elements of a new array for elements that are stored as ``stored``."""
    if dtype is not None:
        return element_type(dtype)
    base = stored.base
    # A structure is not converted, and so keeps the byte order of its fields.
    is_kept = is_numpy(device) or base.names is not None
    return element_type(base if is_kept else base.newbyteorder("="))


def check_type(description: Description, memory: ElementType) -> None:
    """Raise an error if the library does not convert between a file's elements and an array's."""
    if not converts(description.dtype, memory):
        raise _no_conversion(description.name, description.dtype, memory.name)


def _no_conversion(name: str, stored: np.dtype[Any], memory: str) -> IncompatibleError:
    return IncompatibleError(
        f"{name} has elements of type {stored}, for which there is no conversion from or to "
        f"{memory}",
        remedy="use an array of the type of the dataset",
    )
