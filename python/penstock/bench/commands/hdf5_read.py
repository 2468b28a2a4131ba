"""`penstock bench hdf5-read`: every dataset of a file, as Legate's example reads it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import h5py
import numpy as np
import typer

import penstock as ps

from .. import gpu, native
from ..figures import Figure, Panel
from ..files import DataFile
from ..measure import Contestant, Row, WrongBytesError
from ..options import Cache, benchmark, caches, need_caches
from ..place import Device, Place, choose
from ..session import RefusedError, Session
from ..tables import Table, columns

_COLUMNS = columns(
    "Contestant|Cache|IO MODE|Total Data Read (bytes)|Turnaround (s)|Slowest (s)|Fastest (s)|"
    "Throughput (MB/s)|Penstock is (x)"
)
Sizes = dict[str, int]
"""The bytes of datasets by name."""


@benchmark("hdf5-read", "Every dataset of an HDF5 file", in_folder=False)
def hdf5_read(
    session: Session,
    file: Annotated[Path, typer.Argument(help="The HDF5 file. It is not changed.")],
    device: Device = "auto",
    cache: Cache = "warm",
) -> None:
    """Have each rank read every dataset of a file, and report the rate of the bytes.

    Each run opens the file and makes the arrays. "IO MODE" is the path that carried the bytes.
    """
    states = caches(cache)
    place = choose(device, session.ranks)
    datasets, left_out, outside = _datasets(file, place)
    session.protect(file)
    session.measured = file
    need_caches(session, cache, file)
    total = sum(datasets.values())
    pages = DataFile(file, 0, file.stat().st_size)
    session.settings |= {"file": str(file), "device": place.name, "cache": cache, "bytes": total}
    title = f"{len(datasets)} datasets into {place.in_words}, {session.ranks.size} rank(s)"
    table = Table(f"{file.name}: {title}", _COLUMNS)
    panels = []
    for state, prepare in states.items():
        before = partial(prepare, pages)
        entered = [_contestant("Penstock", "", partial(_penstock, place), file, datasets, before)]
        if session.wants("h5py"):
            setting = f"then {gpu.COPIED_BY}" if place.is_gpu else ""
            read = partial(_h5py, place)
            entered.append(_contestant("h5py", setting, read, file, datasets, before))
        rows = session.race(entered, group=state)
        for row in rows:
            known = (row.full_name, row.group)
            if row.median is None:
                table.add(*known, f"failed: {row.error}", *[None] * 6)
                continue
            mode = row.detail.partition(";")[0] or "hdf5"
            seconds = (row.median, max(row.seconds), min(row.seconds))
            rate = row.amount / row.median / 1e6
            ratio = rows[0].better_than(row)
            table.add(*known, mode, int(row.amount), *seconds, rate, ratio)
        panels.append(Panel(state, [row.name for row in rows], {"": [row.value for row in rows]}))
        _as_legate(session, rows[0], state)
    session.tables.append(table)
    session.figures.append(Figure("hdf5-read", table.title, "", "Rate (GB/s)", panels))
    for why, names in (
        ("Left out, because they are not arrays of numbers", left_out),
        ("Stored in other files, whose cache state is not controlled", outside),
    ):
        if names:
            some = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
            session.words.append(f"{why}: {some} ({len(names)}).")


def _penstock(place: Place, file: Any, name: str) -> Any:
    return ps.read(file[name], device=place.name)


def _h5py(place: Place, file: Any, name: str) -> Any:
    values = file[name][()]
    return place.put(_native(values)) if place.is_gpu else values


def _native(values: Any) -> np.ndarray[Any, Any]:
    """Convert to this machine's byte order, the only one that a GPU has."""
    array = np.asarray(values)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _contestant(
    name: str,
    setting: str,
    read: Callable[[Any, str], Any],
    path: Path,
    datasets: Sizes,
    before: Callable[[], None],
) -> Contestant:
    def run() -> None:
        with h5py.File(path, "r") as file:
            for dataset in datasets:
                read(file, dataset)

    def check(_: object) -> None:
        with h5py.File(path, "r") as file:
            for dataset in datasets:
                seen = read(file, dataset)
                host = seen if isinstance(seen, np.ndarray | np.generic) else gpu.to_host(seen)
                if _native(host).tobytes() != _native(file[dataset][()]).tobytes():
                    raise WrongBytesError(f"wrong bytes in {dataset}")

    detail = native.last if name == "Penstock" else str
    total = sum(datasets.values())
    return Contestant(name, setting, total, run, before, check=check, detail=detail)


def _datasets(path: Path, place: Place) -> tuple[Sizes, list[str], list[str]]:
    """Return the datasets of numbers, and the names of the others and of those stored elsewhere."""
    if not path.is_file():
        raise RefusedError(f"{path} is not a file")
    kinds = "biuf" if place.is_gpu else "biufcV"
    found: Sizes = {}
    others: list[str] = []
    outside: list[str] = []

    def note(name: str, item: Any) -> None:
        if not isinstance(item, h5py.Dataset):
            return
        try:
            dtype = item.dtype
        except TypeError:  # NumPy lacks the type
            others.append(name)
            return
        if item.shape is None or dtype.kind not in kinds or dtype.hasobject or not item.size:
            others.append(name)
            return
        found[name] = item.nbytes
        if item.is_virtual or item.external:
            outside.append(name)

    try:
        with h5py.File(path, "r") as file:
            file.visititems(note)
    except OSError as error:
        raise RefusedError(f"{path} cannot be read as HDF5: {error}") from None
    if not found:
        raise RefusedError(f"{path} has no datasets with numbers")
    largest = max(found, key=lambda name: found[name])
    if found[largest] > (memory := os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")):
        raise RefusedError(
            f"{largest} of {path} has {found[largest]:,} bytes, but this machine has {memory:,} "
            "bytes of memory"
        )
    return found, others, outside


def _as_legate(session: Session, row: Row, state: str) -> None:
    """Add the lines that Legate's example prints."""
    if row.median is None:
        return
    session.words += [
        f"IO MODE : {row.detail.partition(';')[0]} ({state})",
        f"Total Data Read: {int(row.amount)}",
        f"Total Turnaround Time (seconds): {row.median}",
        f"Throughput (MB/sec): {row.amount / row.median / 1e6}",
    ]
