#!/usr/bin/env python3
"""Measures HDF5 reads into Legate's arrays on GPUs, from a cached file to the sum of its elements.

    scripts/legate-rates.py files FOLDER [--size SIZE]...    # make the files
    scripts/legate-rates.py alone FOLDER                     # ps.read on one GPU, without Legate
    legate --gpus 1 scripts/legate-rates.py one FOLDER       # penstock.dist.legate by one GPU
    legate --gpus 2 scripts/legate-rates.py penstock FOLDER  # by all GPUs
    legate --gpus 2 scripts/legate-rates.py legate FOLDER    # legate.io.hdf5 by all GPUs
    scripts/legate-rates.py table FOLDER                     # a line for each file
    legate --gpus 1 scripts/legate-rates.py once FILE        # one checked read by GPUs, one by CPUs

Each reader runs in a process of its own, because an error in a task of Legate can end the process.
It stores each result in FOLDER, and a second process continues after the file that ended the first.
A result is the median of three reads after one that does not count, or of three alone if a read
takes more than five seconds. A wrong sum is a failure.
scripts/gpu-legate.sh runs all of it.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import statistics
import sys
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from penstock.units import parse_size, size_in_words

DATASET = "x"
LAYOUTS = ("contiguous", "chunked", "gzip")
SIZES = ("64MiB", "512MiB", "4GiB")
_COLUMNS = 1024
_CHUNK = (256, _COLUMNS)
"""1 MiB of float32."""
_BLOCK_ROWS = 64 * _CHUNK[0]
"""Rows of the block that files repeat, because new values would take minutes to compress."""
_ROUNDS = 3
_SLOW = 5.0
"""Seconds of a first read that counts as one of the rounds."""
_STACKS_AFTER = float(os.environ.get("LEGATE_RATES_STACKS_AFTER", "0"))
"""Seconds after which a process prints its Python stacks, or 0."""


# -- files -----------------------------------------------------------------------------------


def make(folder: Path, sizes: list[int]) -> None:
    """Write a file for each layout and size; results of earlier files go."""
    for stale in [*folder.glob("*.json"), *folder.glob("*.h5")]:
        stale.unlink()
    block = np.round(np.random.default_rng(1).standard_normal((_BLOCK_ROWS, _COLUMNS), "f4"), 2)
    chunks = [block[row : row + _CHUNK[0]] for row in range(0, _BLOCK_ROWS, _CHUNK[0])]
    with ThreadPoolExecutor() as threads:
        compressed = list(threads.map(_gzip, chunks))
    for size in sizes:
        count = max(size // block.nbytes, 1)
        for layout in LAYOUTS:
            path = folder / f"{layout}-{count * block.nbytes}.h5"
            with h5py.File(path, "w") as file:
                dataset = _create(file, layout, count * _BLOCK_ROWS)
                dataset.attrs["sum"] = count * block.sum(dtype="f8")
                for row in range(0, count * _BLOCK_ROWS, _BLOCK_ROWS):
                    if layout == "gzip":
                        for number, words in enumerate(compressed):
                            at = (row + number * _CHUNK[0], 0)
                            dataset.id.write_direct_chunk(at, words)
                    else:
                        dataset[row : row + _BLOCK_ROWS] = block


def _gzip(chunk: np.ndarray) -> bytes:
    """Return a chunk as the filters shuffle and gzip store it."""
    return zlib.compress(chunk.view("u1").reshape(-1, 4).T.tobytes(), 1)


def _create(file: h5py.File, layout: str, rows: int) -> h5py.Dataset:
    filters = {"compression": "gzip", "compression_opts": 1, "shuffle": True}
    options = {
        "contiguous": {},
        "chunked": {"chunks": _CHUNK},
        "gzip": {"chunks": _CHUNK, **filters},
    }
    return file.create_dataset(DATASET, (rows, _COLUMNS), "f4", **options[layout])


def expected(path: Path) -> tuple[float, int]:
    """Return the sum of the elements and their bytes."""
    with h5py.File(path) as file:
        return float(file[DATASET].attrs["sum"]), file[DATASET].nbytes


def is_close(found: float, wanted: float) -> bool:
    # The order of the additions differs.
    return abs(found - wanted) <= 1e-7 * max(abs(wanted), 1.0)


# -- readers: functions from a path to a sum ---------------------------------------------------


def alone() -> Callable[[Path], float]:
    """Return a reader by ps.read, with CuPy's sum on a GPU or NumPy's on the host."""
    import penstock as ps

    if not ps.devices() or find_spec("cupy") is None:
        print("alone: in host memory, because there is no GPU or no CuPy")
        return lambda path: float(ps.read(f"{path}:{DATASET}").sum(dtype="f8"))
    import cupy

    return lambda path: float(
        cupy.asarray(ps.read(f"{path}:{DATASET}", device="cuda")).sum(dtype="f8")
    )


def by_legate(from_file: Callable[[Any, str], Any]) -> Callable[[Path], float]:
    """Return a reader into an array of Legate, to whose sum each leaf task adds its tile."""
    from legate.core import TaskContext, VariantCode, get_legate_runtime, types
    from legate.core.task import ADD, InputStore, ReductionStore, task

    runtime = get_legate_runtime()

    # Legate reads the annotations as objects.
    def add(context, tile, total) -> None:  # type: ignore[no-untyped-def]
        elements, sums = tile.get_inline_allocation(), total.get_inline_allocation()
        if context.get_variant_kind() != VariantCode.GPU:
            np.asarray(sums)[...] += np.asarray(elements).sum(dtype="f8")
            return
        import cupy

        # Legate waits for the task's stream.
        with cupy.cuda.ExternalStream(context.task_stream):
            cupy.asarray(sums)[...] += cupy.asarray(elements).sum(dtype="f8")

    add.__annotations__ = {
        "context": TaskContext,
        "tile": InputStore,
        "total": ReductionStore[ADD],
        "return": None,
    }
    work = task(variants=(VariantCode.CPU, VariantCode.GPU))(add)

    def read(path: Path) -> float:
        array = from_file(path, DATASET)
        total = runtime.create_store(types.float64, (1,))
        runtime.issue_fill(total, 0.0)
        work(array, total)
        return float(np.asarray(total.get_physical_store())[0])

    return read


def reader(name: str) -> Callable[[Path], float]:
    if name == "alone":
        return alone()
    if name in ("one", "penstock"):
        from penstock.dist.legate import from_file
    else:
        from legate.io.hdf5 import from_file
    return by_legate(from_file)


# -- measurements ----------------------------------------------------------------------------


def files(folder: Path) -> list[Path]:
    """Return the files, the smallest first, with the layouts in their order."""
    found = [path for layout in LAYOUTS for path in folder.glob(f"{layout}-*.h5")]
    return sorted(found, key=lambda path: expected(path)[1])


def measure(name: str, folder: Path) -> int:
    """Store the median of each file, or what failed; return 1 if a read failed."""
    read = reader(name)
    stored = folder / f"{name}.json"
    results: dict[str, float | str] = json.loads(stored.read_text()) if stored.exists() else {}
    for path in files(folder):
        if path.stem in results:
            continue
        results[path.stem] = "it ended the process, or ran out of time"
        stored.write_text(json.dumps(results))
        wanted, _ = expected(path)
        seconds: list[float] = []
        try:
            while len(seconds) < _ROUNDS + (seconds[:1] < [_SLOW]):
                began = time.perf_counter()
                found = read(path)
                seconds.append(time.perf_counter() - began)
                if not is_close(found, wanted):
                    raise ValueError(f"the sum is {found}, not {wanted}")
            results[path.stem] = statistics.median(seconds[-_ROUNDS:])
        except Exception as error:
            results[path.stem] = f"{type(error).__name__}: {error}"[:100].replace("\n", " ")
        stored.write_text(json.dumps(results))
    failed = {stem: result for stem, result in results.items() if isinstance(result, str)}
    print(f"{name}: {len(results) - len(failed)} files read, failed: {failed or 'none'}")
    return 1 if failed else 0


def table(folder: Path) -> int:
    """Print a line for each file; return 1 if one was not read by Penstock."""
    results: dict[str, dict[str, float | str]] = {}
    for name in ("penstock", "legate", "alone", "one"):
        path = folder / f"{name}.json"
        results[name] = json.loads(path.read_text()) if path.exists() else {}
    status = 0
    ratios, shares = [], []
    for path in files(folder):
        size = expected(path)[1]
        ours, theirs, alone, one = (seconds.get(path.stem) for seconds in results.values())
        print(
            f"{path.stem.partition('-')[0]:10} {size_in_words(size):>7}:"
            f"  penstock {_rate(size, ours)}, legate {_rate(size, theirs)},"
            f" ratio {_ratio(theirs, ours)};  one GPU {_rate(size, one)},"
            f" its share of ps.read's {_rate(size, alone)} {_ratio(alone, one)},"
            f" all GPUs to one {_ratio(one, ours)}"
        )
        if not isinstance(ours, float):
            status = 1
            continue
        ratios += [theirs / ours] if isinstance(theirs, float) else []
        shares += [alone / one] if isinstance(alone, float) and isinstance(one, float) else []
    print(f"ratio {_span(ratios)}, share of ps.read {_span(shares)}")
    return status


def _span(values: list[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}" if values else "not measured"


def _rate(size: int, seconds: float | str | None) -> str:
    if isinstance(seconds, float):
        return f"{size / seconds / 1e9:6.2f} GB/s"
    return f"failed ({seconds})" if seconds else "not measured"


def _ratio(first: float | str | None, second: float | str | None) -> str:
    if isinstance(first, float) and isinstance(second, float):
        return f"{first / second:.2f}"
    return "-"


def once(path: Path) -> int:
    """Read a file by GPUs, if there are any, and by CPUs; return 1 if a sum is wrong."""
    from legate.core import TaskTarget, get_legate_runtime

    read = reader("penstock")
    wanted, _ = expected(path)
    machine = get_legate_runtime().get_machine()
    targets = [it for it in (TaskTarget.GPU, TaskTarget.CPU) if machine.count(it)]
    status = 0
    for target in targets:
        with machine.only(target):
            found = read(path)
        print(f"{target.name}: {machine.count(target)} processors, sum {found}")
        if not is_close(found, wanted):
            print(f"the sum is not {wanted}")
            status = 1
    return status


def main() -> int:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = ("files", "alone", "one", "penstock", "legate", "table", "once")
    parser.add_argument("command", choices=commands)
    parser.add_argument("path", type=Path)
    parser.add_argument("--size", action="append", help=f"{', '.join(SIZES)} by default")
    words = parser.parse_args()
    if _STACKS_AFTER:
        faulthandler.dump_traceback_later(_STACKS_AFTER)
    if words.command == "files":
        words.path.mkdir(parents=True, exist_ok=True)
        make(words.path, [parse_size(size) for size in words.size or SIZES])
        return 0
    if words.command == "table":
        return table(words.path)
    if words.command == "once":
        return once(words.path)
    return measure(words.command, words.path)


if __name__ == "__main__":
    sys.exit(main())
