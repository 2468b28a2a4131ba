"""A storage reader of ``torch.distributed.checkpoint``."""

from __future__ import annotations

import dataclasses
import hashlib
import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.futures import Future

from penstock import request
from penstock._native import NULL
from penstock.errors import EndOfFileError, Error
from penstock.files import READ, NativeFile
from penstock.request_group import RequestGroup
from penstock.torch.checkpoint import archive
from penstock.torch.checkpoint.archive import StoredTensor
from penstock.torch.checkpoint.blocks import Blocks
from penstock.torch.checkpoint.errors import REMEDY, CheckpointFileError, damaged
from penstock.torch.checkpoint.held import HeldFiles
from penstock.torch.checkpoint.metadata import data_files, unpickled
from penstock.torch.checkpoint.transfers import Ranges
from penstock.torch.checkpoint.writer import finished

_AT_ONCE = 16
"""Files that are read at the same time."""
_REQUESTS = 4
"""Requests that read a large file, about."""
_LEAST_AT_ONCE = 64 << 20
"""Bytes of one of them, at least."""
_EDGE = 4096
"""Bytes at the beginning and at the end of an archive that say where its tensor is."""


class FileRead:
    """The items that come from one file."""

    def __init__(self, path: Path, planner: LoadPlanner, descriptor: int | None = None) -> None:
        self.path = path
        self.file = NativeFile(path if descriptor is None else descriptor, READ)
        self.blocks = Blocks(self.file, max(self.file.size() // _REQUESTS, _LEAST_AT_ONCE))
        self._planner = planner
        self._tensors: list[tuple[ReadItem, torch.Tensor]] = []
        self._bytes: list[tuple[ReadItem, np.ndarray[Any, Any]]] = []

    def add_tensor(self, item: ReadItem, stored: StoredTensor) -> None:
        """Read a block of a tensor into the one that the planner names."""
        target = self._planner.resolve_tensor(item).detach()
        if target.size() != item.lengths:
            raise self.wrong(item, f"is read as {item.lengths}, into {tuple(target.size())}")
        try:
            self.blocks.add(stored, item.storage_offsets, target)
        except Error as error:  # the tensor has no memory, or less than it needs
            raise error.about(f"{item.dest_index.fqn!r}") from None
        except ValueError as error:
            raise self.wrong(item, f"is not as the metadata says: {error}") from error
        self._tensors.append((item, target))

    def add_bytes(self, item: ReadItem, offset: int, length: int) -> None:
        """Read bytes for the planner."""
        memory = np.empty(length, np.uint8)
        self.blocks.add_bytes(memory, offset)
        self._bytes.append((item, memory))

    def wait(self) -> None:
        """Wait for the reads, and report them to the planner."""
        self.blocks.finish()
        self.file.close()
        for item, memory in self._bytes:
            self._planner.load_bytes(item, io.BytesIO(memory.tobytes()))
        for item, target in self._tensors:
            self._planner.commit_tensor(item, target)

    def cancel(self) -> None:
        """Cancel the reads."""
        self.blocks.requests.cancel()

    def stop(self, cause: BaseException | None = None) -> None:
        """End the reads, and close the file."""
        self.blocks.requests.stop(cause)
        self.file.close()

    def wrong(self, item: ReadItem, cause: str) -> CheckpointFileError:
        """Return the error of an item that is not as the metadata says."""
        remedy = "the file is not that of the checkpoint's metadata: load an older checkpoint"
        return damaged(self.path, cause, remedy, about=f"{item.storage_index.fqn!r} ")


class FileReads(RequestGroup[FileRead]):
    """The reads of several files, of which some are under way at the same time."""

    def __init__(self, planner: LoadPlanner) -> None:
        super().__init__()
        self._planner = planner

    @contextmanager
    def start(self, path: Path, descriptor: int | None = None) -> Iterator[FileRead]:
        """Yield the read of a file, and start it when the block has added its items.

        With a descriptor, the file is not opened again.
        """
        read = FileRead(path, self._planner, descriptor)
        self.add(read)
        yield read
        read.blocks.start()
        if len(self) == _AT_ONCE:
            self.next()


class OneCheckpoint(FileSystemReader):  # type: ignore[misc, unused-ignore]
    """A reader that has all ranks load the same checkpoint."""

    _checkpoint: Any = None
    """What tells the checkpoint that this rank reads from others in its folder, if it is known."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Return the plan of this rank, with the checkpoint that it is for."""
        return dataclasses.replace(super().prepare_local_plan(plan), storage_data=self._checkpoint)

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Return the plans of all ranks, which are for the same checkpoint.

        Raises:
            CheckpointFileError: A save has ended between the reads of the metadata by the ranks.
        """
        if len({plan.storage_data for plan in plans} - {None}) > 1:
            raise CheckpointFileError(
                f"{self.path}: a save has replaced the checkpoint while ranks began to load it",
                path=str(self.path),
                remedy="load again, or save each checkpoint to its own folder",
            )
        found: list[LoadPlan] = super().prepare_global_plan(plans)
        return found


class PenstockReader(OneCheckpoint):
    """Reads checkpoints as ``FileSystemReader`` does.

    All tensors of a file come by one request, or few for a large file, straight into the memory of
    the state dict; of a tensor that is needed in part, only that part is read. Items that are no
    plain tensors, such as those of stream extensions, are read as ``FileSystemReader`` reads them:
    from files that are opened again by their names, which a save may replace meanwhile.

    Args:
        path: The folder of the checkpoint.
        weights_only: Whether ``.metadata`` may hold only what a checkpoint needs and what
            ``torch.serialization.add_safe_globals`` allows. Without it, as with
            ``FileSystemReader``, that file can run any code. The pickles of Python objects in a
            state dict are loaded by the planner: torch's own loads them without a check.

    >>> dcp.load(state_dict, storage_reader=PenstockReader("checkpoint/1"))
    """

    def __init__(self, path: Any, *args: Any, weights_only: bool = True, **keys: Any) -> None:
        super().__init__(path, *args, **keys)
        self._weights_only = weights_only
        self._held = HeldFiles()

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Return the metadata of the checkpoint, or of one rank with ``rank=``.

        The files that it names are open from then on: a save into the folder may remove them.

        Raises:
            FileNotFoundError: There is no checkpoint.
            pickle.UnpicklingError: ``weights_only`` does not allow an object.
            CheckpointFileError: The file is cut off or damaged.
        """
        path = Path(self._get_metadata_path(kwargs.get("rank")))
        content = path.read_bytes()
        while True:
            metadata = unpickled(path, content, weights_only=self._weights_only)
            if self._held.hold(Path(self.path), data_files(metadata)):
                break
            # A save has removed a file, after it has replaced the metadata.
            before, content = content, path.read_bytes()
            if content == before:
                break
        self._checkpoint = hashlib.blake2b(content, digest_size=16).digest()
        if getattr(metadata, "storage_meta", None) is None:
            metadata.storage_meta = StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read the items of a plan; the future is complete."""
        by_file: dict[str, list[ReadItem]] = {}
        for item in plan.items:
            name = self.storage_data[item.storage_index].relative_path
            by_file.setdefault(name, []).append(item)
        others: list[ReadItem] = []
        with FileReads(planner) as reads:
            for name, items in by_file.items():
                with reads.start(Path(self.path) / name, self._held.get(name)) as read:
                    others += self._add(read, items)
            reads.wait()
        self._held.release()
        for item in others:
            self._read_by_torch(item, planner)
        return finished(None)

    def _add(self, read: FileRead, items: list[ReadItem]) -> list[ReadItem]:
        """Add the items of a file to its read; return those that only torch can read."""
        infos = [self.storage_data[item.storage_index] for item in items]
        self._check_length(read, items)
        places = {
            (info.offset, info.length)
            for info, item in zip(infos, items, strict=True)
            if item.type != LoadItemType.BYTE_IO and not info.transform_descriptors
        }
        archives = Archives(read.file, places)
        others = []
        for item, info in zip(items, infos, strict=True):
            # The request of the tensors so far may run while further archives are parsed.
            stored = archives.tensor(info.offset, info.length)
            if stored is not None:
                read.add_tensor(item, stored)
            elif item.type == LoadItemType.BYTE_IO and not info.transform_descriptors:
                read.add_bytes(item, info.offset, info.length)
            else:
                others.append(item)
        return others

    def _check_length(self, read: FileRead, items: list[ReadItem]) -> None:
        size = read.file.size()
        for item in items:
            info = self.storage_data[item.storage_index]
            if info.offset + info.length > size:
                raise EndOfFileError(
                    f"{read.path} has {size} bytes, but {item.storage_index.fqn!r} ends at byte "
                    f"{info.offset + info.length}",
                    path=str(read.path),
                    offset=info.offset,
                    length=info.length,
                    remedy=REMEDY,
                )

    def _read_by_torch(self, item: ReadItem, planner: LoadPlanner) -> None:
        info = self.storage_data[item.storage_index]
        path = Path(self.path) / info.relative_path
        try:
            with open(path, "rb") as file:
                file.seek(info.offset)
                archive.check_compressed(io.BytesIO(file.read(info.length)))
            super().read_data(dataclasses.replace(LoadPlan([]), items=[item]), planner)
        except (RuntimeError, archive.Damaged) as error:
            if isinstance(error, RuntimeError) and "PytorchStreamReader" not in str(error):
                raise
            cause = str(error).partition("\n")[0]
            raise damaged(path, cause, about=f"{item.storage_index.fqn!r}: ") from error


class Archives:
    """Archives of one tensor each in a file, whose beginnings and ends come by one request.

    Args:
        file: The file, which has all the places.
        places: Offset and length of each archive.
    """

    def __init__(self, file: NativeFile, places: Iterable[tuple[int, int]]) -> None:
        listed = np.array(sorted(places), np.int64).reshape(-1, 2)
        offsets, lengths = listed[:, 0], listed[:, 1]
        edges = np.minimum(lengths, _EDGE)
        self._memory = np.empty(2 * int(edges.sum()), np.uint8)
        starts = np.cumsum(np.stack([edges, edges], 1)) - edges.repeat(2)
        froms = np.stack([offsets, offsets + lengths - edges], 1).ravel()
        ranges = Ranges()
        address = self._memory.__array_interface__["data"][0]
        ranges.add_many(self._memory, froms, edges.repeat(2), address + starts)
        ranges.move(file, request.READ, NULL)
        known = zip(edges.tolist(), starts[::2].tolist(), strict=True)
        self._edges = dict(zip(map(tuple, listed.tolist()), known, strict=True))
        self._parsed: dict[tuple[int, int], StoredTensor | None] = {}

    def tensor(self, offset: int, length: int) -> StoredTensor | None:
        """Return a tensor, with its offset in the file; ``None`` if only torch can read it."""
        place = offset, length
        if place in self._edges and place not in self._parsed:
            self._parsed[place] = self._parse(offset, length)
        return self._parsed.get(place)

    def _parse(self, offset: int, length: int) -> StoredTensor | None:
        edge, start = self._edges[offset, length]
        read = _Edges(self._memory[start : start + 2 * edge].tobytes(), edge, length)
        try:
            stored = archive.tensor_of(archive.Directory(read, length))
        except archive.Unsupported:
            return None
        return stored._replace(offset=offset + stored.offset)


class _Edges:
    """The first and the last bytes of an archive."""

    def __init__(self, both: bytes, edge: int, length: int) -> None:
        self._both, self._edge, self._length = both, edge, length

    def __call__(self, offset: int, length: int) -> bytes:
        end = offset + length
        last = self._length - self._edge
        if offset >= 0 and end <= self._edge:
            return self._both[offset:end]
        if last <= offset and end <= self._length:
            start = offset - last + self._edge
            return self._both[start : start + length]
        raise archive.Unsupported("the archive has its directory elsewhere")
