"""Writes of GPU memory to a new file, until it is on the medium, and until the call returns."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.bench import gpu, native, verify
from penstock.bench.measure import Contestant, Row, WrongBytesError, then
from penstock.bench.peers import kvikio
from penstock.bench.peers.kvikio import Setting

from .run import Run, benchmark, fastest

_ON_MEDIUM = "on the medium"


@benchmark("GPU memory to a new file", size="2GiB", quick_size="16MiB")
def write_durable(run: Run) -> None:
    buffer = gpu.Buffer(run.size)
    buffer.fill_with_noise()
    path = run.folder / "written.bin"
    rows = _until(run, path, buffer, _ON_MEDIUM, sync=True)
    ratio = rows[0].better_than(fastest(rows, "KvikIO"))
    run.target("Write to a new file, fsync included, against KvikIO", 1, ratio)
    _until(run, path, buffer, "call returned", sync=False)


def _until(run: Run, path: Path, buffer: gpu.Buffer, group: str, *, sync: bool) -> list[Row]:
    durable = f"durable={'yes' if sync else 'no'}"
    synced = ", os.fsync" if sync else ""
    by_kvikio = partial(kvikio.write, path, buffer)
    described = [""]
    # The file goes at once, so that the next run does not wait for the write-back of its pages.
    remove = partial(path.unlink, missing_ok=True)
    compare = verify.checker(path, verify.windows(buffer.nbytes), buffer.address)

    def check(_: object) -> None:
        if path.stat().st_size != buffer.nbytes:
            raise WrongBytesError(f"the file has {path.stat().st_size} bytes of {buffer.nbytes}")
        compare(None)

    def made(name: str, setting: str, write: Any, before: Any = remove, **more: Any) -> Contestant:
        keys = {"check": check, "after": remove, **more}
        return Contestant(name, setting, buffer.nbytes, write, before, **keys)

    def save() -> None:
        ps.save(path, buffer.view(buffer.nbytes), durable=sync)

    def write() -> None:
        with native.OpenFile(path, native.NEW_FILE, durable=sync) as file:
            file.write(buffer.address, buffer.nbytes)
            described[0] = file.describe()

    def by_numpy() -> None:
        with open(path, "wb") as file:
            gpu.to_host(buffer.array).tofile(file)
            if sync:
                file.flush()
                os.fsync(file.fileno())

    # Of O_DIRECT, which is KvikIO's default, and of buffered writes.
    settings = [
        Setting(count, auto_direct_io_write=direct)
        for direct in (True, False)
        for count in ((4,) if run.quick else (1, 4, 8, 16))
    ]
    warm_up = partial(by_kvikio, sync=False)
    theirs = [
        made(
            "KvikIO",
            f"{each}{synced}",
            partial(by_kvikio, sync=sync),
            then(partial(kvikio.apply, each, warm_up), remove),
        )
        for each in settings
    ]
    text = f"{gpu.COPIED_BY}, then ndarray.tofile{synced}"
    return run.race(
        [
            made("Penstock", f"penstock.save (atomic), {durable}", save, detail=native.last),
            made("Penstock", f"penstock_write, {durable}", write, detail=lambda: described[0]),
            *run.best(theirs, group=group, warm_up=False),
            made("NumPy", text, by_numpy),
        ],
        group=group,
    )
