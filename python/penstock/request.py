"""Transfers under way."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Generator
from time import perf_counter_ns
from typing import Any, Generic, TypeVar
from weakref import ref

from penstock._native import NULL, CData, ffi, lib, new_report, pointer
from penstock.errors import InvalidError, WaitTimeout, check, failure
from penstock.files import NativeFile
from penstock.hdf5 import library as hdf5_library
from penstock.report import Report, from_native

A = TypeVar("A")

READ: int = lib.PENSTOCK_OP_READ
WRITE: int = lib.PENSTOCK_OP_WRITE
AFTER_STREAM: int = lib.PENSTOCK_AFTER_STREAM
STREAM_WAITS: int = lib.PENSTOCK_STREAM_WAITS
CALLER_WAITS: int = lib.PENSTOCK_CALLER_WAITS

# A blocking call of the library cannot be interrupted; between two of them Ctrl-C gets through.
_SLICE_NS = 100_000_000
# Seconds, about 30 years.
_FOR_EVER = 1e9


def _deadline(timeout: float | None) -> int | None:
    """When so many seconds from now are over, by ``perf_counter_ns``; ``None`` for never."""
    if timeout is None or timeout >= _FOR_EVER:
        return None
    if timeout != timeout:
        raise InvalidError("a timeout that is not a number ends at no time")
    return perf_counter_ns() + max(int(timeout * 1e9), 0)


class _Native:
    """A request of the native library, and what must stay while it is under way.

    It exists, and is one of ``_under_way``, before the request does, and the native call that
    starts the request puts the handle here itself. So no exception, between whichever two steps of
    Python a signal handler raises it, can free memory that the library still uses.
    """

    # CPython clears slots in the order of their names: the handle, which waits for the request, is
    # freed before the memory even if nothing but the end of the interpreter lets go of both.
    __slots__ = ("__weakref__", "handle", "keep", "owner")

    def __init__(self, owner: Request[Any], keep: object) -> None:
        self.owner = ref(owner)
        self.keep = keep
        self.handle = ffi.gc(ffi.new("penstock_request **"), lib.penstock_request_release)

    def poll(self, timeout_ns: int) -> int:
        """The status after a while, having done for the request what needs HDF5's lock."""
        status: int = lib.penstock_request_watch(self.handle[0], timeout_ns)
        if status == lib.PENSTOCK_TURN:
            with hdf5_library.lock():
                lib.penstock_request_turn(self.handle[0])  # a failure is the request's own
            status = lib.penstock_request_watch(self.handle[0], 0)
        return lib.PENSTOCK_PENDING if status == lib.PENSTOCK_TURN else status

    def is_over(self) -> bool:
        """Whether the library uses the memory no longer, and will not start to."""
        if self.owner() is not None:
            running = (lib.PENSTOCK_PENDING, lib.PENSTOCK_TURN)
            if self.handle[0] == NULL:
                return False
            status: int = lib.penstock_request_watch(self.handle[0], 0)
            return status not in running
        return bool(self.handle[0] == NULL or self.poll(0) != lib.PENSTOCK_PENDING)


_under_way: set[_Native] = set()
"""All requests that have not been seen finished."""

_LOOK_FROM = 64
_look_at = _LOOK_FROM


def _forget_what_is_over() -> None:
    """Let go of requests whose owners went without having seen their end."""
    global _look_at
    if len(_under_way) >= _look_at:
        for native in _under_way.copy():
            if native.is_over():
                _under_way.discard(native)
        _look_at = max(2 * len(_under_way), _LOOK_FROM)


def finish_all() -> None:
    """Wait until no request of this module is under way."""
    for native in _under_way.copy():
        if native.handle[0] != NULL:
            while native.poll(_SLICE_NS) == lib.PENSTOCK_PENDING:
                pass


class Request(Generic[A]):
    """A transfer under way, made by one of the functions whose name ends in ``_async``.

    It keeps its array and its file alive until it is finished. A request that is dropped before
    is waited for; if it failed and nobody was told, that is a ``ResourceWarning``. All methods may
    be called from any thread.

    A write into the chunks of an HDF5 dataset goes on only while it is waited for or asked
    whether it is done, because HDF5 itself puts the chunks into the file then.

    >>> r = ps.load_async("w.bin", device="cuda")
    >>> t = r.wait()      # or, in asyncio: t = await r
    """

    def __init__(self, array: A, keep: object, before_ns: int = 0) -> None:
        self._array = array
        self._before_ns = before_ns
        self._told = False
        self._native = _Native(self, (array, keep))

    def _submit(self, start: Callable[[CData], int]) -> None:
        """Start the request by a native function that only lacks the place for it."""
        _forget_what_is_over()
        native = self._native
        _under_way.add(native)
        status = start(native.handle)
        if native.handle[0] == NULL:
            _under_way.discard(native)
        check(status)

    @property
    def array(self) -> A:
        """The array that is filled or saved; its contents count when the request is done."""
        return self._array

    def done(self) -> bool:
        """Whether the request is finished, be it well, failed or cancelled."""
        if self._native.poll(0) == lib.PENSTOCK_PENDING:
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
        deadline = _deadline(timeout)
        while True:
            left = _SLICE_NS if deadline is None else max(deadline - perf_counter_ns(), 0)
            status = self._native.poll(min(left, _SLICE_NS))
            if status != lib.PENSTOCK_PENDING:
                break
            if deadline is not None and perf_counter_ns() >= deadline:
                raise WaitTimeout(f"the request is not finished after {timeout} s")
        self._told = True
        try:
            check(lib.penstock_request_test(self._native.handle[0]))
        finally:
            self._release()
        return self._array

    def cancel(self) -> None:
        """Ask the request to stop.

        It then ends with :class:`penstock.CancelledError`, or as if never asked when it was too
        late. Wait for it in any case before the array is used for something else.
        """
        check(lib.penstock_request_cancel(self._native.handle[0]))

    def progress(self) -> int:
        """Bytes moved so far."""
        moved = ffi.new("uint64_t *")
        check(lib.penstock_request_progress(self._native.handle[0], moved))
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
        status = lib.penstock_request_report(self._native.handle[0], report)
        if status == lib.PENSTOCK_PENDING:
            raise InvalidError("the request is not finished, so there is no report yet")
        check(status)
        report.elapsed_ns += self._before_ns
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
        check(lib.penstock_request_fd(self._native.handle[0], descriptor))
        return int(descriptor[0])

    def _release(self) -> None:
        """Let go of what only a request under way needs."""
        _under_way.discard(self._native)
        self._native.keep = None

    def __del__(self) -> None:
        native = self.__dict__.get("_native")
        if native is None:
            return
        # Interrupted here, the request stays one of those under way, with its memory.
        error = None
        if native.handle[0] != NULL:
            while (status := native.poll(_SLICE_NS)) == lib.PENSTOCK_PENDING:
                pass
            if not self._told and status not in _NOT_WORTH_TELLING:
                error = failure(status)
        _under_way.discard(native)
        if error is not None:
            warnings.warn(
                f"a request that nobody waited for failed: {error}", ResourceWarning, stacklevel=2
            )


# Cancelled requests end as was asked for, and in a forked child there are none.
_NOT_WORTH_TELLING = (lib.PENSTOCK_OK, lib.PENSTOCK_ERR_CANCELLED, lib.PENSTOCK_ERR_FORKED)


class Finished(Request[A]):
    """A request that was finished when it was made."""

    def __init__(self, array: A, account: Report | CData) -> None:
        self._array = array
        self._account = account

    def done(self) -> bool:
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
) -> Request[A]:
    """Start a transfer. The file is closed with the last reference to it, at the earliest when the
    request is finished."""
    after = NULL if stream is None else pointer(stream)
    return submit_with(
        lambda made: int(
            lib.penstock_submit(file.handle, operation, ranges, count, options, after, flags, made)
        ),
        array,
        (keep, file),
    )


def submit_with(
    start: Callable[[CData], int], array: A, keep: object, *, before_ns: int = 0
) -> Request[A]:
    """A request of a native function that only lacks the place for the request.

    Its report counts ``before_ns`` as well, which the call has taken so far.
    """
    made = Request(array, keep, before_ns)
    made._submit(start)
    return made
