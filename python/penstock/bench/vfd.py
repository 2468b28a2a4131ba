"""H5Dread and H5Dwrite of GPU memory: by Penstock's driver in each mode, and without it.

Another driver takes part if ``PENSTOCK_BENCH_DRIVER`` has its name, ``PENSTOCK_BENCH_DRIVER_PATH``
the folder of its plugin, and ``PENSTOCK_BENCH_DRIVER_CONFIG`` its configuration.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np

from penstock.memory import copy_bytes

from . import gpu, verify
from .files import DataFile, sync_file
from .libhdf5 import OpenFile, find_plugins, library
from .measure import OUR_MODES, Contestant, nothing

MODES = ("auto", *OUR_MODES)
_REPORTS = "PENSTOCK_REPORT_DIR"


@dataclass(frozen=True)
class Way:
    """How a program moves bytes between a file and the GPU."""

    name: str
    setting: str
    driver: tuple[str, str] | None
    staged: bool = False
    """Whether HDF5 uses host memory, and the program copies to or from the GPU."""


def ways() -> list[Way]:
    """Return all ways; the first is Penstock with its default mode."""
    found = [
        Way("Penstock" if mode == "auto" else mode, f"mode={mode}", ("penstock", f"mode={mode}"))
        for mode in MODES
    ]
    found.append(Way("HDF5 alone", "sec2 driver, a host array, one copy", None, staged=True))
    if other := os.environ.get("PENSTOCK_BENCH_DRIVER"):
        configuration = os.environ.get("PENSTOCK_BENCH_DRIVER_CONFIG", "")
        found.append(Way(f"driver {other}", configuration, (other, configuration)))
    return found


def prepare(reports: Path | None = None, *, with_gpu: bool = True) -> None:
    """Add the folders of the drivers to HDF5's search, and set the folder of their reports.

    The default is a temporary folder, which stays if a signal ends the process.
    """
    if with_gpu:
        gpu.make_current()
    os.environ[_REPORTS] = str(reports or _temporary())
    find_plugins("PENSTOCK_BENCH_DRIVER_PATH")


@cache
def _temporary() -> Path:
    folder = tempfile.mkdtemp(prefix="penstock-bench-report-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def detail(way: Way, operation: str) -> Callable[[], str]:
    """Return a function that describes the driver's account of the file closed last."""

    def describe() -> str:
        if way.driver is None:
            return f"HDF5 {library().version}"
        if way.driver[0] != "penstock":
            return ""
        report = Path(os.environ[_REPORTS], f"{os.getpid()}.jsonl")
        closed = json.loads(report.read_text().splitlines()[-1])
        counted = {name for name in closed[operation] if name != "metadata"}
        return "; ".join([*sorted(counted), *closed["notes"]]).replace("_", ", ")

    return describe


class HostArray:
    """The host array that a program without a driver keeps. Its pages exist beforehand."""

    _kept: np.ndarray[tuple[int], np.dtype[np.uint8]] | None = None

    @classmethod
    def of(cls, nbytes: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        if cls._kept is None or cls._kept.size < nbytes:
            cls._kept = np.full(nbytes, 1, np.uint8)
        return cls._kept[:nbytes]


def read(
    way: Way, file: OpenFile, buffer: gpu.Buffer, nbytes: int, whole: int, start: int = 0
) -> None:
    if way.staged:
        host = HostArray.of(nbytes)
        file.read(host.ctypes.data, nbytes, whole, start)
        gpu.put(buffer.address, host)
    else:
        file.read(buffer.address, nbytes, whole, start)


def write(way: Way, file: OpenFile, buffer: gpu.Buffer, nbytes: int) -> None:
    if way.staged:
        host = HostArray.of(nbytes)
        copy_bytes(host.ctypes.data, buffer.address, nbytes)
        file.write(host.ctypes.data)
    else:
        file.write(buffer.address)


def reading(
    way: Way,
    file: DataFile,
    part: DataFile,
    buffer: gpu.Buffer,
    prepare: Callable[[], None],
    runs: int = 0,
) -> Contestant:
    """Return a contestant that reads a part of a dataset; opening the file is not timed.

    All bytes of the last of the ``runs`` are compared.
    """
    start = part.offset - file.offset
    opened: list[OpenFile] = []

    def before() -> None:
        prepare()
        opened[:] = [OpenFile(file.path, way.driver)]

    def run() -> None:
        read(way, opened[0], buffer, part.nbytes, file.nbytes, start)

    poison, check = verify.reading(part, part.nbytes, buffer.address)
    made = Contestant(way.name, way.setting, part.nbytes, run, before, poison, check)
    made.after, made.detail = lambda: opened.pop().close(), detail(way, "read")
    whole = verify.pieces(part.nbytes, part.offset)
    again = verify.poisoner(buffer.address, whole)
    return verify.with_last_run(made, runs, again, verify.checker(part.path, whole, buffer.address))


def writing(
    way: Way, path: Path, nbytes: int, buffer: gpu.Buffer, sync: bool, runs: int = 0
) -> Contestant:
    """Return a contestant that writes a new file, timed until the call returns or, with ``sync``,
    until the bytes are on the medium.

    All bytes of the last of the ``runs`` are compared.
    """
    opened: list[OpenFile] = []
    driver = way.driver
    syncs_itself = sync and driver is not None and driver[0] == "penstock"
    if syncs_itself and driver is not None:
        # A program sets this option instead of syncing the file itself.
        driver = (driver[0], f"{driver[1]};durable=yes")
    remove = partial(path.unlink, missing_ok=True)

    def before() -> None:
        # This also drops the dirty pages of the last run, which this one would write back.
        remove()
        opened[:] = [OpenFile(path, driver, new_bytes=nbytes)]

    def run() -> None:
        write(way, opened[0], buffer, nbytes)
        if sync:
            opened[0].flush()
            if not syncs_itself:
                sync_file(path)

    def check(places: Callable[[int, int], list[verify.Place]], _: object) -> None:
        verify.checker(path, places(nbytes, opened[0].offset), buffer.address)(None)

    def after() -> None:
        opened.pop().close()
        remove()

    setting = way.setting if driver is None else driver[1] or driver[0]
    setting = f"{setting}, os.fsync" if sync and not syncs_itself else setting
    made = Contestant(way.name, setting, nbytes, run, before, after=after)
    made.check, made.detail = partial(check, verify.windows), detail(way, "write")
    # There is nothing to poison: each run writes a new file.
    return verify.with_last_run(made, runs, nothing, partial(check, verify.pieces))
