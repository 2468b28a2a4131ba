"""H5Dwrite of GPU memory to a new file, in each way, until the data is on the medium."""

from __future__ import annotations

from penstock.bench.command import Found, Plan, main

from .vfd_write import measure_until


def measure(plan: Plan) -> Found:
    return measure_until(plan, "on the medium", sync=True)


if __name__ == "__main__":
    main("H5Dwrite of GPU memory, durable", measure, size="4GiB", quick_size="16MiB")
