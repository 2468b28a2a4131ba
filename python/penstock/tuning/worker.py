"""A measuring process: reads orders from standard input, writes answers to standard output.

Each GPU has its own process, as in the programs that the profile is for. A crash of a driver or of
cuFile therefore ends one measurement, not the tuning. Orders and answers are JSON, one per line.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import penstock as ps
from penstock._native import CData, lib, new_report, pointer
from penstock._options import resolve
from penstock.errors import check
from penstock.files import READ, WRITE, NativeFile
from penstock.memory import copy_bytes
from penstock.report import from_native
from penstock.tuning import files
from penstock.tuning.rows import MIB, SMALL_SIZES, Row

_SMALL_COUNTS = dict(zip(SMALL_SIZES, (16, 6, 3), strict=True))
_WHOLE_STEP = 16 * MIB


@dataclass(frozen=True)
class _Piece:
    """One transfer: its offsets in the file and in the memory, and its length."""

    offset: int
    at: int
    nbytes: int


class _Memory:
    """Page-aligned memory of a GPU, or of the host."""

    def __init__(self, nbytes: int, device: int) -> None:
        self.nbytes = nbytes
        self._owner: Any
        if device < 0:
            self._owner = np.empty(nbytes + mmap.PAGESIZE, np.uint8)
            start = int(self._owner.ctypes.data)
            self.address = start + -start % mmap.PAGESIZE
        else:
            self._owner = ps.DeviceArray(nbytes, "uint8", device)
            self.address = self._owner.data_ptr

    def put(self, at: int, content: files.Bytes) -> None:
        copy_bytes(self.address + at, int(content.ctypes.data), content.nbytes)

    def get(self, at: int, nbytes: int) -> files.Bytes:
        found = np.empty(nbytes, np.uint8)
        copy_bytes(int(found.ctypes.data), self.address + at, nbytes)
        return found


class WrongBytesError(Exception):
    """A transfer moved wrong bytes."""


class _Measurer:
    """The file and the memory of this process."""

    def __init__(self, path: str, nbytes: int, device: int) -> None:
        self._path = path
        self._nbytes = nbytes
        self._file = NativeFile(path, READ | WRITE)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._contents = files.Contents()
        self._memory = _Memory(nbytes, device)
        for start in range(0, nbytes, _WHOLE_STEP):
            self._memory.put(start, self._contents.at(start, min(_WHOLE_STEP, nbytes - start)))
        self._stamps = 0
        self._report = new_report()

    def run(self, order: dict[str, Any], meet: Callable[[], float]) -> dict[str, Any]:
        """Make a transfer, after ``meet`` if it must begin together with other processes."""
        row = Row(*order["row"])
        durable = {"durable": "yes"} if (row.operation, row.place) == ("write", "storage") else {}
        options = resolve({**dict(order["options"]), **durable})
        pieces = self._pieces(row, order["amount"])
        self._prepare(row)
        verify = self._verifier(row, pieces, order["check"])
        call = lib.penstock_read if row.operation == "read" else lib.penstock_write
        groups = _by_size(pieces)
        if order["meet"]:
            _wait_until(meet())
        begin = time.monotonic()
        rates = [self._timed(call, group, options) for group in groups]
        end = time.monotonic()
        verify()
        report = from_native(self._report)
        return {
            "begin": begin,
            "end": end,
            "bytes": sum(piece.nbytes for piece in pieces),
            "rate": math.exp(sum(map(math.log, rates)) / len(rates)),
            "route": report.route,
            "note": report.note,
            "threads": report.threads,
            "block": report.block,
        }

    def _timed(self, call: Any, pieces: list[_Piece], options: CData) -> float:
        begin = time.perf_counter()
        for piece in pieces:
            buffer = pointer(self._memory.address + piece.at)
            handle = self._file.handle
            check(call(handle, buffer, piece.nbytes, piece.offset, options, self._report))
        return sum(piece.nbytes for piece in pieces) / (time.perf_counter() - begin)

    def _pieces(self, row: Row, amount: int) -> list[_Piece]:
        if row.size == "large":
            return [_Piece(0, 0, min(amount, self._nbytes))]
        pieces = []
        at = 0
        for size, count in sorted(_SMALL_COUNTS.items(), reverse=True):
            for _ in range(count):
                pieces.append((at, size))
                at += size
        # As far apart as the file allows, at multiples of a page.
        spread = self._nbytes // at
        made = [_Piece(place * spread, place, size) for place, size in pieces]
        random.Random(5).shuffle(made)
        return made

    def _prepare(self, row: Row) -> None:
        """Bring the file's pages into the state that the row requires."""
        if row.operation == "write":
            os.fsync(self._descriptor)  # the measured write must not wait for earlier ones
            return
        found = files.residency(self._descriptor, self._nbytes)
        if row.place == "cache":
            if found is None or found < 1:
                files.warm(self._descriptor, self._nbytes)
            return
        files.drop(self._descriptor)
        found = files.residency(self._descriptor, self._nbytes)
        if found is not None and found > 0.05:
            raise _AbsentError("the file system keeps the file in memory")

    def _verifier(self, row: Row, pieces: list[_Piece], kind: str) -> Callable[[], None]:
        """Overwrite the compared bytes, to detect a missing transfer; return the check."""
        if kind == "none":
            return lambda: None
        ranges = [
            (piece, start, nbytes)
            for piece in pieces
            for start, nbytes in (_steps(piece) if kind == "whole" else files.windows(piece.nbytes))
        ]
        self._stamps += 1
        stamp = files.Contents(self._stamps)
        for piece, start, nbytes in ranges:
            content = stamp.at(piece.offset + start, nbytes)
            # A read must overwrite it, and a write must store it in the file.
            self._memory.put(piece.at + start, content)

        def compare() -> None:
            for piece, start, nbytes in ranges:
                offset = piece.offset + start
                if row.operation == "read":
                    wanted = self._contents.at(offset, nbytes)
                    found: Any = self._memory.get(piece.at + start, nbytes)
                else:
                    wanted = stamp.at(offset, nbytes)
                    found = os.pread(self._descriptor, nbytes, offset)
                if not files.same(found, wanted):
                    raise WrongBytesError(
                        f"{self._path}: wrong bytes after a {row.name} of {piece.nbytes:,} bytes "
                        f"at offset {piece.offset:,}: between {offset:,} and {offset + nbytes:,}"
                    )

        return compare


class _AbsentError(Exception):
    """This file system does not offer the kind of transfer."""


def _by_size(pieces: list[_Piece]) -> list[list[_Piece]]:
    sizes = sorted({piece.nbytes for piece in pieces})
    return [[piece for piece in pieces if piece.nbytes == size] for size in sizes]


def _steps(piece: _Piece) -> list[tuple[int, int]]:
    return [
        (start, min(_WHOLE_STEP, piece.nbytes - start))
        for start in range(0, piece.nbytes, _WHOLE_STEP)
    ]


def _wait_until(moment: float) -> None:
    """Wait until a moment of the monotonic clock."""
    while (left := moment - time.monotonic()) > 0:
        if left > 0.002:
            time.sleep(left - 0.001)


def _answer(
    measurer: _Measurer, order: dict[str, Any], meet: Callable[[], float]
) -> dict[str, Any]:
    try:
        return measurer.run(order, meet)
    except WrongBytesError as error:
        return {"wrong": str(error)}
    except _AbsentError as error:
        return {"not_here": str(error)}
    except ps.NoSpaceError as error:
        return {"no_space": str(error)}
    except (ps.Error, OSError) as error:
        return {"error": str(error)}


def main() -> None:
    """Serve the parent process until it closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # after Ctrl-C, the parent closes the pipe
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keep what libraries print out of the answers

    def say(answer: dict[str, Any]) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    def meet() -> float:
        say({"prepared": True})
        return float(sys.stdin.readline() or "0")

    path, nbytes, device = json.loads(sys.stdin.readline())
    try:
        measurer = _Measurer(path, nbytes, device)
    except (ps.Error, OSError, MemoryError) as error:
        say({"error": str(error)})
        return
    say({"ready": True})
    while line := sys.stdin.readline():
        say(_answer(measurer, json.loads(line), meet))
