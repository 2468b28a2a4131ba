"""Loads of all tensors into the memory of every rank of a group: each byte is read by one rank."""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock._options import OptionKeys
from penstock.dist import load_replicated
from penstock.dist.mpi.ranks import DEFAULT_TIMEOUT
from penstock.dist.replicated.join import joined
from penstock.dist.replicated.source import KnownFile
from penstock.dist.torch_group import TorchGroup
from penstock.files import Path
from penstock.frameworks import torch_pending
from penstock.placement import HOST
from penstock.streams import wait_for
from penstock.torch.safetensors import frameworks
from penstock.torch.safetensors.errors import WeightsError
from penstock.torch.safetensors.frameworks import Framework, Memory, named_tensors
from penstock.torch.safetensors.header import Entry
from penstock.torch.safetensors.layout import ALIGNMENT, is_aligned, lay_out_contiguous
from penstock.torch.safetensors.opened import OneSave, WeightsFile
from penstock.torch.safetensors.sharded import files_of


class _Prepared(NamedTuple):
    """A file whose header was read, and memory for its bytes, which stay together there."""

    known: KnownFile
    begin: int
    """Where the tensors begin in the file."""
    nbytes: int
    shift: int
    """Where its bytes begin in the memory."""
    entries: list[Entry]
    places: list[int]
    memory: Memory


def load_by_all(
    filename: Path,
    device: Any,
    device_map: object,
    group: Any,
    exchange: str,
    pin: bool,
    options: OptionKeys,
) -> dict[str, Any]:
    """Load all tensors of a file, an index or a folder on all ranks of a group. Collective.

    Raises:
        RankError: A rank has failed. All ranks get it.
    """
    with joined(group, DEFAULT_TIMEOUT) as members:

        def prepare() -> tuple[Framework, list[_Prepared]]:
            refuse_map(device_map)
            maker = frameworks.choose("pt", device)
            if isinstance(members, TorchGroup) and maker.ordinal != HOST:
                members.use_gpu(maker.ordinal)
            files = files_of(filename).items()
            save = OneSave()
            return maker, [
                _prepared(path, names, save, maker, pin, options) for path, names in files
            ]

        maker, files = members.made_by_all("load_file(group=)", prepare)
    found: dict[str, Any] = {}
    for file in files:
        if file.nbytes:
            load_replicated(
                file.known,
                group,
                offset=file.begin,
                out=file.memory.owner[file.shift : file.shift + file.nbytes],
                exchange=exchange,
                **options,
            )
        found |= _tensors(maker, file)
    return found


def refuse_map(device_map: object) -> None:
    """Raise an error if a load by a group has a ``device_map``."""
    if device_map is not None:
        raise WeightsError("a group loads tensors to one device of each rank")


def _prepared(
    path: str,
    names: list[str] | None,
    save: OneSave,
    maker: Framework,
    pin: bool,
    options: OptionKeys,
) -> _Prepared:
    file = WeightsFile(path, "pread", options)
    try:
        save.add(file, names)
        header = file.header
        known = KnownFile(file.name, file.file.identity())
        entries = [file.entry(name) for name in (header.entries if names is None else names)]
    finally:
        file.close()
    shift, places = lay_out_contiguous(entries, header.begin)
    nbytes = header.end - header.begin
    memory = maker.allocate(nbytes + ALIGNMENT, pin=pin)
    return _Prepared(known, header.begin, nbytes, shift, entries, places, memory)


def _tensors(maker: Framework, file: _Prepared) -> dict[str, Any]:
    found = named_tensors(maker, file.memory, file.places, file.entries)
    if maker.ordinal != HOST:
        for entry, place in zip(file.entries, file.places, strict=True):
            if not is_aligned(entry, place):
                found[entry.name] = found[entry.name].clone()
        wait_for(torch_pending(maker.ordinal), maker.ordinal)
    return found
