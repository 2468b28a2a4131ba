"""`penstock bench vfd-threads`: the HDF5 driver by threads, block and size (figures 5 and 6)."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.units import size_in_words

from .. import vfd as ways_of
from ..figures import Figure, Panel
from ..measure import Row
from ..options import (
    DIRECTIONS,
    Cache,
    Directions,
    Fsync,
    benchmark,
    caches,
    chosen,
    numbers,
    sizes,
)
from ..place import without_cufile
from ..session import RefusedError, Session
from ..tables import Table
from .vfd import by_size, prepare

_Key = tuple[int, int, int]
"""Threads, block and size."""


@benchmark("vfd-threads", "The HDF5 driver by threads and block", iterations=3)
def vfd_threads(
    session: Session,
    threads: Annotated[str, typer.Option(help="Threads per call, as a list.")] = "1,2,4,8,16",
    blocks: Annotated[str, typer.Option(help="Block sizes, as a list.")] = "1MiB,2MiB,4MiB,8MiB",
    sizes_: Annotated[
        str, typer.Option("--sizes", help="Dataset sizes, as a list.")
    ] = "64MiB,256MiB,1GiB",
    mode: Annotated[str, typer.Option(help=f"One of {', '.join(ways_of.MODES)}.")] = "auto",
    directions: Directions = "write,read",
    cache: Cache = "warm",
    fsync: Fsync = True,
) -> None:
    """Write and read a dataset in GPU memory, by number of threads and block size.

    Each panel also shows HDF5's SEC2 driver, which splits nothing.
    """
    counts, lengths = numbers(threads, "threads"), sizes(sizes_)
    pieces = sizes(blocks)
    wanted = chosen(directions, DIRECTIONS, "direction")
    selected, *others = chosen(mode, ways_of.MODES, "mode")
    if others:
        raise RefusedError(f"--mode {mode!r} names several: choose one")
    states = caches(cache)
    prepare(session, [])
    if selected == "gds" and (why := without_cufile()):
        raise RefusedError(f"cuFile does not start here: {why}")
    session.need_space(2 * max(lengths))
    session.settings |= {"mode": selected, "cache": cache, "fsync": fsync}
    settings = [(count, piece) for count in counts for piece in pieces]
    ways = [ways_of.Way("sec2", "mode=sec2", ("penstock", "mode=sec2"))]
    for count, piece in settings:
        text = f"mode={selected};threads={count};block={piece}"
        ways.append(ways_of.Way("Penstock", text, ("penstock", text)))
    group = "{size}, {direction}, {state}"
    raced = by_size(session, ways, lengths, wanted, states, fsync, group)
    for operation, direction, state, found in raced:
        seen = {
            (*setting, length): row
            for length, rows in found.items()
            for setting, row in zip(settings, rows[1:], strict=True)
        }
        below = {length: rows[0] for length, rows in found.items()}
        title = f"{operation} by threads and block, {state}"
        name = {"write": "figure-5", "read": f"figure-6-{state}"}[direction]
        _finish(session, title, name, (counts, pieces, lengths), seen, below)


def _finish(
    session: Session,
    title: str,
    name: str,
    axes: tuple[list[int], list[int], list[int]],
    seen: dict[_Key, Row],
    sec2: dict[int, Row],
) -> None:
    counts, pieces, lengths = axes
    columns = ["Size", "Threads", "Block", "GB/s", "worst", "best", "Against SEC2 (x)", "Detail"]
    table = Table(title, columns)
    for length in lengths:
        lines = [(sec2[length], "SEC2", "")]
        for count in counts:
            for piece in pieces:
                lines.append((seen[count, piece, length], str(count), size_in_words(piece)))
        for row, threads, block in lines:
            first = (size_in_words(length), threads, block)
            if row.value is None or row.spread is None:
                table.add(*first, *[None] * 4, f"failed: {row.error}")
                continue
            ratio = None if row is sec2[length] else row.better_than(sec2[length])
            table.add(*first, row.value, *row.spread, ratio, row.detail)
    (count, piece, length), best = max(seen.items(), key=lambda item: item[1].value or 0)
    if best.value:
        table.notes.append(
            f"Best: {best.value:.2f} GB/s with {count} threads and blocks of "
            f"{size_in_words(piece)}, {size_in_words(length)}."
        )
    session.tables.append(table)
    ticks = [size_in_words(length) for length in lengths]
    panels = []
    for count in counts:
        series = {
            f"block {size_in_words(piece)}": [seen[count, piece, each].value for each in lengths]
            for piece in pieces
        }
        below = {"SEC2": [sec2[each].value for each in lengths]}
        panels.append(Panel(f"{count} thread{'s' * (count > 1)}", ticks, series, below))
    session.figures.append(Figure(name, title, "I/O size", "Rate (GB/s)", panels))
