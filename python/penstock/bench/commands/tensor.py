"""`penstock bench tensor`: load and store of tensors, as in DeepNVMe's examples."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer

import penstock as ps
from penstock import frameworks
from penstock.memory import copy_bytes

from .. import gpu, native
from ..figures import Figure, Panel
from ..files import DataFile, warm, write_noise
from ..measure import Contestant, Row, WrongBytesError, absent, nothing
from ..options import Fsync, benchmark
from ..peers import deepnvme, kvikio
from ..place import Place, choose, with_known_routes
from ..session import RefusedError, Session
from ..tables import Table, columns

Route = Literal["auto", "host", "staged", "mapped", "gds"]
_VARIANTS: dict[str, Route] = {"auto": "auto", "aio": "host", "bounce": "staged", "gds": "gds"}
"""Penstock's routes by their names here."""
_ON_HOST = ("auto", "aio")
_COLUMNS = columns("Variant|GB/sec|worst|best|Speedup over Python|Detail")


@benchmark(
    "tensor",
    "Tensors from and to files",
    folder=("--nvme-folder", "--nvme_folder", "--dir"),
    iterations=3,
)
def tensor(
    session: Session,
    input_file: Annotated[
        Path | None,
        typer.Option("--input-file", "--input_file", help="The file to load; made by default."),
    ] = None,
    mb_size: Annotated[
        int, typer.Option("--mb-size", "--mb_size", help="MiB of a tensor.", min=1)
    ] = 1024,
    loop: Annotated[int | None, typer.Option(help="Same as --iterations.", min=1)] = None,
    validate: Annotated[
        bool | None, typer.Option("--validate/--no-validate", help="Same as --verify.")
    ] = None,
    fsync: Fsync = False,
) -> None:
    """Load and store CPU and GPU tensors of one cached file in each way.

    py is Python's file object. aio moves the file from or to pinned host memory, with one copy for
    a GPU. bounce is the staged route, gds is cuFile, and auto is Penstock's choice.
    """
    session.override(iterations=loop, verify=validate)
    if input_file:
        session.protect(input_file)
    nbytes = _size(input_file) if input_file else mb_size << 20
    session.need_space(2 * nbytes)
    session.settings |= {"bytes": nbytes, "fsync": fsync}
    places = [Place(-1)]
    if ps.devices():
        places.append(choose("cuda", session.ranks))
    source = input_file or session.own_folder / "input.bin"
    if not input_file:
        write_noise(source, nbytes)
    noise = np.fromfile(source, np.uint8, nbytes)
    figure = Figure("tensor", "Tensors from and to files", "", "Rate (GB/s)", [])
    for verb, race in (("Load", _loads), ("Store", _stores)):
        state = "cached" if verb == "Load" else f"{'with' if fsync else 'without'} fsync"
        for place in places:
            kind = "GPU" if place.is_gpu else "CPU"
            rows = race(session, place, source, noise, fsync)
            title = f"{verb} {nbytes / 1e9:g} GB {kind} tensor, {state}"
            table = Table(title, _COLUMNS)
            for row in rows:
                speedup = None if row is rows[0] else row.better_than(rows[0])
                table.result(row, (_variant(row),), speedup)
            if any(row.name.startswith("deepspeed") and row.value for row in rows):
                table.notes.append(
                    "DeepSpeed opens files with O_DIRECT: it moves bytes from and to the medium."
                )
            session.tables.append(table)
            names = [_variant(row) for row in rows]
            values: list[float | None] = [row.value for row in rows]
            figure.panels.append(Panel(table.title, names, {"": values}))
    session.figures.append(figure)


def _size(path: Path) -> int:
    if not path.is_file():
        raise RefusedError(f"{path} is not a file")
    if not (nbytes := path.stat().st_size):
        raise RefusedError(f"{path} is empty")
    return nbytes


def _loads(
    session: Session, place: Place, source: Path, noise: np.ndarray[Any, Any], _: bool
) -> list[Row]:
    """Load into an existing tensor, as in the examples; Python makes a new one each time."""
    nbytes = noise.size
    target = place.empty((nbytes,), "uint8")
    pinned = gpu.Pinned(nbytes) if place.is_gpu else None

    def by_python() -> Any:
        buffer = bytearray(nbytes)
        with open(source, "rb", buffering=0) as file:
            file.readinto(buffer)
        return place.put(np.frombuffer(buffer, np.uint8))

    def by_penstock(route: Route) -> None:
        if pinned is None or route != "host":
            ps.load(source, out=target, route=route)
            return
        ps.load(source, out=pinned.array, route="host")
        pinned.send(0, nbytes, target)
        gpu.synchronize()

    def poison() -> None:
        if place.is_gpu:
            gpu.put(gpu.address_of(target), np.full(target.nbytes, 0xA5, np.uint8))
        else:
            target.fill(0xA5)

    def check(found: Any) -> None:
        if not np.array_equal(place.get(target if found is None else found), noise):
            raise WrongBytesError(f"wrong bytes of {source.name}")

    before = partial(warm, DataFile(source, 0, nbytes))
    template = Contestant("py", "", nbytes, by_python, before, poison, check)
    entered = _entered(place, template, by_penstock)
    if session.wants("kvikio") and place.is_gpu:
        entered += kvikio.loads(source, gpu.Buffer(nbytes, target), template)
    if session.wants("torch"):
        entered.append(_by_torch(source, place, template))
    if session.wants("deepspeed"):
        entered += deepnvme.loads(source, target, place, template)
    return session.race(with_known_routes(entered, "Penstock gds"), group=f"load, {place.in_words}")


def _stores(
    session: Session, place: Place, _: Path, noise: np.ndarray[Any, Any], fsync: bool
) -> list[Row]:
    path = session.own_folder / "stored.bin"
    array = place.put(noise)
    pinned = gpu.Pinned(noise.size) if place.is_gpu else None

    def by_python() -> None:
        with open(path, "wb") as file:
            file.write(place.get(array).data)
            if fsync:
                file.flush()
                os.fsync(file.fileno())

    def by_penstock(route: Route) -> None:
        if pinned is None or route != "host":
            ps.save(path, array, route=route, durable=fsync)
            return
        copy_bytes(pinned.address, gpu.address_of(array), noise.size)
        ps.save(path, pinned.array, route="host", durable=fsync)

    def check(_: object) -> None:
        if not np.array_equal(np.fromfile(path, np.uint8), noise):
            raise WrongBytesError(f"wrong bytes in {path.name}")

    remove = partial(path.unlink, missing_ok=True)
    template = Contestant("py", "", noise.size, by_python, remove, check=check, after=remove)
    entered = _entered(place, template, by_penstock)
    if session.wants("kvikio") and place.is_gpu:
        entered += kvikio.stores(path, gpu.Buffer(noise.size, array), template, sync=fsync)
    if session.wants("deepspeed"):
        entered += deepnvme.stores(path, array, place, fsync, template)
    group = f"store, {place.in_words}"
    return session.race(with_known_routes(entered, "Penstock gds"), group=group)


def _entered(
    place: Place, python: Contestant, by_penstock: Callable[[Route], None]
) -> list[Contestant]:
    """Return Python, and Penstock by each of the routes that the place has."""
    ours = [
        replace(python, name=f"Penstock {name}", setting=f"route={route}", detail=native.last)
        for name, route in _VARIANTS.items()
        if place.is_gpu or name in _ON_HOST
    ]
    for one, route in zip(ours, _VARIANTS.values(), strict=False):
        one.run = partial(by_penstock, route)
    return [python, *ours]


def _by_torch(source: Path, place: Place, template: Contestant) -> Contestant:
    """Map the file by ``torch.from_file``, and copy it to its destination."""
    setting = "from_file, then cuda()" if place.is_gpu else "from_file, then clone()"
    torch: Any = frameworks.installed("torch")
    if torch is None:
        return absent("torch", setting, "it is not installed")

    def run() -> Any:
        nbytes = int(template.amount)
        mapped = torch.from_file(str(source), shared=True, size=nbytes, dtype=torch.uint8)
        copied = mapped.cuda() if place.is_gpu else mapped.clone()
        gpu.synchronize()
        return copied

    def check(found: Any) -> None:
        template.check(found.cpu().numpy())

    return replace(template, name="torch", setting=setting, run=run, check=check, poison=nothing)


def _variant(row: Row) -> str:
    """Return the name of a row, with its setting unless the name implies it."""
    return row.name if row.name.startswith("Penstock") else row.full_name
