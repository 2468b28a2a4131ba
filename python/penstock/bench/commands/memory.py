"""`penstock bench memory`: kinds of memory by modes of opening a file, as in IOR."""

from __future__ import annotations

import errno
import mmap
import os
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

import penstock as ps
from penstock.units import size_in_words

from .. import advice, allocate, gpu
from ..cells import APIS, OPENS, Cell, Cells, Extent, Measurement
from ..figures import Figure, Panel
from ..files import DataFile
from ..options import SIZE, Cache, benchmark, caches, chosen, sizes
from ..place import without_cufile
from ..session import RefusedError, Session
from ..tables import Table, columns

_ACCESSES = ("write", "read")
_BROKEN = {errno.errorcode[code]: code for code in (errno.ENOSPC, errno.EDQUOT, errno.EIO)}
"""Errors that concern the file system, not a combination."""
_COLUMNS = columns(
    "mem|open|path|page (KiB)|api|access|cache|bw(MiB/s)|worst|best|IOPS|Latency(s)|block(KiB)|"
    "xfer(KiB)|open(s)|wr/rd(s)|close(s)|total(s)"
)
_DETAILS = ("page (KiB)", "IOPS", "Latency(s)", "block(KiB)", *_COLUMNS[-4:])


@benchmark("memory", "Memory by file modes", folder=("--dir",), iterations=3, in_folder=False)
def memory(
    session: Session,
    transfers: Annotated[
        str, typer.Option("-t", "--transfer-sizes", help="Transfer sizes, as a list.")
    ] = "64KiB,1MiB,16MiB",
    block: Annotated[
        int, typer.Option("-b", "--block-size", help="Bytes of a segment of a rank.", **SIZE)
    ] = 256 << 20,
    segments: Annotated[int, typer.Option("-s", help="Segments per rank.", min=1)] = 1,
    api: Annotated[
        str, typer.Option("-a", "--api", help=f"A list of {', '.join(APIS)}.")
    ] = ",".join(APIS),
    memories: Annotated[
        str, typer.Option("--memory", help=f"A list of {', '.join(allocate.KINDS)}.")
    ] = ",".join(allocate.KINDS),
    opens: Annotated[str, typer.Option("--open", help=f"A list of {', '.join(OPENS)}.")] = ",".join(
        OPENS
    ),
    write: Annotated[
        bool, typer.Option("-w", help="Write only; without -w and -r, do both.")
    ] = False,
    read: Annotated[
        bool, typer.Option("-r", help="Read only; without -w and -r, do both.")
    ] = False,
    file_per_process: Annotated[
        bool, typer.Option("-F", help="Use one file per rank instead of one for all.")
    ] = False,
    keep_file: Annotated[bool, typer.Option("-k", help="Keep the file of -o.")] = False,
    reorder: Annotated[
        bool, typer.Option("-C", help="Have each rank read what another one wrote.")
    ] = False,
    fsync: Annotated[bool, typer.Option("-e", help="fsync after the last write, timed.")] = False,
    deadline: Annotated[
        float, typer.Option("-D", help="Seconds after which a phase ends early; 0: never.", min=0)
    ] = 0.0,
    output: Annotated[
        Path | None, typer.Option("-o", help="The test file; a temporary one by default.")
    ] = None,
    cache: Cache = "warm",
) -> None:
    """Write and read a file from and to each kind of memory, buffered and direct.

    The letters are those of IOR. Each rank has one buffer, as in IOR. "path" is the path that
    carried the bytes. NA(...) is the error of a combination that is impossible here.
    """
    selected = chosen(memories, allocate.KINDS, "memory")
    lengths = sizes(transfers)
    if bad := [n for n in lengths if n > block or block % n]:
        raise RefusedError(f"-b {block} is not a multiple of the transfer size {bad[0]}")
    apis, ways = chosen(api, APIS, "api"), chosen(opens, OPENS, "mode to open")
    accesses = [name for name, on in zip(_ACCESSES, (write, read), strict=True) if on] or _ACCESSES
    states = caches(cache)
    absent = _without_gpu(session, selected, apis)
    extent = Extent.of(session, block * segments, file_per_process, reorder, output)
    if output:
        session.measured = output.parent
    session.need_space(extent.nbytes, output.parent if output else None)
    if "read" in accesses and ("cold" in states or "direct" in ways):
        session.need_cold(extent.path.parent)
    session.settings |= {"transfers": lengths, "block": block, "segments": segments}
    session.settings |= {"fsync": fsync, "deadline": deadline, "page_size": mmap.PAGESIZE}
    cells = Cells(session, extent, fsync=fsync, deadline=deadline)
    found: list[Measurement] = []
    try:
        for access in accesses:
            if access == "read":
                cells.make_file()
            for length in lengths:
                for state in states if access == "read" else [""]:
                    row = [
                        Cell(kind, opened, library, access, length, _cache(access, opened, state))
                        for kind in selected
                        for opened in ways
                        for library in apis
                        # Direct reads are always cold, so one state is enough for them.
                        if opened == "buffered" or state in ("", list(states)[-1])
                    ]
                    present = [c for c in row if not {c.memory, c.api} & absent]
                    found += _race(session, cells, present, str(row[0]), states)
    finally:
        if not keep_file:
            extent.remove(session.ranks.is_first)
    session.tables.append(_table(session, found, block))
    session.figures += list(_figures(found, lengths))
    letters = ["-w"] * ("write" in accesses) + ["-r"] * ("read" in accesses)
    letters += [f"-b {block}", f"-s {segments}", f"-i {session.common.iterations}"]
    letters += ["-e"] * fsync + ["-F"] * file_per_process + ["-C"] * reorder
    letters += [f"-D {deadline:g}"] * bool(deadline)
    test_file = output or session.common.folder / "testfile"
    count, total = session.ranks.size, block * segments
    launch = f"mpirun -n {count} " if count > 1 else ""
    for length in lengths:
        for way in ways:
            direct = " --posix.odirect" if way == "direct" else ""
            line = f"{launch}ior -a POSIX {' '.join(letters)} -t {length}{direct}"
            session.words.append(f"Same by IOR: {line} -k -o {test_file}")
    for number, words in enumerate(("GPUDirect", "CPU only", "CPU, then GPU")):
        session.words.append(
            f"Same by gdsio ({words}): gdsio -f {test_file} -d 0 -w {count} "
            f"-s {total} -i {lengths[-1]} -x {number} -I 0"
        )
    session.words += advice.of_memory(found)


def _cache(access: str, opened: str, state: str) -> str:
    return "cold" if access == "read" and opened == "direct" else state


def _race(
    session: Session,
    cells: Cells,
    row: list[Cell],
    what: str,
    states: dict[str, Callable[[DataFile], None]],
) -> list[Measurement]:
    """Alternate between cells that differ in memory, mode and interface."""
    made = [cells.contestant(cell, states) for cell in row]
    rows = session.race([each for each, _ in made], group=what.rpartition(", ")[0])
    for each, (_, seen) in zip(rows, made, strict=True):
        seen.keep(session.common.iterations)
        cells.together(seen)
        if seen.error in _BROKEN:
            why = os.strerror(_BROKEN[seen.error])
            raise RefusedError(f"{seen.cell}: {why} ({seen.error})")
        if seen.is_failure:
            session.failures.append(each)
        if not each.error:
            each.seconds = seen.totals  # as in the table, where some are extrapolated
            each.detail = "extrapolated to all bytes" if seen.is_extrapolated else ""
    return [seen for _, seen in made]


def _without_gpu(session: Session, kinds: list[str], apis: list[str]) -> set[str]:
    """Return the kinds of memory and interfaces that this machine lacks."""
    missing: dict[str, str] = {}
    devices = ps.devices()
    if devices:
        gpu.use(session.ranks.rank % len(devices))
    else:
        selected = [kind for kind in kinds if kind not in allocate.ON_HOST]
        if selected == kinds:
            raise RefusedError(f"there is no GPU for {', '.join(selected)}: choose other memory")
        missing |= dict.fromkeys(selected, "there is no GPU")
    if "CUFILE" in apis and (why := without_cufile() or ("" if devices else "there is no GPU")):
        missing["CUFILE"] = why
    if set(apis) <= set(missing):
        raise RefusedError(f"CUFILE cannot be measured here: {missing['CUFILE']}")
    session.absent |= missing
    return set(missing)


def _table(session: Session, found: list[Measurement], block: int) -> Table:
    title = f"{session.ranks.size} rank(s), {session.common.iterations} iterations: medians"
    table = Table(f"IOR-like, {title}", _COLUMNS, details=_DETAILS)
    measured = [seen for seen in found if seen.rate is not None]
    if early := sum(seen.is_extrapolated for seen in measured):
        table.notes.append(
            f"-D ended {early} of {len(measured)} combinations early: their figures are "
            "extrapolated to all bytes."
        )
    for seen in found:
        cell = seen.cell
        first = (cell.memory, cell.opened, seen.path, mmap.PAGESIZE / 1024, cell.api, cell.access)
        sized = (block / 1024, cell.transfer / 1024)
        if seen.rate is None:
            why = f"failed: {seen.error}" if seen.is_failure else f"NA({seen.error})"
            table.add(*first, cell.cache, why, *[None] * 4, *sized, *[None] * 4)
            continue
        operations = seen.nbytes / cell.transfer
        spent = (seen.opening, seen.moving, seen.closing, seen.totals)
        opening, moving, closing, total = map(statistics.median, spent)
        rates = [rate / 2**20 for rate in (seen.rate, min(seen.rates), max(seen.rates))]
        speeds = (*rates, operations / moving, moving / operations * session.ranks.size)
        table.add(*first, cell.cache, *speeds, *sized, opening, moving, closing, total)
    return table


def _figures(found: list[Measurement], lengths: list[int]) -> Iterator[Figure]:
    """Yield a figure per access, with a panel per interface and mode, and a line per memory."""
    for access in dict.fromkeys(seen.cell.access for seen in found):
        panels: dict[str, Panel] = {}
        for seen in found:
            cell = seen.cell
            if cell.access != access or seen.rate is None:
                continue
            name = ", ".join(filter(None, [cell.api, cell.opened, cell.cache]))
            panel = panels.setdefault(name, Panel(name, list(map(size_in_words, lengths)), {}))
            values = panel.series.setdefault(cell.memory, [None] * len(lengths))
            values[lengths.index(cell.transfer)] = seen.rate / 1e9
        if panels:
            title = f"{access.capitalize()} by memory and mode, page size {mmap.PAGESIZE >> 10} KiB"
            drawn = list(panels.values())
            yield Figure(f"memory-{access}", title, "Transfer size", "Rate (GB/s)", drawn, "lines")
