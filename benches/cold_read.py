"""Reads of a file that is not in the page cache into GPU memory, against the disk's own rate."""

from __future__ import annotations

import itertools
import mmap
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np

import penstock as ps
from penstock.bench import gpu, native, verify
from penstock.bench.command import Found, Plan, main
from penstock.bench.files import DataFile, data_file, drop
from penstock.bench.measure import Contestant, Row, race, shortlist
from penstock.bench.peers import kvikio
from penstock.bench.peers.kvikio import Setting
from penstock.bench.result import Target
from penstock.units import size_in_words

_SCREENED = 1 << 30


def measure(plan: Plan) -> Found:
    file = data_file(plan.folder, plan.size)
    buffer = gpu.Buffer(file.nbytes)
    screened = replace(file, nbytes=min(file.nbytes, _SCREENED))
    raw, raw_rows = _best_raw(file, screened, plan)
    theirs, kvikio_rows = _best_kvikio(file, screened, buffer, plan)
    rows = race([_penstock(file, buffer), *raw, *theirs, _numpy(file)], "GB/s", rounds=plan.rounds)
    penstock = rows[0]
    targets = [
        Target(
            "Cold read, share of the best raw O_DIRECT rate",
            "",
            0.95,
            penstock.better_than(_fastest(rows, "O_DIRECT")),
        ),
        Target("Cold read, against KvikIO", "x", 1, penstock.better_than(_fastest(rows, "KvikIO"))),
    ]
    return Found(rows, targets, raw_rows + kvikio_rows)


def _fastest(rows: list[Row], name: str) -> Row:
    return max((row for row in rows if row.name == name), key=lambda row: row.value or 0)


def _penstock(file: DataFile, buffer: gpu.Buffer) -> Contestant:
    out = buffer.view(file.nbytes)
    poison, check = verify.reading(file, file.nbytes, buffer.address)

    def run() -> None:
        ps.load(file.path, offset=file.offset, out=out)

    return Contestant(
        "Penstock",
        "default options",
        file.nbytes,
        run,
        before=partial(drop, file),
        poison=poison,
        check=check,
        detail=native.last,
    )


def _best_raw(file: DataFile, screened: DataFile, plan: Plan) -> tuple[list[Contestant], list[Row]]:
    """Return the best plain reads into reused host memory: the disk's rate, without a GPU."""
    threads = (1, 4) if plan.quick else (1, 2, 4, 8, 16)
    blocks = (1 << 20,) if plan.quick else (1 << 20, 4 << 20, 16 << 20)

    def contestant(of: DataFile, count: int, block: int) -> Contestant:
        setting = f"{count} thread{'s' if count > 1 else ''}, block {block >> 20} MiB, to the host"
        run = partial(_read_raw, of, count, block)
        return Contestant("O_DIRECT", setting, of.nbytes, run, before=partial(drop, of))

    made = {
        (count, block): contestant(screened, count, block) for count in threads for block in blocks
    }
    best, rows = shortlist(list(made.values()), "GB/s", keep=2, warm_up=False)
    chosen = [key for key, candidate in made.items() if candidate in best]
    return [contestant(file, *key) for key in chosen], rows


def _read_raw(file: DataFile, threads: int, block: int) -> None:
    descriptor = os.open(file.path, os.O_RDONLY | os.O_DIRECT)
    number = itertools.count()  # next() on it is atomic
    blocks = -(-file.nbytes // block)

    def work(_: int) -> None:
        with mmap.mmap(-1, block) as memory:
            while (index := next(number)) < blocks:
                start = index * block
                wanted = min(block, file.nbytes - start)
                if os.preadv(descriptor, [memory], file.offset + start) < wanted:
                    raise OSError("short read")

    try:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, range(threads)))
    finally:
        os.close(descriptor)


def _best_kvikio(
    file: DataFile, screened: DataFile, buffer: gpu.Buffer, plan: Plan
) -> tuple[list[Contestant], list[Row]]:
    reader = kvikio.Reader(file, buffer)

    def contestant(of: DataFile, setting: Setting) -> Contestant:
        prepare = reader.prepare(setting)
        poison, check = verify.reading(of, of.nbytes, buffer.address)

        def before() -> None:
            prepare()
            drop(of)

        return Contestant(
            "KvikIO",
            str(setting),
            of.nbytes,
            partial(reader.read, of.nbytes),
            before=before,
            poison=poison,
            check=check,
        )

    threads = (4,) if plan.quick else (1, 4, 8, 16)
    settings = [
        Setting(count, auto_direct_io_read=direct) for direct in (False, True) for count in threads
    ]
    made = {setting: contestant(screened, setting) for setting in settings}
    best, rows = shortlist(list(made.values()), "GB/s", warm_up=False)
    chosen = [setting for setting, candidate in made.items() if candidate in best]
    return [contestant(file, setting) for setting in chosen], rows


def _numpy(file: DataFile) -> Contestant:
    """Return NumPy with a part of the file: one thread that waits for a disk is slow."""
    part = replace(file, nbytes=max(file.nbytes // 4, 1))

    def run() -> object:
        return gpu.to_gpu(np.fromfile(file.path, np.uint8, part.nbytes, offset=file.offset))

    return Contestant(
        "np.fromfile",
        f"then {gpu.COPIED_BY}; {size_in_words(part.nbytes)}",
        part.nbytes,
        run,
        before=partial(drop, file),
        check=verify.checker(file.path, verify.windows(part.nbytes, file.offset)),
    )


if __name__ == "__main__":
    main("Cold file to the GPU", measure, size="4GiB", quick_size="16MiB")
