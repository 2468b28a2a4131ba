"""`penstock bench checkpoint`: checkpoints of torch's tensors, saved and loaded."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Iterator
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
from ..measure import Contestant, WrongBytesError, absent, then
from ..options import SIZE, Cache, benchmark, caches
from ..place import Device, Place, choose_for_torch
from ..session import Session
from ..tables import Table, columns

_SEEN = 2048
"""Elements at both ends of each tensor that are compared."""
_MOST_FILES = 8
"""Files, each with its thread, that torch's writer makes at its best."""
_COLUMNS = columns("Work|By|Setting|GB/s|worst|best|times slower|s|Detail")


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

    torch: Any = frameworks.installed("torch")

    def saved(writer: Any, name: str, **keys: Any) -> Callable[[], None]:
        path = str(folder / name)
        return lambda: dcp.save(state.tensors, storage_writer=writer(path=path, **keys))

    def by_torch() -> None:
        with open(folder / "torch.pt", "wb") as file:
            torch.save(state.tensors, file)
            file.flush()
            os.fsync(file.fileno())

    def entered(name: str, setting: str, file: str, run: Callable[[], None]) -> Contestant:
        clear = partial(_remove, folder / file)
        made = Contestant(name, setting, state.nbytes, run, clear)
        if name == "Penstock":
            made.detail = native.last
        else:
            made.after = clear
        return made

    def to_file() -> None:
        ours.save(state.tensors, folder / "penstock.pt")

    hugging = saved(ours.PenstockHuggingFaceWriter, "huggingface")
    found = [
        entered("Penstock", "PenstockWriter", "dcp", saved(ours.PenstockWriter, "dcp")),
        entered("Penstock", "PenstockHuggingFaceWriter", "huggingface", hugging),
        entered("Penstock", "penstock.torch.checkpoint.save", "penstock.pt", to_file),
    ]
    if session.wants("torch"):
        for count in sorted({1, min(os.cpu_count() or 1, _MOST_FILES)}):
            name, setting = f"torch-{count}", f"FileSystemWriter, thread_count={count}"
            run = saved(dcp.FileSystemWriter, name, thread_count=count)
            found.append(entered("torch", setting, name, run))
        found.append(entered("torch", "torch.save, fsync", "torch.pt", by_torch))
    return found


def _loads(
    session: Session, state: _State, folder: Path, prepare: Callable[[DataFile], None]
) -> Iterator[tuple[str, list[Contestant]]]:
    """Yield each kind of checkpoint, and who loads it."""
    from torch.distributed import checkpoint as dcp

    from penstock.torch import checkpoint as ours

    torch: Any = frameworks.installed("torch")
    device = str(next(iter(state.tensors.values())).device)

    def loaded(reader: Any, path: Path) -> None:
        dcp.load(state.tensors, storage_reader=reader(path=str(path)))
        gpu.synchronize()

    def file_loaded(load: Callable[..., Any], path: Path) -> Any:
        found = load(path, map_location=device)
        gpu.synchronize()
        return found

    def entered(
        path: Path, run: Callable[..., Any], ways: dict[str, Callable[..., Any]], **keys: Any
    ) -> list[Contestant]:
        """Return Penstock, which is the first of the ways, and torch."""
        before = then(*(partial(prepare, file) for file in _files_of(path)))
        keys |= {"before": before, "check": state.check}
        made = [
            Contestant("torch", setting, state.nbytes, partial(run, way, path), **keys)
            for setting, way in ways.items()
        ]
        made[0].name, made[0].detail = "Penstock", native.last
        return made if session.wants("torch") else made[:1]

    readers = {
        "dcp": (ours.PenstockReader, dcp.FileSystemReader),
        "huggingface": (ours.PenstockHuggingFaceReader, dcp.HuggingFaceStorageReader),
    }
    for name, both in readers.items():
        ways = {reader.__name__: reader for reader in both}
        made = entered(folder / name, loaded, ways, poison=state.poison)
        if name == "huggingface" and find_spec("safetensors") is None:
            why = "safetensors is not installed"
            made[1:] = [absent("torch", one.setting, why) for one in made[1:]]
        yield f"load {name}", made
    files = {"penstock.torch.checkpoint.load": ours.load}
    # On the host, torch's mmap would read nothing.
    for mmap in (False,) if device == "cpu" else (False, True):
        files[f"torch.load, mmap={mmap}"] = partial(torch.load, mmap=mmap)
    yield "load a file", entered(folder / "penstock.pt", file_loaded, files)


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
        table.result(row, (work, row.name, row.setting), rows[0].beats(row), row.median)
    ticks, values = [row.setting for row in rows], [row.value for row in rows]
    figure.panels.append(Panel(work, ticks, {"": values}))
