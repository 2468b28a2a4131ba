"""Plot files between the steps of a computation, which continues while they are written."""

from __future__ import annotations

from penstock.bench import events
from penstock.bench.command import Found, Plan, main
from penstock.bench.files import require_space
from penstock.bench.measure import Row, race
from penstock.bench.plotfiles import Series, contestant
from penstock.bench.result import Target
from penstock.units import size_in_words

_STEPS = 5
_LEVELS = (1, 3)
_ROUNDS = 3


def measure(plan: Plan) -> Found:
    require_space(plan.folder, _STEPS * plan.size)
    events.prepare()
    compute = 0.05 if plan.quick else 1.0
    rows: list[Row] = []
    targets: list[Target] = []
    for levels in _LEVELS:
        fields = [events.Field(plan.size // levels) for _ in range(levels)]
        what = f"{_STEPS} steps of {size_in_words(plan.size)}, {levels} level{'s' * (levels > 1)}"
        found = {}
        for seconds in (compute, 0.0):
            contestants = [
                contestant(Series(way, plan.folder / "hdf5-plotfiles", fields, _STEPS, seconds))
                for way in (events.penstock(), events.ALONE, *events.peers())
            ]
            group = f"{what}, {f'{seconds:g} s' if seconds else 'nothing'} computed between"
            rounds = min(plan.rounds, _ROUNDS)
            found[seconds] = race(contestants, "s", rounds=rounds, group=group)
            rows += found[seconds]
        (ours, alone, *_), (bare, *_) = found[compute], found[0.0]
        targets.append(
            Target(
                f"{what}, time over the longer of computing and writing",
                "x",
                1.05,
                _over_bound(ours, bare, compute),
                at_most=True,
            )
        )
        against = ours.better_than(alone)
        targets.append(Target(f"{what}, against HDF5 alone", "x", 1, against))
    return Found(rows, targets, [])


def _over_bound(ours: Row, bare: Row, compute: float) -> float | None:
    """Divide the time by its bound: the longer part of each step, plus the last write."""
    if ours.median is None or bare.median is None:
        return None
    write = bare.median / _STEPS
    return ours.median / ((_STEPS - 1) * max(compute, write) + write)


if __name__ == "__main__":
    main(
        "Plot files between steps",
        measure,
        size="1GiB",
        quick_size="12MiB",
        needs_gpu=False,
    )
