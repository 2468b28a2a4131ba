"""`penstock bench small`: random reads by size and number in flight."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Annotated, Any

import numpy as np
import typer

from penstock.units import size_in_words

from .. import gpu, native, verify
from ..figures import Figure, Panel
from ..files import DataFile, data_file
from ..measure import Contestant, Row, WrongBytesError, absent
from ..options import SIZE, Cache, benchmark, caches, numbers, sizes
from ..place import Device, Place, choose
from ..session import RefusedError, Session
from ..tables import Table

_ALIGNMENT = 4096
_FIO_MS = 200


@benchmark("small", "Random reads by size and number in flight")
def small(
    session: Session,
    sizes_: Annotated[
        str, typer.Option("--sizes", help="Read sizes, as a list.")
    ] = "4KiB,64KiB,1MiB",
    depths: Annotated[
        str, typer.Option(help="Numbers of reads in flight, as a list.")
    ] = "1,4,16,64",
    file_size: Annotated[int, typer.Option(help="Bytes of the file.", **SIZE)] = 1 << 30,
    operations: Annotated[int, typer.Option(help="Reads per run.", min=1)] = 1024,
    cache: Cache = "warm",
    device: Device = "auto",
) -> None:
    """Read a file at random offsets, aligned to 4 KiB, with several reads in flight.

    A latency is the time from a read's submission until its end is seen; its percentiles are of all
    timed runs. Opening the file is not timed.
    """
    states = caches(cache)
    place = choose(device, session.ranks)
    lengths, in_flight = sizes(sizes_), numbers(depths, "numbers of reads")
    if file_size < 2 * max(lengths):
        raise RefusedError(
            f"--file-size is {file_size:,}, but reads of {size_in_words(max(lengths))} "
            f"need at least {2 * max(lengths):,} bytes"
        )
    if max(in_flight) > operations:
        raise RefusedError(f"--operations is {operations}, but --depths has {max(in_flight)}")
    session.need_space(file_size)
    file = data_file(session.own_folder, file_size)
    table = Table(
        f"Random reads of {size_in_words(file_size)} into {place.in_words}",
        [
            "Cache",
            "Size",
            "Depth",
            "Contestant",
            "kIOPS",
            "worst",
            "best",
            "GB/s",
            "p50 (us)",
            "p99 (us)",
            "Penstock is (x)",
            "Detail",
        ],
    )
    panels: dict[str, Panel] = {}
    for state, prepare in states.items():
        for length in lengths:
            count = min(operations, max((256 << 20) // length, *in_flight))
            for depth in in_flight:
                rows = _race(session, file, place, (length, count, depth), state, prepare, table)
                label = f"{size_in_words(length)}, {state}"
                panel = panels.setdefault(label, Panel(label, list(map(str, in_flight)), {}))
                for row in rows:
                    series = panel.series.setdefault(row.name, [None] * len(in_flight))
                    series[in_flight.index(depth)] = row.value
    session.tables.append(table)
    session.figures.append(
        Figure("small", "Random reads", "Reads in flight", "kIOPS", list(panels.values()), "lines")
    )


def _race(
    session: Session,
    file: DataFile,
    place: Place,
    work: tuple[int, int, int],
    state: str,
    prepare: Callable[[DataFile], None],
    table: Table,
) -> list[Row]:
    length, count, depth = work
    random = np.random.default_rng(length + depth)
    pages = random.integers(0, (file.nbytes - length) // _ALIGNMENT + 1, count)
    places = [file.offset + int(page) * _ALIGNMENT for page in pages]
    target = place.empty((count * length,), "uint8")
    address = gpu.address_of(target) if place.is_gpu else target.ctypes.data
    # Of the timed runs, which are the last ones.
    latencies: dict[str, deque[list[float]]] = {}

    def matches(_: object) -> None:
        seen = place.get(target).reshape(count, length)
        with open(file.path, "rb", buffering=0) as opened:
            for number in range(0, count, max(count // 64, 1)):
                opened.seek(places[number])
                if seen[number].tobytes() != opened.read(length):
                    raise WrongBytesError(f"wrong bytes of offset {places[number]}")

    def contestant(
        name: str, open_file: Callable[[], Any], run: Callable[[Any], list[float]], setting: str
    ) -> Contestant:
        opened: list[Any] = []
        described = [""]

        def before() -> None:
            prepare(file)
            after()
            opened.append(open_file())

        def timed() -> None:
            runs = latencies.setdefault(name, deque(maxlen=session.common.iterations))
            runs.append(run(opened[0]))

        def after() -> None:
            for each in opened:
                described[0] = each.describe() if isinstance(each, native.OpenFile) else ""
                each.close()
            opened.clear()

        def detail() -> str:
            # Submitted requests leave no report here.
            return "" if name == "Penstock" and depth > 1 else described[0]

        def poison() -> None:
            verify.poisoner(address, [verify.Place(0, 0, count * length)])()

        return Contestant(
            name,
            setting,
            count,
            timed,
            before=before,
            poison=poison,
            check=matches,
            after=after,
            detail=detail,
        )

    def ours() -> native.OpenFile:
        return native.OpenFile(file.path)

    def plain() -> Any:
        return open(file.path, "rb", buffering=0)

    pieces = native.ranges(
        [(offset, length, address + number * length) for number, offset in enumerate(places)]
    )
    entered = [
        contestant(
            "Penstock", ours, partial(_penstock, pieces=pieces, depth=depth), "a request each"
        ),
        contestant(
            "Penstock readv", ours, partial(_vectored, pieces=pieces), "one request for all"
        ),
    ]
    if not place.is_gpu:
        entered.append(
            contestant(
                "pread",
                plain,
                partial(_pread, target=target, places=places, length=length),
                "one by one",
            )
        )
    group = f"{size_in_words(length)}, {depth} in flight, {state}"
    rows = session.race(entered, "kIOPS", group=group)
    if session.wants("fio"):
        rows += _fio(session, file, work, state, prepare, group)
    for row in rows:
        of_reads = list(chain.from_iterable(latencies.get(row.name, ())))
        _add(table, row, rows[0], (state, length, depth), of_reads)
    return rows


def _penstock(opened: native.OpenFile, pieces: Any, depth: int) -> list[float]:
    """Keep ``depth`` requests in flight, and wait for the oldest; read directly if it is 1."""
    took: list[float] = []
    if depth == 1:
        for piece in pieces:
            begin = time.perf_counter()
            opened.read_piece(piece)
            took.append(time.perf_counter() - begin)
        return took
    queue: deque[tuple[native.Submitted, float]] = deque()
    try:
        for number in range(len(pieces)):
            if len(queue) == depth:
                took.append(_finish(*queue.popleft()))
            begin = time.perf_counter()
            queue.append((opened.submit(pieces + number), begin))
        while queue:
            took.append(_finish(*queue.popleft()))
    finally:
        for request, _ in queue:
            request.free()
    return took


def _finish(request: native.Submitted, begin: float) -> float:
    request.wait()
    return time.perf_counter() - begin


def _vectored(opened: native.OpenFile, pieces: Any) -> list[float]:
    opened.read_ranges(pieces)
    return []


def _pread(opened: Any, target: Any, places: list[int], length: int) -> list[float]:
    took = []
    descriptor = opened.fileno()
    for number, offset in enumerate(places):
        begin = time.perf_counter()
        os.preadv(descriptor, [target[number * length : (number + 1) * length]], offset)
        took.append(time.perf_counter() - begin)
    return took


def _fio(
    session: Session,
    file: DataFile,
    work: tuple[int, int, int],
    state: str,
    prepare: Callable[[DataFile], None],
    group: str,
) -> list[Row]:
    """Measure fio with io_uring into host memory; it times itself."""
    length, count, depth = work
    program = shutil.which("fio")
    if program is None or session.ranks.size > 1:
        why = "it is not installed" if program is None else "it runs with one rank only"
        return session.race([absent("fio", "", why)], group=group)
    command = [
        program,
        "--name=small",
        "--output-format=json",
        "--readonly",
        "--rw=randread",
        "--ioengine=io_uring",
        f"--filename={file.path}",
        f"--offset={file.offset}",
        f"--size={file.nbytes}",
        f"--bs={length}",
        f"--iodepth={depth}",
        # By time, because fio reports whole milliseconds and a few reads take less than one.
        "--time_based",
        f"--runtime={_FIO_MS}ms",
        "--invalidate=0" if state == "warm" else "--direct=1",
    ]
    how = "buffered" if state == "warm" else "direct"
    row = Row("fio", f"io_uring, {how}, host memory", group, count, "kIOPS")
    for _ in range(session.common.iterations):
        prepare(file)
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode:
            row.error = done.stderr.strip().split("\n")[0][:200]
            break
        job = json.loads(done.stdout)["jobs"][0]["read"]
        if not job["total_ios"]:
            row.error = "it read nothing"
            break
        row.seconds.append(job["runtime"] / 1e3 / job["total_ios"] * count)
    session.rows.append(row)
    return [row]


def _add(
    table: Table, row: Row, ours: Row, what: tuple[str, int, int], latencies: list[float]
) -> None:
    state, length, depth = what
    first = (state, size_in_words(length), depth, row.name)
    if row.value is None or row.spread is None:
        table.add(*first, *[None] * 7, f"failed: {row.error}")
        return
    ordered = sorted(latencies)
    p50 = statistics.median(ordered) * 1e6 if ordered else None
    p99 = ordered[int(len(ordered) * 0.99)] * 1e6 if ordered else None
    ratio = None if row is ours else ours.better_than(row)
    rate = row.value * 1e3 * length / 1e9
    table.add(*first, row.value, *row.spread, rate, p50, p99, ratio, row.detail)
