"""Plot files between the steps of a computation, which continues while they are written.

As in h5bench, the computation is emulated by sleeping, and comes between the steps. The last write
of a run has no computation to overlap with. Ranks write files of their own, or one file together by
MPI-IO.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np

from . import events, parallel
from .libhdf5 import TRUNCATE, library, numbers
from .measure import Contestant, WrongBytesError
from .ranks import RankFailedError, Ranks

ITEM = 8
"""The bytes of an element: all are of double precision."""


@dataclass
class Part(events.Field):
    """The elements of a dataset that this rank writes."""

    group: str
    name: str
    shape: tuple[int, ...]
    """The shape of the whole dataset."""
    start: tuple[int, ...]

    @classmethod
    def of(
        cls,
        name: str,
        shape: tuple[int, ...],
        start: tuple[int, ...],
        count: tuple[int, ...],
        seed: tuple[int, ...],
    ) -> Part:
        group, _, name = name.partition("/")
        return cls(np.random.default_rng(seed).random(count), False, group, name, shape, start)


def levels(count: int, nbytes: int, ranks: Ranks) -> list[Part]:
    """Return this rank's parts of AMReX's layout.

    Each level has one dataset with the elements of all boxes; those of a rank are contiguous.
    """
    length, rank = nbytes // ITEM // count, ranks.rank
    shape, start = (length * ranks.size,), (length * rank,)
    return [
        Part.of(f"level_{level}/data:datatype=0", shape, start, (length,), (rank, level))
        for level in range(count)
    ]


def block(nbytes: int, ranks: Ranks) -> list[Part]:
    """Return this rank's block of an array of three dimensions, in nearly equal edges.

    The last dimension, whose elements are contiguous in the file, is divided first.
    """
    items = nbytes // ITEM
    edge = max(round(items ** (1 / 3)), 1)
    count = (max(items // edge**2, 1), edge, edge)
    grid = _grid(ranks.size)
    at = np.unravel_index(ranks.rank, grid)
    shape = tuple(n * parts for n, parts in zip(count, grid, strict=True))
    start = tuple(int(n * place) for n, place in zip(count, at, strict=True))
    return [Part.of("fields/block", shape, start, count, (ranks.rank, 0))]


def _grid(size: int) -> tuple[int, ...]:
    """Divide ranks among three dimensions as evenly as possible, most in the last one."""
    found = (
        (a, b, size // (a * b))
        for a in range(1, size + 1)
        for b in range(1, size + 1)
        if size % (a * b) == 0 and a <= b <= size // (a * b)
    )
    return min(found, key=lambda grid: grid[2])


@dataclass
class Series:
    """The plot files of a run, and the times of the runs on this rank."""

    way: events.Way
    folder: Path
    parts: list[Part]
    steps: int
    compute: float
    """Seconds between two files."""
    ranks: Ranks = field(default_factory=Ranks)
    """Those that write each file together."""
    is_collective: bool = False
    in_calls: list[float] = field(default_factory=list)
    """Seconds in calls of HDF5 in each run, including waits and copies to the host."""
    last: list[float] = field(default_factory=list)
    """Seconds of the last write in each run, which overlaps with no computation."""
    submits: list[list[float]] = field(default_factory=list)
    """Seconds of each H5Dwrite in each run."""

    @property
    def memory(self) -> str:
        return "GPU memory" if self.parts[0].on_gpu else "host memory"

    @property
    def nbytes(self) -> int:
        """The bytes that this rank writes in a run."""
        return self.steps * sum(part.nbytes for part in self.parts)

    def path(self, step: int) -> Path:
        return self.folder / f"plt{step:05}.h5"

    def contestant(self, setting: str, amount: float = 1) -> Contestant:
        """Return a contestant that writes the files, with the emulated computation between them."""
        found = Contestant(self.way.name, setting, amount, self._run, self._before)
        if self.ranks.size > 1:
            found.verify = self._verify
        else:
            found.check = self._verify
        found.after = self._remove
        found.detail = lambda: f"{self.in_calls[-1]:.3f} s in calls, {self.memory}"
        return found

    def _remove(self) -> None:
        if self.ranks.is_first:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _before(self) -> None:
        for part in self.parts:
            part.for_writing(self.way)
        self._remove()
        if self.ranks.is_first:
            self.folder.mkdir()
            # This contestant must not wait for the write-back of others.
            os.sync()

    def _run(self) -> None:
        try:
            self._write_all()
        except Exception as error:
            if self.ranks.size == 1:
                raise
            raise RankFailedError(f"{self.way.name}, {self.memory}: {error}") from error

    def _write_all(self) -> None:
        spent = 0.0
        self.submits.append([])
        found = events.Events(self.way)
        with self._lists() as lists:
            for step in range(self.steps):
                if step:
                    time.sleep(self.compute)
                begin = time.perf_counter()
                found.wait()
                waited = time.perf_counter()
                self._write(self.path(step), lists, found.id)
                spent += time.perf_counter() - begin
            begin = time.perf_counter()
            found.close()
            end = time.perf_counter()
        self.in_calls.append(spent + end - begin)
        self.last.append(end - waited)

    @contextmanager
    def _lists(self) -> Iterator[tuple[int, int, int]]:
        with ExitStack() as stack:
            access = stack.enter_context(events.access(self.way))
            creation = transfer = 0
            if self.ranks.size > 1:
                parallel.share(access)
                lists = parallel.lists(is_collective=self.is_collective)
                creation, transfer = stack.enter_context(lists)
            yield access, creation, transfer

    def _write(self, path: Path, lists: tuple[int, int, int], event_set: int) -> None:
        hdf5, later = library(), events.later
        access, creation, transfer = lists
        file = later("H5Fcreate_async")(os.fsencode(path), TRUNCATE, 0, access, event_set)
        for part in self.parts:
            shape, count = part.shape, part.values.shape
            group = later("H5Gcreate_async")(file, part.group.encode(), 0, 0, 0, event_set)
            space = hdf5.H5Screate_simple(len(shape), numbers(*shape), None)
            memory = hdf5.H5Screate_simple(len(count), numbers(*count), None)
            dataset = later("H5Dcreate_async")(
                group, part.name.encode(), hdf5.doubles, space, 0, creation, 0, event_set
            )
            places = numbers(*part.start), None, numbers(*count), None
            hdf5.H5Sselect_hyperslab(space, 0, *places)
            address = part.for_writing(self.way)
            begin = time.perf_counter()
            later("H5Dwrite_async")(
                dataset, hdf5.doubles, memory, space, transfer, address, event_set
            )
            self.submits[-1].append(time.perf_counter() - begin)
            later("H5Dclose_async")(dataset, event_set)
            later("H5Gclose_async")(group, event_set)
            hdf5.H5Sclose(memory)
            hdf5.H5Sclose(space)
        later("H5Fclose_async")(file, event_set)

    def _verify(self, _: object) -> None:
        """Compare this rank's part of all files. No rank continues before all have compared."""
        found = self.ranks.gather(self._difference())
        if wrong := next(filter(None, found), None):
            raise WrongBytesError(wrong)

    def _difference(self) -> str | None:
        for step in range(self.steps):
            path = self.path(step)
            try:
                with h5py.File(path) as file:
                    for part in self.parts:
                        ends = zip(part.start, part.values.shape, strict=True)
                        mine = tuple(slice(at, at + n) for at, n in ends)
                        stored = file[part.group][part.name][mine]
                        if not np.array_equal(stored, part.values):
                            at = np.argwhere(stored != part.values)[0] + part.start
                            where = ", ".join(map(str, at))
                            return f"{path}, {part.group}/{part.name}: element ({where})"
            except (OSError, KeyError) as error:
                return f"{path}: {error}"
        return None
