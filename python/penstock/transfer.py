"""Loading and saving arrays as the plain bytes of a file."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable
from typing import Any, SupportsIndex, TypeVar

import numpy as np

from penstock import arrays, report, request
from penstock._core import load as load_at_once
from penstock._core import save as save_at_once
from penstock._native import NULL, CData, address, ffi, lib, new_report, pointer
from penstock._options import OptionKeys, Unpack, resolve
from penstock.dtypes import ElementType, element_type
from penstock.errors import EndOfFileError, Error, InvalidError, check
from penstock.files import READ, NativeFile, Path, encode
from penstock.native_calls import library
from penstock.placement import HOST, Device, Library, allocate, parse_device, place
from penstock.request import Request
from penstock.request_group import RequestGroup
from penstock.shapes import Shape, lengths_of
from penstock.streams import is_idle, stream_handle

A = TypeVar("A")

RANGE = np.dtype([("offset", "u8"), ("length", "u8"), ("buffer", "u8")])
"""A ``penstock_range``."""

AT_ONCE = 8 << 20
"""The most bytes of a call that nothing can interrupt, for datasets by ``small.ROWS``. Larger
transfers are requests: Ctrl-C ends the wait for a request."""


def load(
    path: Path,
    *,
    dtype: object = None,
    shape: Shape | None = None,
    offset: SupportsIndex = 0,
    device: Device = None,
    out: Any = None,
    stream: Any = None,
    like: Library | None = None,
    pin: bool = False,
    **options: Unpack[OptionKeys],
) -> Any:
    """Read an array from the plain bytes of a file.

    Args:
        path: The file.
        dtype: Data type of the elements, ``"uint8"`` by default: a NumPy or torch type, or a name
            such as ``"bfloat16"``.
        shape: Lengths of the dimensions in C order; one may be -1. By default, the whole file
            from ``offset`` on, as one dimension.
        offset: Bytes of the file to skip.
        device: ``"cpu"`` (the default) for a NumPy array; ``"cuda"`` or ``"cuda:1"`` for a torch
            tensor if torch can use the GPU, else a CuPy array, else a
            :class:`penstock.DeviceArray`. ``PENSTOCK_ARRAYS=torch|cupy|device`` chooses one.
            ``torch.device("cpu")`` is for a torch tensor in host memory.
        out: An array to fill, instead of a new one on ``device``. Its length says how much is
            read. One that is not C-contiguous is filled through a temporary.
        stream: A CUDA stream whose queued work must finish before the memory is used. For arrays
            of torch or CuPy, the default is their current stream; for others, all work that
            their library has queued on the array.
        like: The library of a new array: ``"numpy"``, ``"torch"``, ``"cupy"``, ``"jax"`` or
            ``"device"`` for a :class:`penstock.DeviceArray`.
        pin: Whether a new array in host memory is page-locked, so that its copy to a GPU is fast
            and need not be waited for.
        **options: See :class:`penstock.OptionKeys`.

    Returns:
        ``out``, or the new array. It is complete: work on any stream may use it.

    Raises:
        NotFoundError: The file does not exist.
        EndOfFileError: The file ends before the array does.
        InvalidError: ``out`` is read-only or requires grad, does not match ``dtype`` or ``shape``,
            or the rest of the file is not a whole number of elements.
        IncompatibleError: ``out`` is not an array, or its type or layout cannot be filled.

    >>> t = ps.load("w.bin", dtype="float32", shape=(4096, 4096), device="cuda")
    >>> ps.load("w.bin", out=t, offset=4096)
    """
    native_options = resolve(options)
    start, at = offset_of(offset), 0 if native_options is NULL else address(native_options)
    is_alone = dtype is shape is device is stream is like is None and not pin
    if is_alone and out is not None and load_at_once(library(), path, out, start, at, AT_ONCE):
        return out
    after = stream_handle(stream)
    device = place(device, like, pin, out)
    with NativeFile(path, READ) as file:
        if out is None:
            out = _new_array(file, path, dtype, shape, start, device, after)
            if after is None and file.fill(out, start, at, AT_ONCE):
                return out
            view, copy_back = arrays.new(out, after), None
        else:
            check_device(out, device)
            view, copy_back = arrays.destination(out, after)
            _check_shape(view, dtype, shape)
        read_into(file, view, start, native_options)
    complete(view, copy_back)
    return out


def save(path: Path, array: Any, *, stream: Any = None, **options: Unpack[OptionKeys]) -> None:
    """Replace a file by the plain bytes of an array, in C order.

    A reader sees the old file or the new one, never a part. With ``durable=True``, the new file
    also survives a power failure, unless an error says that it is in place but may not survive
    one. Without, a power failure within some seconds may leave a file of zeros. After any other
    error, the old file is still there.

    The new file has the mode and the ``user.*`` attributes of the old one, its ACL if that is a
    POSIX ACL or can be copied as an extended attribute (NFSv4), and its owner and group where the
    process may set them. setuid and setgid bits are cleared. If the group or the ACL cannot be
    kept, the group and others each get only the permissions that both had. An ACL that is no
    extended attribute, such as a native one of GPFS, is not kept. Other hard links of the old file
    keep the old contents. A symbolic link stays, and the file behind it is replaced.

    Args:
        path: The file. Only a regular file that the caller may write is replaced.
        array: Any array on the CPU or a GPU. One that is not C-contiguous is copied first.
        stream: A CUDA stream whose queued work fills the array. For arrays of torch or CuPy, the
            default is their current stream; for others, all work that their library has queued
            on the array.
        **options: See :class:`penstock.OptionKeys`.

    Raises:
        NotFoundError: The folder does not exist.
        PermissionDeniedError: The caller may not write the old file, or make one in the folder.
        NoSpaceError: The file system is full. The old file is still there.
        IncompatibleError: ``array`` is not an array, or holds Python objects.

    >>> ps.save("w.bin", t, durable=True)
    """
    native_options = resolve(options)
    after, at = stream_handle(stream), 0 if native_options is NULL else address(native_options)
    if after is None and save_at_once(library(), path, array, at, AT_ONCE):
        return
    view = arrays.source(array, after)
    if not save_at_once(library(), path, view, at, AT_ONCE):
        finish(_save_request(path, view, native_options, array, flags=request.CALLER_WAITS))


def load_async(
    path: Path,
    *,
    dtype: object = None,
    shape: Shape | None = None,
    offset: SupportsIndex = 0,
    device: Device = None,
    out: Any = None,
    stream: Any = None,
    like: Library | None = None,
    pin: bool = False,
    **options: Unpack[OptionKeys],
) -> Request[Any]:
    """Start what :func:`load` does, and return at once.

    With a ``stream``, the transfer starts after the work queued there, and later work on that
    stream starts after the transfer, so the host need not wait. ``out`` must be C-contiguous.

    >>> r = ps.load_async("w.bin", out=t, stream=torch.cuda.current_stream())
    >>> model(t)        # queued on the same stream: sees the data
    >>> r.wait()        # raises if the transfer failed
    """
    after = stream_handle(stream)
    native_options = resolve(options)
    at = offset_of(offset)
    device = place(device, like, pin, out)
    file = NativeFile(path, READ)
    if out is None:
        out = _new_array(file, path, dtype, shape, at, device, after)
        view = arrays.new(out, after)
    else:
        check_device(out, device)
        view = arrays.contiguous_destination(out, after)
    _check_shape(view, dtype, shape)
    ranges = request.one_range(at, view.pointer, view.nbytes)
    keys: Any = {"array": out, "flags": 0, "explicit": stream is not None}
    made = start(file, request.READ, ranges, native_options, stream=view.stream, keep=view, **keys)
    arrays.note_write(view)
    return made


def save_async(
    path: Path, array: A, *, stream: Any = None, **options: Unpack[OptionKeys]
) -> Request[A]:
    """Start what :func:`save` does, and return at once. The array must not change meanwhile.

    With a ``stream``, the transfer starts after the work queued there, and later work on that
    stream starts after the transfer.

    >>> r = ps.save_async("w.bin", t)
    >>> r.wait()
    """
    view = arrays.source(array, stream_handle(stream))
    return _save_request(path, view, resolve(options), array, explicit=stream is not None)


def read_into(file: NativeFile, out: Any, offset: int, options: CData) -> None:
    """Fill the memory of a view, or a C-contiguous array of NumPy, from a file."""
    if not file.fill(out, offset, 0 if options is NULL else address(options), AT_ONCE):
        view = out if isinstance(out, arrays.View) else arrays.view(out)
        ranges = request.one_range(offset, view.pointer, view.nbytes)
        move(file, request.READ, ranges, view, options)


def move(
    file: NativeFile, operation: int, ranges: CData, view: arrays.View, options: CData
) -> None:
    """Move ranges between a file and the memory of a view; return when the move is complete."""
    if view.nbytes <= AT_ONCE and _is_ready(view):
        done = new_report()
        call = lib.penstock_readv if operation == request.READ else lib.penstock_writev
        check(call(file.handle, ranges, len(ranges), options, done))
        report.remember(done)
        return
    finish(start(file, operation, ranges, options, stream=view.stream, keep=view))


def _is_ready(view: arrays.View) -> bool:
    """Whether no work is queued on memory of a GPU, nor is a stream given for that of the host."""
    return view.stream is None or (view.device >= 0 and is_idle(view.stream, view.device))


def start(
    file: NativeFile,
    operation: int,
    ranges: CData | np.ndarray[Any, Any],
    options: CData,
    *,
    stream: int | None,
    keep: object,
    array: Any = None,
    flags: int = request.CALLER_WAITS,
    explicit: bool = False,
) -> Request[Any]:
    """Start to move ranges after the work queued on a stream, as :func:`stream_flags` says.

    By default, the caller does nothing but wait for the request.
    """
    ranges = native_ranges(ranges) if isinstance(ranges, np.ndarray) else ranges
    flags |= stream_flags(stream, explicit=explicit)
    where = file, operation, ranges, options
    return request.submit(*where, stream=stream, flags=flags, array=array, keep=keep)


def native_ranges(ranges: np.ndarray[Any, Any]) -> CData:
    """Return an array of :data:`RANGE` for a call, which copies the ranges."""
    return ffi.from_buffer("penstock_range[]", ranges)


def complete(view: arrays.View, copy_back: Callable[[], None] | None) -> None:
    """Finish a filled array: copy the temporary back, or record the write in the framework."""
    if copy_back is not None:
        copy_back()
        report.remember_note("the array is not C-contiguous: filled through a temporary")
    else:
        arrays.note_write(view)


def finish(made: Request[A]) -> A:
    """Wait for the request of a synchronous call, and make its report the last one.

    If the wait is interrupted, cancel the request, wait until it has ended, and raise.
    """
    try:
        array = made.wait()
    except Error:
        raise
    except BaseException:
        RequestGroup([made]).stop()
        raise
    report.remember(made.account())
    return array


def _save_request(
    path: Path,
    view: arrays.View,
    options: CData,
    array: A,
    *,
    explicit: bool = False,
    flags: int = 0,
) -> Request[A]:
    encoded = encode(path)
    stream = NULL if view.stream is None else pointer(view.stream)
    flags |= stream_flags(view.stream, explicit=explicit)
    return request.submit_with(
        lambda made: int(
            lib.penstock_save_submit(
                encoded, pointer(view.pointer), view.nbytes, options, stream, flags, made
            )
        ),
        array,
        view,
        on_loss=request.print_error,
    )


def stream_flags(stream: int | None, *, explicit: bool) -> int:
    """Return the flags that order a request after a stream.

    If the caller passed the stream (``explicit``), its later work also waits for the request.
    """
    if stream is None:
        return 0
    return request.AFTER_STREAM | (request.STREAM_WAITS if explicit else 0)


LAST_OFFSET = (1 << 63) - 1


def offset_of(offset: SupportsIndex) -> int:
    """Return an offset in a file as an integer, which must not be negative."""
    start = operator.index(offset)
    if start < 0:
        raise InvalidError(f"offset {offset} is negative")
    if start > LAST_OFFSET:
        raise EndOfFileError(f"no file reaches to offset {offset}")
    return start


def _new_array(
    file: NativeFile,
    path: Path,
    dtype: object,
    shape: Shape | None,
    offset: int,
    device: Device,
    stream: int | None,
) -> Any:
    element = element_type("uint8" if dtype is None else dtype)
    return allocate(lengths_in(file, path, element, shape, offset), element, device, stream)


def lengths_in(
    file: NativeFile, path: Path, element: ElementType, shape: Shape | None, offset: int
) -> tuple[int, ...]:
    """Return the lengths of an array in a file; -1, or no shape, means the rest of the file.

    Raises:
        EndOfFileError: The file ends before ``offset``.
        InvalidError: The rest of the file is not a whole number of elements.
    """
    lengths = (-1,) if shape is None else _lengths(shape)
    return _infer(lengths, element, file.size(), offset, path) if -1 in lengths else lengths


def _lengths(shape: Shape) -> tuple[int, ...]:
    lengths = lengths_of(shape)
    if any(n < -1 for n in lengths) or lengths.count(-1) > 1:
        raise InvalidError(f"shape {shape} is not a shape")
    return lengths


def _infer(
    lengths: tuple[int, ...], element: ElementType, size: int, offset: int, path: Path
) -> tuple[int, ...]:
    """Replace -1 by the length that makes the array end at the end of the file."""
    available = size - offset
    if available < 0:
        raise EndOfFileError(
            f"{os.fsdecode(path)} has {size} bytes and ends before offset {offset}",
            path=os.fsdecode(path),
            offset=offset,
        )
    unit = math.prod(n for n in lengths if n != -1) * element.itemsize
    if unit == 0 or available % unit:
        raise InvalidError(
            f"{available} bytes are not a whole number of {unit}-byte units "
            f"({element.name}, shape {lengths})",
            path=os.fsdecode(path),
            remedy="give the shape, or another dtype or offset",
        )
    return tuple(available // unit if n == -1 else n for n in lengths)


def check_device(out: Any, device: Device) -> None:
    """Raise an error if ``out`` is not on ``device`` and both are given."""
    if device is not None and (parse_device(device) == HOST) != (arrays.view(out).device < 0):
        raise InvalidError(f"out is not on device {device}", remedy="give out or device, not both")


def _check_shape(view: arrays.View, dtype: object, shape: Shape | None) -> None:
    """Raise an error if ``out`` does not have the ``dtype`` and ``shape`` that are given."""
    if dtype is not None and element_type(dtype) != view.dtype:
        raise InvalidError(f"out has data type {view.dtype.name}, not {element_type(dtype).name}")
    if shape is not None and not _matches(_lengths(shape), view.shape):
        raise InvalidError(f"out has shape {view.shape}, not {_lengths(shape)}")


def _matches(wanted: tuple[int, ...], actual: tuple[int, ...]) -> bool:
    return len(wanted) == len(actual) and all(
        w in (-1, n) for w, n in zip(wanted, actual, strict=True)
    )
