"""``safe_open``: tensors and slices of a file, read when they are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from penstock._options import OptionKeys, Unpack
from penstock.placement import HOST
from penstock.torch.safetensors import frameworks, slices
from penstock.torch.safetensors.errors import WeightsError, WeightsIndexError, WeightsTypeError
from penstock.torch.safetensors.header import BITS, Entry
from penstock.torch.safetensors.layout import AnyPart
from penstock.torch.safetensors.opened import Source, WeightsFile
from penstock.torch.safetensors.prefetch import PrefetchLoader

Plan: TypeAlias = "Mapping[str, Any] | Iterable[str]"
"""Names of tensors, each perhaps with an index: ``None`` for the whole tensor, a slice along the
first dimension, or a tuple of slices. Bytes that lie less than 512 at a time, as those of an index
with a step may, are read through host memory, apart from the request."""


class safe_open:  # noqa: N801 - the name in the package safetensors
    """An open safetensors file, as the class of this name in the package safetensors.

    Tensors on a GPU are read straight into its memory; :meth:`get_tensors` and :meth:`prefetch`
    read all of theirs by one request. Tensors in host memory are parts of a private mapping of the
    file: a write there does not reach it.

    Args:
        filename: The file, or an open Python file.
        framework: ``"pt"`` for torch, ``"np"`` for NumPy, ``"cupy"``, or ``"device"`` for a
            :class:`penstock.DeviceArray`.
        device: ``"cpu"``, ``"cuda"`` for the current GPU, ``"cuda:1"``, an ordinal or a
            ``torch.device``. Devices that are not of CUDA are filled from host memory.
        backend: ``"mmap"``, or ``"pread"`` to read tensors for host memory.
        **options: See :class:`penstock.OptionKeys`.

    Raises:
        NotFoundError: The file does not exist: a ``FileNotFoundError``.
        WeightsError: The header is not valid, or a name is not in the file: a ``SafetensorError``.
        UnavailableError: The GPU is not there.

    >>> with safe_open("model.safetensors", framework="pt", device="cuda") as f:
    ...     rows = f.get_slice("embedding")[:1000]
    """

    def __init__(
        self,
        filename: Source,
        framework: str,
        device: Any = "cpu",
        *,
        backend: str = "mmap",
        **options: Unpack[OptionKeys],
    ) -> None:
        self._opened: WeightsFile | None = WeightsFile(filename, backend, options)
        try:
            self._name = framework
            self._framework = frameworks.choose(framework, device)
        except BaseException:
            self._opened.close()
            raise

    def _file(self) -> WeightsFile:
        if self._opened is None:
            raise WeightsError("File is closed")
        return self._opened

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Tensors stay valid; loaders of :meth:`prefetch` finish."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def metadata(self) -> dict[str, str] | None:
        """Return the text that the writer has added; ``None`` if there is none."""
        metadata = self._file().header.metadata
        return None if metadata is None else dict(metadata)

    def keys(self) -> list[str]:
        """Return the names of the tensors in alphabetical order."""
        return sorted(self._file().header.entries)

    def offset_keys(self) -> list[str]:
        """Return the names of the tensors in the order of their bytes."""
        return list(self._file().header.entries)

    def get_tensor(self, name: str) -> Any:
        """Return a tensor."""
        file = self._file()
        return file.read_part(file.entry(name), self._framework)

    def get_tensors(self, plan: Plan | None = None, *, copy: bool = False) -> dict[str, Any]:
        """Return all tensors, or those of a plan, by name: one request.

        Args:
            plan: Which tensors and slices; by default, all tensors.
            copy: Whether each tensor has an allocation of its own, which is freed with it.
                Otherwise they share one, which is freed with the last of them.
        """
        file = self._file()
        if plan is None:
            return file.read_all(self._framework, copy=copy, pin=False)
        return read_plan(file, self._framework, plan, copy=copy)

    def get_slice(self, name: str) -> SafeSlice:
        """Return a tensor of which an index reads a part."""
        return SafeSlice(self, self._file().entry(name))

    def get_tensor_meta(self, name: str) -> Entry:
        """Return data type, shape and place of a tensor."""
        return self._file().entry(name)

    def prefetch(
        self, plan: Plan | None = None, *, device: Any = None, threads: int | None = None
    ) -> PrefetchLoader:
        """Start to read tensors, or slices, by one request, and return at once.

        Args:
            plan: Which tensors and slices; by default, all tensors.
            device: Where they go, if not to the device of this file.
            threads: Workers that serve the request; by default, as many as are best.

        Returns:
            A loader that hands each tensor out once, as soon as its bytes are there.

        >>> with safe_open(path, "pt", "cuda") as f, f.prefetch() as loader:
        ...     for name, tensor in loader:
        ...         parameters[name].copy_(tensor)
        """
        file, framework = self._file(), self._framework
        if device is not None:
            framework = frameworks.choose(self._name, device)
        planned = list(file.header.entries) if plan is None else plan
        parts, others = parts_of(file, planned, is_mapped=False)
        reads = {}
        if others:
            memory = file.mapped()  # now, as the file may be closed before the loader
            for name, index in others.items():
                entry = file.entry(name)
                reads[name] = partial(_by_mapping, file, memory, framework, entry, index, copy=True)
        return PrefetchLoader(file, parts, framework, threads, reads)

    def _part(self, entry: Entry, index: Any) -> Any:
        file, framework = self._file(), self._framework
        return read_index(file, framework, self._name, entry, index)


class SafeSlice:
    """A tensor in a file. Indexing reads the bytes that the index selects, as far as possible."""

    def __init__(self, opened: safe_open, entry: Entry) -> None:
        self._opened, self._entry = opened, entry

    def get_shape(self) -> list[int]:
        """Return the lengths of the dimensions."""
        return list(self._entry.shape)

    def get_dtype(self) -> str:
        """Return the data type by the format's name."""
        return self._entry.dtype

    def __getitem__(self, index: Any) -> Any:
        return self._opened._part(self._entry, index)


def read_index(
    file: WeightsFile, framework: frameworks.Framework, name: str, entry: Entry, index: Any
) -> Any:
    """Return what an index selects of a tensor."""
    if name in ("np", "numpy"):
        with _naming(file, entry):
            index = slices.check_plain(entry, index)
        return np.array(_by_mapping(file, file.mapped(), framework, entry, index, copy=False))
    is_mapped = file.is_mapped(framework, copy=False, pin=False)
    if slices.is_basic(index) and not is_mapped:
        with _naming(file, entry):
            part = slices.part_of(entry, index)
        if part is not None:
            (made,) = file.read([part], framework)
            return made
    return _by_mapping(file, file.mapped(), framework, entry, index, copy=not is_mapped)


def _by_mapping(
    file: WeightsFile,
    memory: frameworks.Memory,
    framework: frameworks.Framework,
    entry: Entry,
    index: Any,
    *,
    copy: bool,
    pin: bool = False,
) -> Any:
    """Return what an index selects of a tensor. The pages with it are read on the host.

    Args:
        file: The file, which errors name.
        memory: Its mapping, which also serves after the file is closed.
        framework: What makes the tensor.
        entry: The tensor in the file.
        index: The index.
        copy: Whether a tensor in host memory has memory of its own, and not that of the mapping.
        pin: Whether that memory is page-locked.
    """
    if BITS[entry.dtype] >= 8:
        whole = framework.of_host(memory, entry.begin, entry)
        with _naming(file, entry):
            found = whole[index]
    else:
        # The library's array has packed bytes, whose index would be another one.
        with _naming(file, entry):
            part = slices.packed_part_of(entry, index)
        place = part.begin
        if part.starts is not None:
            length = part.nbytes // len(part.starts)
            pieces = np.lib.stride_tricks.sliding_window_view(memory.owner, length)[part.starts]
            memory, place = frameworks.host_memory(pieces.ravel()), 0
        found = framework.of_host(memory, place, part)
    if copy and framework.ordinal == HOST:
        found = framework.copied(found, pin=pin)
    return framework.finished(found)


def parts_of(
    file: WeightsFile, plan: Plan, *, is_mapped: bool
) -> tuple[list[AnyPart], dict[str, Any]]:
    """Return the parts of a plan in the order of the file, and what is not a part, with its index.

    Parts of a mapping are of one piece.

    Raises:
        WeightsError: A name is not in the file.
        WeightsIndexError: An index is not valid for its tensor.
        WeightsTypeError: An index has a type that no tensor takes.
    """
    indices = plan if isinstance(plan, Mapping) else dict.fromkeys(plan)
    parts: list[AnyPart] = []
    others: dict[str, Any] = {}
    for name, index in indices.items():
        entry = file.entry(name)
        if index is None or index is Ellipsis:
            parts.append(entry)
            continue
        with _naming(file, entry):
            part = slices.part_of(entry, index) if slices.is_basic(index) else None
        if part is None or (is_mapped and part.starts is not None):
            others[name] = index
        else:
            parts.append(part)
    parts.sort(key=lambda part: part.begin)
    return parts, others


@contextmanager
def _naming(file: WeightsFile, entry: Entry) -> Iterator[None]:
    """Let the errors of an index name the file and the tensor."""
    try:
        yield
    except (IndexError, TypeError, ValueError) as error:
        kind = WeightsTypeError if isinstance(error, TypeError) else WeightsIndexError
        raise kind(
            f"{file.name}: tensor {entry.name!r} of {entry.dtype} and shape {list(entry.shape)}: "
            f"{error}",
            path=file.name,
        ) from None


def read_plan(
    file: WeightsFile, framework: frameworks.Framework, plan: Plan, *, copy: bool, pin: bool = False
) -> dict[str, Any]:
    """Return the tensors and slices of a plan by name, in its order."""
    is_mapped = file.is_mapped(framework, copy=copy, pin=pin)
    parts, others = parts_of(file, plan, is_mapped=is_mapped)
    names = (part.name for part in parts)
    found = dict(zip(names, file.read(parts, framework, copy=copy, pin=pin), strict=True))
    for name, index in others.items():
        entry, memory = file.entry(name), file.mapped()
        found[name] = _by_mapping(
            file, memory, framework, entry, index, copy=not is_mapped, pin=pin
        )
    return {name: found[name] for name in plan}
