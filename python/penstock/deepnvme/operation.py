"""One transfer of a handle: the bytes that it touches, its end and its result."""

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
    """The bytes of a file and the addresses of memory that an operation uses."""

    operation: int
    file: tuple[int, int]
    """Device and inode."""
    offset: int
    nbytes: int
    address: int
    """The lowest address of the array."""
    extent: int
    """Bytes from there to the end of the array, including gaps between elements."""

    def conflicts(self, other: Touched) -> bool:
        """Whether the order of the two operations matters."""
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
    """Return what a transfer between an existing file and an array touches."""
    status = os.stat(target)
    # With a negative stride, elements lie before the first one.
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
    """An asynchronous transfer, from its start until its handle has reported the result."""

    def __init__(
        self, request: Request[None], touched: Touched, complete: Callable[[], None], note: str
    ) -> None:
        self.touched = touched
        self.failure: Exception | None = None
        self.account: Any = None
        """The stored report; ``None`` after a failure."""
        self._request: Request[None] | None = request
        self._complete = complete
        self._note = note

    @property
    def is_settled(self) -> bool:
        """Whether the operation has ended and its result is known."""
        return self._request is None

    def settle(self) -> None:
        """Wait for the end. After an interruption by a signal, this can be called again."""
        request = self._request
        if request is None:
            return
        try:
            request.wait()
            self._complete()
            self.account = request.account()
            if self._note:
                self.account = with_note(request.report, self._note)
        except Exception as error:  # from the transfer, or from the framework that copies
            self.failure = error
        self._request = None


def raise_first(failures: Sequence[Exception]) -> None:
    """Raise the first failure, if any; each further one is the ``__cause__`` of its predecessor."""
    for failure, following in pairwise(failures):
        failure.__cause__ = following
    if failures:
        raise failures[0]


class Reader:
    """Reads a file by plain system calls, for a comparison.

    It opens the file at once, because the path or descriptor may lead to another file later.
    """

    def __init__(self, target: Target) -> None:
        name = f"/proc/self/fd/{target}" if isinstance(target, int) else target
        self._descriptor = -1
        self._descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        self.path = os.fsdecode(os.path.realpath(name))

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def read(self, nbytes: int, offset: int) -> bytes:
        """Return up to ``nbytes`` bytes; none at the end of the file."""
        return os.pread(self._descriptor, nbytes, offset)


def compare(reader: Reader, offset: int, view: arrays.View) -> None:
    """Raise an error unless a range of a file equals the contents of an array."""
    path = reader.path
    expected = np.empty(view.nbytes, np.uint8)
    wait_for(view.stream, view.device)
    copy_bytes(expected.__array_interface__["data"][0], view.pointer, view.nbytes)
    at = 0
    while at < len(expected):
        found = np.frombuffer(reader.read(min(len(expected) - at, 16 << 20), offset + at), np.uint8)
        if not len(found):
            raise EndOfFileError(
                f"{path} ends at offset {offset + at}, before the end of the array",
                path=path,
                offset=offset + at,
                length=len(expected) - at,
            )
        wrong = np.flatnonzero(found != expected[at : at + len(found)])
        if len(wrong):
            first = offset + at + int(wrong[0])
            raise IOFailure(
                f"{path} and the array differ at offset {first}",
                path=path,
                offset=first,
                length=offset + len(expected) - first,
                remedy="do not change the file or the array during the transfer",
            )
        at += len(found)
