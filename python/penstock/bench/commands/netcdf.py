"""`penstock bench netcdf`: a packed netCDF-4 variable through xarray, by engine."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from penstock import frameworks

from ..figures import Figure, Panel
from ..files import DataFile, warm
from ..hdf5_files import create, deflated, write_chunks
from ..measure import Contestant, Row, WrongBytesError, absent
from ..options import benchmark
from ..place import Device, Place, choose
from ..session import RefusedError, Session
from ..tables import of_rows

_NAME = "t2m"
_SCALE, _OFFSET, _FILL = np.float32(0.01), np.float32(280), np.int16(-32768)
_DISTINCT = 32
"""Fields that differ; the others repeat them."""
_WHOLE_ON_HOST, _WHOLE_ON_GPU = 64, 256
"""The most steps that are read as a whole, which are 266 MB and 1 GB of float32."""
_SHARE = 8
"""The other engines decode chunks one by one, so they read only this fraction of the steps of a
region and of a series."""
_SMALL = 5
"""Steps that one run reads, each by itself."""
_SIDE = 100


@benchmark("netcdf", "A packed netCDF-4 variable through xarray", iterations=3)
def netcdf(
    session: Session,
    steps: Annotated[int, typer.Option(help="Steps of time, a chunk each.", min=8)] = 1000,
    grid: Annotated[str, typer.Option(help="Latitudes and longitudes.")] = "721x1440",
    device: Device = "auto",
) -> None:
    """Read packed int16 (deflate 4, shuffle, a field a chunk) as float32 through xarray.

    Each engine reads the whole variable, a region of 100 x 100 cells over all steps, single steps,
    and the time series of a point, from an open and cached file. With a GPU, the other engines'
    arrays are copied to it by CuPy.
    """
    place = choose(device, session.ranks)
    xarray = frameworks.installed("xarray")
    if xarray is None:
        raise RefusedError("xarray is not installed: pip install 'penstock[xarray]'")
    cupy: Any = frameworks.with_gpu("cupy") if place.is_gpu else None
    if place.is_gpu and cupy is None:
        raise RefusedError("CuPy is not installed, or finds no GPU: use --device cpu")
    data = _Data(session.own_folder, steps, *_sides(grid))
    session.need_space(data.nbytes)
    data.make()
    session.settings |= {"steps": steps, "grid": grid, "device": place.name}
    pages = DataFile(data.path, 0, data.path.stat().st_size)
    rows: list[Row] = []
    with ExitStack() as files:
        engines = _engines(session, xarray, place, data.path, files)
        for case in _cases(data, _WHOLE_ON_GPU if place.is_gpu else _WHOLE_ON_HOST):
            entered = [_contestant(*engine, case, data, cupy) for engine in engines.items()]
            for each in entered:
                each.before = partial(warm, pages)
            rows += session.race(entered, case.unit, group=case.name)
    where = place.in_words
    session.tables.append(of_rows(f"A variable of {steps} x {grid} into {where}, cached", rows))
    session.words.append(
        f"Of a region and of a series, other engines read 1/{_SHARE} of the steps, and their "
        "times are scaled."
    )
    session.figures.append(_figure(rows))


Parts = list[dict[str, Any]]


@dataclass(frozen=True)
class _Case:
    name: str
    unit: str
    amount: float
    """Of one run of Penstock."""
    selections: Callable[[int], Iterator[Parts]]
    """Gives the parts that each run reads, of a fraction 1/n of the steps."""
    is_shared: bool = True
    """Whether other engines read a fraction."""


def _cases(data: _Data, most: int) -> list[_Case]:
    random = np.random.default_rng(4)
    lat, lon = (min(_SIDE, side) for side in (data.lat, data.lon))
    whole = min(data.steps, most)
    order = itertools.cycle(random.permutation(data.steps).tolist())

    def windows(length: int, share: int) -> Iterator[slice]:
        """Give parts of the steps in turns, so that a fraction is not read from a cache again."""
        count = max(length // share, 1)
        while True:
            for start in range(0, length - count + 1, count):
                yield slice(start, start + count)

    def at(side: int, length: int) -> slice:
        start = int(random.integers(0, side - length + 1))
        return slice(start, start + length)

    def wholes(share: int) -> Iterator[Parts]:
        return ([{"time": times}] for times in windows(whole, share))

    def regions(share: int) -> Iterator[Parts]:
        for times in windows(data.steps, share):
            yield [{"time": times, "lat": at(data.lat, lat), "lon": at(data.lon, lon)}]

    def points(share: int) -> Iterator[Parts]:
        for times in windows(data.steps, share):
            yield [{"time": times, "lat": at(data.lat, 1).start, "lon": at(data.lon, 1).start}]

    def single(_: int) -> Iterator[Parts]:
        return ([{"time": next(order)} for _ in range(_SMALL)] for _ in itertools.count())

    return [
        _Case("whole", "GB/s", whole * data.lat * data.lon * 4, wholes, is_shared=False),
        _Case(f"region of {lat} x {lon}", "s", 1, regions),
        _Case("one step", "us", _SMALL, single, is_shared=False),
        _Case("series at a point", "s", 1, points),
    ]


class _Data:
    """The file, and what its elements are."""

    def __init__(self, folder: Path, steps: int, lat: int, lon: int) -> None:
        self.steps, self.lat, self.lon = steps, lat, lon
        self.path = folder / f"netcdf-{steps}-{lat}-{lon}.nc"
        count = min(_DISTINCT, steps)
        random = np.random.default_rng(3)
        rows, columns = np.ogrid[0:lat, 0:lon]
        smooth = 2000 * np.cos(rows / lat * 3.0) + 500 * np.sin(columns / lon * 12.0)
        noisy = (smooth + 300 * np.sin(n) + random.normal(0, 12, (lat, lon)) for n in range(count))
        self.fields = np.stack([field.astype(np.int16) for field in noisy])
        self.fields[:, lat // 3, lon // 3] = _FILL

    @property
    def nbytes(self) -> int:
        """The most bytes that the file has."""
        return self.steps * self.lat * self.lon * 2 + (1 << 20)

    def make(self) -> None:
        """Write the file as netCDF does."""
        create(self.path, self.nbytes, self._fill)

    def expected(self, selection: dict[str, Any]) -> np.ndarray[Any, Any]:
        """Return the decoded elements of a part."""
        times = np.arange(self.steps)[selection["time"]]
        packed = self.fields[times % len(self.fields)]
        part = packed[..., selection.get("lat", slice(None)), selection.get("lon", slice(None))]
        decoded: np.ndarray[Any, Any] = part.astype(np.float32)
        decoded[part == _FILL] = np.nan
        decoded *= _SCALE
        decoded += _OFFSET
        return decoded

    def _fill(self, file: Any) -> None:
        shape = (self.steps, self.lat, self.lon)
        keys: dict[str, Any] = {"compression": 4, "shuffle": True, "fillvalue": _FILL}
        dataset = file.create_dataset(_NAME, shape, "<i2", chunks=(1, *shape[1:]), **keys)
        dataset.attrs.update({"_FillValue": _FILL, "scale_factor": _SCALE, "add_offset": _OFFSET})
        for axis, (name, size) in enumerate(zip(("time", "lat", "lon"), shape, strict=True)):
            file[name] = np.arange(size, dtype="f8")
            file[name].make_scale(name)
            dataset.dims[axis].attach_scale(file[name])
        write_chunks(dataset, deflated(self.fields, shuffle=True), 1, self.steps)


def _engines(
    session: Session, xarray: Any, place: Place, path: Path, files: ExitStack
) -> dict[str, Any]:
    """Return the file as each engine opens it, or why there is no such engine."""
    found = {}
    for name, arguments in {
        "Penstock": {"engine": "penstock", "device": place.name},
        "netCDF4": {"engine": "netcdf4"},
        "h5netcdf": {"engine": "h5netcdf"},
    }.items():
        if name != "Penstock" and not session.wants(name.lower()):
            continue
        if name != "Penstock" and frameworks.installed(name) is None:
            found[name] = f"{name} is not installed"
            continue
        opened = xarray.open_dataset(path, cache=False, **arguments)
        found[name] = files.enter_context(opened)
    return found


def _contestant(name: str, opened: Any, case: _Case, data: _Data, cupy: Any) -> Contestant:
    """Return the way of an engine to read the parts of a case."""
    if isinstance(opened, str):
        return absent(name, "", opened)
    share = 1 if name == "Penstock" or not case.is_shared else _SHARE
    is_copied = cupy is not None and name != "Penstock"
    parts = case.selections(share)
    last: Parts = []

    def run() -> list[Any]:
        last[:] = next(parts)
        found = [opened[_NAME].isel(part).data for part in last]
        if is_copied:
            found = [cupy.asarray(array) for array in found]
            cupy.cuda.get_current_stream().synchronize()
        return found

    def check(found: Any) -> None:
        for array, part in zip(found, last, strict=True):
            host, wanted = array.get() if cupy is not None else array, data.expected(part)
            if host.dtype != np.float32 or not np.array_equal(host, wanted, equal_nan=True):
                raise WrongBytesError(f"wrong elements of {part}")

    setting = "then CuPy" if is_copied else ""
    return Contestant(name, setting, case.amount / share, run, check=check, group=case.name)


def _sides(grid: str) -> tuple[int, int]:
    sides = grid.split("x")
    if len(sides) != 2 or not all(side.isdecimal() and int(side) > 0 for side in sides):
        raise RefusedError(f"{grid!r} is not a grid: write, for example, 721x1440")
    return int(sides[0]), int(sides[1])


def _figure(rows: list[Row]) -> Figure:
    panels: dict[str, Panel] = {}
    for row in rows:
        panel = panels.setdefault(row.group, Panel(f"{row.group} ({row.unit})", [], {"": []}))
        panel.ticks.append(row.name)
        panel.series[""].append(row.value)
    return Figure("netcdf", "A netCDF-4 variable through xarray", "", "", list(panels.values()))
