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
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import penstock as ps
from penstock._native import CData, lib, new_report, pointer
from penstock._options import resolve
from penstock.bench.files import DataFile, drop, warm
from penstock.errors import check
from penstock.files import READ, WRITE, NativeFile
from penstock.memory import copy_bytes
from penstock.report import from_native
from penstock.tuning import files
from penstock.tuning.measure import AbsentError, WrongBytesError
from penstock.tuning.rows import MIB, SMALL_SIZES, Row

_SMALL_COUNTS = dict(zip(SMALL_SIZES, (16, 6, 3), strict=True))
_WHOLE_STEP = 16 * MIB
_ANSWERS: dict[type[Exception], str] = {
    WrongBytesError: "wrong",
    AbsentError: "not_here",
    ps.NoSpaceError: "no_space",
    ps.Error: "error",
    OSError: "error",
}
"""The key of the answer for an exception: the first that fits."""


class _Piece(NamedTuple):
    """One transfer: its offsets in the file and in the memory, and its length."""

    offset: int
    at: int
    nbytes: int

    def ranges(self, kind: str) -> list[_Piece]:
        """Return what is compared: all of it in steps, or both ends and some between."""
        width = min(self.nbytes, _WHOLE_STEP if kind == "whole" else 4096)
        between = self.nbytes // 16
        spread = {0, self.nbytes - width, *(between * number for number in range(1, 16))}
        starts = range(0, self.nbytes, width) if kind == "whole" else sorted(spread)
        return [
            _Piece(self.offset + start, self.at + start, min(width, self.nbytes - start))
            for start in starts
        ]


class _Measurer:
    """The file of this process, and page-aligned memory of its GPU or of the host."""

    def __init__(self, path: str, nbytes: int, device: int) -> None:
        self._pages = DataFile(Path(path), 0, nbytes)
        self._file = NativeFile(path, READ | WRITE)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._contents = files.Contents()
        self._memory: Any
        if device < 0:
            self._memory = np.empty(nbytes + mmap.PAGESIZE, np.uint8)
            start = int(self._memory.ctypes.data)
            self._address = start + -start % mmap.PAGESIZE
        else:
            self._memory = ps.DeviceArray(nbytes, "uint8", device)
            self._address = self._memory.data_ptr
        for piece in _Piece(0, 0, nbytes).ranges("whole"):
            self._put(piece, self._contents)
        self._stamps = 0
        self._report = new_report()

    def _put(self, piece: _Piece, contents: files.Contents) -> None:
        content = contents.at(piece.offset, piece.nbytes)
        copy_bytes(self._address + piece.at, int(content.ctypes.data), piece.nbytes)

    def run(self, order: dict[str, Any], meet: Callable[[], float]) -> dict[str, Any]:
        """Make a transfer, after ``meet`` if it must begin together with other processes."""
        row = Row(*order["row"])
        durable = {"durable": "yes"} if (row.operation, row.place) == ("write", "storage") else {}
        options = resolve({**dict(order["options"]), **durable})
        pieces = self._pieces(row, order["amount"])
        self._prepare(row)
        verify = self._verifier(row, pieces, order["check"])
        call = lib.penstock_read if row.operation == "read" else lib.penstock_write
        sizes = sorted({piece.nbytes for piece in pieces})
        groups = [[piece for piece in pieces if piece.nbytes == size] for size in sizes]
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
        handle = self._file.handle
        begin = time.perf_counter()
        for piece in pieces:
            buffer = pointer(self._address + piece.at)
            check(call(handle, buffer, piece.nbytes, piece.offset, options, self._report))
        return sum(piece.nbytes for piece in pieces) / (time.perf_counter() - begin)

    def _pieces(self, row: Row, amount: int) -> list[_Piece]:
        whole = self._pages.nbytes
        if row.size == "large":
            return [_Piece(0, 0, min(amount, whole))]
        sizes = [size for size in sorted(_SMALL_COUNTS)[::-1] for _ in range(_SMALL_COUNTS[size])]
        # As far apart as the file allows, at multiples of a page.
        spread, at, made = whole // sum(sizes), 0, []
        for size in sizes:
            made.append(_Piece(at * spread, at, size))
            at += size
        random.Random(5).shuffle(made)
        return made

    def _prepare(self, row: Row) -> None:
        """Bring the file's pages into the state that the row requires."""
        if row.operation == "write":
            os.fsync(self._descriptor)  # the measured write must not wait for earlier ones
            return
        # The state is unknown on a file system without mappings.
        with suppress(OSError):
            try:
                (warm if row.place == "cache" else drop)(self._pages)
            except RuntimeError:
                if row.place == "storage":
                    raise AbsentError("the file system keeps the file in memory") from None

    def _verifier(self, row: Row, pieces: list[_Piece], kind: str) -> Callable[[], None]:
        """Overwrite the compared bytes, to detect a missing transfer; return the check."""
        compared = [] if kind == "none" else pieces
        self._stamps += 1
        stamp = files.Contents(self._stamps)
        for piece in compared:
            for part in piece.ranges(kind):
                # A read must overwrite it, and a write must store it in the file.
                self._put(part, stamp)

        def compare() -> None:
            for piece in compared:
                for part in piece.ranges(kind):
                    if not self._is_right(row, part, stamp):
                        end = part.offset + part.nbytes
                        raise WrongBytesError(
                            f"{self._pages.path}: wrong bytes after a {row.name} of "
                            f"{piece.nbytes:,} bytes at offset {piece.offset:,}: between "
                            f"{part.offset:,} and {end:,}"
                        )

        return compare

    def _is_right(self, row: Row, part: _Piece, stamp: files.Contents) -> bool:
        if row.operation == "write":
            stored = os.pread(self._descriptor, part.nbytes, part.offset)
            return stored == stamp.at(part.offset, part.nbytes).tobytes()
        found = np.empty(part.nbytes, np.uint8)
        copy_bytes(int(found.ctypes.data), self._address + part.at, part.nbytes)
        return bool(np.array_equal(found, self._contents.at(part.offset, part.nbytes)))


def _wait_until(moment: float) -> None:
    """Wait until a moment of the monotonic clock."""
    while (left := moment - time.monotonic()) > 0:
        if left > 0.002:
            time.sleep(left - 0.001)


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
        try:
            say(measurer.run(json.loads(line), meet))
        except tuple(_ANSWERS) as error:
            say({next(_ANSWERS[it] for it in _ANSWERS if isinstance(error, it)): str(error)})
