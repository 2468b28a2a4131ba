"""Small requests of every kind from many threads at once, each checked; and many of them, one after
the other, which leave nothing behind.

``PENSTOCK_TEST_THREADS_SECONDS`` is how long the threads run, 1 if it is not set;
``PENSTOCK_TEST_SMALL_READS`` is how many reads follow each other, 30,000.
"""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import h5py
import numpy as np
import pytest

import penstock as ps

SECONDS = float(os.environ.get("PENSTOCK_TEST_THREADS_SECONDS", "1"))
READS = int(os.environ.get("PENSTOCK_TEST_SMALL_READS", "30000"))
THREADS = 8
SHAPE = (300, 40, 30)
LAYOUTS: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "raw": {"chunks": (1, 40, 30)},
    "gzip": {"chunks": (6, 40, 30), "compression": 1},
    "lzf": {"chunks": (32, 20, 30), "compression": "lzf", "shuffle": True},
    "big endian": {"chunks": (10, 40, 7), "dtype": ">f4"},
}


def contents(name: str) -> np.ndarray[Any, Any]:
    seed = sorted(LAYOUTS).index(name)
    return np.random.default_rng(seed).integers(0, 1 << 15, SHAPE).astype("f4")


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    path: Path = tmp_path_factory.mktemp("small") / "f.h5"
    with h5py.File(path, "w") as file:
        for name, arguments in LAYOUTS.items():
            file.create_dataset(name, data=contents(name), **arguments)
    return path


class Requests:
    """Random requests of one thread."""

    def __init__(self, file: Any, memory: Any, seed: int) -> None:
        self._file = file
        self._memory = memory
        self._draw = random.Random(seed)
        self._wanted = {name: contents(name) for name in LAYOUTS}
        self.done: Counter[str] = Counter()

    def one(self) -> None:
        kinds: list[Callable[[], None]] = [
            self._row,
            self._slice,
            self._list,
            self._new,
            self._async,
            self._many,
        ]
        kind = self._draw.choice(kinds)
        kind()
        self.done[kind.__name__] += 1

    def _check(self, out: Any, name: str, index: Any) -> None:
        np.testing.assert_array_equal(self._memory.numpy(out), self._wanted[name][index])

    def _name(self) -> str:
        return self._draw.choice(sorted(LAYOUTS))

    def _part(self) -> Any:
        start = self._draw.randrange(SHAPE[0] - 1)
        stop = min(SHAPE[0], start + self._draw.choice([1, 3, 20, 100]))
        return np.s_[start : stop : self._draw.choice([1, 1, 3]), :, self._draw.randrange(30) :]

    def _out(self, name: str, index: Any) -> Any:
        return self._memory.empty(self._wanted[name][index].shape, "f4")

    def _read(self, index: Any) -> None:
        name = self._name()
        out = self._out(name, index)
        self._file[name].read(index, out=out)
        self._check(out, name, index)

    def _row(self) -> None:
        self._read(self._draw.randrange(SHAPE[0]))

    def _slice(self) -> None:
        self._read(self._part())

    def _list(self) -> None:
        count = self._draw.choice([1, 5, 40])
        self._read(self._draw.choices(range(SHAPE[0]), k=count))

    def _new(self) -> None:
        name, index = self._name(), self._part()
        found = self._file[name][index]
        np.testing.assert_array_equal(found, self._wanted[name][index])

    def _async(self) -> None:
        started = []
        for _ in range(self._draw.choice([1, 4])):
            name, index = self._name(), self._draw.choice([self._part(), self._draw.randrange(300)])
            out = self._out(name, index)
            started.append((self._file[name].read_async(index, out=out), out, name, index))
        for request, out, name, index in started:
            request.wait()
            self._check(out, name, index)

    def _many(self) -> None:
        pieces = [(self._name(), self._part()) for _ in range(self._draw.choice([2, 9]))]
        out = [self._out(name, index) for name, index in pieces]
        if self._draw.random() < 0.5:
            self._file.read_many(pieces, out=out)
        else:
            ps.read_many([(self._file[name], index) for name, index in pieces], out=out)
        for one, (name, index) in zip(out, pieces, strict=True):
            self._check(one, name, index)


@pytest.mark.timeout(120 + 3 * SECONDS)
def test_each_thread_gets_the_elements_that_it_reads(path, memory):
    failures: list[BaseException] = []
    with ps.File(path) as file:
        workers = [Requests(file, memory, seed) for seed in range(THREADS)]
        end = monotonic() + SECONDS

        def work(requests: Requests) -> None:
            try:
                requests.one()
                while monotonic() < end and not failures:
                    requests.one()
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(one,)) for one in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    done = sum((one.done for one in workers), Counter())
    print(f"{done.total()} requests in {SECONDS:.0f} s: {dict(done)}")
    if failures:
        raise failures[0]


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.timeout(120 + READS // 1000)
def test_many_small_reads_of_every_kind_leave_neither_memory_nor_descriptors(path, memory):
    with ps.File(path) as file:
        datasets = [file[name] for name in LAYOUTS]
        rows = [memory.empty(SHAPE[1:], "f4") for _ in datasets]
        pair = [memory.empty((2, *SHAPE[1:]), "f4") for _ in datasets]

        def read(number: int) -> None:
            dataset, row = datasets[number % 5], number * 7 % SHAPE[0]
            dataset.read(row, out=rows[number % 5])
            if number % 100 == 0:
                dataset.read([row, 0], out=pair[0])
                dataset.read_async(row, out=rows[0]).wait()
                ps.read_many([(one, slice(row % 298, row % 298 + 2)) for one in datasets], out=pair)

        for number in range(READS // 20):
            read(number)
        before, descriptors = resident(), len(os.listdir("/proc/self/fd"))
        for number in range(READS):
            read(number)
        grown = resident() - before
        print(f"{READS} reads: {grown / 2**20:.1f} MiB more in memory")
        assert grown < 16 << 20
        assert len(os.listdir("/proc/self/fd")) <= descriptors + 1
