"""A storage writer of ``torch.distributed.checkpoint``.

How a checkpoint replaces another one in its folder, whatever other saves do there:

1. Each rank draws a name for each of its data files that no save ever uses again.
2. Each rank writes its files. A file gets its name when it is complete and flushed. If a rank
   fails, it removes its own files, and no later step is done.
3. When all ranks have ended step 2, the coordinator has the names and lengths of the files of all
   ranks. It checks that each is there with its length. If one is not, the save fails.
4. The coordinator locks the folder, reads the names of the data files in the present ``.metadata``,
   and replaces that by its own. This is the moment in which the new checkpoint is there.
5. The coordinator removes the data files that the replaced ``.metadata`` names, and unlocks.

A data file is removed only by its own save, when that fails, and by a save that has replaced the
``.metadata`` naming it. So no save, however late or early it ends, removes a file of another save
that is under way, or of the checkpoint that the folder has. Of saves at the same time, each makes
a whole checkpoint, and the last ``.metadata`` stays. The lock has each see the ``.metadata`` that
it replaces. Where the file system does not lock, two saves may replace the same one, and the files
of one of them stay without use. So do those that a killed save has written, or other ranks than
the one that failed: which files a save that is under way will still name cannot be known.
"""

from __future__ import annotations

import dataclasses
import io
import pickle
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
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
from penstock.errors import Error
from penstock.replacement import Replacement
from penstock.torch.checkpoint import archive
from penstock.torch.checkpoint.archive import Part
from penstock.torch.checkpoint.metadata import data_files, unpickled
from penstock.torch.checkpoint.publication import check, inside, locked, remove, unique
from penstock.torch.checkpoint.transfers import write

MOST_COPIED = 1 << 30
"""Bytes of copies of tensors that are not contiguous, at most, before they are written."""


class PenstockWriter(FileSystemWriter):  # type: ignore[misc, unused-ignore]
    """Writes checkpoints as ``FileSystemWriter`` does, whose arguments it takes.

    Tensors go from their memory to the files, one for each rank, by one request each. Each file
    is put in place when it is complete and flushed, ``.metadata`` last, when the files of all ranks
    are there; no file of an earlier checkpoint in the folder is changed or removed before that. So
    the folder always holds a whole checkpoint, the old one or the new one.
    ``torch.distributed.checkpoint.FileSystemReader`` reads it. Of saves into one folder at the same
    time, that which ends last stays.

    ``thread_count`` is the number of files that each rank writes, one after the other; Penstock
    writes parts of a file in parallel. ``per_thread_copy_ahead`` has no effect.

    >>> dcp.save(state_dict, storage_writer=PenstockWriter("checkpoint/1"))
    """

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write the items of a plan; the future is complete."""
        if self.single_file_per_rank:
            groups = torch_files._split_by_size_and_type(self.thread_count, plan.items)
            groups = [group for group in groups if group]
        else:
            groups = [[item] for item in plan.items]
        results: list[WriteResult] = []
        paths: list[Path] = []
        save = unique()
        try:
            for number, items in enumerate(groups):
                name = f"{plan.storage_data.prefix}{number}_{save}{torch_files.DEFAULT_SUFFIX}"
                paths.append(Path(self.path) / name)
                with Replacement(paths[-1], durable=self.sync_files) as descriptor:
                    results += self._write_items(descriptor, name, items, planner)
        except BaseException:
            remove(paths)
            raise
        return finished(results)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Put the metadata in place, and remove the data files of that which it replaces.

        Raises:
            NotFoundError: A file of a rank is not there.
            EndOfFileError: A file of a rank has another length.
        """
        folder = Path(self.path)
        metadata.version = torch_files.CURRENT_DCP_VERSION
        written = chain.from_iterable(results)
        metadata.storage_data = {result.index: result.storage_data for result in written}
        metadata.storage_meta = self.storage_meta()
        # The metadata of all ranks, or that of this rank if it writes without collectives.
        path = Path(self._get_metadata_path(None if self.use_collectives else self.rank))
        content = pickle.dumps(metadata)
        sizes: dict[Path, int] = {}
        for info in metadata.storage_data.values():
            file = folder / info.relative_path
            sizes[file] = max(info.offset + info.length, sizes.get(file, 0))
        try:
            check(sizes)
            with locked(folder):
                before = _data_files(path)
                if not self.overwrite and path.exists():
                    raise RuntimeError(f"Checkpoint already exists and {self.overwrite=}.")
                Replacement(path, durable=self.sync_files).write(content)
                remove(before - sizes.keys())
        except BaseException:
            with suppress(OSError):
                if not path.exists() or path.read_bytes() != content:
                    remove(sizes)
            raise

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
        if self._copied > MOST_COPIED:
            self.write()

    def write(self) -> None:
        """Write all parts that are not written yet."""
        write(self._descriptor, self._parts, durable=self._durable)
        self._parts, self._copied = [], 0


def _data_files(path: Path) -> set[Path]:
    """Return the data files that metadata names, if it can be read."""
    with suppress(Exception):  # whatever damaged or unknown metadata raise
        named = data_files(unpickled(path, path.read_bytes()))
        return inside(path.parent, named, torch_files.DEFAULT_SUFFIX)
    return set()


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
