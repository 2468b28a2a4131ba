"""Writes of GPU memory to a new file, until it is on the medium, and until the call returns."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

import penstock as ps
from penstock.bench import gpu, native
from penstock.bench.command import Found, Plan, main
from penstock.bench.measure import Contestant, Row, race, shortlist
from penstock.bench.peers import kvikio
from penstock.bench.peers.kvikio import Setting
from penstock.bench.result import Target

_ON_MEDIUM = "on the medium"
_RETURNED = "call returned"


def measure(plan: Plan) -> Found:
    buffer = gpu.Buffer(plan.size)
    buffer.fill_with_noise()
    path = plan.folder / "written.bin"
    rows: list[Row] = []
    screening: list[Row] = []
    for sync, group in ((True, _ON_MEDIUM), (False, _RETURNED)):
        theirs, tried = _best_kvikio(path, buffer, plan, sync, group)
        screening += tried
        contestants = [
            _penstock_save(path, buffer, sync),
            _penstock_write(path, buffer, sync),
            *theirs,
            _numpy(path, buffer, sync),
        ]
        rows += race(contestants, "GB/s", rounds=plan.rounds, group=group)
    durable = [row for row in rows if row.group == _ON_MEDIUM]
    peer = max((row for row in durable if row.name == "KvikIO"), key=lambda row: row.value or 0)
    target = Target(
        "Write to a new file, fsync included, against KvikIO", "x", 1, durable[0].better_than(peer)
    )
    return Found(rows, [target], screening)


def _penstock_save(path: Path, buffer: gpu.Buffer, sync: bool) -> Contestant:
    array = buffer.view(buffer.nbytes)

    def run() -> None:
        ps.save(path, array, durable=sync)

    setting = f"penstock.save (atomic), durable={'yes' if sync else 'no'}"
    return _contestant("Penstock", setting, path, buffer, run, native.last)


def _penstock_write(path: Path, buffer: gpu.Buffer, sync: bool) -> Contestant:
    last: list[str] = [""]

    def run() -> None:
        with native.OpenFile(path, native.NEW_FILE, durable=sync) as file:
            file.write(buffer.address, buffer.nbytes)
            last[0] = file.describe()

    setting = f"penstock_write, durable={'yes' if sync else 'no'}"
    return _contestant("Penstock", setting, path, buffer, run, lambda: last[0])


def _best_kvikio(
    path: Path, buffer: gpu.Buffer, plan: Plan, sync: bool, group: str
) -> tuple[list[Contestant], list[Row]]:
    """Return KvikIO's best settings, of O_DIRECT, which is its default, and of buffered writes."""

    def contestant(setting: Setting) -> Contestant:
        run = partial(kvikio.write, path, buffer, sync=sync)
        warm_up = partial(kvikio.write, path, buffer, sync=False)

        def before() -> None:
            kvikio.apply(setting, warm_up)
            _remove(path)

        words = f"{setting}{', os.fsync' if sync else ''}"
        made = _contestant("KvikIO", words, path, buffer, run)
        made.before = before
        return made

    threads = (4,) if plan.quick else (1, 4, 8, 16)
    settings = [
        Setting(count, auto_direct_io_write=direct) for direct in (True, False) for count in threads
    ]
    made = [contestant(setting) for setting in settings]
    return shortlist(made, "GB/s", group=group, warm_up=False)


def _numpy(path: Path, buffer: gpu.Buffer, sync: bool) -> Contestant:
    def run() -> None:
        with open(path, "wb") as file:
            gpu.to_host(buffer.array).tofile(file)
            if sync:
                file.flush()
                os.fsync(file.fileno())

    setting = f"{gpu.COPIED_BY}, then ndarray.tofile{', os.fsync' if sync else ''}"
    return _contestant("NumPy", setting, path, buffer, run)


def _contestant(
    name: str,
    setting: str,
    path: Path,
    buffer: gpu.Buffer,
    run: Callable[[], None],
    detail: Callable[[], str] = lambda: "",
) -> Contestant:
    return Contestant(
        name,
        setting,
        buffer.nbytes,
        run,
        before=partial(_remove, path),
        check=partial(_check, path, buffer),
        after=partial(_remove, path),
        detail=detail,
    )


def _remove(path: Path) -> None:
    """Remove the file, so that the next run does not wait for the write-back of its dirty pages."""
    path.unlink(missing_ok=True)


def _check(path: Path, buffer: gpu.Buffer, _: object) -> None:
    length = min(64 << 10, buffer.nbytes)
    if path.stat().st_size != buffer.nbytes:
        raise AssertionError(f"the file has {path.stat().st_size} bytes of {buffer.nbytes}")
    with open(path, "rb", buffering=0) as file:
        for start in {round(at) for at in np.linspace(0, buffer.nbytes - length, 17)}:
            wanted = gpu.get(buffer.address + start, length)
            if os.pread(file.fileno(), length, start) != wanted.tobytes():
                raise AssertionError(f"wrong bytes near offset {start}")


if __name__ == "__main__":
    main("GPU memory to a new file", measure, size="2GiB", quick_size="16MiB")
