"""Copies between the GPUs of one host: each rank writes its share into the memory of all others.

A rank gets the memory of another process by CUDA's IPC handles. A share has its place in every
result, and no other process writes there, so a copy needs no message from the target rank.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock import arrays
from penstock.dist.group import Group
from penstock.dist.mpi.ranks import in_words
from penstock.errors import GpuError, UnavailableError

_LAZY_ENABLE_PEER_ACCESS = 1
_NON_BLOCKING = 1
_STEP = "load_replicated (memory of the other GPUs)"


class _Handle(ctypes.Structure):
    """``CUipcMemHandle``, which is passed by value."""

    _fields_ = (("bytes", ctypes.c_ubyte * 64),)


@dataclass(frozen=True)
class _Exported:
    """The result of a rank, as sent to the other ranks."""

    handle: bytes
    offset: int
    """Bytes from the start of the allocation to the result."""
    why: str
    """Why the result cannot be shared; empty if it can."""


class _Driver:
    """The CUDA driver, with the primary context of a GPU."""

    def __init__(self, ordinal: int) -> None:
        name = os.environ.get("PENSTOCK_CUDA_LIBRARY", "libcuda.so.1")
        try:
            self._cuda = ctypes.CDLL(name)
        except OSError as error:
            raise UnavailableError(f"{name} cannot be opened: {error}") from None
        self._ordinal = ordinal
        self._context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), ordinal)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver.

        Raises:
            UnavailableError: The driver has no such function.
            GpuError: It has failed.
        """
        function = getattr(self._cuda, name, None)
        if function is None:
            raise UnavailableError(f"the CUDA driver has no {name}")
        if code := function(*arguments):
            raise GpuError(f"{name}: {self._name_of(code)}", gpu_code=code)

    def _name_of(self, code: int) -> str:
        found = ctypes.c_char_p()
        failed = self._cuda.cuGetErrorName(code, ctypes.byref(found))
        return f"error {code}" if failed or found.value is None else found.value.decode()

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the context current on this thread within a block."""
        self.call("cuCtxPushCurrent_v2", self._context)
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def close(self) -> None:
        """Give the context back."""
        self.call("cuDevicePrimaryCtxRelease_v2", self._ordinal)


class Peers:
    """Copies into the results of the other ranks, which are open here. :func:`connect` makes it."""

    words = "shares exchanged by copies between the GPUs"

    def __init__(self, rank: int, view: arrays.View) -> None:
        self._rank, self._view = rank, view
        self._error: Exception | None = None
        self._results: list[tuple[int, ctypes.c_void_p]] = []
        """The address of each other rank's result here, and the stream of the copies there."""
        self._last = ExitStack()
        self._driver = _Driver(view.device)
        self._last.callback(self._driver.close)

    def export(self) -> _Exported:
        """Return what the other ranks need to open this rank's result."""
        handle, base, size = _Handle(), ctypes.c_uint64(), ctypes.c_size_t()
        address = ctypes.c_uint64(self._view.pointer)
        with self._driver.current():
            places = ctypes.byref(base), ctypes.byref(size)
            self._driver.call("cuMemGetAddressRange_v2", *places, address)
            self._driver.call("cuIpcGetMemHandle", ctypes.byref(handle), base)
        return _Exported(bytes(handle.bytes), self._view.pointer - base.value, "")

    def open(self, all_exported: Sequence[_Exported]) -> None:
        """Open the results of all ranks but this one."""
        with self._driver.current():
            # Beginning with the next one, so that not all ranks write to one GPU at a time.
            for result in (*all_exported[self._rank + 1 :], *all_exported[: self._rank]):
                stream, base = ctypes.c_void_p(), ctypes.c_uint64()
                self._driver.call("cuStreamCreate", ctypes.byref(stream), _NON_BLOCKING)
                self._last.callback(self._driver.call, "cuStreamDestroy_v2", stream)
                handle = _Handle.from_buffer_copy(result.handle)
                flags = _LAZY_ENABLE_PEER_ACCESS
                self._driver.call("cuIpcOpenMemHandle_v2", ctypes.byref(base), handle, flags)
                self._last.callback(self._driver.call, "cuIpcCloseMemHandle", base)
                self._results.append((base.value + result.offset, stream))

    def share(self, bounds: Sequence[int]) -> None:
        """Queue the copies of this rank's share. A failure is raised by :meth:`finish`."""
        start, stop = bounds[self._rank], bounds[self._rank + 1]
        if start == stop or self._error is not None:
            return
        source, length = ctypes.c_uint64(self._view.pointer + start), ctypes.c_size_t(stop - start)
        try:
            with self._driver.current():
                for result, stream in self._results:
                    target = ctypes.c_uint64(result + start)
                    self._driver.call("cuMemcpyDtoDAsync_v2", target, source, length, stream)
        except Exception as error:
            self._error = error

    def finish(self) -> None:
        """Wait until this rank's shares are copied. Theirs are here once they report it."""
        # Waits for all, even after a failure, because their memory is closed after this.
        with self._driver.current(), ExitStack() as all_ended:
            for _, stream in self._results:
                all_ended.callback(self._driver.call, "cuStreamSynchronize", stream)
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Close the results of the other ranks, which may free them once all ranks have agreed."""
        with self._driver.current():
            self._last.close()


class Refusal(NamedTuple):
    """The reason for which a rank cannot take part."""

    rank: int
    why: str


def connect(group: Group, view: arrays.View, is_one_host: bool) -> Peers | Refusal:
    """Open the results of all ranks on each of them, or return why that is not possible.

    Collective: all ranks connect, or all return the same refusal.
    """
    made: Peers | None = None
    exported = _Exported(b"", 0, "")
    try:
        if not is_one_host:
            raise UnavailableError("the ranks are on several hosts")
        made = Peers(group.rank, view)
        exported = made.export()
    except Exception as error:
        exported = _Exported(b"", 0, in_words(error))
    all_exported = group.all_gather(exported, _STEP)
    refusal = _first([one.why for one in all_exported])
    if refusal is None and made is not None:
        why = ""
        try:
            made.open(all_exported)
        except Exception as error:
            why = in_words(error)
        refusal = _first(group.all_gather(why, _STEP))
        if refusal is None:
            return made
    if made is not None:
        # The other ranks continue with the next step, which reports a failed context.
        with suppress(Exception):
            made.close()
    assert refusal is not None
    return refusal


def _first(reasons: Sequence[str]) -> Refusal | None:
    return next((Refusal(rank, why) for rank, why in enumerate(reasons) if why), None)
