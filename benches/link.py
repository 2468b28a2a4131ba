"""The rate of the link between pinned host memory and the GPU, the upper limit of all others."""

from __future__ import annotations

from penstock.bench import gpu
from penstock.bench.command import Found, Plan, main
from penstock.bench.measure import race


def measure(plan: Plan) -> Found:
    buffer = gpu.Buffer(plan.size)
    both = [gpu.link(buffer, plan.size, to_device=to_device) for to_device in (True, False)]
    return Found(race(both, "GB/s", rounds=plan.rounds), [], [])


if __name__ == "__main__":
    main("Link between pinned host memory and the GPU", measure, size="8GiB", quick_size="16MiB")
