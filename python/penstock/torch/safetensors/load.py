"""Loads of whole models: into torch's tensors, by one request for each file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from operator import itemgetter
from typing import Any

from penstock._native import ffi
from penstock._options import OptionKeys, Unpack
from penstock.files import Path
from penstock.request_group import RequestGroup
from penstock.torch.safetensors import frameworks
from penstock.torch.safetensors.errors import WeightsError
from penstock.torch.safetensors.frameworks import Framework
from penstock.torch.safetensors.header import header_in
from penstock.torch.safetensors.layout import AnyPart, lay_out
from penstock.torch.safetensors.open import Plan, parts_of, read_plan
from penstock.torch.safetensors.opened import OneSave, Reading, Readings, WeightsFile, name_of
from penstock.torch.safetensors.sharded import device_for, files_of


def load_file(
    filename: Path,
    device: Any = "cpu",
    *,
    backend: str = "mmap",
    device_map: Mapping[str, Any] | None = None,
    plan: Plan | None = None,
    copy: bool = False,
    pin: bool = False,
    group: Any = None,
    exchange: str = "auto",
    **options: Unpack[OptionKeys],
) -> dict[str, Any]:
    """Load the tensors of a model, as ``safetensors.torch.load_file`` does those of a file.

    Args:
        filename: A safetensors file; an index such as ``model.safetensors.index.json``, whose
            files are beside it; or a folder with one of them under its usual name.
        device: ``"cpu"``, ``"cuda"`` for the current GPU, ``"cuda:1"``, an ordinal or a
            ``torch.device``.
        backend: For pageable host memory: ``"mmap"`` returns parts of a private mapping of the
            file, which reads a page when it is first used; ``"pread"`` reads at once.
        device_map: Devices for prefixes of names that end at a dot, such as
            ``{"model.embed": 0, "model.layers": 1, "": "cpu"}``; the longest one counts.
        plan: Which tensors and slices, as for :meth:`safe_open.get_tensors`: the names, or a
            mapping of names to ``None``, a slice or a tuple of slices. Only their bytes are read,
            and those between near columns.
        copy: Whether each tensor has an allocation of its own, which is freed with it. By default,
            those of a file on a device share one, which is freed with the last of them.
        pin: Whether host memory is page-locked, so that its copy to a GPU is fast.
        group: A process group of torch.distributed, or an MPI communicator: all ranks call, each
            byte is read by one rank, and all get all tensors, or each rank those of its own plan.
            ``torch.distributed.group.WORLD`` is the default group.
        exchange: How ranks of a group exchange, as for :func:`penstock.dist.load_replicated`. With
            a plan, each rank reads its own bytes.
        **options: See :class:`penstock.OptionKeys`.

    Returns:
        The tensors by name, in the order of the file, or of the plan. They are complete: work on
        any stream may use them.

    Raises:
        NotFoundError: The file does not exist: a ``FileNotFoundError``.
        WeightsError: A header, an index or the plan is not valid: a ``SafetensorError``.
        UnavailableError: The GPU is not there.
        RankError: A rank of the group has failed.

    >>> state = load_file("model.safetensors", device="cuda")
    >>> half = load_file(path, "cuda", plan={"up.weight": np.s_[: n // 2]})
    """
    if group is not None and plan is None:
        from penstock.torch.safetensors.replicated import load_by_all

        return load_by_all(filename, device, device_map, group, exchange, pin, options)
    if group is None:
        made = _Load(filename, device, device_map, plan, backend, exchange, copy, pin, options)
        return made.run()
    from penstock.torch.safetensors.plans_of_ranks import load_plans

    def load_own() -> tuple[dict[str, Any], dict[str, tuple[int, int, int]]]:
        made = _Load(filename, device, None, plan, "pread", exchange, copy, pin, options)
        return made.run(), made.identities

    return load_plans(load_own, device, device_map, group)


def load(data: bytes | bytearray | memoryview) -> dict[str, Any]:
    """Load the tensors of a file whose bytes are in memory, as ``safetensors.torch.load`` does.

    Returns:
        The tensors by name, in host memory of their own.

    Raises:
        WeightsError: The header is not valid: a ``SafetensorError``.
    """
    return load_bytes(data, "pt")


def load_bytes(data: bytes | bytearray | memoryview, framework: str) -> dict[str, Any]:
    """Load tensors of a framework from the bytes of a file."""
    maker = frameworks.choose(framework, "cpu")
    source = memoryview(data).cast("B")
    header = header_in(source, "the data")
    parts = list(header.entries.values())
    layout = lay_out(parts)
    memory = maker.allocate(layout.nbytes)
    target = ffi.buffer(ffi.cast("char *", memory.address), memory.nbytes)
    for offset, length, at in layout.ranges.tolist():
        target[at : at + length] = source[offset : offset + length]
    return frameworks.named_tensors(maker, memory, layout.places, parts)


class _Load:
    """One call of :func:`load_file` by this process alone."""

    def __init__(
        self,
        filename: Path,
        device: Any,
        device_map: Mapping[str, Any] | None,
        plan: Plan | None,
        backend: str,
        exchange: str,
        copy: bool,
        pin: bool,
        options: OptionKeys,
    ) -> None:
        if exchange != "auto":
            raise WeightsError(f"exchange={exchange!r} needs a group, and no plan")
        if plan is not None and not isinstance(plan, Mapping):
            plan = dict.fromkeys(plan)
        self._files, self._plan, self._backend = files_of(filename), plan, backend
        self.identities: dict[str, tuple[int, int, int]] = {}
        """What identifies the contents of each file that was read, also on another host."""
        self._device, self._device_map = device, device_map
        self._keys: dict[str, bool] = {"copy": copy, "pin": pin}
        self._options = options
        self._made: dict[str, Framework] = {}

    def run(self) -> dict[str, Any]:
        """Load all files. The next one is prepared and begun while one is read."""
        found: dict[str, Any] = {}
        order: list[str] = []
        save = OneSave()
        reads: RequestGroup[Readings] = RequestGroup()
        with ExitStack() as opened, reads:
            for path, names in self._files.items():
                if self._plan is not None and names is not None:
                    names = [name for name in names if name in self._plan]
                    if not names:
                        continue
                file = WeightsFile(path, self._backend, self._options)
                opened.callback(file.close)
                if self._backend == "pread":
                    self.identities[os.path.basename(path)] = file.file.identity()
                save.add(file, names)
                order += file.header.entries if names is None else names
                reads.add(self._start(file, names))
                if len(reads) > 1:
                    found |= reads.next()
            while reads:
                found |= reads.next()
        if self._plan is None:
            return found if self._device_map is None else {name: found[name] for name in order}
        for name in self._plan:
            if name not in found:
                raise WeightsError(f"no file has tensor {name!r} of the plan")
        return {name: found[name] for name in self._plan}

    def _start(self, file: WeightsFile, names: list[str] | None) -> Readings:
        with Readings() as started:
            for key, (parts, others) in self._divided(file, names).items():
                framework = self._made[key]
                if others:
                    started.found |= read_plan(file, framework, others, **self._keys)
                is_alone = len(self._files) == 1 and self._device_map is None
                if is_alone or file.is_mapped(framework, **self._keys):
                    tensors = file.read(parts, framework, **self._keys)
                    started.found.update(zip(map(name_of, parts), tensors, strict=True))
                elif parts:
                    started.add(Reading(file, parts, framework, **self._keys).start())
        return started

    def _divided(
        self, file: WeightsFile, names: list[str] | None
    ) -> dict[str, tuple[Sequence[AnyPart], dict[str, Any]]]:
        """Return, for each device, what a request reads, and other indices by name."""
        entries, plan = file.header.entries, self._plan
        if plan is None and self._device_map is None:
            wanted = list(entries.values())
            if names is not None:
                wanted = sorted(map(file.entry, names), key=itemgetter(3, 4))
            return {self._choose(self._device): (wanted, {})}
        if names is None:
            names = list(entries if plan is None else plan)
        by_device: dict[str, dict[str, Any]] = {}
        for name in names:
            device = (
                self._device if self._device_map is None else device_for(name, self._device_map)
            )
            by_device.setdefault(self._choose(device), {})[name] = (
                None if plan is None else plan[name]
            )
        return {
            key: parts_of(file, few, is_mapped=file.is_mapped(self._made[key], **self._keys))
            for key, few in by_device.items()
        }

    def _choose(self, device: Any) -> str:
        key = str(device)
        if key not in self._made:
            self._made[key] = frameworks.choose("pt", device)
        return key
