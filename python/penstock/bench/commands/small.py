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
from dataclasses import dataclass
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
from ..tables import Table, columns

_ALIGNMENT = 4096
_FIO_MS = 200
_COLUMNS = columns(
    "Cache|Size|Depth|Contestant|kIOPS|worst|best|GB/s|p50 (us)|p99 (us)|Penstock is (x)|Detail"
)


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
    title = f"Random reads of {size_in_words(file_size)} into {place.in_words}"
    table = Table(title, _COLUMNS)
    panels: dict[str, Panel] = {}
    for state, prepare in states.items():
        for length in lengths:
            count = min(operations, max((256 << 20) // length, *in_flight))
            label = f"{size_in_words(length)}, {state}"
            panel = panels.setdefault(label, Panel(label, list(map(str, in_flight)), {}))
            for depth in in_flight:
                work = _Work(file, length, count, depth, state, partial(prepare, file))
                for row in _race(session, work, place, table):
                    series = panel.series.setdefault(row.name, [None] * len(in_flight))
                    series[in_flight.index(depth)] = row.value
    session.tables.append(table)
    drawn = list(panels.values())
    session.figures.append(
        Figure("small", "Random reads", "Reads in flight", "kIOPS", drawn, "lines")
    )


@dataclass
class _Work:
    """Random reads of one size, so many in flight."""

    file: DataFile
    length: int
    count: int
    depth: int
    state: str
    prepare: Callable[[], None]

    @property
    def group(self) -> str:
        return f"{size_in_words(self.length)}, {self.depth} in flight, {self.state}"


def _race(session: Session, work: _Work, place: Place, table: Table) -> list[Row]:
    file, length, count, depth = work.file, work.length, work.count, work.depth
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
        name: str, setting: str, open_file: Callable[[], Any], run: Callable[[Any], list[float]]
    ) -> Contestant:
        opened: list[Any] = []
        described = [""]

        def before() -> None:
            work.prepare()
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

        made = Contestant(name, setting, count, timed, before, check=matches, after=after)
        made.poison = verify.poisoner(address, [verify.Place(0, 0, count * length)])
        # Submitted requests leave no report here.
        made.detail = lambda: "" if name == "Penstock" and depth > 1 else described[0]
        return made

    pieces = native.ranges(
        [(offset, length, address + number * length) for number, offset in enumerate(places)]
    )
    ours, one_by_one = partial(native.OpenFile, file.path), partial(_penstock, pieces, depth)
    plain = partial(open, file.path, "rb", buffering=0)
    entered = [
        contestant("Penstock", "a request each", ours, one_by_one),
        contestant("Penstock readv", "one request for all", ours, partial(_vectored, pieces)),
    ]
    if not place.is_gpu:
        entered.append(contestant("pread", "one by one", plain, partial(_pread, target, places)))
    rows = session.race(entered, "kIOPS", group=work.group)
    if session.wants("fio"):
        rows += _fio(session, work)
    for row in rows:
        ordered = sorted(chain.from_iterable(latencies.get(row.name, ())))
        p50 = statistics.median(ordered) * 1e6 if ordered else None
        p99 = ordered[int(len(ordered) * 0.99)] * 1e6 if ordered else None
        rate = (row.value or 0.0) * 1e3 * length / 1e9
        known = (work.state, size_in_words(length), depth, row.name)
        table.result(row, known, rate, p50, p99, rows[0].beats(row))
    return rows


def _penstock(pieces: Any, depth: int, opened: native.OpenFile) -> list[float]:
    """Keep ``depth`` requests in flight, and wait for the oldest; read directly if it is 1."""
    took: list[float] = []
    if depth == 1:
        for piece in pieces:
            begin = time.perf_counter()
            opened.read_piece(piece)
            took.append(time.perf_counter() - begin)
        return took
    queue: deque[tuple[native.Submitted, float]] = deque()

    def finish() -> None:
        request, begin = queue.popleft()
        request.wait()
        took.append(time.perf_counter() - begin)

    try:
        for number in range(len(pieces)):
            if len(queue) == depth:
                finish()
            begin = time.perf_counter()
            queue.append((opened.submit(pieces + number), begin))
        while queue:
            finish()
    finally:
        for request, _ in queue:
            request.free()
    return took


def _vectored(pieces: Any, opened: native.OpenFile) -> list[float]:
    opened.read_ranges(pieces)
    return []


def _pread(target: Any, places: list[int], opened: Any) -> list[float]:
    took = []
    descriptor, length = opened.fileno(), len(target) // len(places)
    for number, offset in enumerate(places):
        begin = time.perf_counter()
        os.preadv(descriptor, [target[number * length : (number + 1) * length]], offset)
        took.append(time.perf_counter() - begin)
    return took


def _fio(session: Session, work: _Work) -> list[Row]:
    """Measure fio with io_uring into host memory; it times itself."""
    program, file = shutil.which("fio"), work.file
    if program is None or session.ranks.size > 1:
        why = "it is not installed" if program is None else "it runs with one rank only"
        return session.race([absent("fio", "", why)], group=work.group)
    command = [program, "--name=small", "--output-format=json", "--readonly", "--rw=randread"]
    command += ["--ioengine=io_uring", f"--filename={file.path}", f"--offset={file.offset}"]
    command += [f"--size={file.nbytes}", f"--bs={work.length}", f"--iodepth={work.depth}"]
    # By time, because fio reports whole milliseconds and a few reads take less than one.
    command += ["--time_based", f"--runtime={_FIO_MS}ms"]
    command += ["--invalidate=0" if work.state == "warm" else "--direct=1"]
    how = "buffered" if work.state == "warm" else "direct"
    row = Row("fio", f"io_uring, {how}, host memory", work.group, work.count, "kIOPS")
    for _ in range(session.common.iterations):
        work.prepare()
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode:
            row.error = done.stderr.strip().split("\n")[0][:200]
            break
        job = json.loads(done.stdout)["jobs"][0]["read"]
        if not job["total_ios"]:
            row.error = "it read nothing"
            break
        row.seconds.append(job["runtime"] / 1e3 / job["total_ios"] * work.count)
    session.rows.append(row)
    return [row]
