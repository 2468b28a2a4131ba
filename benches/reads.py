"""Reads of a file into GPU memory: cached or cold, whole, by size and at random places."""

from __future__ import annotations

import itertools
import mmap
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import h5py
import numpy as np

import penstock as ps
from penstock.bench import gpu, native, verify
from penstock.bench.files import DATASET, DataFile, data_file, drop, warm
from penstock.bench.measure import Contestant, Row, nothing, then
from penstock.bench.peers import kvikio
from penstock.bench.peers.kvikio import Setting
from penstock.bench.verify import Place
from penstock.memory import copy_bytes
from penstock.units import size_in_words

from .run import Run, benchmark, fastest, worst

_SCREENED = 1 << 30
"""Bytes of a cold file with which settings are tried."""
_SMALLEST = 64 << 10
_STEP = 4
_PER_RUN = 16 << 20
"""Bytes of a timed series of small reads."""
_COUNT = 2000
_CHECKED = 64 << 20
_WANTED = {4 << 10: 3.0, 64 << 10: 2.0, 1 << 20: 1.5}


Bring = Callable[[], None]


@benchmark("Link between pinned host memory and the GPU", size="8GiB", quick_size="16MiB")
def link(run: Run) -> None:
    """Measure the upper limit of all others."""
    buffer = gpu.Buffer(run.size)
    run.race([_link(buffer, run.size, to_device=to_device) for to_device in (True, False)])


@benchmark("Cached file to the GPU", size="8GiB", quick_size="16MiB")
def cached_read(run: Run) -> None:
    file = data_file(run.folder, run.size)
    warm(file)
    reader = kvikio.Reader(file, gpu.Buffer(run.size))
    buffer = reader.buffer
    counts = kvikio.THREADS[1:3] if run.quick else kvikio.THREADS[1:]
    settings = [Setting(count, task_size=size) for size in (None, 16 << 20) for count in counts]
    # NumPy and h5py read less: they copy by one thread, whose rate does not depend on the length.
    part = replace(file, nbytes=file.nbytes // 4)
    limit, default, one_thread, *others = run.race(
        [
            _link(buffer, file.nbytes),
            _penstock(file, buffer, "default options"),
            _penstock(file, buffer, "threads=1", threads=1),
            _kvikio(reader, file, Setting(1)),
            *run.best([_kvikio(reader, file, setting) for setting in settings]),
            _copied("np.fromfile", "", part, partial(_from_file, part)),
            _copied("h5py", "contiguous dataset, ", part, partial(_by_h5py, part)),
        ]
    )
    ratio = default.better_than(limit)
    run.target("Cached read, default options, share of the link", 0.95, ratio, "")
    ratio = default.better_than(fastest(others, "KvikIO"))
    run.target("Cached read, default options, against KvikIO", 1, ratio)
    run.target("Cached read with one thread", 30, one_thread.value, "GB/s")


@benchmark("Cold file to the GPU", size="4GiB", quick_size="16MiB")
def cold_read(run: Run) -> None:
    """Compare with the disk's own rate: with plain reads into reused host memory, without a GPU."""
    file = data_file(run.folder, run.size)
    screened = replace(file, nbytes=min(file.nbytes, _SCREENED))
    reader = kvikio.Reader(file, gpu.Buffer(file.nbytes))

    def best(make: Callable[..., Contestant], settings: list[Any], keep: int) -> list[Contestant]:
        made = {setting: make(screened, setting) for setting in settings}
        found = run.best(list(made.values()), keep=keep, warm_up=False)
        return [make(file, setting) for setting in settings if made[setting] in found]

    counts = [1, 4] if run.quick else [1, 2, 4, 8, 16]
    blocks = (1 << 20,) if run.quick else (1 << 20, 4 << 20, 16 << 20)
    raw = best(_raw, list(itertools.product(counts, blocks)), 2)
    counts = [4] if run.quick else [1, 4, 8, 16]
    settings = [
        Setting(count, auto_direct_io_read=direct) for direct in (False, True) for count in counts
    ]
    theirs = best(partial(_kvikio, reader, is_cold=True), settings, 1)
    # NumPy reads only a part of the file: one thread that waits for a disk is slow.
    part, dropped = replace(file, nbytes=max(file.nbytes // 4, 1)), partial(drop, file)
    ours = _penstock(file, reader.buffer, "default options", before=dropped)
    numpy = _copied("np.fromfile", "", part, partial(_from_file, part), dropped)
    rows = run.race([ours, *raw, *theirs, numpy])
    ratio = rows[0].better_than(fastest(rows, "O_DIRECT"))
    run.target("Cold read, share of the best raw O_DIRECT rate", 0.95, ratio, "")
    run.target("Cold read, against KvikIO", 1, rows[0].better_than(fastest(rows, "KvikIO")))


@benchmark("Cached reads by size", size="1GiB", quick_size="1MiB")
def sizes(run: Run) -> None:
    """Show from which size each contestant's fixed cost is negligible."""
    file = data_file(run.folder, max(run.size, _PER_RUN))
    warm(file)
    buffer = gpu.Buffer(run.size)
    ratios = []
    size = _SMALLEST
    while size <= run.size:
        rows = _of_size(run, file, buffer, size)
        ratios.append(rows[0].better_than(fastest(rows, "KvikIO")))
        size *= _STEP
    text = "Cached reads of 64 KiB to 1 GiB, against KvikIO, at the worst size"
    run.target(text, 1, worst(ratios))


@benchmark("Random reads of a cached file", size="8GiB", quick_size="16MiB")
def random_read(run: Run) -> None:
    """Read at 2,000 random places, as one vectored request.

    KvikIO has no vectored call, so it gets a future per read. It is tried with and without its
    shortcut, which serves reads below ``gds_threshold`` (16 KiB by default) on the calling thread.
    """
    file = data_file(run.folder, run.size)
    warm(file)
    count = 50 if run.quick else _COUNT
    buffer = gpu.Buffer(count * max(_WANTED))
    reader = kvikio.Reader(file, buffer)
    threads = (4,) if run.quick else (1, 4, 8, 16)
    settings = [Setting(n, gds_threshold=least) for least in (None, 1) for n in threads]
    for length, wanted in _WANTED.items():
        group = size_in_words(length)
        starts = np.random.default_rng(length).integers(0, file.nbytes // length, count) * length
        places = [
            Place(index * length, file.offset + int(start), length)
            for index, start in enumerate(starts)
        ]
        # As many of the reads, evenly spread, as can be checked quickly.
        checked = places[:: max(1, count * length // _CHECKED)]
        check = {
            "poison": verify.poisoner(buffer.address, checked),
            "check": verify.checker(file.path, checked, buffer.address),
        }
        futures = [(p.in_file, length, buffer.part(length, p.in_memory)) for p in places]
        many = partial(reader.read_many, futures)
        theirs = [
            Contestant("KvikIO", str(each), count, many, reader.prepare(each), **check)
            for each in settings
        ]
        ranges = native.ranges([(p.in_file, length, buffer.address + p.in_memory) for p in places])
        ours = [
            _vectored(file, ranges, "default options", check),
            _vectored(file, ranges, "threads=16", check, threads=16),
        ]
        best = run.best(theirs, "kIOPS", keep=2, group=group)
        rows = run.race([*ours, *best], "kIOPS", group=group)
        fast = max(rows[2:], key=lambda row: row.value or 0)
        run.target(f"Random {group} reads, against KvikIO", wanted, rows[0].better_than(fast))


def _vectored(
    file: DataFile, ranges: Any, setting: str, check: dict[str, Any], **options: Any
) -> Contestant:
    opened = native.OpenFile(file.path, **options)
    run = partial(opened.read_ranges, ranges)

    def detail() -> str:
        return f"{opened.describe()}; {opened.report.copies} copies"

    return Contestant("Penstock", setting, len(ranges), run, detail=detail, **check)


def _link(buffer: gpu.Buffer, nbytes: int, *, to_device: bool = True) -> Contestant:
    """Return a contestant of back-to-back copies from or to pinned memory."""
    chunk = min(nbytes, 1 << 30)
    pinned = gpu.Pinned(chunk)
    pieces = [(start, min(chunk, nbytes - start)) for start in range(0, nbytes, chunk)]

    def run() -> None:
        for start, length in pieces:
            if gpu.torch:
                both = buffer.array[start : start + length], pinned.tensor[:length]
                target, source = both if to_device else both[::-1]
                target.copy_(source, non_blocking=True)
            else:
                addresses = buffer.address + start, pinned.address
                copy_bytes(*(addresses if to_device else addresses[::-1]), length)
        gpu.synchronize()

    direction = "to GPU" if to_device else "to host"
    return Contestant(f"link, {direction}", f"pinned memory, {gpu.COPIED_BY}", nbytes, run)


def _reading(
    name: str, setting: str, part: DataFile, buffer: gpu.Buffer, run: Any, **more: Any
) -> Contestant:
    poison, check = verify.reading(part, part.nbytes, buffer.address)
    return Contestant(name, setting, part.nbytes, run, poison=poison, check=check, **more)


def _penstock(
    file: DataFile, buffer: gpu.Buffer, setting: str, before: Bring = nothing, **options: Any
) -> Contestant:
    out = buffer.view(file.nbytes)
    run = partial(ps.load, file.path, offset=file.offset, out=out, **options)
    return _reading("Penstock", setting, file, buffer, run, before=before, detail=native.last)


def _kvikio(
    reader: kvikio.Reader, part: DataFile, setting: Setting, is_cold: bool = False
) -> Contestant:
    before = reader.prepare(setting)
    if is_cold:
        before = then(before, partial(drop, part))
    run = partial(reader.read, part.nbytes)
    return _reading("KvikIO", str(setting), part, reader.buffer, run, before=before)


def _from_file(part: DataFile) -> Any:
    return np.fromfile(part.path, np.uint8, part.nbytes, offset=part.offset)


def _by_h5py(part: DataFile) -> Any:
    with h5py.File(part.path, "r") as opened:
        return opened[DATASET][: part.nbytes]


def _copied(
    name: str, setting: str, part: DataFile, read: Callable[[], Any], before: Bring = nothing
) -> Contestant:
    """Return a contestant that reads to the host and copies."""
    setting = f"{setting}then {gpu.COPIED_BY}; {size_in_words(part.nbytes)}"
    check = verify.checker(part.path, verify.windows(part.nbytes, part.offset))
    return Contestant(name, setting, part.nbytes, lambda: gpu.to_gpu(read()), before, check=check)


def _raw(part: DataFile, setting: tuple[int, int]) -> Contestant:
    """Return plain reads with O_DIRECT, by a number of threads and in blocks."""
    threads, block = setting
    blocks = -(-part.nbytes // block)

    def run() -> None:
        descriptor = os.open(part.path, os.O_RDONLY | os.O_DIRECT)
        number = itertools.count()  # next() on it is atomic

        def work(_: int) -> None:
            with mmap.mmap(-1, block) as memory:
                while (index := next(number)) < blocks:
                    start = index * block
                    wanted = min(block, part.nbytes - start)
                    if os.preadv(descriptor, [memory], part.offset + start) < wanted:
                        raise OSError("short read")

        try:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(work, range(threads)))
        finally:
            os.close(descriptor)

    words = f"{threads} thread{'s' if threads > 1 else ''}, block {block >> 20} MiB, to the host"
    return Contestant("O_DIRECT", words, part.nbytes, run, partial(drop, part))


def _of_size(run: Run, file: DataFile, buffer: gpu.Buffer, size: int) -> list[Row]:
    """Have each contestant read parts of a size one after the other, all to the same memory."""
    group = size_in_words(size)
    places = range(0, max(_PER_RUN, size), size)
    last = replace(file, offset=file.offset + places[-1], nbytes=size)
    opened = native.OpenFile(file.path)
    reader = kvikio.Reader(file, buffer)

    def ours() -> None:
        for place in places:
            opened.read(buffer.address, size, file.offset + place)

    def theirs() -> None:
        for place in places:
            reader.read(size, place)

    def plain() -> Any:
        for place in places:
            host = np.fromfile(file.path, np.uint8, size, offset=file.offset + place)
            found = gpu.to_gpu(host)
        return found

    threads = (4,) if run.quick else (1, 4, 8, 16)
    # Tasks of 4 MiB split a medium size among few threads only, so smaller ones are tried as well.
    tasks = (None,) if size <= 1 << 20 else (None, 1 << 20)
    settings = [Setting(count, task_size=task) for task in tasks for count in threads]
    of_kvikio = [
        _reading("KvikIO", str(each), last, buffer, theirs, before=reader.prepare(each))
        for each in settings
    ]
    penstock = _reading("Penstock", "default options", last, buffer, ours, detail=opened.describe)
    check = verify.checker(file.path, verify.windows(size, last.offset))
    numpy = Contestant("np.fromfile", f"then {gpu.COPIED_BY}", 0, plain, check=check)
    for contestant in (penstock, *of_kvikio, numpy):
        contestant.amount = size * len(places)
    return run.race([penstock, *run.best(of_kvikio, group=group), numpy], group=group)
