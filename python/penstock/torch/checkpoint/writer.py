"""A storage writer of ``torch.distributed.checkpoint``."""

from __future__ import annotations

import dataclasses
import io
import os
import pickle
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain, count
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.checkpoint import filesystem as torch_files
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem, WriteItemType
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from penstock import frameworks
from penstock._collector import paused_collector
from penstock.errors import Error, NotFoundError
from penstock.replacement import Replacement
from penstock.torch.checkpoint import archive
from penstock.torch.checkpoint.archive import Part
from penstock.torch.checkpoint.transfers import write

_MOST_COPIED = 1 << 30
"""Bytes of copies of tensors that are not contiguous, at most, before they are written."""

_DATA_FILE = re.compile(r"__(\d+)_\d+\.distcp")


class PenstockWriter(FileSystemWriter):  # type: ignore[misc, unused-ignore]
    """Writes checkpoints as ``FileSystemWriter`` does, whose arguments it takes.

    Tensors go from their memory to the files, one for each rank, by one request each. Each file
    is put in place when it is complete and flushed, ``.metadata`` last; no file of an earlier
    checkpoint in the folder is changed or removed before that. So the folder always holds a whole
    checkpoint, the old one or the new one. ``torch.distributed.checkpoint.FileSystemReader``
    reads it. Of saves into one folder at the same time, that which ends last stays.

    ``thread_count`` is the number of files that each rank writes, one after the other; Penstock
    writes parts of a file in parallel. ``per_thread_copy_ahead`` has no effect.

    >>> dcp.save(state_dict, storage_writer=PenstockWriter("checkpoint/1"))
    """

    _names: Sequence[str] = ()
    """The files that this process has written for the checkpoint."""

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write the items of a plan; the future is complete."""
        if self.single_file_per_rank:
            groups = torch_files._split_by_size_and_type(self.thread_count, plan.items)
            groups = [group for group in groups if group]
        else:
            groups = [[item] for item in plan.items]
        results: list[WriteResult] = []
        names: list[str] = []
        with ExitStack() as claims:
            for items in groups:
                name = claims.enter_context(self._claim(plan.storage_data.prefix))
                new = Replacement(Path(self.path) / name, durable=self.sync_files)
                with new as descriptor:
                    results += self._write_items(descriptor, name, items, planner)
                names.append(name)
        self._names = names
        return finished(results)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Put the metadata in place, and remove what was there of an earlier checkpoint."""
        metadata.version = torch_files.CURRENT_DCP_VERSION
        written = chain.from_iterable(results)
        metadata.storage_data = {result.index: result.storage_data for result in written}
        metadata.storage_meta = self.storage_meta()
        path = Path(self._get_metadata_path(self._owner()))
        before = None
        with suppress(FileNotFoundError):
            before = path.stat().st_mtime_ns
        for file in map(Path(self.path).joinpath, self._names):
            if not file.exists():
                raise NotFoundError(
                    f"{file}: other saves into this folder have removed it",
                    path=str(file),
                    remedy="give each checkpoint that is saved at the same time its own folder",
                )
        used = {info.relative_path for info in metadata.storage_data.values()}
        content = pickle.dumps(metadata)
        try:
            Replacement(path, durable=self.sync_files).write(content)
        except BaseException:
            self._remove_unless_named(used, path, content)
            raise
        if before is not None:
            self._remove_superseded(used, before)

    def _owner(self) -> int | None:
        """Return the rank whose metadata is written; ``None`` for that of all ranks."""
        return None if self.use_collectives else self.rank

    @contextmanager
    def _claim(self, prefix: str) -> Iterator[str]:
        """Yield a name for a file that no other save takes; give it up after an exception.

        Numbers increase, so that a program that reads an earlier checkpoint does not find other
        bytes under a name of its metadata.
        """
        pattern = re.compile(re.escape(prefix) + r"(\d+)\.distcp")
        found = filter(None, map(pattern.fullmatch, os.listdir(self.path)))
        for number in count(max((int(one[1]) + 1 for one in found), default=0)):
            name = f"{prefix}{number}{torch_files.DEFAULT_SUFFIX}"
            path = Path(self.path) / name
            with suppress(FileExistsError):
                path.touch(exist_ok=False)
                break
        try:
            yield name
        except BaseException:
            with suppress(OSError):
                path.unlink()
            raise

    def _remove_unless_named(self, used: set[str], metadata: Path, content: bytes) -> None:
        """Remove the files of a checkpoint, unless its metadata is in place."""
        with suppress(OSError):
            if not metadata.exists() or metadata.read_bytes() != content:
                for name in used:
                    (Path(self.path) / name).unlink(missing_ok=True)

    def _remove_superseded(self, used: set[str], before: int) -> None:
        """Remove data files that are not used and not newer than the metadata that was replaced.

        They are of that checkpoint or left by a killed save. Newer ones may be of another save.
        """
        own = Path(self._get_metadata_path(self._owner())).name
        names = os.listdir(self.path)
        # Ranks that write without collectives each have metadata: one does not know all files.
        foreign = r"\.metadata" if self._owner() is not None else r"__\d+\.metadata"
        if any(re.fullmatch(foreign, name) for name in names if name != own):
            return
        for name in names:
            found = _DATA_FILE.fullmatch(name)
            if found and name not in used and self._owner() in (None, int(found[1])):
                path = Path(self.path) / name
                with suppress(OSError):
                    if path.lstat().st_mtime_ns <= before:
                        path.unlink()

    def _write_items(
        self, descriptor: int, name: str, items: Iterable[WriteItem], planner: SavePlanner
    ) -> list[WriteResult]:
        """Write items to a new file, bytes first as torch does."""
        results: list[WriteResult] = []
        parts = Parts(descriptor, self.sync_files)
        archives = archive.TensorArchives("cpu")
        end = 0
        with paused_collector():
            for item in sorted(items, key=lambda item: item.type != WriteItemType.BYTE_IO):
                data, start = planner.resolve_data(item), end
                info = torch_files._StorageInfo(name, start, 0)
                is_bytes = isinstance(data, io.BytesIO)
                if self.transforms.extensions or not (is_bytes or is_plain(data)):
                    made, info = self._transformed(item, data, name)
                    parts.add([Part(start, made)])
                    end += len(made)
                elif is_bytes:
                    parts.add([Part(start, data.getvalue())])
                    end += len(data.getvalue())
                else:
                    tensor, copied = dense(item.index.fqn, data)
                    planned = archives.plan(tensor, start)
                    parts.add(planned.parts, copied)
                    end = planned.end
                info = dataclasses.replace(info, offset=start, length=end - start)
                results.append(WriteResult(item.index, end - start, info))
        parts.write()
        return results

    def _transformed(self, item: WriteItem, data: Any, name: str) -> tuple[bytes, Any]:
        """Have torch make the bytes of an item that is transformed or is not a plain tensor."""
        stream = io.BytesIO()
        if isinstance(data, torch.Tensor):
            data = data.detach().cpu()
        result = torch_files._write_item(
            self.transforms, stream, data, item, name, self.serialization_format
        )
        return stream.getvalue(), result.storage_data


class Parts:
    """The parts of a new file, in its order.

    They are written together, or earlier when copies of tensors take too much memory.
    """

    def __init__(self, descriptor: int, durable: bool) -> None:
        self._descriptor, self._durable = descriptor, durable
        self._parts: list[Part] = []
        self._copied = 0

    def add(self, parts: Iterable[Part], copied: int = 0) -> None:
        """Add parts, whose tensors include ``copied`` bytes of copies."""
        self._parts += parts
        self._copied += copied
        if self._copied > _MOST_COPIED:
            self.write()

    def write(self) -> None:
        """Write all parts that are not written yet."""
        write(self._descriptor, self._parts, durable=self._durable)
        self._parts, self._copied = [], 0


def finished(results: Any) -> Future[Any]:
    """Return a future that is complete."""
    future: Future[Any] = Future()
    future.set_result(results)
    return future


def is_plain(tensor: Any) -> bool:
    """Whether a tensor is no more than elements in memory of the CPU or a CUDA device."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout == torch.strided
        and tensor.device.type in ("cpu", "cuda")
        and not tensor.is_quantized
    )


def dense(name: str, tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Return a contiguous tensor whose storage holds its elements alone, and the bytes copied.

    Raises:
        InvalidError: The tensor, which is that of this name, has less memory than it needs.
    """
    try:
        frameworks.address(tensor)
    except Error as error:
        raise error.about(f"{name!r}") from None
    made = tensor.detach().resolve_conj().resolve_neg().contiguous()
    storage, nbytes = made.untyped_storage(), made.nbytes
    copied = nbytes if made.data_ptr() != tensor.data_ptr() else 0
    if storage.nbytes() == nbytes:
        return made, copied
    begin = made.storage_offset() * made.element_size()
    empty = torch.empty(0, dtype=made.dtype, device=made.device)
    return empty.set_(storage[begin : begin + nbytes], 0, made.shape, made.stride()), copied
