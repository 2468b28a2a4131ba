"""One transfer of a handle: what it touches, when it is over, what came of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from penstock import arrays
from penstock.errors import EndOfFileError, IOFailure
from penstock.files import Path
from penstock.memory import copy_bytes
from penstock.report import with_note
from penstock.request import READ, WRITE, Request
from penstock.streams import wait_for

Target: TypeAlias = "Path | int"
"""A path, or a descriptor that is open on the file."""


@dataclass(frozen=True)
class Touched:
    """The bytes of a file and the addresses of memory between which an operation moves."""

    operation: int
    file: tuple[int, int]
    """Device and inode."""
    offset: int
    nbytes: int
    address: int
    """The lowest one of the array."""
    extent: int
    """Bytes from there to its end, gaps between the elements included."""

    def conflicts(self, other: Touched) -> bool:
        """Whether it matters which of the two comes first."""
        file_changes = WRITE in (self.operation, other.operation)
        memory_changes = READ in (self.operation, other.operation)
        return (
            file_changes
            and self.file == other.file
            and _overlap(self.offset, self.nbytes, other.offset, other.nbytes)
        ) or (memory_changes and _overlap(self.address, self.extent, other.address, other.extent))


def _overlap(start: int, length: int, other: int, other_length: int) -> bool:
    return start < other + other_length and other < start + length


def touched(operation: int, target: Target, offset: int, view: arrays.View) -> Touched:
    """What a transfer between a file that exists and an array touches."""
    status = os.stat(target)
    # Elements lie before the first one where a stride is negative.
    reach = [(n - 1) * step for n, step in zip(view.shape, view.byte_strides, strict=True) if n > 1]
    before = -sum(step for step in reach if step < 0)
    after = sum(step for step in reach if step > 0) + view.dtype.itemsize
    return Touched(
        operation,
        (status.st_dev, status.st_ino),
        offset,
        view.nbytes,
        view.pointer - before,
        before + after if view.nbytes else 0,
    )


class Operation:
    """An asynchronous transfer, from its start until its handle has told what came of it."""

    def __init__(
        self, request: Request[None], touched: Touched, complete: Callable[[], None], note: str
    ) -> None:
        self.touched = touched
        self.failure: Exception | None = None
        self.account: Any = None
        """What was done; ``None`` after a failure."""
        self._request: Request[None] | None = request
        self._complete = complete
        self._note = note

    @property
    def is_settled(self) -> bool:
        """Whether the operation is over, and its outcome here."""
        return self._request is None

    def settle(self) -> None:
        """Wait for the end. Interrupted by a signal, it can be called again."""
        request = self._request
        if request is None:
            return
        try:
            request.wait()
            self._complete()
            self.account = request.account()
            if self._note:
                self.account = with_note(request.report, self._note)
        except Exception as error:  # of the transfer, or of the framework that copies
            self.failure = error
        self._request = None


def raise_first(failures: Sequence[Exception]) -> None:
    """Raise the first of some failures, if there are any; each further one is the ``__cause__`` of
    the one before it."""
    for failure, following in pairwise(failures):
        failure.__cause__ = following
    if failures:
        raise failures[0]


class Reader:
    """A file as the system alone reads it, open for a comparison: the file that a path or a
    descriptor means now, whatever becomes of either before the transfer is over."""

    def __init__(self, target: Target) -> None:
        name = f"/proc/self/fd/{target}" if isinstance(target, int) else target
        self._descriptor = -1
        self._descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        self.path = os.fsdecode(os.path.realpath(name))

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def read(self, nbytes: int, offset: int) -> bytes:
        """Up to so many bytes; none at the end of the file."""
        return os.pread(self._descriptor, nbytes, offset)


def compare(reader: Reader, offset: int, view: arrays.View) -> None:
    """Raise unless a range of a file is what an array holds."""
    path = reader.path
    expected = np.empty(view.nbytes, np.uint8)
    wait_for(view.stream, view.device)
    copy_bytes(expected.__array_interface__["data"][0], view.pointer, view.nbytes)
    at = 0
    while at < len(expected):
        found = np.frombuffer(reader.read(min(len(expected) - at, 16 << 20), offset + at), np.uint8)
        if not len(found):
            raise EndOfFileError(
                f"{path} ends at offset {offset + at}, before the array does",
                path=path,
                offset=offset + at,
                length=len(expected) - at,
            )
        wrong = np.flatnonzero(found != expected[at : at + len(found)])
        if len(wrong):
            first = offset + at + int(wrong[0])
            raise IOFailure(
                f"{path} and the array differ from offset {first} on",
                path=path,
                offset=first,
                length=offset + len(expected) - first,
                remedy="let nobody else change the file or the array meanwhile",
            )
        at += len(found)
