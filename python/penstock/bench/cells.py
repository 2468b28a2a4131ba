"""One combination of memory, mode and interface, as IOR runs it."""

from __future__ import annotations

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

from .allocate import Memory
from .files import DataFile, drop
from .ior import Access, open_by
from .measure import Contestant, WrongBytesError
from .session import RefusedError, Session


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
        parts = zip(self.opening, self.moving, self.closing, strict=True)
        return [sum(part) for part in parts]


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
        paths = (
            [base.with_name(f"{base.name}.{n:08}") for n in range(ranks.size)] if own else [base]
        )
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
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(extent.path, flags, 0o644)
        try:
            for start in range(0, extent.nbytes, self._pattern.size):
                length = min(extent.nbytes - start, self._pattern.size)
                offset = extent.offset + start
                _write_all(descriptor, self._expected(offset, length).tobytes(), offset)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._ranks.barrier()

    def _expected(self, offset: int, nbytes: int) -> np.ndarray[Any, Any]:
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

        def run() -> None:
            self._once(cell, kept[0], seen)

        def verify(_: object) -> None:
            # First, because the other transfers overwrite what the run has left.
            if len(seen.moving) == self._runs:
                recording(lambda: self._verify_left(cell, kept[0], seen.moved[-1]))()
            if len(seen.moving) == 1:
                recording(lambda: self._verify(cell, kept[0]))()

        def after() -> None:
            while kept:
                kept.pop().free()

        made = Contestant(
            f"{cell.memory}, {cell.opened}, {cell.api}",
            "",
            extent.nbytes,
            recording(run),
            before=recording(before),
            verify=verify,
            after=after,
        )
        return made, seen

    def _open(self, cell: Cell) -> Access:
        extent = self._extent
        path = extent.read_path if cell.access == "read" else extent.path
        return open_by(cell.api, path, cell.access, cell.opened)

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
                file.sync()
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

    def _before_run(self, cell: Cell) -> np.ndarray[Any, Any]:
        """Return the memory before a run: the bytes to write, or bytes that the file lacks."""
        if cell.access == "write":
            return self._expected(self._extent.offset, cell.transfer)
        return np.full(cell.transfer, 0xA5, np.uint8)

    def _verify_left(self, cell: Cell, memory: Memory, moved: int) -> None:
        """Compare all that a run leaves: the whole file, or the last transfer in memory."""
        extent, length = self._extent, cell.transfer
        if cell.access == "read":
            offset = extent.read_offset + moved - length
            _compare(self._expected(offset, length), memory.get(length), extent.read_path, offset)
            return
        expected = self._before_run(cell)
        for offset in range(extent.offset, extent.offset + moved, length):
            found = np.fromfile(extent.path, np.uint8, length, offset=offset)
            _compare(expected, found, extent.path, offset)

    def _verify(self, cell: Cell, memory: Memory) -> None:
        """Compare all bytes of a few transfers more, spread over the extent."""
        extent, length = self._extent, cell.transfer
        count = extent.nbytes // length
        places = sorted({0, count // 3, count // 2, count - 1})
        file = self._open(cell)
        try:
            for number in places:
                if cell.access == "read":
                    offset = extent.read_offset + number * length
                    expected = self._expected(offset, length)
                    memory.put(np.full(length, 0xA5, np.uint8))
                    file.move(memory.address, length, offset)
                    found = memory.get(length)
                else:
                    offset = extent.offset + number * length
                    expected = self._expected(offset, length)
                    memory.put(expected)
                    file.move(memory.address, length, offset)
                    found = np.fromfile(extent.path, np.uint8, length, offset=offset)
                _compare(expected, found, extent.path, offset)
        finally:
            file.close()


def _compare(
    expected: np.ndarray[Any, Any], found: np.ndarray[Any, Any], path: Path, offset: int
) -> None:
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


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
