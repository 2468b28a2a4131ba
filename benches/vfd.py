"""H5Dread into GPU memory, in each way, of cached and of cold files."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from penstock.bench import gpu, vfd
from penstock.bench.command import Found, Plan, main
from penstock.bench.files import data_file, drop, warm
from penstock.bench.measure import Row, race
from penstock.bench.result import Target
from penstock.units import size_in_words

_WANTED = {"cached": 10, "cold": 2}


def measure(plan: Plan) -> Found:
    file = data_file(plan.folder, vfd.sizes(plan)[-1])
    buffer = gpu.Buffer(file.nbytes)
    vfd.prepare()
    rows: list[Row] = []
    targets: list[Target] = []
    # Cached reads come first, so that the file is dropped and read again only by cold reads.
    for state, prepare in (("cached", warm), ("cold", drop)):
        for nbytes in vfd.sizes(plan):
            part = replace(file, nbytes=nbytes)
            group = f"{size_in_words(nbytes)}, {state}"
            contestants = [
                vfd.reading(way, file, part, buffer, partial(prepare, part)) for way in vfd.ways()
            ]
            found = race(contestants, "GB/s", rounds=vfd.rounds(plan, nbytes), group=group)
            rows += found
            targets.append(vfd.best_or_near(found, f"H5Dread of {group}"))
            targets.append(vfd.against_sec2(found, f"H5Dread of {group}", _WANTED[state]))
    return Found(rows, targets, [])


if __name__ == "__main__":
    main("H5Dread into GPU memory", measure, size="4GiB", quick_size="16MiB")
