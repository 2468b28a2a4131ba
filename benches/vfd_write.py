"""H5Dwrite of GPU memory to a new file, in each way, until the call returns."""

from __future__ import annotations

from penstock.bench import gpu, vfd
from penstock.bench.command import Found, Plan, main
from penstock.bench.files import require_space
from penstock.bench.measure import Row, race
from penstock.bench.result import Target
from penstock.units import size_in_words


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
        contestants = [vfd.writing(way, path, nbytes, buffer, sync) for way in vfd.ways()]
        found = race(contestants, "GB/s", rounds=vfd.rounds(plan, nbytes), group=group)
        rows += found
        targets.append(vfd.best_or_near(found, f"H5Dwrite of {group}"))
    return Found(rows, targets, [])


if __name__ == "__main__":
    main("H5Dwrite of GPU memory", measure, size="4GiB", quick_size="16MiB")
