"""H5Dwrite of GPU memory to a new file, by each way, until the call returns."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from penstock.bench import gpu, verify, vfd
from penstock.bench.command import Found, Plan, main, size_in_words
from penstock.bench.files import require_space
from penstock.bench.libhdf5 import OpenFile
from penstock.bench.measure import Contestant, Row, race
from penstock.bench.result import Target


def measure(plan: Plan) -> Found:
    return measure_until(plan, "call returned", sync=False)


def measure_until(plan: Plan, state: str, *, sync: bool) -> Found:
    largest = vfd.sizes(plan)[-1]
    require_space(plan.folder, largest)
    buffer = gpu.Buffer(largest)
    buffer.fill_with_noise()
    vfd.prepare()
    path = plan.folder / "hdf5-vfd-written.h5"
    rows: list[Row] = []
    targets: list[Target] = []
    for nbytes in vfd.sizes(plan):
        group = f"{size_in_words(nbytes)}, {state}"
        contestants = [_contestant(way, path, nbytes, buffer, sync) for way in vfd.ways()]
        found = race(contestants, "GB/s", rounds=vfd.rounds(plan, nbytes), group=group)
        rows += found
        targets.append(vfd.best_or_near(found, f"H5Dwrite of {group}"))
    return Found(rows, targets, [])


def _contestant(
    way: vfd.Way, path: Path, nbytes: int, buffer: gpu.Buffer, sync: bool
) -> Contestant:
    opened: list[OpenFile] = []
    driver = way.driver
    if sync and driver is not None and driver[0] == "penstock":
        # What a program sets that will want its data on the medium; os.fsync follows all the same.
        driver = (driver[0], f"{driver[1]};durable=yes")
    remove = partial(path.unlink, missing_ok=True)

    def before() -> None:
        # Also spares this run the write-back of pages that the last one left dirty.
        remove()
        opened[:] = [OpenFile(path, driver, new_bytes=nbytes)]

    def run() -> None:
        vfd.write(way, opened[0], buffer, nbytes)
        if sync:
            opened[0].flush()
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def check(_: object) -> None:
        places = verify.windows(nbytes, opened[0].offset)
        verify.checker(path, places, buffer.address)(None)

    def after() -> None:
        opened.pop().close()
        remove()

    setting = way.setting if driver is None else driver[1] or driver[0]
    setting = f"{setting}, os.fsync" if sync else setting
    return Contestant(
        way.name,
        setting,
        nbytes,
        run,
        before=before,
        check=check,
        after=after,
        detail=vfd.detail(way, "write"),
    )


if __name__ == "__main__":
    main("H5Dwrite of GPU memory", measure, size="4GiB", quick_size="16MiB")
