"""Small pieces of contiguous data in host memory: the driver against HDF5's own, which sieves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benches.vfd_attributes import Driver, open_file
from penstock.bench import vfd
from penstock.bench.command import Found, Plan, main
from penstock.bench.libhdf5 import library, numbers
from penstock.bench.measure import Contestant, Row, race
from penstock.bench.result import Target

_DRIVERS = (("Penstock", ("penstock", "")), ("sec2", None))
_ROUNDS = 9


@dataclass(frozen=True)
class Pieces:
    """Hyperslabs of a dataset of integers of `shape`, one for each call."""

    name: str
    shape: tuple[int, int]
    starts: list[tuple[int, int]]
    count: tuple[int, int]
    stride: tuple[int, int] = (1, 1)

    @property
    def elements(self) -> int:
        return self.count[0] * self.count[1]


def _pieces(quick: bool) -> list[Pieces]:
    """Return them in the sizes of what programs do: few calls suffice, the pieces are many."""
    rows, points = (2_000, 50_000) if quick else (30_000, 1_000_000)
    tall = 500 if quick else 2_000
    return [
        Pieces(f"{rows:,} rows of 8 B", (rows, 2), [(row, 0) for row in range(rows)], (1, 2)),
        Pieces(
            f"{rows:,} rows of 8 B, 8 B between",
            (rows, 4),
            [(row, 0) for row in range(rows)],
            (1, 2),
        ),
        Pieces(
            f"{rows // 10:,} rows of 4 KiB",
            (rows // 10, 1024),
            [(row, 0) for row in range(rows // 10)],
            (1, 1024),
        ),
        Pieces(
            f"{points:,} x 3, one column a call",
            (points, 3),
            [(0, column) for column in range(3)],
            (points, 1),
        ),
        Pieces(
            f"every second of {2 * points:,} integers",
            (1, 2 * points),
            [(0, 0)],
            (1, points),
            (1, 2),
        ),
        Pieces(
            f"8 columns of {tall:,} x 4,096",
            (tall, 4096),
            [(0, 512 * column) for column in range(8)],
            (tall, 1),
        ),
    ]


def measure(plan: Plan) -> Found:
    vfd.prepare(with_gpu=False)
    rows: list[Row] = []
    targets: list[Target] = []
    path = plan.folder / "hdf5-small.h5"
    for pieces in _pieces(plan.quick):
        for verb, run in (("written", _write), ("read", _read)):
            act: Callable[[Path, Pieces, Driver], None] = run
            group = f"{pieces.name}, {verb}"
            contestants = [
                Contestant(
                    name, "host memory", len(pieces.starts), partial(act, path, pieces, driver)
                )
                for name, driver in _DRIVERS
            ]
            alone = partial(_call_nothing, pieces)
            contestants.append(Contestant("ctypes", "", len(pieces.starts), alone))
            rounds = plan.rounds if plan.quick else _ROUNDS
            ours, theirs, calls = race(contestants, "us", rounds=rounds, group=group)
            for row in (ours, theirs):
                # What is left of a short run may be less than the noise, and even negative.
                row.seconds = [max(seconds - (calls.median or 0), 1e-9) for seconds in row.seconds]
            rows += [ours, theirs]
            times = theirs.better_than(ours)
            targets.append(Target(f"{group}, time against sec2", "x", 1.1, times, at_most=True))
    path.unlink(missing_ok=True)
    return Found(rows, targets, [])


def _values(elements: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.arange(1, elements + 1, dtype=np.int32)


def _move(path: Path, pieces: Pieces, driver: Driver, address: int, *, write: bool) -> None:
    hdf5 = library()
    space = hdf5.H5Screate_simple(2, numbers(*pieces.shape), None)
    memory = hdf5.H5Screate_simple(1, numbers(pieces.elements), None)
    with open_file(path, driver, new=write) as file:
        if write:
            dataset = hdf5.H5Dcreate2(file, b"x", hdf5.integers, space, 0, 0, 0)
        else:
            dataset = hdf5.H5Dopen2(file, b"x", 0)
        move = hdf5.H5Dwrite if write else hdf5.H5Dread
        arguments = (dataset, hdf5.integers, memory, space, 0, address)
        _call(pieces, hdf5.H5Sselect_hyperslab, space, move, arguments)
        hdf5.H5Dclose(dataset)
    hdf5.H5Sclose(memory)
    hdf5.H5Sclose(space)


def _call(pieces: Pieces, select: Any, space: int, move: Any, arguments: tuple[int, ...]) -> None:
    stride, count = numbers(*pieces.stride), numbers(*pieces.count)
    starts = [numbers(*start) for start in pieces.starts]
    for start in starts:
        select(space, 0, start, stride, count, None)
        move(*arguments)


def _call_nothing(pieces: Pieces) -> None:
    """Make the calls with functions that do nothing: Python takes longer for a call than HDF5."""
    hdf5 = library()
    _call(pieces, hdf5.idle("H5Sselect_hyperslab"), 0, hdf5.idle("H5Dwrite"), (0,) * 6)


def _write(path: Path, pieces: Pieces, driver: Driver) -> None:
    values = _values(pieces.elements)
    _move(path, pieces, driver, values.ctypes.data, write=True)


def _read(path: Path, pieces: Pieces, driver: Driver) -> None:
    """Read what was written before, and check the last piece."""
    found = np.zeros(pieces.elements, dtype=np.int32)
    _move(path, pieces, driver, found.ctypes.data, write=False)
    if not np.array_equal(found, _values(pieces.elements)):
        raise AssertionError("wrong values")


if __name__ == "__main__":
    main(
        "Small pieces through the driver",
        measure,
        size="32MiB",
        quick_size="2MiB",
        needs_gpu=False,
    )
