"""`penstock bench hdf5-read`: every dataset of a file, as Legate's example reads it."""

from __future__ import annotations

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
from ..files import DataFile
from ..measure import Contestant, Row, WrongBytesError
from ..options import Cache, benchmark, caches
from ..place import CHOICES, Place, choose
from ..session import RefusedError, Session
from ..tables import Table


@dataclass(frozen=True)
class _Dataset:
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int


@benchmark("hdf5-read", "Every dataset of an HDF5 file")
def hdf5_read(
    session: Session,
    file: Annotated[Path, typer.Argument(help="The HDF5 file. It is only read.")],
    device: Annotated[str, typer.Option(help=f"Of {', '.join(CHOICES)}.")] = "auto",
    cache: Cache = "warm",
) -> None:
    """Read every dataset of a file, each rank all of them, and give the rate of the bytes.

    Each run opens the file and makes the arrays. "IO MODE" is what carried the bytes.
    """
    states = caches(cache)
    place = choose(device, session.ranks)
    datasets, left_out = _datasets(file, place)
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
        _as_legate(session, rows[0], state)
    session.tables.append(table)
    if left_out:
        some = ", ".join(left_out[:5]) + (", ..." if len(left_out) > 5 else "")
        session.words.append(f"Left out, as no array of numbers: {some} ({len(left_out)}).")


Reader = Callable[[Any, _Dataset], Any]
"""Reads a dataset of an open file of h5py into a new array."""


def _penstock(place: Place) -> Reader:
    return lambda file, dataset: ps.read(file[dataset.name], device=place.name)


def _h5py(place: Place) -> Reader:
    return lambda file, dataset: place.put(file[dataset.name][()])


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
                host = seen if isinstance(seen, np.ndarray) else gpu.to_host(seen)
                if host.tobytes() != np.ascontiguousarray(file[dataset.name][()]).tobytes():
                    raise WrongBytesError(f"wrong bytes in {dataset.name}")

    detail = native.last if name == "Penstock" else str
    total = sum(dataset.nbytes for dataset in datasets)
    return Contestant(name, setting, total, run, before=prepare, check=check, detail=detail)


def _datasets(path: Path, place: Place) -> tuple[list[_Dataset], list[str]]:
    """Those that are arrays of numbers, and the names of the others."""
    if not path.is_file():
        raise RefusedError(f"{path} is no file")
    found: list[_Dataset] = []
    others: list[str] = []

    def note(name: str, item: Any) -> None:
        if not isinstance(item, h5py.Dataset):
            return
        kinds = "biuf" if place.is_gpu else "biufcV"
        if (
            item.shape is None
            or item.dtype.kind not in kinds
            or item.dtype.hasobject
            or not item.size
        ):
            others.append(name)
        else:
            found.append(_Dataset(name, item.shape, item.dtype, item.nbytes))

    try:
        with h5py.File(path, "r") as file:
            file.visititems(note)
    except OSError as error:
        raise RefusedError(f"{path} cannot be read as HDF5: {error}") from None
    if not found:
        raise RefusedError(f"{path} has no datasets with numbers")
    return found, others


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
    """The lines that Legate's example prints."""
    if row.median is None:
        return
    session.words += [
        f"IO MODE : {row.detail.partition(';')[0]} ({state})",
        f"Total Data Read: {int(row.amount)}",
        f"Total Turnaround Time (seconds): {row.median}",
        f"Throughput (MB/sec): {row.amount / row.median / 1e6}",
    ]
