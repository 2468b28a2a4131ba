"""One combination of memory, mode and interface, as IOR runs it: open, transfers, sync, close."""

from __future__ import annotations

import ctypes
import errno
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import penstock as ps

from . import native
from .allocate import Memory
from .files import DataFile, drop, sync_file
from .measure import Contestant, WrongBytesError
from .session import RefusedError, Session

APIS = ("PENSTOCK", "POSIX", "CUFILE")
OPENS = ("buffered", "direct")
Bytes = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Cell:
    """A combination of settings."""

    memory: str
    opened: str
    api: str
    access: str
    transfer: int
    cache: str

    def __str__(self) -> str:
        return ", ".join(filter(None, [self.access, self.cache, str(self.transfer), self.memory]))


@dataclass
class Measurement:
    """The measurements of a cell: the seconds of the slowest rank in each run."""

    cell: Cell
    nbytes: int
    opening: list[float] = field(default_factory=list)
    moving: list[float] = field(default_factory=list)
    closing: list[float] = field(default_factory=list)
    moved: list[int] = field(default_factory=list)
    """The bytes of this rank in each run: fewer than all if the deadline ended it."""
    is_extrapolated: bool = False
    """Whether the deadline ended a run of a rank. Its time is extrapolated to all bytes."""
    path: str = ""
    """The path that carried the bytes."""
    error: str = ""
    """The name of the error number or of the exception, in place of a rate."""
    is_failure: bool = False
    """Whether the error is a failure. Else the combination is impossible here."""

    def keep(self, count: int) -> None:
        """Keep the last runs only: those before were the warm-up."""
        for runs in (self.opening, self.moving, self.closing, self.moved):
            del runs[:-count]

    @property
    def rate(self) -> float | None:
        """The median of bytes per second, including opening and closing as in IOR."""
        if self.error or not self.moving:
            return None
        return self.nbytes / statistics.median(self.totals)

    @property
    def rates(self) -> list[float]:
        return [self.nbytes / seconds for seconds in self.totals]

    @property
    def totals(self) -> list[float]:
        return list(map(sum, zip(self.opening, self.moving, self.closing, strict=True)))


@dataclass
class Extent:
    """The ranges that this rank writes and reads."""

    path: Path
    offset: int
    read_path: Path
    read_offset: int
    nbytes: int
    paths: list[Path]
    """The files of all ranks."""

    @classmethod
    def of(
        cls, session: Session, nbytes: int, own: bool, reorder: bool, output: Path | None
    ) -> Extent:
        ranks = session.ranks
        base = output or session.folder / "testfile"
        if output and output.is_dir():
            raise RefusedError(f"{output} is a folder, not the test file")
        if output and not output.parent.is_dir():
            raise RefusedError(f"{output.parent} is not a folder")
        numbers = range(ranks.size)
        paths = [base.with_name(f"{base.name}.{n:08}") for n in numbers] if own else [base]
        # The first rank decides, before any rank writes.
        (existing, *_) = ranks.gather([str(path) for path in paths if path.exists()])
        if existing:
            raise RefusedError(f"{existing[0]} exists and would be overwritten: name a new file")
        other = (ranks.rank + 1) % ranks.size if reorder else ranks.rank

        def place(rank: int) -> tuple[Path, int]:
            return (paths[rank], 0) if own else (base, rank * nbytes)

        return cls(*place(ranks.rank), *place(other), nbytes, paths)

    def remove(self, is_first: bool) -> None:
        """Remove the rank's own file; a file of all ranks is removed by the first rank."""
        if is_first or len(self.paths) > 1:
            self.path.unlink(missing_ok=True)


class Cells:
    """Makes contestants for cells."""

    def __init__(self, session: Session, extent: Extent, *, fsync: bool, deadline: float) -> None:
        self._ranks, self._extent = session.ranks, extent
        self._fsync, self._deadline = fsync, deadline
        self._runs = session.runs
        self._pattern = np.random.default_rng(5).integers(0, 256, 1 << 20, np.uint8)

    @property
    def pages(self) -> DataFile:
        """The range that this rank reads."""
        extent = self._extent
        return DataFile(extent.read_path, extent.read_offset, extent.nbytes)

    def make_file(self) -> None:
        """Make the file to read, with different bytes at each place, on the medium."""
        extent = self._extent
        extent.path.touch()
        with open(extent.path, "r+b") as file:
            file.seek(extent.offset)
            for start in range(0, extent.nbytes, self._pattern.size):
                length = min(extent.nbytes - start, self._pattern.size)
                file.write(self._expected(extent.offset + start, length).data)
        sync_file(extent.path)
        self._ranks.barrier()

    def _expected(self, offset: int, nbytes: int) -> Bytes:
        """Return the expected bytes of a range of the file."""
        size = self._pattern.size
        parts = []
        while nbytes:
            number, inside = divmod(offset, size)
            length = min(size - inside, nbytes)
            parts.append(np.roll(self._pattern, number % size)[inside : inside + length])
            offset, nbytes = offset + length, nbytes - length
        return np.concatenate(parts)

    def contestant(
        self, cell: Cell, states: dict[str, Callable[[DataFile], None]]
    ) -> tuple[Contestant, Measurement]:
        """Return the contestant of a cell, which allocates its memory for each run."""
        extent = self._extent
        seen = Measurement(cell, extent.nbytes * self._ranks.size)
        kept: list[Memory] = []

        def recording(act: Callable[[], None]) -> Callable[[], None]:
            def run() -> None:
                try:
                    act()
                except Exception as error:
                    seen.error, seen.is_failure = _name(error), not _is_impossible(error)
                    raise

            return run

        def before() -> None:
            after()
            if cell.access == "read":
                # Before direct I/O, the pages are dropped, so that it writes none of them back.
                states.get(cell.cache, drop)(self.pages)
            else:
                # As IOR does. A direct write of an existing file would first wait until the dirty
                # pages of the previous contestant are on the medium.
                extent.remove(self._ranks.is_first)
            kept.append(Memory(cell.memory, cell.transfer))
            kept[0].put(self._before_run(cell))

        def verify(_: object) -> None:
            # First, because the other transfers overwrite what the run has left.
            if len(seen.moving) == self._runs:
                recording(lambda: self._verify_left(cell, kept[0], seen.moved[-1]))()
            if len(seen.moving) == 1:
                recording(lambda: self._verify(cell, kept[0]))()

        def after() -> None:
            while kept:
                kept.pop().free()

        name = f"{cell.memory}, {cell.opened}, {cell.api}"
        run = recording(lambda: self._once(cell, kept[0], seen))
        made = Contestant(name, "", extent.nbytes, run, recording(before), after=after)
        made.verify = verify
        return made, seen

    def _open(self, cell: Cell) -> _Posix | _Engine:
        """Open the file to read, or the file to write, which is made if it does not exist."""
        extent = self._extent
        path = extent.read_path if cell.access == "read" else extent.path
        return _Posix(path, cell) if cell.api == "POSIX" else _Engine(path, cell)

    def _once(self, cell: Cell, memory: Memory, seen: Measurement) -> None:
        extent = self._extent
        reading = cell.access == "read"
        first = extent.read_offset if reading else extent.offset
        begin = time.perf_counter()
        file = self._open(cell)
        try:
            opened = time.perf_counter()
            moved = 0
            for start in range(0, extent.nbytes, cell.transfer):
                file.move(memory.address, cell.transfer, first + start)
                moved += cell.transfer
                if self._deadline and time.perf_counter() - opened > self._deadline:
                    break
            if self._fsync and not reading:
                sync_file(extent.path)
            done = time.perf_counter()
        finally:
            file.close()
        closed = time.perf_counter()
        seen.path = file.path
        seen.moved.append(moved)
        seen.opening.append(opened - begin)
        # If the phase ended early, extrapolate to all bytes.
        seen.moving.append((done - opened) * extent.nbytes / moved)
        seen.closing.append(closed - done)

    def together(self, seen: Measurement) -> None:
        """Keep the times of the slowest rank for each run."""
        runs = list(zip(seen.opening, seen.moving, seen.closing, strict=True))
        for number, of_ranks in enumerate(zip(*self._ranks.gather(runs), strict=False)):
            slowest = max(of_ranks, key=sum)
            seen.opening[number], seen.moving[number], seen.closing[number] = slowest
        is_extrapolated = any(moved < self._extent.nbytes for moved in seen.moved)
        seen.is_extrapolated = any(self._ranks.gather(is_extrapolated))
        seen.is_failure, seen.error = max(self._ranks.gather((seen.is_failure, seen.error)))

    def _before_run(self, cell: Cell) -> Bytes:
        """Return the memory before a run: the bytes to write, or bytes that the file lacks."""
        if cell.access == "write":
            return self._expected(self._extent.offset, cell.transfer)
        return np.full(cell.transfer, 0xA5, np.uint8)

    def _verify_left(self, cell: Cell, memory: Memory, moved: int) -> None:
        """Compare all that a run leaves: the whole file, or the last transfer in memory."""
        length = cell.transfer
        if cell.access == "read":
            self._compare(cell, self._extent.read_offset + moved - length, memory)
            return
        expected = self._before_run(cell)
        for start in range(0, moved, length):
            self._compare(cell, self._extent.offset + start, memory, expected)

    def _verify(self, cell: Cell, memory: Memory) -> None:
        """Compare all bytes of a few transfers more, spread over the extent."""
        extent, length = self._extent, cell.transfer
        reading, count = cell.access == "read", extent.nbytes // length
        file = self._open(cell)
        try:
            for number in sorted({0, count // 3, count // 2, count - 1}):
                offset = (extent.read_offset if reading else extent.offset) + number * length
                given = self._before_run(cell) if reading else self._expected(offset, length)
                memory.put(given)
                file.move(memory.address, length, offset)
                self._compare(cell, offset, memory)
        finally:
            file.close()

    def _compare(
        self, cell: Cell, offset: int, memory: Memory, expected: Bytes | None = None
    ) -> None:
        """Compare a transfer with what it should have left in memory, or in the file."""
        extent, length = self._extent, cell.transfer
        expected = self._expected(offset, length) if expected is None else expected
        if cell.access == "read":
            path, found = extent.read_path, memory.get(length)
        else:
            path, found = extent.path, np.fromfile(extent.path, np.uint8, length, offset=offset)
        if not np.array_equal(expected, found):
            raise WrongBytesError(f"wrong bytes from offset {offset} of {path}")


def _is_impossible(error: Exception) -> bool:
    """Whether the system refuses the combination, or a facility for it is not available.

    Any other error of Penstock is a failure, even with an errno, because Penstock has a route for
    each kind of memory.
    """
    if isinstance(error, ps.Error):
        return isinstance(error, ps.UnavailableError)
    return isinstance(error, OSError) and error.errno is not None


def _name(error: Exception) -> str:
    number = getattr(error, "errno", None)
    return errno.errorcode.get(number, str(number)) if number else type(error).__name__


class _Posix:
    """A file by system calls."""

    def __init__(self, path: Path, cell: Cell) -> None:
        name = "pread" if cell.access == "read" else "pwrite"
        self.path = f"{name}, {cell.opened}"
        self._call = getattr(ctypes.CDLL(None, use_errno=True), name)
        self._call.restype = ctypes.c_ssize_t
        self._call.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64]
        flags = os.O_RDONLY if cell.access == "read" else os.O_WRONLY | os.O_CREAT
        flags |= os.O_DIRECT if cell.opened == "direct" else 0
        self._descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)

    def move(self, address: int, nbytes: int, offset: int) -> None:
        done = 0
        while done < nbytes:
            count = self._call(self._descriptor, address + done, nbytes - done, offset + done)
            if count <= 0:
                number = ctypes.get_errno() if count else errno.ENODATA
                raise OSError(number, os.strerror(number))
            done += count

    def close(self) -> None:
        os.close(self._descriptor)


class _Engine:
    """A file by Penstock, by its own choice of a route or by cuFile."""

    def __init__(self, path: Path, cell: Cell) -> None:
        flags = native.READ if cell.access == "read" else native.CREATED
        route = "gds" if cell.api == "CUFILE" else "auto"
        direct = "yes" if cell.opened == "direct" else "no"
        self._file = native.OpenFile(path, flags, route=route, direct=direct)
        self.move = self._file.read if cell.access == "read" else self._file.write
        self.close = self._file.close

    @property
    def path(self) -> str:
        """The paths that have carried the bytes so far."""
        return native.paths(self._file.report)
