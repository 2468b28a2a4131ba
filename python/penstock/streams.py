"""CUDA streams as callers pass them: torch's, CuPy's, with ``__cuda_stream__``, or integers."""

from __future__ import annotations

from collections.abc import Iterable
from time import sleep
from typing import Any

from penstock import request
from penstock._native import ffi, lib, pointer
from penstock.errors import IncompatibleError, InvalidError, check

_LEGACY = 1  # CU_STREAM_LEGACY, the same stream as the handle 0
_DEFAULTS = (0, 2)  # the legacy default stream and CU_STREAM_PER_THREAD, of any GPU
_POLL_SECONDS = 1e-3
_END = 1 << 8 * ffi.sizeof("void *")
"""The first number that is not an address: a cast to a pointer would change it."""


def stream_handle(stream: Any) -> int | None:
    """Return the CUstream handle of a stream; ``None`` for ``None``."""
    if stream is None:
        return None
    if hasattr(stream, "__cuda_stream__"):
        version, handle = stream.__cuda_stream__()
        if version != 0:
            raise IncompatibleError(f"version {version} of __cuda_stream__ is not known")
    elif hasattr(stream, "cuda_stream"):  # torch.cuda.Stream
        handle = stream.cuda_stream
    elif hasattr(stream, "ptr"):  # cupy.cuda.Stream
        handle = stream.ptr
    elif hasattr(stream, "__index__") and not isinstance(stream, bool):
        handle = stream
    else:
        raise IncompatibleError(
            f"a {type(stream).__name__} is not a CUDA stream",
            remedy="pass a torch or CuPy stream, an object with __cuda_stream__, or its handle",
        )
    return normal(int(handle))


def normal(handle: int) -> int:
    """Return the handle, always 0 for the legacy default stream."""
    if not 0 <= handle < _END:
        raise InvalidError(f"{handle} is not the handle of a CUDA stream")
    return 0 if handle == _LEGACY else handle


def wait_for(stream: int | None, device: int) -> None:
    """Wait until the work queued on a stream is done; ``device`` is that of the memory in use."""
    if stream is None:
        return
    # The stream may wait for requests whose steps only this thread can take.
    while request.step_stream_holders() and not is_idle(stream, device):
        sleep(_POLL_SECONDS)
    check(lib.penstock_stream_wait(max(device, 0), pointer(stream)))


def wait_for_all(device: int) -> None:
    """Wait until the work queued on all streams of a GPU is done."""
    while request.step_stream_holders():  # as in wait_for
        sleep(_POLL_SECONDS)
    check(lib.penstock_device_wait(device))


def of_lenders(device: int) -> int:
    """Return a stream of a GPU that lenders of memory make wait for their work.

    It has no other work. A request that follows it starts when the memory may be used. Unlike the
    handle of a default stream, its handle is that of one GPU, whichever context is current.
    """
    made = ffi.new("penstock_stream *")
    check(lib.penstock_device_stream(device, made))
    return int(ffi.cast("uintptr_t", made[0]))


def one_stream(streams: Iterable[tuple[int | None, int]]) -> int | None:
    """Return a stream that a request is to follow, after waiting for all other ones.

    The default streams of all GPUs have the same handles. A request follows that of the first GPU
    whose memory it has, so those of several GPUs are waited for.

    Args:
        streams: The streams of the request's memory, ``None`` for none, each with its device.
    """
    given = set(streams)
    is_shared = len({device for _, device in given if device >= 0}) > 1
    found = sorted((stream, device) for stream, device in given if stream is not None)
    first = found[0][0] if found else None
    for stream, device in found:
        if stream != first or (is_shared and stream in _DEFAULTS):
            wait_for(stream, device)
    return first


def is_idle(stream: int, device: int) -> bool:
    """Whether the work queued on a stream is done; ``device`` is that of the memory in use."""
    answer = ffi.new("int *")
    check(lib.penstock_stream_query(max(device, 0), pointer(stream), answer))
    return bool(answer[0])
