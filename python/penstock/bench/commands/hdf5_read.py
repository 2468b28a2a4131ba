"""`penstock bench hdf5-read`: every dataset of a file, as Legate's example reads it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
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
from ..tables import Table


@dataclass(frozen=True)
class _Dataset:
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int


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
    total = sum(dataset.nbytes for dataset in datasets)
    pages = DataFile(file, 0, file.stat().st_size)
    session.settings |= {"file": str(file), "device": place.name, "cache": cache, "bytes": total}
    ranks = session.ranks.size
    table = Table(
        f"{file.name}: {len(datasets)} datasets into {place.in_words}, {ranks} rank(s)",
        [
            "Contestant",
            "Cache",
            "IO MODE",
            "Total Data Read (bytes)",
            "Turnaround (s)",
            "Slowest (s)",
            "Fastest (s)",
            "Throughput (MB/s)",
            "Penstock is (x)",
        ],
    )
    panels = []
    for state, prepare in states.items():
        ways = [("Penstock", "", _penstock(place))]
        if session.wants("h5py"):
            then = f"then {gpu.COPIED_BY}" if place.is_gpu else ""
            ways.append(("h5py", then, _h5py(place)))
        rows = session.race(
            [
                _contestant(name, setting, reader, file, datasets, partial(prepare, pages))
                for name, setting, reader in ways
            ],
            group=state,
        )
        for row in rows:
            _add(table, row, rows[0])
        panels.append(Panel(state, [row.name for row in rows], {"": [row.value for row in rows]}))
        _as_legate(session, rows[0], state)
    session.tables.append(table)
    session.figures.append(Figure("hdf5-read", table.title, "", "Rate (GB/s)", panels))
    if left_out:
        session.words.append(
            f"Left out, because they are not arrays of numbers: {_some(left_out)}."
        )
    if outside:
        session.words.append(
            f"Stored in other files, whose cache state is not controlled: {_some(outside)}."
        )


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "") + f" ({len(names)})"


Reader = Callable[[Any, _Dataset], Any]
"""Reads a dataset of an open file of h5py into a new array."""


def _penstock(place: Place) -> Reader:
    return lambda file, dataset: ps.read(file[dataset.name], device=place.name)


def _h5py(place: Place) -> Reader:
    def read(file: Any, dataset: _Dataset) -> Any:
        values = file[dataset.name][()]
        return place.put(_native(values)) if place.is_gpu else values

    return read


def _native(values: Any) -> np.ndarray[Any, Any]:
    """Convert to this machine's byte order, the only one that a GPU has."""
    array = np.asarray(values)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _contestant(
    name: str,
    setting: str,
    reader: Reader,
    path: Path,
    datasets: list[_Dataset],
    prepare: Callable[[], None],
) -> Contestant:
    def run() -> None:
        with h5py.File(path, "r") as file:
            for dataset in datasets:
                reader(file, dataset)

    def check(_: object) -> None:
        with h5py.File(path, "r") as file:
            for dataset in datasets:
                seen = reader(file, dataset)
                host = seen if isinstance(seen, np.ndarray | np.generic) else gpu.to_host(seen)
                if _native(host).tobytes() != _native(file[dataset.name][()]).tobytes():
                    raise WrongBytesError(f"wrong bytes in {dataset.name}")

    detail = native.last if name == "Penstock" else str
    total = sum(dataset.nbytes for dataset in datasets)
    return Contestant(name, setting, total, run, before=prepare, check=check, detail=detail)


def _datasets(path: Path, place: Place) -> tuple[list[_Dataset], list[str], list[str]]:
    """Return the datasets of numbers, and the names of the others and of those stored elsewhere."""
    if not path.is_file():
        raise RefusedError(f"{path} is not a file")
    found: list[_Dataset] = []
    others: list[str] = []
    outside: list[str] = []

    def note(name: str, item: Any) -> None:
        if not isinstance(item, h5py.Dataset):
            return
        kinds = "biuf" if place.is_gpu else "biufcV"
        try:
            dtype = item.dtype
        except TypeError:  # NumPy lacks the type
            others.append(name)
            return
        if item.shape is None or dtype.kind not in kinds or dtype.hasobject or not item.size:
            others.append(name)
            return
        found.append(_Dataset(name, item.shape, dtype, item.nbytes))
        if item.is_virtual or item.external:
            outside.append(name)

    try:
        with h5py.File(path, "r") as file:
            file.visititems(note)
    except OSError as error:
        raise RefusedError(f"{path} cannot be read as HDF5: {error}") from None
    if not found:
        raise RefusedError(f"{path} has no datasets with numbers")
    largest = max(found, key=lambda dataset: dataset.nbytes)
    if largest.nbytes > (memory := os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")):
        raise RefusedError(
            f"{largest.name} of {path} has {largest.nbytes:,} bytes, but this machine has "
            f"{memory:,} bytes of memory"
        )
    return found, others, outside


def _add(table: Table, row: Row, ours: Row) -> None:
    name = ", ".join(filter(None, [row.name, row.setting]))
    if row.median is None:
        table.add(name, row.group, f"failed: {row.error}", *[None] * 6)
        return
    rate = row.amount / row.median / 1e6
    seconds = (row.median, max(row.seconds), min(row.seconds))
    mode = row.detail.partition(";")[0] or "hdf5"
    table.add(name, row.group, mode, int(row.amount), *seconds, rate, ours.better_than(row))


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
