"""Transfers under way."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator
from time import perf_counter_ns
from typing import Any, Generic, TypeVar

from penstock import hdf5_library
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
    """A transfer under way, made by one of the functions whose name ends in ``_async``.

    It keeps its array and its file alive until it is finished. A request that is dropped before
    is waited for. All methods may be called from any thread.

    A write into the chunks of an HDF5 dataset goes on only while it is waited for or asked
    whether it is done, because HDF5 itself puts the chunks into the file then.

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
        if self._poll(0) == lib.PENSTOCK_PENDING:
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
        deadline = None if timeout is None else perf_counter_ns() + max(int(timeout * 1e9), 0)
        while True:
            left = _SLICE_NS if deadline is None else max(deadline - perf_counter_ns(), 0)
            status = self._poll(min(left, _SLICE_NS))
            if status != lib.PENSTOCK_PENDING:
                break
            if deadline is not None and perf_counter_ns() >= deadline:
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
        return from_native(self.account())

    def account(self) -> Report | CData:
        """The report as it is, a ``penstock_report`` mostly."""
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

    def _poll(self, timeout_ns: int) -> int:
        """The status after a while, having done for the request what needs HDF5's lock."""
        status: int = lib.penstock_request_wait(self._handle, timeout_ns)
        if status == lib.PENSTOCK_TURN:
            with hdf5_library.lock():
                lib.penstock_request_turn(self._handle)  # a failure is the request's own
            status = lib.penstock_request_test(self._handle)
        return lib.PENSTOCK_PENDING if status == lib.PENSTOCK_TURN else status

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
        handle = self.__dict__.get("_handle", NULL)
        if handle != NULL:
            while self._poll(_SLICE_NS) == lib.PENSTOCK_PENDING:
                pass
            lib.penstock_request_free(handle)


class Finished(Request[A]):
    """A request that was finished when it was made."""

    def __init__(self, array: A, account: Report | CData) -> None:
        super().__init__(NULL, array, None, None)
        self._account = account

    def done(self) -> bool:
        return True

    def wait(self, timeout: float | None = None) -> A:
        return self._array

    def cancel(self) -> None:
        pass

    def progress(self) -> int:
        return int(self._account.bytes)

    @property
    def report(self) -> Report:
        return self._account if isinstance(self._account, Report) else from_native(self._account)

    def account(self) -> Report | CData:
        return self._account


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
