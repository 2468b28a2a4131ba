#!/usr/bin/env python3
"""Compares settings for GPUs of one host that read cached files, together and one alone.

    scripts/two-gpus.py [--devices 0,1] [--size 4GiB] [--rounds 3] [--seconds 400] [--dir FOLDER]
                        [--json FILE] [--replicated]
    scripts/two-gpus.py --only-replicated [--nbytes 7.5GB] [--devices 0,1] [--dir FOLDER]
                        [--json FILE]

It prints the bytes per second of one GPU alone, of all together by a process for each, and of all
together by one process, for the default options and a grid of threads and blocks, and as shares of
the best. Settings alternate, and the bytes of each are compared once. Copies from pinned memory
measure the links, and KvikIO is measured beside, if it is installed.

With --replicated, `penstock bench scaling` measures load_replicated at the end. --only-replicated
measures nothing else: one cached file, read by one rank alone and by a rank for each GPU, in new
processes, after loads that do not count. It says where the time of a load goes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory, gettempdir
from typing import Any

import penstock as ps
from penstock.tuning.measure import Workers
from penstock.tuning.race import DEFAULT, RefusedError, Setting
from penstock.tuning.rows import Row, in_words
from penstock.tuning.tuner import Plan, own_files
from penstock.units import parse_size

Rates = list[tuple[float, float, float]]
"""Of one GPU alone, of all together by a process for each, and of all together by one process."""
READ = Row("read", "large", "cache")
GRID = [*itertools.product((8, 10, 12, 14, 16), ("1MiB", "2MiB", "3MiB", "4MiB"))]
"""Threads and block, with two slots a worker."""
_FORGOTTEN = 1.1
"""Seconds after which reads take no account of one into another GPU (docs/decisions/0011)."""
_KVIKIO_THREADS = 16
_LINK_BYTES = 1 << 30
_LINK_COPIES = 8


def settings() -> list[Setting]:
    """Return the defaults and the grid."""
    return [DEFAULT] + [
        (("block", block), ("route", "staged"), ("slots", "2"), ("threads", str(threads)))
        for threads, block in GRID
    ]


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

    def run() -> int:
        for _ in range(_LINK_COPIES):
            check(lib.penstock_copy(target, pinned[0], _LINK_BYTES))
        return _LINK_COPIES * _LINK_BYTES

    serve(run)


def kvikio_worker(device: int, path: str) -> None:
    """Read a file into a GPU by KvikIO, from each moment on that standard input gives."""
    import cupy  # type: ignore[import-not-found]
    import kvikio  # type: ignore[import-not-found]
    import kvikio.defaults  # type: ignore[import-not-found]

    cupy.cuda.Device(device).use()
    kvikio.defaults.set({"compat_mode": kvikio.CompatMode.ON, "num_threads": _KVIKIO_THREADS})
    nbytes = os.path.getsize(path)
    target = cupy.empty(nbytes, "uint8")
    file = kvikio.CuFile(path, "r")

    def run() -> int:
        return int(file.pread(target, nbytes).get())

    run()
    serve(run)


def serve(run: Callable[[], int]) -> None:
    """Run from each moment on that standard input gives, and print the times and the bytes."""
    print("ready", flush=True)
    for line in sys.stdin:
        while time.monotonic() < float(line):
            pass
        begin = time.monotonic()
        moved = run()
        print(begin, time.monotonic(), moved, flush=True)


def rates(commands: list[list[str]], rounds: int = 3) -> list[tuple[float, float]] | None:
    """Return the rates of the first process alone and of all together, or ``None`` if they fail."""
    workers = [
        subprocess.Popen(
            [sys.executable, __file__, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for command in commands
    ]

    def rate(count: int) -> float:
        moment = time.monotonic() + 0.01
        for worker in workers[:count]:
            assert worker.stdin is not None
            worker.stdin.write(f"{moment}\n")
            worker.stdin.flush()
        times = []
        for worker in workers[:count]:
            assert worker.stdout is not None
            times.append([float(word) for word in worker.stdout.readline().split()])
        begin, end = min(t[0] for t in times), max(t[1] for t in times)
        return sum(t[2] for t in times) / (end - begin)

    try:
        for worker in workers:
            assert worker.stdout is not None
            if worker.stdout.readline().strip() != "ready":
                return None
        return [(rate(1), rate(len(workers))) for _ in range(rounds)]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def links(devices: list[int]) -> tuple[float, float]:
    """Return the rates of the first link alone, and of all links together."""
    found = rates([["--link-worker", str(device)] for device in devices])
    if found is None:
        raise SystemExit("the link cannot be measured: no pinned memory or no GPU")
    return max(alone for alone, _ in found), max(together for _, together in found)


# -- reads -----------------------------------------------------------------------------------


Places = list[tuple[Path, int]]


class OneProcess:
    """Reads into all GPUs by threads of this process."""

    def __init__(self, places: Places, size: int) -> None:
        self._size = size
        self._targets = [(path, ps.DeviceArray(size, "uint8", device)) for path, device in places]

    def rate(self, setting: Setting) -> float:
        options: dict[str, Any] = dict(setting)
        for name in ("threads", "slots"):
            if name in options:
                options[name] = int(options[name])
        start = threading.Barrier(len(self._targets) + 1)

        def load(path: Path, array: Any) -> None:
            start.wait()
            ps.load(path, out=array, **options)

        with ThreadPoolExecutor(len(self._targets)) as threads:
            loads = [threads.submit(load, *target) for target in self._targets]
            start.wait()
            began = time.perf_counter()
            for one in loads:
                one.result()
            return len(loads) * self._size / (time.perf_counter() - began)


def measure(places: Places, size: int, rounds: int, end: float) -> dict[Setting, Rates]:
    """Alternate the settings, and return the rates of each."""
    found: dict[Setting, Rates] = {setting: [] for setting in settings()}
    in_one = OneProcess(places, size)
    with Workers(places, size) as workers:
        for number in range(rounds + 1):
            order = list(found)[number:] + list(found)[:number]
            for setting in order:
                if time.monotonic() > end:
                    return found
                # The first round compares bytes and pins slots, and does not count.
                check = "none" if number else "windows"
                together = partial(workers.run, READ, setting, size, count=len(places))
                try:
                    if setting == DEFAULT:
                        # It depends on what was read in the last second.
                        time.sleep(_FORGOTTEN)
                    alone = workers.run(READ, setting, size, check=check)
                    if setting == DEFAULT:
                        together()
                    all_of = together(check=check)
                except RefusedError as error:
                    print(f"{in_words(setting)}: {error}", file=sys.stderr)
                    del found[setting]
                    continue
                one = in_one.rate(setting)
                if number:
                    found[setting].append((alone.rate, all_of.rate, one))
    return found


def replicated(devices: list[int], size: int, folder: Path, end: float) -> list[Any]:
    """Return the tables of the benchmark of ``load_replicated`` with a rank for each GPU."""
    with NamedTemporaryFile("r", suffix=".json") as file:
        command = [
            *(sys.executable, "-m", "penstock_command", "bench", "scaling"),
            *("--kinds", "replicated", "--n_rank", str(len(devices)), "--size", str(size)),
            *("--peers", "none", "--dir", str(folder), "--json", file.name),
        ]
        visible = {**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(map(str, devices))}
        left = max(end - time.monotonic(), 1.0)
        try:
            done = subprocess.run(command, env=visible, timeout=left, check=False)
        except subprocess.TimeoutExpired:
            print("load_replicated: no time left", file=sys.stderr)
            return []
        text = file.read()
    return list(json.loads(text)["tables"]) if done.returncode == 0 and text else []


_UNCOUNTED_LOADS = 4
_COUNTED_LOADS = 5
_WINDOW = 4096
_PHASES = (
    *("load:start", "load:wait", "exchange:choose", "peers:export", "peers:open", "peers:share"),
    *("peers:finish", "peers:close", "exchange:share", "exchange:finish", "gathering:agree"),
    *("gathering:broadcast", "source:look"),
)
"""Functions of penstock.dist by module."""


def way_of(way: str, ranks: Any, device: int, folder: Path) -> Any:
    """Return the group and the exchange of a way; text if it is not possible."""
    from penstock.bench import group
    from penstock.bench.ranks import Ranks

    if way == "peer":
        return group.BenchGroup(ranks), "auto"  # without NCCL
    if way != "nccl":
        return group.BenchGroup(Ranks()), "auto"
    if find_spec("torch"):
        torch: Any = import_module("torch")

        if torch.cuda.is_available():
            torch.cuda.set_device(device)
    found = group.nccl(ranks, folder)
    return found if isinstance(found, str) else (found, "nccl")


def replicated_worker(way: str, path: Path, devices: list[int]) -> None:
    """Be a rank that loads a file into its GPU; the first one prints the rates as JSON."""
    from penstock.bench.ranks import here
    from penstock.dist import load_replicated

    ranks = here()
    device, nbytes = devices[ranks.rank], path.stat().st_size
    found = way_of(way, ranks, device, path.parent)
    if isinstance(found, str):
        if ranks.is_first:
            print(json.dumps({"absent": found}))
        return
    members, exchange = found
    array = ps.DeviceArray(nbytes, "uint8", device)

    def run() -> None:
        if way == "read":
            ps.load(path, out=array)
        else:
            load_replicated(path, members, out=array, exchange=exchange)

    check(array, path, run)
    seconds = []
    for _ in range(_UNCOUNTED_LOADS - 1 + _COUNTED_LOADS):
        ranks.barrier()
        begin = time.perf_counter()
        run()
        seconds.append(max(ranks.gather(time.perf_counter() - begin)))
    spent = phases(run)
    if ranks.is_first:
        report = ps.last_report()
        note = "" if report is None else report.note
        rates = [nbytes / s for s in seconds[_UNCOUNTED_LOADS - 1 :]]
        print(json.dumps({"rates": rates, "phases": spent, "note": note}))


def phases(run: Callable[[], None]) -> dict[str, float]:
    """Return the milliseconds of parts of a load, which the profile makes slightly slower."""
    import cProfile
    import pstats

    with cProfile.Profile() as profile:
        run()
    found: dict[str, float] = {}
    stats: Any = pstats.Stats(profile)
    for (file, _, function), (_, _, _, cumulative, _) in stats.stats.items():
        name = f"{Path(file).stem}:{function}"
        if name in _PHASES and "penstock" in file:
            found[name] = found.get(name, 0.0) + round(1e3 * cumulative, 2)
    return {name: found[name] for name in _PHASES if name in found}


def check(array: Any, path: Path, run: Callable[[], None]) -> None:
    """Run, and compare windows that were cleared before."""
    import numpy as np

    from penstock.memory import copy_bytes

    nbytes, host = array.nbytes, np.zeros(_WINDOW, np.uint8)
    places = [*range(0, nbytes - _WINDOW, nbytes // 97), nbytes - _WINDOW]
    for at in places:
        copy_bytes(array.data_ptr + at, host.ctypes.data, _WINDOW)
    run()
    with path.open("rb") as file:
        for at in places:
            copy_bytes(host.ctypes.data, array.data_ptr + at, _WINDOW)
            file.seek(at)
            if file.read(_WINDOW) != host.tobytes():
                raise SystemExit(f"wrong bytes at {at}")


def only_replicated(devices: list[int], nbytes: int, folder: Path, json_file: Path | None) -> None:
    """Measure and print the rates of ``load_replicated``, in bytes of the file."""
    ways = {
        "read": "one GPU, penstock.load",
        "alone": "one GPU, load_replicated",
        "peer": f"{len(devices)} GPUs, load_replicated, copies between the GPUs",
        "nccl": f"{len(devices)} GPUs, load_replicated, NCCL",
    }
    start = (
        "import sys; from penstock.bench.ranks import start; "
        "sys.exit(start(int(sys.argv[1]), sys.argv[2:]))"
    )
    found: dict[str, Any] = {}
    with TemporaryDirectory(dir=folder) as made:
        path = Path(made) / "replicated.bin"
        block = os.urandom(64 << 20)
        with path.open("wb") as file:
            for at in range(0, nbytes, len(block)):
                file.write(at.to_bytes(8, "little"))
                file.write(memoryview(block)[8 : nbytes - at])
        for way, words in ways.items():
            # New processes for each, because a process keeps the setting that it has found.
            count = len(devices) if way in ("peer", "nccl") else 1
            worker = [sys.executable, __file__, "--replicated-worker", way, str(path)]
            numbers = ",".join(map(str, devices))
            done = subprocess.run(
                [sys.executable, "-c", start, str(count), *worker, "--devices", numbers],
                stdout=subprocess.PIPE,
                text=True,
                check=False,
            )
            lines = done.stdout.splitlines()
            result = json.loads(lines[-1]) if not done.returncode and lines else {}
            found[way] = result
            if "rates" not in result:
                print(f"{words}: {result.get('absent', 'failed')}", flush=True)
                continue
            rates = [rate / 1e9 for rate in result["rates"]]
            middle = f"{statistics.median(rates):.1f} GB/s of the file"
            print(f"{words}: {middle} ({min(rates):.1f} to {max(rates):.1f})")
            print(f"    {result['note']}; ms of rank 0: {result['phases']}", flush=True)
    if json_file:
        json_file.write_text(json.dumps(found, indent=2))


# -- results ---------------------------------------------------------------------------------


def table(rows: list[dict[str, object]]) -> str:
    lines = [tuple(rows[0]), *(tuple(str(row.get(name, "")) for name in rows[0]) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    ]
    return "\n".join([text[0], "-" * len(text[0]), *text[1:]])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--devices", default="0,1")
    parser.add_argument("--size", type=parse_size, default=4 << 30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=400.0)
    parser.add_argument("--dir", type=Path, default=Path(gettempdir()))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--replicated", action="store_true")
    parser.add_argument("--link-worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--kvikio-worker", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--only-replicated", action="store_true")
    parser.add_argument("--nbytes", type=parse_size, default=7_500_000_000)
    parser.add_argument("--replicated-worker", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.link_worker is not None:
        link_worker(given.link_worker)
        return
    if given.kvikio_worker is not None:
        kvikio_worker(int(given.kvikio_worker[0]), given.kvikio_worker[1])
        return
    devices = [int(word) for word in given.devices.split(",")]
    if given.replicated_worker is not None:
        way, path = given.replicated_worker
        replicated_worker(way, Path(path), devices)
        return
    end = time.monotonic() + given.seconds
    if len(ps.devices()) <= max(devices):
        raise SystemExit(f"GPUs {given.devices} are needed, but there are {len(ps.devices())}")
    if given.only_replicated:
        only_replicated(devices, given.nbytes, given.dir, given.json)
        return
    link = links(devices)
    plan = Plan(given.dir, devices, given.seconds, given.size)
    with own_files(plan) as paths:
        places = list(zip(paths, devices, strict=True))
        kvikio = None
        if find_spec("kvikio") and find_spec("cupy"):
            kvikio = rates([["--kvikio-worker", str(d), str(p)] for p, d in places])
        found = measure(places, given.size, given.rounds, end)
    shared = replicated(devices, given.size, given.dir, end) if given.replicated else []

    medians = {
        in_words(setting): tuple(map(statistics.median, zip(*rates, strict=True)))
        for setting, rates in found.items()
        if rates
    }
    if not medians:
        raise SystemExit("no round of the grid was completed: raise --seconds or lower --size")
    best = tuple(map(max, zip(*medians.values(), strict=True)))
    if kvikio:
        pair = [statistics.median(run[at] for run in kvikio) for at in (0, 1)]
        medians[f"KvikIO, {_KVIKIO_THREADS} threads"] = tuple(pair)

    def row(name: str, rates: Sequence[float]) -> dict[str, object]:
        cells: dict[str, object] = {"setting": name}
        for word, rate, top in zip(("alone", "together", "one process"), rates, best, strict=False):
            cells[f"{word}, GB/s"] = f"{rate / 1e9:.1f}"
            cells[f"{word}: of the best"] = f"{rate / top:.3f}"
        return cells

    rows = [row(name, rates) for name, rates in medians.items()]
    cuda = ps.describe()["cuda"]["devices"]
    print(f"{len(devices)} x {cuda[devices[0]]['name']}, {os.cpu_count()} cores, ", end="")
    print(f"files of {given.size:,} bytes on {given.dir}")
    print(f"links: {link[0] / 1e9:.1f} GB/s alone, {link[1] / 1e9:.1f} GB/s together\n")
    print(table(rows))
    if given.json:
        raw = [{"setting": in_words(setting), "rates": rates} for setting, rates in found.items()]
        result = {"links": link, "rows": rows, "rates": raw, "kvikio": kvikio, "replicated": shared}
        given.json.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
