#!/usr/bin/env python3
"""Compares settings for two GPUs of one host that read cached files, together and one alone.

    scripts/two-gpus.py [--devices 0,1] [--size 4GiB] [--rounds 7] [--seconds 240] [--dir FOLDER]
                        [--json FILE]

It prints a table with the bytes per second of one GPU alone and of all together, and both as
shares of the links, which copies from pinned memory measure in the same way. The defaults, which
docs/decisions/0011 explains, come first. Settings alternate, and the bytes of each are compared
once. With two H200s, it takes about two minutes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import gettempdir

import penstock as ps
from penstock.tuning.measure import Workers
from penstock.tuning.rows import Row, in_words
from penstock.tuning.search import DEFAULT, RefusedError, Setting
from penstock.tuning.tuner import Plan, own_files
from penstock.units import parse_size

READ = Row("read", "large", "cache")
GRID = [
    *itertools.product((8, 10, 12, 16), ("2MiB", "4MiB", "8MiB"), (2,)),
    *((8, "2MiB", 4), (8, "4MiB", 3), (12, "2MiB", 3), (12, "4MiB", 3)),
]
"""Threads, block, slots."""
_LINK_BYTES = 1 << 30
_LINK_COPIES = 8


def settings() -> list[Setting]:
    """Return the defaults, and a small grid around them."""
    staged = [
        (("block", block), ("route", "staged"), ("slots", str(slots)), ("threads", str(threads)))
        for threads, block, slots in GRID
    ]
    mapped = (("route", "mapped"), ("threads", "4"))
    return [DEFAULT, *staged, mapped]


# -- links -----------------------------------------------------------------------------------


def link_worker(device: int) -> None:
    """Copy from pinned memory to a GPU, from each moment on that standard input gives."""
    from penstock._native import ffi, lib, pointer
    from penstock.errors import check

    pinned = ffi.new("void **")
    check(lib.penstock_host_alloc(_LINK_BYTES, pinned))
    array = ps.DeviceArray(_LINK_BYTES, "uint8", device)
    target = pointer(array.data_ptr)
    check(lib.penstock_copy(target, pinned[0], _LINK_BYTES))
    print("ready", flush=True)
    for line in sys.stdin:
        while time.monotonic() < float(line):
            pass
        begin = time.monotonic()
        for _ in range(_LINK_COPIES):
            check(lib.penstock_copy(target, pinned[0], _LINK_BYTES))
        print(begin, time.monotonic(), flush=True)


def links(devices: list[int]) -> tuple[float, float]:
    """Return the rates of the first link alone, and of all links together."""
    command = [sys.executable, __file__, "--link-worker"]
    workers = [
        subprocess.Popen(
            [*command, str(device)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for device in devices
    ]

    def rate(count: int) -> float:
        moment = time.monotonic() + 0.01
        times = []
        for worker in workers[:count]:
            assert worker.stdin is not None
            worker.stdin.write(f"{moment}\n")
            worker.stdin.flush()
        for worker in workers[:count]:
            assert worker.stdout is not None
            times.append([float(word) for word in worker.stdout.readline().split()])
        begin, end = min(t[0] for t in times), max(t[1] for t in times)
        return count * _LINK_COPIES * _LINK_BYTES / (end - begin)

    try:
        for worker in workers:
            assert worker.stdout is not None
            if worker.stdout.readline().strip() != "ready":
                raise SystemExit("the link cannot be measured: no pinned memory or no GPU")
        found = [(rate(1), rate(len(workers))) for _ in range(3)]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    return max(alone for alone, _ in found), max(together for _, together in found)


# -- reads -----------------------------------------------------------------------------------


def measure(plan: Plan, rounds: int, end: float) -> dict[Setting, list[tuple[float, float]]]:
    """Alternate the settings, and return the rates of one GPU alone and of all together."""
    found: dict[Setting, list[tuple[float, float]]] = {setting: [] for setting in settings()}
    with own_files(plan) as paths:
        places = list(zip(paths, plan.devices, strict=True))
        with Workers(places, plan.file_size) as workers:
            for number in range(rounds + 1):
                order = list(found)[number:] + list(found)[:number]
                for setting in order:
                    if time.monotonic() > end:
                        return found
                    # The first round compares bytes and pins slots, and does not count.
                    check = "none" if number else "windows"
                    try:
                        alone = workers.run(READ, setting, plan.file_size, check=check)
                        both = workers.run(
                            READ, setting, plan.file_size, check=check, count=len(places)
                        )
                    except RefusedError as error:
                        print(f"{in_words(setting)}: {error}", file=sys.stderr)
                        del found[setting]
                        continue
                    if number:
                        found[setting].append((alone.rate, both.rate))
    return found


def table(rows: list[dict[str, object]]) -> str:
    head = ("Setting", "one alone", "of its link", "together", "of the links", "spread", "runs")
    lines = [head, *(tuple(str(value) for value in row.values()) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    text = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    ]
    return "\n".join([text[0], "-" * len(text[0]), *text[1:]])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--devices", default="0,1")
    parser.add_argument("--size", type=parse_size, default=4 << 30)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--dir", type=Path, default=Path(gettempdir()))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--link-worker", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.link_worker is not None:
        link_worker(given.link_worker)
        return
    end = time.monotonic() + given.seconds
    devices = [int(word) for word in given.devices.split(",")]
    if len(ps.devices()) <= max(devices):
        raise SystemExit(f"GPUs {given.devices} are needed, but there are {len(ps.devices())}")
    alone_link, all_links = links(devices)
    plan = Plan(given.dir, devices, given.seconds, given.size)
    found = measure(plan, given.rounds, end)
    rows: list[dict[str, object]] = []
    for setting, pairs in found.items():
        if not pairs:
            continue
        alone = statistics.median(pair[0] for pair in pairs)
        both = statistics.median(pair[1] for pair in pairs)
        low, high = min(pair[1] for pair in pairs), max(pair[1] for pair in pairs)
        rows.append(
            {
                "setting": in_words(setting),
                "alone": f"{alone / 1e9:.1f} GB/s",
                "alone_share": f"{alone / alone_link:.3f}",
                "together": f"{both / 1e9:.1f} GB/s",
                "together_share": f"{both / all_links:.3f}",
                "spread": f"{low / 1e9:.1f} to {high / 1e9:.1f}",
                "runs": len(pairs),
            }
        )
    cuda = ps.describe()["cuda"]["devices"]
    print(f"{len(devices)} x {cuda[devices[0]]['name']}, {os.cpu_count()} cores, ", end="")
    print(f"files of {given.size:,} bytes on {given.dir}")
    print(f"links: {alone_link / 1e9:.1f} GB/s alone, {all_links / 1e9:.1f} GB/s together\n")
    print(table(rows))
    if given.json:
        raw = [{"setting": in_words(setting), "pairs": pairs} for setting, pairs in found.items()]
        result = {"links": [alone_link, all_links], "rows": rows, "raw": raw}
        given.json.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
