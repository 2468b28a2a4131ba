"""Transfers under way."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from penstock._native import NULL, CData, ffi, lib, new_report, pointer
from penstock.errors import InvalidError, WaitTimeout, check
from penstock.files import NativeFile
from penstock.report import Report, from_native

A = TypeVar("A")

READ: int = lib.PENSTOCK_OP_READ
WRITE: int = lib.PENSTOCK_OP_WRITE
AFTER_STREAM: int = lib.PENSTOCK_AFTER_STREAM
STREAM_WAITS: int = lib.PENSTOCK_STREAM_WAITS
CALLER_WAITS: int = lib.PENSTOCK_CALLER_WAITS

# A blocking call of the library cannot be interrupted; between two of them Ctrl-C gets through.
_SLICE_NS = 100_000_000


class Request(Generic[A]):
    """A transfer under way, made by :func:`penstock.load_async` and :func:`penstock.save_async`.

    It keeps its array and its file alive until it is finished. A request that is dropped before
    is waited for. All methods may be called from any thread.

    >>> r = ps.load_async("w.bin", device="cuda")
    >>> t = r.wait()      # or, in asyncio: t = await r
    """

    def __init__(self, handle: CData, array: A, keep: object, file: NativeFile | None) -> None:
        self._handle = handle
        self._array = array
        self._keep: object = keep
        self._file = file
        self._lock = threading.Lock()

    @property
    def array(self) -> A:
        """The array that is filled or saved; its contents count when the request is done."""
        return self._array

    def done(self) -> bool:
        """Whether the request is finished, be it well, failed or cancelled."""
        if lib.penstock_request_test(self._handle) == lib.PENSTOCK_PENDING:
            return False
        self._release()
        return True

    def wait(self, timeout: float | None = None) -> A:
        """Wait up to ``timeout`` seconds (``None``: for ever) and return the array.

        Raises:
            WaitTimeout: The time is over first. The request goes on.
            CancelledError: :meth:`cancel` took effect.
            Error: What made the transfer fail, as the synchronous call would raise it.
        """
        remaining = None if timeout is None else max(int(timeout * 1e9), 0)
        while True:
            part = _SLICE_NS if remaining is None else min(remaining, _SLICE_NS)
            status = lib.penstock_request_wait(self._handle, part)
            if status != lib.PENSTOCK_PENDING:
                break
            if remaining is not None:
                remaining -= part
                if remaining <= 0:
                    raise WaitTimeout(f"the request is not finished after {timeout} s")
        try:
            check(status)
        finally:
            self._release()
        return self._array

    def cancel(self) -> None:
        """Ask the request to stop.

        It then ends with :class:`penstock.CancelledError`, or as if never asked when it was too
        late. Wait for it in any case before the array is used for something else.
        """
        check(lib.penstock_request_cancel(self._handle))

    def progress(self) -> int:
        """Bytes moved so far."""
        moved = ffi.new("uint64_t *")
        check(lib.penstock_request_progress(self._handle, moved))
        return int(moved[0])

    @property
    def report(self) -> Report:
        """What the finished request did; one that failed reports what it had moved.

        Raises:
            InvalidError: The request is not finished.
        """
        return from_native(self.native_report())

    def native_report(self) -> CData:
        """The ``penstock_report`` of the finished request."""
        report = new_report()
        status = lib.penstock_request_report(self._handle, report)
        if status == lib.PENSTOCK_PENDING:
            raise InvalidError("the request is not finished, so there is no report yet")
        check(status)
        return report

    def __await__(self) -> Generator[Any, None, A]:
        """Wait in asyncio. Cancelling the task that waits asks the request to stop."""
        return self._finished().__await__()

    async def _finished(self) -> A:
        from asyncio import CancelledError

        try:
            while not self.done():
                await _readable(self._descriptor())
        except CancelledError:
            self.cancel()
            raise
        return self.wait()

    def _descriptor(self) -> int:
        descriptor = ffi.new("int *")
        check(lib.penstock_request_fd(self._handle, descriptor))
        return int(descriptor[0])

    def _release(self) -> None:
        """Let go of what only a request under way needs."""
        with self._lock:
            file, self._file = self._file, None
            self._keep = None
        if file is not None:
            file.close()

    def __del__(self) -> None:
        # Waits if need be; only then may the array and the file go.
        lib.penstock_request_free(self.__dict__.pop("_handle", NULL))


async def _readable(descriptor: int) -> None:
    """Wait until a descriptor is readable. The duplicate lets several tasks wait for one."""
    from asyncio import get_running_loop

    own = os.dup(descriptor)
    loop = get_running_loop()
    ready = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    try:
        loop.add_reader(own, wake)
        try:
            await ready
        finally:
            loop.remove_reader(own)
    finally:
        os.close(own)


def one_range(offset: int, address: int, nbytes: int) -> CData:
    """One ``penstock_range``."""
    return ffi.new("penstock_range[1]", [(offset, nbytes, pointer(address))])


def submit(
    file: NativeFile,
    operation: int,
    ranges: CData,
    count: int,
    options: CData,
    *,
    stream: int | None,
    flags: int,
    array: A,
    keep: object,
    owns_file: bool,
) -> Request[A]:
    """Start a transfer; with ``owns_file`` the request closes the file when it is finished."""
    made = ffi.new("penstock_request **")
    after = NULL if stream is None else pointer(stream)
    check(lib.penstock_submit(file.handle, operation, ranges, count, options, after, flags, made))
    return Request(made[0], array, (keep, file), file if owns_file else None)


def submit_with(start: Callable[[CData], int], array: A, keep: object) -> Request[A]:
    """A request of a native function that only lacks the place for the request."""
    made = ffi.new("penstock_request **")
    check(start(made))
    return Request(made[0], array, keep, None)
