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
from ..files import DataFile, sync_file, warm
from ..measure import Contestant, Row, WrongBytesError, no_check, nothing, then
from ..options import SIZE, Cache, benchmark, caches
from ..peers import weights as peers
from ..place import Device, Place, choose_for_torch
from ..session import Session
from ..tables import Table

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
_COLUMNS = ["File", "Loader", "Setting", "GB/s", "worst", "best", "times slower", "ms", "Detail"]


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
            _alone(
                session, large, place, table, figure, state, then(prepare_of(prepare, large), free)
            )
        if small:
            before = then(prepare_of(warm, few), free)
            _alone(session, few, place, table, figure, "warm", before, is_small=True)
    session.tables.append(table)
    session.figures.append(figure)
    session.words.append(
        "Memory of torch's allocator is "
        + ("freed before each run." if fresh else "kept between runs, after a first one.")
    )


def prepare_of(prepare: Callable[[DataFile], None], file: _File) -> Callable[[], None]:
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
            noise = np.random.default_rng(5).integers(0, 256, 64 << 20, np.uint8)
            with open(self.path, "wb") as file:
                file.write(start)
                for number, at in enumerate(range(len(start), self.nbytes, noise.size)):
                    file.write(np.roll(noise, number)[: self.nbytes - at].data)
            sync_file(self.path)

    def check(self, found: Any) -> None:
        """Compare both ends of each tensor with the file."""
        if found.keys() != self.entries.keys():
            raise WrongBytesError(f"other names than those of {self.path.name}")
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
        if found.keys() != self.entries.keys():
            raise WrongBytesError(f"other names than those of {self.path.name}")
        torch: Any = frameworks.installed("torch")
        for number, (name, entry) in enumerate(self.entries.items()):
            stored = np.memmap(self.path, np.uint16, "r", entry.begin, entry.shape)[index]
            mine = found[name].view(torch.uint16)
            for rows in [slice(None)] if number == 0 else [slice(None, 1), slice(-1, None)]:
                if not np.array_equal(mine[rows].cpu().numpy(), stored[rows]):
                    raise WrongBytesError(f"wrong bytes of {name}")


def _alone(
    session: Session,
    file: _File,
    place: Place,
    table: Table,
    figure: Figure,
    state: str,
    before: Callable[[], None],
    *,
    is_small: bool = False,
) -> None:
    from penstock.torch import load_file

    def ours(**keys: Any) -> Callable[[], Any]:
        def run() -> Any:
            made = load_file(file.path, place.name, **keys)
            gpu.synchronize()
            return made

        return run

    template = Contestant(
        "Penstock",
        "copy=False (its default)",
        file.nbytes,
        ours(),
        before=before,
        check=file.check,
        detail=native.last if place.is_gpu else str,
    )
    entered = [template]
    if place.is_gpu:
        entered.append(replace(template, setting="copy=True", run=ours(copy=True)))
    else:
        entered[0] = replace(
            template, setting="mmap (its default), pages touched", run=_touched(ours())
        )
        pread = ours(backend="pread")
        entered.append(replace(template, setting="pread, pages touched", run=_touched(pread)))
    others = peers.entered(session.wants, file.path, place.name, replace(template, detail=str))
    if not place.is_gpu:
        others = list(map(_with_touch, others))
    is_cold = state == "cold"
    others = [one for one in others if one.absent or _is_for(state, one)]
    name = f"{len(file.entries)} tensors, {state}"
    rows = session.race(
        [*entered, *others],
        group=name,
        warm_up=False if is_cold else None,
        iterations=1 if is_cold else None,
    )
    _add(table, name, rows)
    figure.panels.append(
        Panel(f"{name} (GB/s)", [row.full_name for row in rows], {"": [r.value for r in rows]})
    )


def _is_for(state: str, contestant: Contestant) -> bool:
    """Whether a peer's setting is one for files in this state."""
    if state == "warm":
        return not contestant.setting.startswith("direct")
    return (contestant.name, contestant.setting.split()[0]) in _COLD


def _with_touch(one: Contestant) -> Contestant:
    if one.absent:
        return one
    return replace(one, run=_touched(one.run), setting=f"{one.setting}, pages touched")


def _touched(run: Callable[[], Any]) -> Callable[[], Any]:
    """Return a run that also reads each element once, as lazily mapped files need."""
    torch: Any = frameworks.installed("torch")

    def touched() -> Any:
        made = run()
        for tensor in made.values():
            tensor.view(torch.int16).sum()
        return made

    return touched


def _together(
    session: Session, file: _File, place: Place, table: Table, free: Callable[[], None]
) -> None:
    """Measure ranks that need the same file, and ranks that need parts of each tensor."""
    from penstock.torch import load_file

    ranks = session.ranks
    made = group.nccl(ranks, session.folder) if place.is_gpu else "there is no GPU"
    ours = group.of(ranks) if isinstance(made, str) else made

    def loads(**keys: Any) -> Callable[[], Any]:
        def run() -> Any:
            found = load_file(file.path, place.name, **keys)
            gpu.synchronize()
            return found

        return run

    def of_first(one: Contestant) -> Contestant:
        """Return what the first rank does alone, while the others wait."""
        if ranks.is_first:
            return one
        return replace(one, amount=0, run=nothing, before=nothing, check=no_check, detail=str)

    template = Contestant(
        "Penstock",
        "group=",
        file.nbytes,
        loads(group=ours),
        before=then(prepare_of(warm, file), free),
        check=file.check,
        detail=lambda: str(getattr(ps.last_report(), "note", "")),
    )
    alone = replace(template, run=loads(backend="pread"), detail=native.last)
    of_one = of_first(replace(alone, setting="one rank alone, all tensors"))
    entered = [template, replace(alone, setting="each rank by itself"), of_one]
    if not isinstance(made, str):
        entered += peers.entered(
            session.wants, file.path, place.name, replace(template, detail=str), made
        )
    if place.is_gpu:
        entered.append(of_first(_link(replace(template, detail=str))))
    name = f"the same {len(file.entries)} tensors on {ranks.size} ranks"
    _add(table, name, session.race(entered, group=name))

    rows = next(iter(file.entries.values())).shape[0]
    own = slice(rows * ranks.rank // ranks.size, rows * (ranks.rank + 1) // ranks.size)
    columns = slice(_SHAPE * ranks.rank // ranks.size, _SHAPE * (ranks.rank + 1) // ranks.size)
    parts: list[Contestant] = []
    shared = None if isinstance(made, str) else made
    for what, index, amount in (
        ("rows", np.s_[own], (own.stop - own.start) / rows),
        ("columns", np.s_[:, columns], (columns.stop - columns.start) / _SHAPE),
    ):
        plan = dict.fromkeys(file.entries, index)
        part = replace(
            alone,
            setting=f"{what} of each tensor",
            amount=file.nbytes * amount,
            run=loads(plan=plan, backend="pread"),
            check=partial(file.check_parts, index),
        )
        parts.append(part)
        if shared is not None:
            parts += [
                replace(
                    part,
                    setting=f"{part.setting}, exchanged by NCCL",
                    run=loads(plan=plan, group=ours, exchange="nccl"),
                ),
                of_first(replace(part, setting=f"{part.setting}, one rank alone")),
            ]
        others = peers.entered_for_parts(
            session.wants, file.path, place.name, replace(part, detail=str), index, shared
        )
        parts += others if place.is_gpu else map(_with_touch, others)
    name = f"{ranks.size} ranks, parts of each tensor"
    _add(table, name, session.race([*parts, of_one], group=name))


def _link(template: Contestant) -> Contestant:
    """Return the copy of page-locked memory to the GPU, which is the most that a load can get."""
    torch: Any = frameworks.installed("torch")
    nbytes = 1 << 30
    source = torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
    target = torch.empty(nbytes, dtype=torch.uint8, device="cuda")

    def run() -> None:
        target.copy_(source, non_blocking=True)
        gpu.synchronize()

    return replace(
        template,
        name="torch",
        setting="1 GiB from page-locked memory, one rank: the link",
        amount=nbytes,
        run=run,
        before=nothing,
        check=no_check,
    )


def _add(table: Table, file: str, rows: list[Row]) -> None:
    """Add rows, each with how many times faster Penstock's first one is."""
    for row in rows:
        if row.value is None or row.spread is None or row.median is None:
            table.add(file, row.name, row.setting, *[None] * 5, f"failed: {row.error}")
            continue
        faster = None if row is rows[0] else rows[0].better_than(row)
        table.add(
            file,
            row.name,
            row.setting,
            row.value,
            *row.spread,
            faster,
            row.median * 1e3,
            row.detail,
        )
