"""`penstock bench weights`: models in safetensors files, loaded into torch's tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import penstock as ps
from penstock import frameworks
from penstock.torch.safetensors.header import Entry, encode_header
from penstock.units import size_in_words

from .. import gpu, group, native
from ..figures import Figure, Panel
from ..files import DataFile, warm, write_noise
from ..measure import Contestant, Row, WrongBytesError, no_check, nothing, then
from ..options import SIZE, Cache, benchmark, caches
from ..peers import weights as peers
from ..place import Device, Place, choose_for_torch
from ..session import Session
from ..tables import Table, columns

_SHAPE = 4096
"""The tensors of the large file are matrices whose rows have this many elements."""
_SEEN = 4096
"""Bytes at both ends of each tensor that are compared."""
_COLD = {
    ("safetensors", "mmap"),
    ("safetensors", "mmap,"),
    ("instanttensor", "direct"),
    ("instanttensor", "buffered"),
}
"""The peers, and the first words of their settings, that also read what is not cached."""
_COLUMNS = columns("File|Loader|Setting|GB/s|worst|best|times slower|ms|Detail")
Run = Callable[[], Any]


@benchmark("weights", "Weights from safetensors files", iterations=3)
def weights(
    session: Session,
    size: Annotated[
        int, typer.Option("--size", help="Bytes of the large file.", **SIZE)
    ] = 7_500_000_000,
    tensors: Annotated[int, typer.Option(help="Tensors of the large file.", min=1)] = 192,
    small: Annotated[
        int, typer.Option(help="Tensors of 512 bytes in the other file; 0 for none.", min=0)
    ] = 5000,
    device: Device = "auto",
    cache: Cache = "both",
    fresh: Annotated[
        bool, typer.Option("--fresh-memory", help="Free torch's cached memory before each run.")
    ] = False,
) -> None:
    """Load all tensors of a file of bfloat16, and those of a file of small tensors.

    With --n-rank, all ranks load at the same time: first the same file, each byte read once, then
    halves of each tensor, of which each rank reads its own.
    """
    torch, place = choose_for_torch(device, session.ranks)
    rows = max(size // tensors // (2 * _SHAPE), 1)
    session.settings |= {"tensors": tensors, "bytes": rows * 2 * _SHAPE * tensors, "small": small}
    session.need_space((rows * 2 * _SHAPE * tensors + small * 1024) // session.ranks.size)
    large = _File(session, "large", {f"layers.{n}.weight": (rows, _SHAPE) for n in range(tensors)})
    few = _File(session, "small", {f"layers.{n}.bias": (16, 16) for n in range(small)})
    session.ranks.barrier()
    free = torch.cuda.empty_cache if fresh and place.is_gpu else lambda: None
    table = Table(f"Weights of {size_in_words(large.nbytes)} into {place.in_words}", _COLUMNS)
    figure = Figure("weights", "Weights from safetensors files", "", "", [])
    if session.ranks.size > 1:
        _together(session, large, place, table, free)
    else:
        # Cold first: peers keep pages of files that they have read, which cannot be dropped then.
        for state, prepare in sorted(caches(cache).items()):
            before = then(_prepared(prepare, large), free)
            _alone(session, large, place, table, figure, state, before)
        if small:
            _alone(session, few, place, table, figure, "warm", then(_prepared(warm, few), free))
    session.tables.append(table)
    session.figures.append(figure)
    session.words.append(
        "Memory of torch's allocator is "
        + ("freed before each run." if fresh else "kept between runs, after a first one.")
    )


def _prepared(prepare: Callable[[DataFile], None], file: _File) -> Callable[[], None]:
    """Return a call that brings a file's pages into a state."""
    return partial(prepare, DataFile(file.path, 0, file.nbytes))


class _File:
    """A file of noise, which the first rank makes."""

    def __init__(self, session: Session, name: str, shapes: dict[str, tuple[int, int]]) -> None:
        self.path: Path = session.folder / f"{name}.safetensors"
        start, entries = encode_header({name: ("BF16", shape) for name, shape in shapes.items()})
        self.entries: dict[str, Entry] = entries
        self.nbytes = max((entry.end for entry in entries.values()), default=len(start))
        if session.ranks.is_first:
            write_noise(self.path, self.nbytes, start, seed=5)

    def _check_names(self, found: Any) -> None:
        if found.keys() != self.entries.keys():
            raise WrongBytesError(f"other names than those of {self.path.name}")

    def check(self, found: Any) -> None:
        """Compare both ends of each tensor with the file."""
        self._check_names(found)
        stored = np.memmap(self.path, np.uint8, "r")
        torch: Any = frameworks.installed("torch")
        for name, entry in self.entries.items():
            flat = found[name].reshape(-1).view(torch.uint8)
            for part in (slice(None, _SEEN), slice(-_SEEN, None)):
                wanted = stored[entry.begin : entry.end][part]
                if not np.array_equal(flat[part].cpu().numpy(), wanted):
                    raise WrongBytesError(f"wrong bytes of {name}")

    def check_parts(self, index: Any, found: Any) -> None:
        """Compare parts of tensors with the file: the first tensor, and the ends of the others."""
        self._check_names(found)
        torch: Any = frameworks.installed("torch")
        for number, (name, entry) in enumerate(self.entries.items()):
            stored = np.memmap(self.path, np.uint16, "r", entry.begin, entry.shape)[index]
            mine = found[name].view(torch.uint16)
            for rows in [slice(None)] if number == 0 else [slice(None, 1), slice(-1, None)]:
                if not np.array_equal(mine[rows].cpu().numpy(), stored[rows]):
                    raise WrongBytesError(f"wrong bytes of {name}")


def _loading(file: _File, place: Place, *, is_touched: bool = False, **keys: Any) -> Run:
    """Return a run of Penstock's, which may also touch all pages."""
    from penstock.torch import load_file

    def run() -> Any:
        made = load_file(file.path, place.name, **keys)
        gpu.synchronize()
        return made

    return _touching(run) if is_touched else run


def _touching(run: Run) -> Run:
    """Return a run that also reads each element once, as lazily mapped files need."""
    torch: Any = frameworks.installed("torch")

    def touched() -> Any:
        made = run()
        for tensor in made.values():
            tensor.view(torch.int16).sum()
        return made

    return touched


def _touched(others: list[Contestant], place: Place) -> list[Contestant]:
    """Return peers on the host, of which each touches all pages."""
    if place.is_gpu:
        return others
    return [
        one
        if one.absent
        else replace(one, run=_touching(one.run), setting=f"{one.setting}, pages touched")
        for one in others
    ]


def _alone(
    session: Session,
    file: _File,
    place: Place,
    table: Table,
    figure: Figure,
    state: str,
    before: Callable[[], None],
) -> None:
    template = Contestant(
        "Penstock", "copy=False (its default)", file.nbytes, _loading(file, place), before
    )
    template.check = file.check
    if place.is_gpu:
        entered = [
            replace(template, detail=native.last),
            replace(
                template,
                setting="copy=True",
                run=_loading(file, place, copy=True),
                detail=native.last,
            ),
        ]
    else:
        mapped, pread = (
            _loading(file, place, is_touched=True, **keys) for keys in ({}, {"backend": "pread"})
        )
        entered = [
            replace(template, setting="mmap (its default), pages touched", run=mapped),
            replace(template, setting="pread, pages touched", run=pread),
        ]
    others = _touched(peers.entered(session.wants, file.path, place.name, template), place)
    entered += [one for one in others if one.absent or _is_for(state, one)]
    once: dict[str, Any] = {"warm_up": False, "iterations": 1} if state == "cold" else {}
    name = f"{len(file.entries)} tensors, {state}"
    rows = session.race(entered, group=name, **once)
    _add(table, name, rows)
    ticks, values = [row.full_name for row in rows], [row.value for row in rows]
    figure.panels.append(Panel(f"{name} (GB/s)", ticks, {"": values}))


def _is_for(state: str, contestant: Contestant) -> bool:
    """Whether a peer's setting is one for files in this state."""
    if state == "warm":
        return not contestant.setting.startswith("direct")
    return (contestant.name, contestant.setting.split()[0]) in _COLD


def _together(
    session: Session, file: _File, place: Place, table: Table, free: Callable[[], None]
) -> None:
    """Measure ranks that need the same file, and ranks that need parts of each tensor."""
    ranks = session.ranks
    found = group.nccl(ranks, session.folder) if place.is_gpu else "there is no GPU"
    shared = None if isinstance(found, str) else found
    ours = group.of(ranks) if shared is None else shared
    load = partial(_loading, file, place)

    def of_first(one: Contestant) -> Contestant:
        """Return what the first rank does alone, while the others wait."""
        if ranks.is_first:
            return one
        return replace(one, amount=0, run=nothing, before=nothing, check=no_check, detail=str)

    before = then(_prepared(warm, file), free)
    plain = Contestant("Penstock", "group=", file.nbytes, load(group=ours), before)
    plain.check = file.check
    note = replace(plain, detail=lambda: str(getattr(ps.last_report(), "note", "")))
    alone = replace(plain, run=load(backend="pread"), detail=native.last)
    of_one = of_first(replace(alone, setting="one rank alone, all tensors"))
    entered = [note, replace(alone, setting="each rank by itself"), of_one]
    if shared is not None:
        entered += peers.entered(session.wants, file.path, place.name, plain, shared)
    if place.is_gpu:
        entered.append(of_first(_link()))
    name = f"the same {len(file.entries)} tensors on {ranks.size} ranks"
    _add(table, name, session.race(entered, group=name))

    rows = next(iter(file.entries.values())).shape[0]
    own, columns = (
        slice(length * ranks.rank // ranks.size, length * (ranks.rank + 1) // ranks.size)
        for length in (rows, _SHAPE)
    )
    parts: list[Contestant] = []
    for what, index, amount in (
        ("rows", np.s_[own], (own.stop - own.start) / rows),
        ("columns", np.s_[:, columns], (columns.stop - columns.start) / _SHAPE),
    ):
        plan, setting = dict.fromkeys(file.entries, index), f"{what} of each tensor"
        part = replace(alone, setting=setting, amount=file.nbytes * amount)
        part.run, part.check = load(plan=plan, backend="pread"), partial(file.check_parts, index)
        parts.append(part)
        if shared is not None:
            parts.append(of_first(replace(part, setting=f"{setting}, one rank alone")))
        by_peer = replace(part, detail=str)
        parts += _touched(
            peers.entered_for_parts(session.wants, file.path, place.name, by_peer, index, shared),
            place,
        )
    name = f"{ranks.size} ranks, parts of each tensor"
    _add(table, name, session.race([*parts, of_one], group=name))


def _link() -> Contestant:
    """Return the copy of page-locked memory to the GPU, which is the most that a load can get."""
    torch: Any = frameworks.installed("torch")
    nbytes = 1 << 30
    source = torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
    target = torch.empty(nbytes, dtype=torch.uint8, device="cuda")

    def run() -> None:
        target.copy_(source, non_blocking=True)
        gpu.synchronize()

    setting = "1 GiB from page-locked memory, one rank: the link"
    return Contestant("torch", setting, nbytes, run)


def _add(table: Table, file: str, rows: list[Row]) -> None:
    """Add rows, each with how many times faster Penstock's first one is."""
    for row in rows:
        faster, milliseconds = rows[0].beats(row), (row.median or 0.0) * 1e3
        table.result(row, (file, row.name, row.setting), faster, milliseconds)
