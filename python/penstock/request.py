"""Requests: transfers that the native library performs while the caller continues."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, nullcontext, suppress
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import ref

from penstock._native import NULL, CData, ffi, lib, new_report, pointer
from penstock.ending import watch
from penstock.errors import Error, InvalidError, WaitTimeout, check, failure
from penstock.report import Report, from_native
from penstock.request_group import RequestGroup

if TYPE_CHECKING:
    from penstock.files import NativeFile

A = TypeVar("A")

READ: int = lib.PENSTOCK_OP_READ
WRITE: int = lib.PENSTOCK_OP_WRITE
AFTER_STREAM: int = lib.PENSTOCK_AFTER_STREAM
STREAM_WAITS: int = lib.PENSTOCK_STREAM_WAITS
CALLER_WAITS: int = lib.PENSTOCK_CALLER_WAITS
ZERO_HOLES: int = lib.PENSTOCK_ZERO_HOLES

# Ctrl-C cannot interrupt a blocking call of the library, only the time between two such calls.
_SLICE_NS = 100_000_000
# The interval at which a wait for one request also polls the steps of others.
_STEP_NS = 1_000_000
# Seconds, about 30 years.
_FOR_EVER = 1e9
_NO_LOCK = nullcontext()


def _deadline(timeout: float | None) -> int | None:
    """Return the ``perf_counter_ns`` at which a timeout ends; ``None`` if it never does."""
    if timeout is None or timeout >= _FOR_EVER:
        return None
    if timeout != timeout:
        raise InvalidError("the timeout is not a number")
    return perf_counter_ns() + max(int(timeout * 1e9), 0)


class _Native:
    """A request of the native library, and the objects that must stay alive while it is pending.

    This object exists, and is in ``_pending``, before the request starts. The native call that
    starts the request stores the handle here itself. An exception that a signal handler raises
    between any two steps of Python therefore cannot free memory that the library still uses.
    """

    # CPython clears slots in the order of their names. The handle, whose release waits for the
    # request, therefore goes before the memory, even if the interpreter's end frees both.
    __slots__ = ("__weakref__", "handle", "holds_stream", "keep", "owner", "step_lock")

    def __init__(
        self,
        owner: Request[Any],
        keep: object,
        step_lock: AbstractContextManager[Any],
        holds_stream: bool,
    ) -> None:
        self.owner = ref(owner)
        self.keep = keep
        self.step_lock = step_lock
        self.holds_stream = holds_stream and step_lock is not _NO_LOCK
        self.handle = ffi.gc(ffi.new("penstock_request **"), lib.penstock_request_release)

    def poll(self, timeout_ns: int) -> int:
        """Run any due submitter step; return the status when it changes or the time is over.

        A submitter step is work that the request does on the calling thread, such as a call of
        HDF5.

        Raises:
            InvalidError: This thread cannot take the step now. The request remains pending.
        """
        status: int = lib.penstock_request_watch(self.handle[0], timeout_ns)
        if status == lib.PENSTOCK_TURN:
            with self.step_lock:
                check(lib.penstock_request_turn(self.handle[0]))
            status = lib.penstock_request_watch(self.handle[0], 0)
        return lib.PENSTOCK_PENDING if status == lib.PENSTOCK_TURN else status

    def poll_or_postpone(self, timeout_ns: int) -> int:
        """Poll; a request whose step this thread cannot take now is pending."""
        try:
            return self.poll(timeout_ns)
        except Error:
            return int(lib.PENSTOCK_PENDING)

    def poll_with_others(self, timeout_ns: int) -> int:
        """Poll; while this request is pending, run the due steps of those that a stream waits for.

        This request may come after that stream. Other threads may be unable to run these steps:
        the thread that waits for their request may be this one, or wait for a lock of this one.
        """
        if not stream_holders:
            return self.poll(timeout_ns)
        if (status := self.poll(0)) != lib.PENSTOCK_PENDING:
            return status
        is_step_left = step_stream_holders(self)
        return self.poll(min(timeout_ns, _STEP_NS) if is_step_left else timeout_ns)

    def finish(self) -> int:
        """Poll until the request is finished, and return its status.

        Raises:
            InvalidError: As for :meth:`poll`.
        """
        while (status := self.poll_with_others(_SLICE_NS)) == lib.PENSTOCK_PENDING:
            pass
        return status

    def is_over(self) -> bool:
        """Whether the library uses the memory neither now nor later."""
        if self.owner() is not None:
            running = (lib.PENSTOCK_PENDING, lib.PENSTOCK_TURN)
            if self.handle[0] == NULL:
                return False
            status: int = lib.penstock_request_watch(self.handle[0], 0)
            return status not in running
        return bool(self.handle[0] == NULL or self.poll_or_postpone(0) != lib.PENSTOCK_PENDING)


_pending: set[_Native] = set()
"""All requests whose end Python has not observed."""
stream_holders: set[_Native] = set()
"""The pending requests that have steps and that a stream waits for."""


def _add(native: _Native) -> None:
    _pending.add(native)
    if native.holds_stream:
        stream_holders.add(native)


def _discard(native: _Native) -> None:
    stream_holders.discard(native)
    _pending.discard(native)


def step_stream_holders(waiting: _Native | None = None) -> bool:
    """Run the due steps of all requests that a stream waits for, except those of ``waiting``.

    Returns:
        Whether any of these requests may have more steps.
    """
    is_step_left = False
    for native in stream_holders.copy():
        if native is not waiting and native.handle[0] != NULL:
            if native.poll_or_postpone(0) == lib.PENSTOCK_PENDING:
                is_step_left = True
            else:
                stream_holders.discard(native)
    return is_step_left


_FIRST_SCAN_AT = 1024
_scan_at = _FIRST_SCAN_AT


def _discard_finished() -> None:
    """Discard finished requests whose owners are gone."""
    global _scan_at
    for native in _pending.copy():
        if native.is_over():
            _discard(native)
    _scan_at = max(2 * len(_pending), _FIRST_SCAN_AT)


def finish_all() -> None:
    """Wait until no request of this module is pending whose steps this thread can take."""
    for native in _pending.copy():
        if native.handle[0] != NULL:
            with suppress(Error):
                native.finish()


def print_error(error: Error) -> None:
    """Print an error that no call can raise any more."""
    if sys.stderr is not None:
        print(f"penstock: {error}", file=sys.stderr)


def warn(error: Error) -> None:
    """Warn of the failure of a request that is dropped."""
    warnings.warn(
        f"a request that was never waited for failed: {error}", ResourceWarning, stacklevel=3
    )


class Request(Generic[A]):
    """A transfer that a function whose name ends in ``_async`` has started.

    It keeps its array and its file alive until it is finished. Deleting a pending request waits
    for it. If a read failed, that is a ``ResourceWarning``. The error of a write is raised by the
    next flush or close of its :class:`penstock.File`, and printed if there is none. Inside a
    function that HDF5 calls, a durable write that is deleted ends later. Any thread may call the
    methods.

    A write into the chunks of an HDF5 dataset continues only in :meth:`wait` and :meth:`done`,
    because HDF5 stores the chunks on the thread that calls them.

    >>> r = ps.load_async("w.bin", device="cuda")
    >>> t = r.wait()      # or, in asyncio: t = await r
    """

    def __init__(
        self,
        array: A,
        keep: object,
        before_ns: int = 0,
        step_lock: AbstractContextManager[Any] = _NO_LOCK,
        holds_stream: bool = False,
        on_loss: Callable[[Error], None] = warn,
    ) -> None:
        self._array = array
        self._on_loss = on_loss
        self._before_ns = before_ns
        self._reported = False
        self._native = _Native(self, (array, keep), step_lock, holds_stream)

    def _submit(self, start: Callable[[CData], int | None]) -> bool:
        """Start the request by a native call, which stores its handle at the given address.

        Returns whether the call has a status.
        """
        if len(_pending) >= _scan_at:
            _discard_finished()
        watch()
        native = self._native
        _add(native)
        try:
            status = start(native.handle)
            if native.handle[0] == NULL:
                _discard(native)
            if status is None:
                return False
            check(status)
        except BaseException:
            if native.handle[0] != NULL:  # a signal handler: no caller gets the request
                RequestGroup([self]).stop()
            raise
        return True

    @property
    def array(self) -> A:
        """The array that is filled or saved. The contents of a read are valid once it is done."""
        return self._array

    def done(self) -> bool:
        """Whether the request is finished: it succeeded, failed or was cancelled."""
        with suppress(Error):  # a step that this thread cannot take now
            return self._is_done()
        return False

    def _is_done(self) -> bool:
        if self._native.poll_with_others(0) == lib.PENSTOCK_PENDING:
            return False
        self._release()
        return True

    def wait(self, timeout: float | None = None) -> A:
        """Wait up to ``timeout`` seconds (``None``: for ever) and return the array.

        Raises:
            WaitTimeout: The request did not finish in time. It continues.
            CancelledError: :meth:`cancel` took effect.
            InvalidError: A durable write cannot finish inside a callback of HDF5, such as that of
                a visit. The request continues, and can be waited for later.
            Error: The transfer failed. The synchronous call would raise the same error.
        """
        deadline = None if timeout is None else _deadline(timeout)
        while True:
            left = _SLICE_NS if deadline is None else max(deadline - perf_counter_ns(), 0)
            status = self._native.poll_with_others(min(left, _SLICE_NS))
            if status != lib.PENSTOCK_PENDING:
                break
            if deadline is not None and perf_counter_ns() >= deadline:
                raise WaitTimeout(f"the request is not finished after {timeout} s")
        self._reported = True
        try:
            check(lib.penstock_request_test(self._native.handle[0]))
        finally:
            self._release()
        return self._array

    def cancel(self) -> None:
        """Cancel the request.

        It then ends with :class:`penstock.CancelledError`, or as usual if it was too late. In
        either case, wait for it before you use the array for something else.
        """
        check(lib.penstock_request_cancel(self._native.handle[0]))

    def progress(self) -> int:
        """Return the number of bytes moved so far."""
        moved = ffi.new("uint64_t *")
        check(lib.penstock_request_progress(self._native.handle[0], moved))
        return int(moved[0])

    def arrived(self) -> int:
        """Return bytes of a read, in the order of the file, that have arrived without a gap.

        Not all requests count them before they are finished.
        """
        arrived = ffi.new("uint64_t *")
        check(lib.penstock_request_arrived(self._native.handle[0], arrived))
        return int(arrived[0])

    @property
    def report(self) -> Report:
        """The report of the finished request. A failed request reports what it moved before.

        Raises:
            InvalidError: The request is not finished.
        """
        return from_native(self.account())

    def account(self) -> Report | CData:
        """Return the report as it is stored: a ``penstock_report`` or a :class:`Report`."""
        report = new_report()
        status = lib.penstock_request_report(self._native.handle[0], report)
        if status == lib.PENSTOCK_PENDING:
            raise InvalidError("the request is not finished, so there is no report yet")
        check(status)
        report.elapsed_ns += self._before_ns
        return report

    def __await__(self) -> Generator[Any, None, A]:
        """Wait in asyncio. Cancelling the waiting task cancels the request."""
        return self._finished().__await__()

    async def _finished(self) -> A:
        from asyncio import CancelledError

        try:
            while not self._is_done():
                await _readable(self._descriptor(), _STEP_NS if stream_holders else None)
        except CancelledError:
            self.cancel()
            raise
        return self.wait()

    def _descriptor(self) -> int:
        descriptor = ffi.new("int *")
        check(lib.penstock_request_fd(self._native.handle[0], descriptor))
        return int(descriptor[0])

    def _release(self) -> None:
        """Drop the references that only a pending request needs."""
        _discard(self._native)
        self._native.keep = None

    def __del__(self) -> None:
        native = self.__dict__.get("_native")
        if native is None or (self._reported and native.keep is None):  # `wait` has released it
            return
        # An interrupt here leaves the request, with its memory, in _pending.
        error = None
        if native.handle[0] != NULL:
            try:
                status = native.finish()
            except Error:  # it stays in _pending, and ends later
                return
            if not self._reported and status not in _NOT_REPORTED:
                error = failure(status)
        _discard(native)
        if error is not None:
            self._on_loss(error)


# A cancelled request ended as the caller asked, and a forked child has no requests.
_NOT_REPORTED = (lib.PENSTOCK_OK, lib.PENSTOCK_ERR_CANCELLED, lib.PENSTOCK_ERR_FORKED)


class Finished(Request[A]):
    """A request that is finished from the start."""

    def __init__(self, array: A, account: Report | CData) -> None:
        self._array = array
        self._account = account

    def _is_done(self) -> bool:
        return True

    def wait(self, timeout: float | None = None) -> A:
        _deadline(timeout)
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


async def _readable(descriptor: int, timeout_ns: int | None) -> None:
    """Wait until a descriptor is readable or the time is over.

    A duplicate of the descriptor lets several tasks wait.
    """
    from asyncio import get_running_loop, wait

    own = os.dup(descriptor)
    loop = get_running_loop()
    ready = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    try:
        loop.add_reader(own, wake)
        try:
            await wait([ready], timeout=None if timeout_ns is None else timeout_ns / 1e9)
        finally:
            loop.remove_reader(own)
    finally:
        os.close(own)


def one_range(offset: int, address: int, nbytes: int) -> CData:
    """Return an array of one ``penstock_range``."""
    return ffi.new("penstock_range[1]", [(offset, nbytes, pointer(address))])


def submit(
    file: NativeFile,
    operation: int,
    ranges: CData,
    options: CData,
    *,
    stream: int | None,
    flags: int,
    array: A,
    keep: object,
) -> Request[A]:
    """Start a transfer. The request keeps the file open until it is finished."""
    after, count = NULL if stream is None else pointer(stream), len(ranges)
    return submit_with(
        lambda made: int(
            lib.penstock_submit(file.handle, operation, ranges, count, options, after, flags, made)
        ),
        array,
        (keep, file),
        on_loss=print_error if operation == WRITE else warn,
    )


def submit_with(
    start: Callable[[CData], int],
    array: A,
    keep: object,
    *,
    before_ns: int = 0,
    step_lock: AbstractContextManager[Any] = _NO_LOCK,
    holds_stream: bool = False,
    on_loss: Callable[[Error], None] = warn,
) -> Request[A]:
    """Start a request by a function that calls the native library.

    Args:
        start: Passes the address for the request to the native function, and returns its status.
        array: What the request returns when it is finished.
        keep: What must stay alive until then.
        before_ns: Nanoseconds that the call has taken so far. The report counts them as well.
        step_lock: The lock that submitter steps of the request need, as those that call HDF5 do.
        holds_stream: Whether later work of a stream waits for the request.
        on_loss: Is called with the failure of a request that is dropped and was not waited for.
    """
    made = Request(array, keep, before_ns, step_lock, holds_stream, on_loss)
    made._submit(start)
    return made


def submit_if(
    start: Callable[[CData], int | None], array: A, keep: object, *, before_ns: int
) -> Request[A] | None:
    """Start a request without submitter steps, as :func:`submit_with` does.

    Returns ``None`` if ``start`` does: another function carries out the transfer.
    """
    made = Request(array, keep, before_ns)
    return made if made._submit(start) else None
