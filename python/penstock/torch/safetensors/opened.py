"""An open file of weights, and reads of some of its tensors as one request."""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Sequence
from operator import itemgetter
from threading import Lock
from typing import Any, Protocol, TypeAlias

import numpy as np

from penstock import arrays, request, transfer
from penstock._collector import paused_collector
from penstock._native import CData
from penstock._options import OptionKeys, current, resolve
from penstock.errors import Error, NotFoundError
from penstock.files import READ, NativeFile, Path
from penstock.report import Report
from penstock.request import Request
from penstock.request_group import RequestGroup
from penstock.torch.safetensors.errors import WeightsError, WeightsTypeError
from penstock.torch.safetensors.frameworks import Framework, Memory, host_memory
from penstock.torch.safetensors.header import Entry, header_at
from penstock.torch.safetensors.layout import AnyPart, lay_out

BACKENDS = ("mmap", "pread")


class HasDescriptor(Protocol):
    """A Python file."""

    def fileno(self) -> int:
        """Return its descriptor."""


Source: TypeAlias = "Path | HasDescriptor"
"""A path, or an open Python file, whose descriptor must stay open."""


class WeightsFile:
    """A file of weights whose header is valid.

    Args:
        path: The file.
        backend: How torch's tensors in pageable host memory come about: ``"mmap"`` makes them
            parts of a private mapping of the file, ``"pread"`` reads them.
        options: Options of the reads.
    """

    def __init__(self, path: Source, backend: str, options: OptionKeys) -> None:
        if backend not in BACKENDS:
            raise WeightsError(
                f"backend {backend!r} is invalid", remedy='use "mmap" (the default) or "pread"'
            )
        self._backend = backend
        self._keys = dict(current()) | {k: v for k, v in options.items() if v is not None}
        self.options: CData = resolve(self._keys)
        self.name, self._descriptor = _open(path)
        self._release = weakref.finalize(self, os.close, self._descriptor)
        self._file: NativeFile | None = None
        self._mapped: Memory | None = None
        self._lock = Lock()
        try:
            self.header = header_at(self._descriptor, self.name)
        except BaseException:
            self.close()
            raise

    def entry(self, name: str) -> Entry:
        """Return the tensor of this name."""
        try:
            return self.header.entries[name]
        except (KeyError, TypeError):
            if not isinstance(name, str):
                message = f"{name!r} is not the name of a tensor"
                raise WeightsTypeError(message, remedy="give text") from None
            raise WeightsError(
                f"File does not contain tensor {name}: {self.name}",
                path=self.name,
                remedy="keys() has the names",
            ) from None

    def is_mapped(self, framework: Framework, *, copy: bool, pin: bool) -> bool:
        """Whether tensors are parts of the file's mapping."""
        return framework.maps_files and self._backend == "mmap" and not copy and not pin

    def options_with(self, **keys: Any) -> CData:
        """Return the options of the reads with others."""
        return resolve(self._keys | keys)

    @property
    def file(self) -> NativeFile:
        """The file as requests read it. A mapping needs none."""
        with self._lock:
            if self._file is None:
                self._file = NativeFile(self._open_descriptor(), READ)
            return self._file

    def mapped(self) -> Memory:
        """Return a private mapping of the file: writes there do not reach it."""
        with self._lock:
            if self._mapped is None:
                self._mapped = self._map()
            return self._mapped

    def _open_descriptor(self) -> int:
        if not self._release.alive:
            raise WeightsError("File is closed")  # its descriptor may be that of another file
        return self._descriptor

    def read(
        self,
        parts: Sequence[AnyPart],
        framework: Framework,
        *,
        copy: bool = False,
        pin: bool = False,
    ) -> list[Any]:
        """Return tensors of some parts, in their order, which is that of the file.

        Args:
            parts: What to read.
            framework: What makes the tensors.
            copy: Whether each tensor has an allocation of its own, rather than a part of one.
            pin: Whether host memory is page-locked.
        """
        if len(parts) == 1 and getattr(parts[0], "starts", None) is None:
            return [self.read_part(parts[0], framework, copy=copy, pin=pin)]
        if self.is_mapped(framework, copy=copy, pin=pin):
            with paused_collector():
                return framework.tensors(self.mapped(), [part.begin for part in parts], parts)
        reading = Reading(self, parts, framework, copy=copy, pin=pin)
        reading.run()
        return reading.tensors()

    def read_part(
        self, part: AnyPart, framework: Framework, *, copy: bool = False, pin: bool = False
    ) -> Any:
        """Return the tensor of a part of one piece."""
        if self.is_mapped(framework, copy=copy, pin=pin):
            return framework.tensor(self.mapped(), part.begin, part)
        return framework.filled(part, self._fill, pin=pin)

    def _fill(self, part: AnyPart, out: Any) -> None:
        """Read the bytes of a part into an array."""
        if part.end > part.begin:
            try:
                transfer.read_into(self._file or self.file, out, part.begin, self.options)
            except Error as error:
                raise named(error, [part]) from None

    def read_all(self, framework: Framework, *, copy: bool, pin: bool) -> dict[str, Any]:
        """Return all tensors by name."""
        parts = list(self.header.entries.values())
        return dict(
            zip(self.header.entries, self.read(parts, framework, copy=copy, pin=pin), strict=True)
        )

    def _map(self) -> Memory:
        try:
            mapping = mmap.mmap(self._open_descriptor(), self.header.end, access=mmap.ACCESS_COPY)
        except ValueError:  # it is shorter than its header says
            raise WeightsError(
                f"{self.name} was cut off while it was open",
                path=self.name,
                remedy="replace files by renaming new ones",
            ) from None
        return host_memory(np.frombuffer(mapping, np.uint8))

    def close(self) -> None:
        """Close the file. Tensors of its mapping stay valid."""
        with self._lock:
            self._mapped = None
            self._release()
        if self._file is not None:
            self._file.close()


class OneSave:
    """Files of a model that an index names: of one save, or of none that says which it is."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[str | None, str]] = {}
        """The identity and the name of a file, by folder."""

    def add(self, file: WeightsFile, names: Sequence[str] | None) -> None:
        """Add a file, and the names that an index has of its tensors; ``None`` without an index.

        Raises:
            WeightsError: It is of another save than an earlier file of its folder.
        """
        if names is None:
            return
        save = file.header.save
        first, name = self._first.setdefault(os.path.dirname(file.name), (save, file.name))
        if save != first:
            raise WeightsError(
                f"{file.name}: it is not of the same save as {name}",
                path=file.name,
                remedy="a save was interrupted or is under way: load again, or an older checkpoint",
            )


def _open(path: Source) -> tuple[str, int]:
    """Return the name of a file, and a descriptor of it."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        if not hasattr(path, "fileno"):
            raise WeightsTypeError(f"{path!r} is neither a path nor an open file")
        return str(getattr(path, "name", path)), os.dup(path.fileno())
    name = os.fsdecode(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would wait for a writer
    except (OSError, ValueError):
        try:
            NativeFile(path, READ).close()  # raises an error with a remedy
        except NotFoundError as error:
            message = f"No such file or directory: {name}"
            raise NotFoundError(message, path=name, errno=error.errno) from None
        raise
    os.set_blocking(descriptor, True)
    return name, descriptor


name_of = itemgetter(0)  # of a part


class Reading:
    """One request that fills new tensors."""

    def __init__(
        self,
        file: WeightsFile,
        parts: Sequence[AnyPart],
        framework: Framework,
        *,
        copy: bool = False,
        pin: bool = False,
    ) -> None:
        self.parts = parts
        self._file, self._framework = file, framework
        with paused_collector():
            plans = [lay_out([part]) for part in parts] if copy and parts else [lay_out(parts)]
            self._memories = [framework.allocate(plan.nbytes, pin=pin) for plan in plans]
        pairs = list(zip(plans, self._memories, strict=True))
        self._plans = plans
        ranges = [plan.move_to(memory.address) for plan, memory in pairs]
        self._ranges = (
            ranges[0] if len(ranges) == 1 else np.concatenate(ranges, dtype=transfer.RANGE)
        )
        self._view = arrays.view(self._memories[0].owner)
        self.nbytes = int(self._ranges["length"].sum())
        self.request: Request[None] | None = None
        """What :meth:`start` has started; ``None`` without bytes."""

    def run(self) -> None:
        """Read, and return when all bytes are there."""
        if self.nbytes:
            file, ranges = self._file, transfer.native_ranges(self._ranges)
            try:
                transfer.move(file.file, request.READ, ranges, self._view, file.options)
            except Error as error:
                raise named(error, self.parts) from None

    def start(self, threads: int | None = None) -> Reading:
        """Start to read, by as many workers, and return this object."""
        file = self._file
        options = file.options if threads is None else file.options_with(threads=threads)
        if self.nbytes:
            stream, keep = self._view.stream, self._memories
            where = file.file, request.READ, self._ranges, options
            try:
                self.request = transfer.start(*where, stream=stream, keep=keep)
            except Error as error:
                raise named(error, self.parts) from None
        return self

    def wait(self) -> Reading:
        """Wait for what :meth:`start` has started, and return this object."""
        if self.request is not None:
            try:
                self.request.wait()
            except Error as error:
                raise named(error, self.parts) from None
        return self

    def cancel(self) -> None:
        """Cancel what :meth:`start` has started."""
        if self.request is not None:
            self.request.cancel()

    def tensors(self) -> list[Any]:
        """Return the tensors in the order of the parts."""
        with paused_collector():
            if len(self._memories) > 1:
                return [self.tensor(number) for number in range(len(self.parts))]
            return self._framework.tensors(self._memories[0], self._plans[0].places, self.parts)

    def tensor(self, number: int) -> Any:
        """Return the tensor of a part."""
        part = self.parts[number]
        if len(self._memories) > 1:
            memory, place = self._memories[number], 0
        else:
            memory, place = self._memories[0], self._plans[0].places[number]
        (made,) = self._framework.tensors(memory, (place,), (part,))
        return made


def named(error: Error, parts: Sequence[AnyPart]) -> Error:
    """Return an error with the tensor of its offset in the file, if it has one."""
    found = [
        part.name
        for part in parts
        if error.offset is not None and part.begin <= error.offset < part.end
    ]
    return error.about(f"tensor {found[0]!r}") if found else error


class Readings(RequestGroup[Reading]):
    """Requests that fill new tensors of one file."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, Any] = {}
        """Tensors that were read before, by name."""
        self._ended: list[Reading] = []

    def wait(self) -> dict[str, Any]:
        """Wait for all requests, and return the tensors by name."""
        self._ended = super().wait()
        for reading in self._ended:
            names = map(name_of, reading.parts)
            self.found.update(zip(names, reading.tensors(), strict=True))
        return self.found

    @property
    def reports(self) -> list[Report]:
        """The reports of the requests that were waited for."""
        return [one.request.report for one in self._ended if one.request is not None]
