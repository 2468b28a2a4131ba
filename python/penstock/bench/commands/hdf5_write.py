"""`penstock bench hdf5-write`: new HDF5 files by size and type, as in Legate's benchmark."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import h5py
import numpy as np
import typer

import penstock as ps

from ..figures import Figure, Panel
from ..files import sync_file
from ..measure import Contestant, Row, WrongBytesError
from ..options import Fsync, benchmark, numbers, words
from ..place import Device, Place, choose
from ..session import RefusedError, Session
from ..tables import Table, columns

_NAME = "data"
_COLUMNS = columns(
    "Contestant|Size|Type|MB|Wall (s)|Slowest (s)|Fastest (s)|Call (s)|Throughput (MB/s)|"
    "Penstock is (x)"
)


@dataclass
class _Case:
    """One size and type."""

    count: int
    dtype: np.dtype[Any]
    calls: list[float] = field(default_factory=list)
    """Seconds of the write alone, without opening, flushing and closing the file."""

    @property
    def nbytes(self) -> int:
        return self.count * self.dtype.itemsize

    def values(self) -> np.ndarray[Any, Any]:
        random = np.random.default_rng(self.count)
        if self.dtype.kind == "f":
            return random.standard_normal(self.count).astype(self.dtype)
        return random.integers(0, 127, self.count).astype(self.dtype)


@benchmark(
    "hdf5-write",
    "New HDF5 files by size and type",
    folder=("--output-dir", "--output_dir", "--dir"),
    iterations=3,
)
def hdf5_write(
    session: Session,
    sizes: Annotated[
        str, typer.Option(help="Elements per dataset, as a list: 1000000,100000000.")
    ] = "1000000,10000000,100000000",
    dtypes: Annotated[str, typer.Option(help="NumPy data types, as a list.")] = "float32,float64",
    device: Device = "auto",
    fsync: Fsync = False,
    keep: Annotated[bool, typer.Option(help="Keep Penstock's last files in the folder.")] = False,
    overwrite: Annotated[bool, typer.Option(help="With --keep: replace existing files.")] = False,
) -> None:
    """Write datasets of each size and type to new files, and report the rates of the bytes.

    "Wall" is the time from opening the file to closing it, "Call" that of the write alone.
    """
    place = choose(device, session.ranks)
    kinds = list(map(_dtype, words(dtypes)))
    cases = [_Case(count, kind) for count in numbers(sizes, "sizes") for kind in kinds]
    if not cases:
        raise RefusedError(f"{dtypes!r} names no types: write, for example, float32,int64")
    all_kept = sum(case.nbytes for case in cases) if keep else 0
    session.need_space(max(case.nbytes for case in cases) * 2 + all_kept)
    kept = [_kept(session, case) for case in cases] if keep else []
    if existing := [path for path in kept if path.exists() and not overwrite]:
        raise RefusedError(f"{existing[0]} exists: --overwrite replaces it")
    session.settings |= {"device": place.name, "fsync": fsync, "dtypes": dtypes, "sizes": sizes}
    table = Table(
        f"HDF5 write benchmark: from {place.in_words}, {'with' if fsync else 'without'} fsync, "
        f"{session.ranks.size} rank(s), {session.common.iterations} iterations",
        _COLUMNS,
    )
    rates: dict[str, list[float | None]] = {}
    for case in cases:
        rows = _race(session, case, place, fsync)
        for row in rows:
            rates.setdefault(row.name, []).append(row.value)
            what = (row.name, case.count, case.dtype.name, row.amount / 1e6)
            if row.median is None:
                table.add(*what, f"failed: {row.error}", *[None] * 5)
                continue
            seconds = (row.median, max(row.seconds), min(row.seconds))
            # The earlier ones were the warm-up.
            calls = case.calls[-len(row.seconds) :]
            call = statistics.median(calls) if row is rows[0] and calls else None
            table.add(*what, *seconds, call, row.amount / row.median / 1e6, rows[0].beats(row))
    best = max(
        (row for row in table.rows if row[0] == "Penstock" and isinstance(row[8], float)),
        key=lambda row: float(row[8] or 0),
        default=None,
    )
    if best:
        of = f"size={best[1]:,}, dtype={best[2]}"
        table.notes.append(f"Best throughput: {best[8]:.2f} MB/s ({of})")
    for case, path in zip(cases, kept, strict=False):
        _keep(path, case, place, fsync=fsync)
    session.tables.append(table)
    ticks = [f"{case.count:,}\n{case.dtype.name}" for case in cases]
    panels = [Panel("", ticks, rates)]
    axes = ("Elements and type", "Rate (GB/s)")
    session.figures.append(Figure("hdf5-write", "HDF5 write", *axes, panels))


def _dtype(name: str) -> np.dtype[Any]:
    try:
        found = np.dtype(name)
    except TypeError:
        found = None
    if found is None or found.kind not in "fiu":
        raise RefusedError(f"{name!r} is not a type of numbers: write, for example, float32")
    return found


def _kept(session: Session, case: _Case) -> Path:
    name = f"hdf5-write-{case.count}-{case.dtype.name}-{session.ranks.rank}.h5"
    return session.common.folder / name


def _race(session: Session, case: _Case, place: Place, fsync: bool) -> list[Row]:
    values = case.values()
    array = place.put(values)
    path = session.own_folder / "written.h5"

    def by_h5py() -> None:
        with h5py.File(path, "w") as file:
            file.create_dataset(_NAME, data=place.get(array))
        if fsync:
            sync_file(path)

    def contestant(name: str, run: Callable[[], None], setting: str = "") -> Contestant:
        def remove() -> None:
            path.unlink(missing_ok=True)

        def check(_: object) -> None:
            with h5py.File(path, "r") as file:
                if file[_NAME][()].tobytes() != values.tobytes():
                    raise WrongBytesError(f"wrong bytes in {path.name}")

        return Contestant(name, setting, case.nbytes, run, before=remove, check=check, after=remove)

    entered = [contestant("Penstock", lambda: _write(path, case, array, fsync=fsync))]
    if session.wants("h5py"):
        entered.append(contestant("h5py", by_h5py, "a copy to the host first" * place.is_gpu))
    case.calls.clear()
    return session.race(entered, group=f"{case.count:,} {case.dtype.name}")


def _write(path: Path, case: _Case, array: Any, *, fsync: bool) -> None:
    with ps.File(path, "w") as file:
        file.create(_NAME, data=array)
        report = ps.last_report()
        case.calls.append(report.elapsed_ns / 1e9 if report else 0.0)
    if fsync:
        sync_file(path)


def _keep(path: Path, case: _Case, place: Place, *, fsync: bool) -> None:
    """Write a file that stays. A failure leaves no part of it."""
    values = case.values()
    part = path.with_name(f"{path.name}.part")
    try:
        _write(part, case, place.put(values), fsync=fsync)
        with h5py.File(part) as file:
            if file[_NAME][()].tobytes() != values.tobytes():
                raise WrongBytesError(f"{path} would not have the elements that were written")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
