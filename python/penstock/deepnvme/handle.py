"""The base class of DeepNVMe's handles, on Penstock's engine."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable
from threading import RLock
from typing import Any, SupportsIndex
from weakref import WeakSet

from penstock import _options, arrays, files, frameworks, transfer
from penstock._native import CData
from penstock.deepnvme.operation import (
    Operation,
    Reader,
    Target,
    Touched,
    compare,
    raise_first,
    touched,
)
from penstock.deepnvme.pinned import pin_handle
from penstock.errors import Error, IncompatibleError, InvalidError
from penstock.files import NativeFile
from penstock.report import Report, from_native, last_account, remember_note
from penstock.request import READ, WRITE, Request, one_range

DEFAULT_BLOCK_SIZE = 1 << 20
DEFAULT_QUEUE_DEPTH = 128
DEFAULT_PARALLELISM = 1

_ALIGNMENT = 512
_SMALLEST_BLOCK = 4 << 10
_LARGEST_BLOCK = 1 << 30
_MOST = 256
"""The most threads, and the most reads or writes in flight."""
_LONGEST_FILE = (1 << 63) - 1
_LARGEST_INT = (1 << 31) - 1
"""The largest C int, which is the type of a descriptor."""


class Handle(pin_handle):
    """Reads and writes between files and arrays, synchronous or in the background.

    The methods and their arguments are those of DeepSpeed's handles. Where those return -1 or end
    the process, these raise an exception. Arrays may have any length, type, layout and alignment.
    They may be torch tensors, NumPy or CuPy arrays, or any object with DLPack's interface.

    If an argument of the constructor has its default value, the engine and ``penstock.options``
    choose; any other value is used, within the limits of the engine.

    Any thread may call the methods. Operations run concurrently, but one that overlaps an earlier
    one in a file or in memory waits for it, unless both only read the common bytes.

    Args:
        block_size: Bytes that a worker moves at a time, limited to 4 KiB to 1 GiB.
        queue_depth: Reads or writes in flight per worker with io_uring, at most 256.
        single_submit: Has no effect; :meth:`get_single_submit` returns it.
        overlap_events: Has no effect; :meth:`get_overlap_events` returns it.
        intra_op_parallelism: Workers that serve one operation, at most 256.

    Raises:
        InvalidError: A number is not positive.
    """

    def __init__(
        self,
        block_size: int = DEFAULT_BLOCK_SIZE,
        queue_depth: int = DEFAULT_QUEUE_DEPTH,
        single_submit: bool = False,
        overlap_events: bool = False,
        intra_op_parallelism: int = DEFAULT_PARALLELISM,
    ) -> None:
        self._block_size = _positive("block_size", block_size)
        self._queue_depth = _positive("queue_depth", queue_depth)
        self._single_submit = bool(single_submit)
        self._overlap_events = bool(overlap_events)
        self._parallelism = _positive("intra_op_parallelism", intra_op_parallelism)
        self._keys: dict[str, Any] = {}
        if self._block_size != DEFAULT_BLOCK_SIZE:
            self._keys["block"] = min(max(self._block_size, _SMALLEST_BLOCK), _LARGEST_BLOCK)
        if self._queue_depth != DEFAULT_QUEUE_DEPTH:
            self._keys["queue_depth"] = min(self._queue_depth, _MOST)
        if self._parallelism != DEFAULT_PARALLELISM:
            self._keys["threads"] = min(self._parallelism, _MOST)
        self._lock = RLock()
        self._pending: list[Operation] = []
        self._accounts: list[Any] = []
        # CPython clears attributes in the order of their creation: requests must go before pins.
        self._pins: dict[int, Any] = {}
        _handles.add(self)

    def get_block_size(self) -> int:
        """Return ``block_size`` as it was given."""
        return self._block_size

    def get_queue_depth(self) -> int:
        """Return ``queue_depth`` as it was given."""
        return self._queue_depth

    def get_single_submit(self) -> bool:
        """Return ``single_submit`` as it was given."""
        return self._single_submit

    def get_overlap_events(self) -> bool:
        """Return ``overlap_events`` as it was given."""
        return self._overlap_events

    def get_intra_op_parallelism(self) -> int:
        """Return ``intra_op_parallelism`` as it was given."""
        return self._parallelism

    def get_alignment(self) -> int:
        """Return the length in bytes whose multiples DeepSpeed's own operations require."""
        return self._parallelism * _ALIGNMENT

    def read(self, buffer: Any, filename: Target, validate: bool, file_offset: int = 0) -> int:
        """Fill an array from a file by one worker, and return 0."""
        one = {"threads": 1}
        self._accounts = [self._run(READ, buffer, filename, file_offset, bool(validate), one)]
        return 0

    def write(self, buffer: Any, filename: Target, validate: bool, file_offset: int = 0) -> int:
        """Write an array to a file by one worker, and return 0."""
        one = {"threads": 1}
        self._accounts = [self._run(WRITE, buffer, filename, file_offset, bool(validate), one)]
        return 0

    def pread(
        self,
        buffer: Any,
        filename: Target,
        validate: bool,
        async_: bool | None = None,
        file_offset: int = 0,
        **keywords: bool,
    ) -> int:
        """Fill an array from a file.

        The fourth argument, whose keyword is ``async``, selects the background. With ``validate``,
        the range is read again by plain system calls and compared.

        Returns:
            0 in the background, else as :meth:`sync_pread`.
        """
        background = _async("pread", async_, keywords)
        return self._move(READ, buffer, filename, file_offset, bool(validate), background)

    def pwrite(
        self,
        buffer: Any,
        filename: Target,
        validate: bool,
        async_: bool | None = None,
        file_offset: int = 0,
        **keywords: bool,
    ) -> int:
        """Write an array to a file, which is made if it does not exist, and never truncated.

        The fourth argument, whose keyword is ``async``, selects the background. With ``validate``,
        the range is read back by plain system calls and compared.

        Returns:
            0 in the background, else as :meth:`sync_pwrite`.
        """
        background = _async("pwrite", async_, keywords)
        return self._move(WRITE, buffer, filename, file_offset, bool(validate), background)

    def sync_pread(self, buffer: Any, filename: Target, file_offset: int = 0) -> int:
        """Fill an array from a file, after waiting for all background operations.

        Like :meth:`wait`, this raises their failures.

        Returns:
            The number of operations that are done: this one and those waited for.

        Raises:
            NotFoundError: The file does not exist.
            EndOfFileError: The file ends before the array is full.
        """
        return self._move(READ, buffer, filename, file_offset, False, False)

    def sync_pwrite(self, buffer: Any, filename: Target, file_offset: int = 0) -> int:
        """Write an array to a file, after waiting for all background operations.

        The file is made if it does not exist, and never truncated.

        Returns:
            As :meth:`sync_pread`.

        Raises:
            NotFoundError: The folder does not exist.
            NoSpaceError: The file system is full.
        """
        return self._move(WRITE, buffer, filename, file_offset, False, False)

    def async_pread(self, buffer: Any, filename: Target, file_offset: int = 0) -> int:
        """Start to fill an array from a file, and return 0.

        This call raises errors of the arguments and of the open; :meth:`wait` raises later
        failures. Until then, the memory must stay: ``resize_`` of a tensor's storage frees it.
        """
        return self._move(READ, buffer, filename, file_offset, False, True)

    def async_pwrite(
        self,
        buffer: Any,
        filename: Target | None = None,
        file_offset: int = 0,
        *,
        fd: int | None = None,
    ) -> int:
        """Start to write an array to a file, and return 0. It fails as :meth:`async_pread` does.

        The file is given as ``filename`` or as ``fd``, a descriptor that is open for writing and
        may be closed after this call. The array must not change before :meth:`wait` has returned.
        """
        target = filename if fd is None else fd
        if target is None or (filename is not None and fd is not None):
            raise TypeError("async_pwrite() takes either filename or fd")
        return self._move(WRITE, buffer, target, file_offset, False, True)

    def wait(self) -> int:
        """Wait for all background operations.

        Each failure is raised once: after all operations have ended, this raises the first failure,
        with the next one as its ``__cause__``.

        Returns:
            The number of operations that have succeeded since the last call.
        """
        with self._lock:
            for operation in self._pending:
                operation.settle()
        settled = self._take_settled()
        self._accounts = [o.account for o in settled if o.failure is None]
        raise_first([o.failure for o in settled if o.failure is not None])
        return len(settled)

    @property
    def reports(self) -> tuple[Report, ...]:
        """The reports of the operations that the last call has seen succeed, in order."""
        return tuple(
            account if isinstance(account, Report) else from_native(account)
            for account in self._accounts
        )

    def _move(
        self,
        operation: int,
        buffer: Any,
        target: Target,
        offset: int,
        validate: bool,
        background: bool,
    ) -> int:
        if background:
            self._start(operation, buffer, target, offset, validate)
            return 0
        with self._lock:
            for earlier in self._pending:
                earlier.settle()
        failures: list[Exception] = []
        own: list[Any] = []
        try:
            own.append(self._run(operation, buffer, target, offset, validate, {}))
        except Error as error:
            failures.append(error)
        settled = self._take_settled()
        failures += [o.failure for o in settled if o.failure is not None]
        self._accounts = [o.account for o in settled if o.failure is None] + own
        raise_first(failures)
        return len(settled) + 1

    def _run(
        self,
        operation: int,
        buffer: Any,
        target: Target,
        offset: int,
        validate: bool,
        keys: dict[str, Any],
    ) -> Any:
        """Make a transfer, wait for it, and return its stored report."""
        target = _target(target)
        file, touches = self._open(operation, buffer, target, offset)
        with file:
            reader = Reader(target) if validate else None
            with self._lock:
                self._settle_conflicting(touches)
            view, copy_back = _memory(operation, buffer)
            options, note = self._options(view, target, keys)
            ranges = one_range(touches.offset, view.pointer, view.nbytes)
            transfer.move(file, operation, ranges, view, options)
        if operation == READ:
            transfer.complete(view, copy_back)
        if note:
            remember_note(note)
        if reader is not None:
            compare(reader, touches.offset, view)
        return last_account()

    def _start(
        self, operation: int, buffer: Any, target: Target, offset: int, validate: bool
    ) -> None:
        """Start a transfer in the background."""
        target = _target(target)
        file, touches = self._open(operation, buffer, target, offset)
        reader = Reader(target) if validate else None
        with self._lock:
            self._settle_conflicting(touches)
            view, copy_back = _memory(operation, buffer)

            def complete() -> None:
                if copy_back is not None:
                    copy_back()
                if reader is not None:
                    compare(reader, touches.offset, view)

            options, note = self._options(view, target, {})
            made = start(file, operation, touches.offset, view, options)
            self._pending.append(Operation(made, touches, complete, note))
            if operation == READ and copy_back is None:
                arrays.note_write(view)

    def _open(
        self, operation: int, buffer: Any, target: Target, offset: int
    ) -> tuple[NativeFile, Touched]:
        # Check the arguments before the file is made.
        start = operator.index(offset)
        if start < 0:
            raise InvalidError(f"file_offset {offset} is negative")
        view = arrays.view(buffer)
        if start > _LONGEST_FILE - view.nbytes:
            raise InvalidError(f"no file has {view.nbytes} bytes at file_offset {start}")
        flags = files.READ if operation == READ else files.WRITE
        if operation == WRITE and not isinstance(target, int):
            flags |= files.CREATE
        return NativeFile(target, flags), touched(operation, target, start, view)

    def _settle_conflicting(self, touches: Touched) -> None:
        """Wait for pending operations that conflict with one that touches these bytes."""
        for earlier in self._pending:
            if earlier.touched.conflicts(touches):
                earlier.settle()

    def _take_settled(self) -> list[Operation]:
        """Remove the finished operations from the pending ones, and return them."""
        with self._lock:
            settled = [o for o in self._pending if o.is_settled]
            self._pending = [o for o in self._pending if not o.is_settled]
        return settled

    def options_for(self, view: arrays.View, target: Target) -> Callable[[], CData]:
        """Return a function that gives the native options of transfers with this handle's settings.

        The route for this file and memory is chosen now, while the file has this name.
        """
        route, _ = self._route(view, target)
        return lambda: _options.resolve({**self._keys, "route": route})

    def _options(
        self, view: arrays.View, target: Target, keys: dict[str, Any]
    ) -> tuple[CData, str]:
        """Return the options of a transfer, and the reason if its route is not the handle's."""
        route, note = self._route(view, target)
        return _options.resolve({**self._keys, **keys, "route": route}), note

    def _route(self, view: arrays.View, target: Target) -> tuple[str | None, str]:
        raise NotImplementedError


def start(
    file: NativeFile, operation: int, offset: int, view: arrays.View, options: CData
) -> Request[None]:
    """Start a transfer of one range, after the work queued on the stream of the view."""
    ranges = one_range(offset, view.pointer, view.nbytes)
    return transfer.start(file, operation, ranges, options, stream=view.stream, keep=view, flags=0)


def _target(given: Target) -> Target:
    """Return a path unchanged, and a descriptor as an ``int``."""
    if isinstance(given, bool):
        raise IncompatibleError("a bool is neither a path nor a descriptor")
    if not isinstance(given, SupportsIndex):
        return given
    number = operator.index(given)
    if abs(number) > _LARGEST_INT:
        raise InvalidError(f"{number} is not a descriptor")
    return number


def _memory(operation: int, buffer: Any) -> tuple[arrays.View, Callable[[], None] | None]:
    """Return contiguous memory for an array, and a function that completes a read into it."""
    if operation == READ:
        # DeepSpeed's handles fill parameters, too.
        return arrays.destination(frameworks.detached(buffer))
    return arrays.source(buffer), None


def _positive(name: str, number: int) -> int:
    value = operator.index(number)
    if value < 1:
        raise InvalidError(f"{name} is {value}, but must be at least 1")
    return value


def _async(function: str, given: bool | None, keywords: dict[str, bool]) -> bool:
    """Return the argument that DeepSpeed names ``async``, a keyword of Python."""
    unknown = keywords.keys() - {"async"}
    if unknown:
        raise TypeError(f"{function}() got an unexpected keyword argument {min(unknown)!r}")
    if (given is None) == ("async" not in keywords):
        raise TypeError(f"{function}() takes the argument 'async' once")
    return bool(keywords["async"] if given is None else given)


_handles: WeakSet[Handle] = WeakSet()


def _renew_locks() -> None:
    """Replace the locks after a fork: no thread would release one that another thread held.

    Calls of the child on a handle of its parent must not block.
    """
    for handle in _handles:
        handle._lock = RLock()


os.register_at_fork(after_in_child=_renew_locks)
