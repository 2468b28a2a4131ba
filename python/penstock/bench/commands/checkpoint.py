"""`penstock bench checkpoint`: checkpoints of torch's tensors, saved and loaded."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from penstock import frameworks
from penstock.units import size_in_words

from .. import gpu, native
from ..figures import Figure, Panel
from ..files import DataFile, sync_file
from ..measure import Contestant, Row, WrongBytesError, absent, then
from ..options import SIZE, Cache, benchmark, caches
from ..place import Device, Place, choose_for_torch
from ..session import Session
from ..tables import Table

_SEEN = 2048
"""Elements at both ends of each tensor that are compared."""
_MOST_FILES = 8
"""Files, each with its thread, that torch's writer makes at its best."""
_COLUMNS = ["Work", "By", "Setting", "GB/s", "worst", "best", "times slower", "s", "Detail"]


@benchmark("checkpoint", "Checkpoints of torch's tensors", iterations=2)
def checkpoint(
    session: Session,
    size: Annotated[
        int, typer.Option("--size", help="Bytes of the state dict.", **SIZE)
    ] = 4_000_000_000,
    tensors: Annotated[int, typer.Option(help="Tensors of the state dict.", min=1)] = 192,
    device: Device = "auto",
    cache: Cache = "both",
) -> None:
    """Save a state dict of bfloat16, flushed to the medium, and load it into the same tensors.

    The peers are FileSystemWriter, FileSystemReader and HuggingFaceStorageReader of
    torch.distributed.checkpoint, with the files that Penstock has written, and torch.save and load.
    """
    torch, place = choose_for_torch(device, session.ranks)
    state = _State(torch, size, tensors, place)
    session.settings |= {"tensors": tensors, "bytes": state.nbytes}
    session.need_space(6 * state.nbytes)
    where = "GPU" if place.is_gpu else "CPU"
    table = Table(f"Checkpoint of {size_in_words(state.nbytes)} on the {where}", _COLUMNS)
    figure = Figure("checkpoint", session.title, "", "Rate (GB/s)", [])
    folder = session.own_folder
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of ranks that are not there, and overwritten checkpoints
        groups = _saves(session, state, folder)
        _race(session, table, figure, "save", groups)
        for cached, prepare in caches(cache).items():
            once = {"warm_up": False, "iterations": 1} if cached == "cold" else {}
            for work, contestants in _loads(session, state, folder, prepare):
                _race(session, table, figure, f"{work}, {cached}", contestants, **once)
    session.tables.append(table)
    session.figures.append(figure)
    session.words.append("All saves end when the files are on the medium.")


class _State:
    """The state dict, whose first tensor changes with each save."""

    def __init__(self, torch: Any, size: int, tensors: int, place: Place) -> None:
        each = max(size // tensors // 2, 1)
        made = torch.Generator(place.name).manual_seed(5)
        self._torch = torch
        self.tensors = {
            f"layers.{n}.weight": torch.randint(
                -(1 << 15), 1 << 15, (each,), dtype=torch.int16, device=place.name, generator=made
            ).view(torch.bfloat16)
            for n in range(tensors)
        }
        self.nbytes = 2 * each * tensors
        self._ends = {name: self._ends_of(tensor) for name, tensor in self.tensors.items()}

    def _ends_of(self, tensor: Any) -> Any:
        bits = tensor.view(self._torch.int16)
        return [part.cpu().numpy() for part in (bits[:_SEEN], bits[-_SEEN:])]

    def poison(self) -> None:
        """Overwrite all tensors, so that a missing one shows."""
        for tensor in self.tensors.values():
            tensor.zero_()

    def check(self, found: Any) -> None:
        """Compare both ends of each tensor."""
        for name, tensor in (self.tensors if found is None else found).items():
            if not np.array_equal(self._ends_of(tensor), self._ends[name]):
                raise WrongBytesError(f"wrong bytes of {name}")


def _saves(session: Session, state: _State, folder: Path) -> list[Contestant]:
    from torch.distributed import checkpoint as dcp

    from penstock.torch import checkpoint as ours

    def saved(writer: Any, name: str, **keys: Any) -> Callable[[], None]:
        path = str(folder / name)
        return lambda: dcp.save(state.tensors, storage_writer=writer(path=path, **keys))

    def by_torch() -> None:
        with open(folder / "torch.pt", "wb") as file:
            frameworks.installed("torch").save(state.tensors, file)  # type: ignore[union-attr]
            file.flush()
            os.fsync(file.fileno())

    def clear(name: str) -> Callable[[], None]:
        return lambda: _remove(folder / name)

    template = Contestant(
        "Penstock", "PenstockWriter", state.nbytes, saved(ours.PenstockWriter, "dcp")
    )
    entered = [
        replace(template, before=clear("dcp"), detail=native.last),
        replace(
            template,
            setting="PenstockHuggingFaceWriter",
            run=saved(ours.PenstockHuggingFaceWriter, "huggingface"),
            before=clear("huggingface"),
            detail=native.last,
        ),
        replace(
            template,
            setting="penstock.torch.checkpoint.save",
            run=lambda: ours.save(state.tensors, folder / "penstock.pt"),
            before=clear("penstock.pt"),
            detail=native.last,
        ),
    ]
    if session.wants("torch"):
        writer = dcp.FileSystemWriter
        files = min(os.cpu_count() or 1, _MOST_FILES)
        for count in sorted({1, files}):
            name = f"torch-{count}"
            entered.append(
                replace(
                    template,
                    name="torch",
                    setting=f"FileSystemWriter, thread_count={count}",
                    run=saved(writer, name, thread_count=count),
                    before=clear(name),
                    after=clear(name),
                )
            )
        entered.append(
            replace(
                template,
                name="torch",
                setting="torch.save, fsync",
                run=by_torch,
                before=clear("torch.pt"),
                after=clear("torch.pt"),
            )
        )
    return entered


def _loads(
    session: Session, state: _State, folder: Path, prepare: Callable[[DataFile], None]
) -> Iterator[tuple[str, list[Contestant]]]:
    """Yield each kind of checkpoint, and who loads it."""
    torch: Any = frameworks.installed("torch")
    from torch.distributed import checkpoint as dcp

    from penstock.torch import checkpoint as ours

    def loaded(reader: Any, name: str) -> Callable[[], None]:
        def run() -> None:
            dcp.load(state.tensors, storage_reader=reader(path=str(folder / name)))
            gpu.synchronize()

        return run

    def file_loaded(load: Callable[..., Any]) -> Callable[[], Any]:
        def run() -> Any:
            found = load(folder / "penstock.pt", map_location=device)
            gpu.synchronize()
            return found

        return run

    device = str(next(iter(state.tensors.values())).device)
    peer = {
        "dcp": ("FileSystemReader", dcp.FileSystemReader),
        "huggingface": ("HuggingFaceStorageReader", dcp.HuggingFaceStorageReader),
    }
    readers = {"dcp": ours.PenstockReader, "huggingface": ours.PenstockHuggingFaceReader}
    for name, reader in readers.items():
        template = Contestant(
            "Penstock",
            reader.__name__,
            state.nbytes,
            loaded(reader, name),
            before=then(*(partial(prepare, file) for file in _files_of(folder / name))),
            poison=state.poison,
            check=state.check,
            detail=native.last,
        )
        entered = [template]
        setting, of_torch = peer[name]
        if session.wants("torch"):
            if name == "huggingface" and find_spec("safetensors") is None:
                entered.append(absent("torch", setting, "safetensors is not installed"))
            else:
                run = loaded(of_torch, name)
                entered.append(
                    replace(template, name="torch", setting=setting, run=run, detail=str)
                )
        yield f"load {name}", entered
    template = Contestant(
        "Penstock",
        "penstock.torch.checkpoint.load",
        state.nbytes,
        file_loaded(ours.load),
        before=then(*(partial(prepare, file) for file in _files_of(folder / "penstock.pt"))),
        check=state.check,
        detail=native.last,
    )
    entered = [template]
    if session.wants("torch"):
        for mmap in (False, True):
            run = file_loaded(partial(torch.load, mmap=mmap))
            setting = f"torch.load, mmap={mmap}"
            if not (mmap and device == "cpu"):  # it would read nothing
                entered.append(
                    replace(template, name="torch", setting=setting, run=run, detail=str)
                )
    yield "load a file", entered


def _files_of(path: Path) -> list[DataFile]:
    files = [path] if path.is_file() else sorted(path.iterdir())
    large = [file for file in files if file.suffix in (".distcp", ".safetensors", ".pt")]
    for file in large:
        sync_file(file)
    return [DataFile(file, 0, file.stat().st_size) for file in large]


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _race(
    session: Session,
    table: Table,
    figure: Figure,
    work: str,
    entered: list[Contestant],
    **how: Any,
) -> None:
    rows = session.race(entered, group=work, **how)
    for row in rows:
        _add(table, work, row, rows[0])
    figure.panels.append(
        Panel(work, [row.setting for row in rows], {"": [row.value for row in rows]})
    )


def _add(table: Table, work: str, row: Row, first: Row) -> None:
    if row.value is None or row.spread is None or row.median is None:
        table.add(work, row.name, row.setting, *[None] * 5, f"failed: {row.error}")
        return
    faster = None if row is first else first.better_than(row)
    values = (row.value, *row.spread, faster, row.median)
    table.add(work, row.name, row.setting, *values, row.detail)
