"""Distributed checkpoints as safetensors files, in the layout of Hugging Face.

The layout has fixed names, so a save replaces the files of the one before it. It does so in steps:

1. Each rank writes its files, complete and flushed, under names of the layout with an ending that
   no other save has. Readers leave these names out. If a rank fails, it removes its own files, and
   no later step is done.
2. When all ranks have ended step 1, the coordinator has the names and lengths of the files of all
   ranks. It checks that each is there, and writes the identity of the save, which it draws, into
   the header of each. It writes whole tensors in the same way, if they are wanted.
3. The coordinator locks the folder, and gives each file its name.
4. It writes the index, or removes that of the checkpoint before, if the layout has none.
5. It removes the other files of the checkpoint before: those that its index named, and those with
   names of the layout that a save of distributed checkpoints has written. It unlocks the folder.

Readers lock the folder while they open its files. Torch's do not, nor is there a lock between hosts
on some file systems, and a process that is killed in step 3 leaves files of both checkpoints.
Penstock's readers find that by the identities, and refuse it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.distributed.checkpoint import DefaultLoadPlanner
from torch.distributed.checkpoint import _hf_utils as layout
from torch.distributed.checkpoint import filesystem as torch_files
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    LoadPlanner,
    SavePlan,
    SavePlanner,
    WriteItem,
)
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from penstock.arrays import c_strides
from penstock.dist.place import Place
from penstock.errors import IncompatibleError
from penstock.files import READ, NativeFile
from penstock.overlaps import overlapping
from penstock.replacement import Replacement
from penstock.torch.checkpoint.archive import Part, StoredTensor, bytes_of
from penstock.torch.checkpoint.errors import REMEDY, CheckpointFileError, damaged
from penstock.torch.checkpoint.held import HeldFiles
from penstock.torch.checkpoint.publication import check, inside, locked, remove, unique
from penstock.torch.checkpoint.reader import FileReads, OneCheckpoint
from penstock.torch.checkpoint.writer import MOST_COPIED, Parts, dense, finished
from penstock.torch.safetensors.dtypes import TORCH_NAMES, stored_shape, torch_shape
from penstock.torch.safetensors.header import (
    SAVE,
    Entry,
    Header,
    encode_header,
    header_of,
    read_header,
)

_DTYPES = {
    name: getattr(torch, dtype) for name, dtype in TORCH_NAMES.items() if hasattr(torch, dtype)
}
"""The data types of torch by the format's names."""
_BY_DTYPE = {dtype: name for name, dtype in _DTYPES.items()}
_NAME = re.compile(r"(shard-\d+-)?model-\d+-of-\d+\.safetensors")
"""The names of the layout."""
_NO_SAVE = "0" * len(unique())
"""What is in a header before the coordinator writes the identity of the save there."""


@dataclass(frozen=True)
class _Written(WriteResult):  # type: ignore[misc, unused-ignore]
    """An item that is written, with its file as it is before it gets its name."""

    hidden: str
    size: int
    place: int
    """Where the identity of the save goes."""


class PenstockHuggingFaceWriter(HuggingFaceStorageWriter):  # type: ignore[misc, unused-ignore]
    """Writes safetensors files as ``HuggingFaceStorageWriter`` does, whose arguments it takes.

    Tensors go from their memory to the files by one request for each file. The files are put in
    place under the names of the layout when those of all ranks are complete, and the index
    follows. Then the other files of the checkpoint before are removed. With
    ``enable_consolidation``, the coordinator makes whole tensors of the parts, 1 GiB at a time;
    ``thread_count_consolidation`` has no effect.

    >>> dcp.save(state_dict, storage_writer=PenstockHuggingFaceWriter("model"))
    """

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Return the plan, unless other ranks write files of the same names."""
        if self.rank and not self.use_collectives:
            raise IncompatibleError(
                f"rank {self.rank} saves without collectives, and files of ranks get their names "
                "by them",
                remedy="save with use_collectives=True, or by PenstockWriter",
            )
        prepared: SavePlan = super().prepare_local_plan(plan)
        return prepared

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write the items of a plan; the future is complete."""
        indices = plan.storage_data.get("fqn_to_index_mapping")
        shard = plan.storage_data.get("shard_index")
        last = max(indices.values()) if indices else 1
        results: list[WriteResult] = []
        files = _Files(Path(self.path), self.sync_files)
        ending = unique()
        try:
            for index, items in self._split_by_storage_plan(indices, plan.items).items():
                if items:
                    name = layout._gen_file_name(index, last, shard)
                    files.hidden[name] = f"{name}.{ending}"
                    results += self._write_items(files, name, items, planner)
        except BaseException:
            files.discard()
            raise
        return finished(results)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Publish the files of all ranks, and whole tensors of them if they are wanted.

        Raises:
            NotFoundError: A file of a rank is not there.
            EndOfFileError: A file of a rank has another length.
            IncompatibleError: Two ranks have written files of the same name.
        """
        listed = list(chain.from_iterable(results))
        written = [one for one in listed if isinstance(one, _Written)]
        shards = _Files(Path(self.path), self.sync_files)
        whole = _Files(Path(self.consolidated_output_path or self.path), self.sync_files)
        save = unique()
        try:
            for one in written:
                name = one.storage_data.relative_path
                if shards.hidden.setdefault(name, one.hidden) != one.hidden:
                    hidden = {each.hidden for each in written}
                    remove(shards.path(name).with_name(each) for each in hidden)
                    raise IncompatibleError(
                        f"{shards.folder / name}: two ranks have written this file",
                        remedy="save with save_distributed=True and with collectives",
                    )
            last = {one.storage_data.relative_path: one for one in written}
            check({shards.path(name): one.size for name, one in last.items()})
            for name, one in last.items():
                shards.stamp(name, one.place, save)
            if not self.save_distributed:
                shards.publish(_index(listed))
                return
            made = self._consolidate(shards, whole, save) if self.enable_consolidation else []
            shards.publish(None)
            if self.enable_consolidation:
                whole.publish(_index(made))
        except BaseException:
            shards.discard()
            whole.discard()
            raise

    def _write_items(
        self, files: _Files, name: str, items: Iterable[WriteItem], planner: SavePlanner
    ) -> list[WriteResult]:
        tensors: dict[str, Any] = {}
        offsets = {}
        listed = list(items)
        for item in listed:
            data = planner.resolve_data(item)
            key = item.index.fqn
            if not _has_elements(data) or data.dtype not in _BY_DTYPE:
                raise IncompatibleError(
                    f"{key!r} is {_described(data)}, which a safetensors file cannot hold",
                    remedy="save it by PenstockWriter, or leave it out of the state dict",
                )
            if key in tensors:  # of which torch's writer would save the last
                raise IncompatibleError(
                    f"this rank has several parts of {key!r}, and a safetensors file holds one",
                    remedy="save it by PenstockWriter",
                )
            tensors[key] = data
            offsets[key] = {layout.SAVED_OFFSETS_KEY: list(item.tensor_data.chunk.offsets)}
        header, entries = encode_header(
            {key: _type_and_shape(one) for key, one in tensors.items()},
            {
                SAVE: _NO_SAVE,  # before any text of the caller
                layout.CUSTOM_METADATA_KEY: json.dumps(offsets),
                layout.DCP_VERSION_KEY: str(layout.HF_DCP_VERSION),
                layout.FORMAT_KEY: layout.FORMAT_VALUE,
            },
        )
        with Replacement(files.path(name), durable=self.sync_files) as descriptor:
            parts = Parts(descriptor, self.sync_files)
            parts.add([Part(0, header)])
            for key, entry in entries.items():
                if entry.nbytes:
                    tensor, copied = dense(key, tensors[key])
                    parts.add([Part(entry.begin, bytes_of(tensor.untyped_storage()))], copied)
            parts.write()
        size = max((entry.end for entry in entries.values()), default=len(header))
        place = header.index(_NO_SAVE.encode())
        return [
            _Written(
                item.index,
                tensors[item.index.fqn].nbytes,
                torch_files._StorageInfo(name, 0, tensors[item.index.fqn].nbytes),
                files.hidden[name],
                size,
                place,
            )
            for item in listed
        ]

    def _consolidate(self, shards: _Files, whole: _Files, save: str) -> list[WriteResult]:
        """Write files of whole tensors of the parts in hidden files."""
        reader = PenstockHuggingFaceReader(str(shards.folder))
        metadata = reader.metadata_of(str(shards.path(name)) for name in shards.hidden)
        reader.set_up_storage_reader(metadata, is_coordinator=True)
        tensors: dict[str, Any] = metadata.state_dict_metadata
        indices = self.fqn_to_index_mapping or dict.fromkeys(tensors, 1)
        last = max(indices.values(), default=1)
        by_file: dict[str, dict[str, torch.Tensor]] = {}
        for key, tensor in tensors.items():
            like = torch.empty(tensor.size, dtype=tensor.properties.dtype, device="meta")
            by_file.setdefault(layout._gen_file_name(indices[key], last), {})[key] = like
        results = []
        for name, few in by_file.items():
            header, entries = encode_header(
                {key: _type_and_shape(one) for key, one in few.items()},
                {SAVE: save, layout.FORMAT_KEY: layout.FORMAT_VALUE},
            )
            whole.hidden[name] = f"{name}.{save}"
            with Replacement(whole.path(name), durable=self.sync_files) as descriptor:
                parts = Parts(descriptor, self.sync_files)
                parts.add([Part(0, header)])
                for key, made in reader.whole_tensors(metadata, entries.values()):
                    data = [Part(entries[key].begin, bytes_of(made.untyped_storage()))]
                    parts.add(data, made.nbytes)
                parts.write()
            for key, entry in entries.items():
                info = torch_files._StorageInfo(name, 0, entry.nbytes)
                results.append(WriteResult(MetadataIndex(key), entry.nbytes, info))
        return results


class _Files:
    """Files of a save in a folder, before they have their names."""

    def __init__(self, folder: Path, durable: bool) -> None:
        self.folder, self._durable = folder, durable
        self.hidden: dict[str, str] = {}
        """What files are called, by the names they get."""

    def path(self, name: str) -> Path:
        """Return where a file is before it has its name: beside that, where links lead."""
        return Place(self.folder / name).path.with_name(self.hidden[name])

    def discard(self) -> None:
        """Remove the files that have not got their names."""
        with suppress(OSError):
            remove([self.path(name) for name in self.hidden])

    def stamp(self, name: str, place: int, save: str) -> None:
        """Write the identity of the save into a file."""
        with open(self.path(name), "r+b") as file:
            file.seek(place)
            file.write(save.encode())
            file.flush()
            if self._durable:
                os.fsync(file.fileno())

    def publish(self, index: dict[str, Any] | None) -> None:
        """Give the files their names, and remove the other files of the checkpoint before."""
        at = self.folder / layout._metadata_fn
        places = {name: Place(self.folder / name) for name in self.hidden}
        for name, place in places.items():
            with open(self.path(name), "rb") as file:
                place.take_rights(file.fileno())
        with locked(self.folder) as descriptor:
            before = self._before(at) - {self.folder / name for name in places}
            for name, place in places.items():
                place.rename(self.hidden[name])
            if index is None:
                at.unlink(missing_ok=True)
            else:
                content = json.dumps(index, indent=2).encode()
                Replacement(at, durable=self._durable).write(content)
            if self._durable:
                os.fsync(descriptor)
            remove(before)

    def _before(self, index: Path) -> set[Path]:
        """Return the files of the checkpoint that the folder has."""
        found: set[Path] = set()
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            named = json.loads(index.read_bytes())["weight_map"].values()
            found = inside(self.folder, named, layout.SUFFIX)
        for path in self.folder.iterdir():
            if _NAME.fullmatch(path.name):
                with suppress(OSError, ValueError):  # it is no safetensors file
                    header = read_header(path)
                    if header.save is not None or layout.CUSTOM_METADATA_KEY in (
                        header.metadata or {}
                    ):
                        found.add(path)
        return found


def _index(results: list[WriteResult]) -> dict[str, Any]:
    """Return the index of files."""
    return {
        "metadata": {"total_size": sum(one.storage_data.length for one in results)},
        "weight_map": {one.index.fqn: one.storage_data.relative_path for one in results},
    }


class PenstockHuggingFaceReader(OneCheckpoint, HuggingFaceStorageReader):  # type: ignore[misc, unused-ignore]
    """Reads safetensors files as ``HuggingFaceStorageReader`` does.

    All tensors of a file come by one request, or few for a large file, straight into the memory of
    the state dict; of a tensor that is needed in part, only that part is read. ``thread_count`` has
    no effect.

    >>> dcp.load(state_dict, storage_reader=PenstockHuggingFaceReader("model"))
    """

    def __init__(self, path: Any, *args: Any, **keys: Any) -> None:
        super().__init__(path, *args, **keys)
        self._held = HeldFiles()
        self._checkpoint: str | None = None

    def read_metadata(self) -> Metadata:
        """Return the metadata that the headers of all safetensors files in the folder make.

        The files are open from then on: a save into the folder may replace them.

        Raises:
            SafetensorError: A header is not valid.
            CheckpointFileError: The parts of a tensor overlap, leave a gap or differ in type, or
                files are of different saves: the folder holds files of several checkpoints, or
                not all files of one.
        """
        with locked(Path(self.path), shared=True):
            paths = [one for one in self.fs.ls(self.path) if one.endswith(layout.SUFFIX)]
            self._held.hold(Path(), paths)
            return self.metadata_of(paths)

    def metadata_of(self, paths: Iterable[str]) -> Metadata:
        """Return the metadata that the headers of files make, as :meth:`read_metadata` does."""
        tensors: dict[str, Any] = {}
        storage_data: dict[MetadataIndex, Any] = {}
        saves: dict[str | None, str] = {}
        for path in sorted(paths):
            header = self._header(path)
            saves[header.save] = path
            if len(saves) > 1:
                raise _mixed(path, f"it is not of the same save as {next(iter(saves.values()))}")
            saved = _saved_offsets(path, header)
            for key, entry in header.entries.items():
                dtype, lengths = _dtype(path, entry), _shape(entry)
                offsets = saved.get(key, [0] * len(lengths))
                _add_chunk(tensors, path, entry, dtype, offsets)
                index = MetadataIndex(fqn=key, offset=offsets)
                shape = torch.Size(lengths)
                if entry.nbytes and index in storage_data:
                    other = storage_data[index].relative_path
                    raise _mixed(path, f"{key!r} is also in {other}")
                storage_data[index] = layout._HFStorageInfo(path, shape, dtype)
        for key, tensor in tensors.items():
            if not _is_whole(tensor):
                raise _mixed(self.path, f"the parts of {key!r} overlap, or some are missing")
        self._checkpoint = next(iter(saves), None)
        meta = StorageMeta()
        meta.load_id = self.load_id
        return Metadata(tensors, storage_data=storage_data, storage_meta=meta)

    def _header(self, path: str) -> Header:
        descriptor = self._held.get(path)
        if descriptor is None:
            return read_header(path)
        with NativeFile(descriptor, READ) as file:
            return header_of(file, path)

    def whole_tensors(
        self, metadata: Metadata, entries: Iterable[Entry]
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield tensors in host memory. Some of them are read at a time."""
        group: dict[str, torch.Tensor] = {}
        nbytes = 0
        for entry in entries:
            tensor: Any = metadata.state_dict_metadata[entry.name]
            group[entry.name] = torch.empty(tensor.size, dtype=tensor.properties.dtype)
            nbytes += entry.nbytes
            if nbytes > MOST_COPIED:
                yield from self._filled(metadata, group)
                group, nbytes = {}, 0
        yield from self._filled(metadata, group)

    def _filled(
        self, metadata: Metadata, tensors: dict[str, torch.Tensor]
    ) -> Iterable[tuple[str, torch.Tensor]]:
        found = {name: one for name, one in tensors.items() if one.nbytes}
        planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
        planner.set_up_planner(found, metadata, is_coordinator=True)
        self.read_data(planner.create_local_plan(), planner)
        return found.items()

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read the items of a plan; the future is complete."""
        by_file: dict[str, list[Any]] = {}
        for item in plan.items:
            name = self.storage_data[item.storage_index].relative_path
            by_file.setdefault(name, []).append(item)
        with FileReads(planner) as reads:
            for name, items in by_file.items():
                # As torch has it, the path is that which read_metadata has given, with the folder.
                with reads.start(Path(name), self._held.get(name)) as read:
                    header = header_of(read.file, name)
                    if header.save != self._checkpoint:
                        raise _mixed(name, "a save has replaced it while the checkpoint was loaded")
                    for item in items:
                        entry = header.entries.get(item.storage_index.fqn)
                        if entry is None:
                            raise read.wrong(item, "is not in the file")
                        read.add_tensor(item, _stored(name, entry))
            reads.wait()
        self._held.release()
        return finished(None)


def _has_elements(data: Any) -> bool:
    """Whether this is a tensor, also of a subclass, whose elements are those in its memory."""
    return (
        isinstance(data, torch.Tensor)
        and data.layout == torch.strided
        and data.device.type in ("cpu", "cuda")
        and not data.is_quantized
    )


def _type_and_shape(tensor: torch.Tensor) -> tuple[str, tuple[int, ...]]:
    """Return the type and the shape of a tensor in a file."""
    dtype = _BY_DTYPE[tensor.dtype]
    return dtype, stored_shape(dtype, tuple(tensor.shape))


def _shape(entry: Entry) -> tuple[int, ...]:
    """Return the shape in torch, in which offsets are saved."""
    return torch_shape(entry.name, entry.dtype, entry.shape)


def _described(data: Any) -> str:
    if isinstance(data, torch.Tensor):
        return f"a {type(data).__name__} of {data.dtype} on {data.device}"
    return "a Python object"


def _dtype(path: str, entry: Entry) -> torch.dtype:
    if entry.dtype not in _DTYPES:
        raise IncompatibleError(
            f"{path}: {entry.name!r} has data type {entry.dtype}, for which this torch has none"
        )
    return _DTYPES[entry.dtype]


def _stored(path: str, entry: Entry) -> StoredTensor:
    dtype = _dtype(path, entry)
    shape = _shape(entry)
    return StoredTensor(dtype, entry.begin, shape, c_strides(shape, dtype.itemsize))


def _saved_offsets(path: str, header: Header) -> dict[str, list[int]]:
    """Return where each tensor of a file begins in the tensor of which it is a part."""
    text = (header.metadata or {}).get(layout.CUSTOM_METADATA_KEY)
    if not text:
        return {}
    try:
        offsets = {
            key: list(one[layout.SAVED_OFFSETS_KEY]) for key, one in json.loads(text).items()
        }
        for key, entry in header.entries.items():
            own = offsets[key]
            if len(own) != len(entry.shape) or any(type(n) is not int or n < 0 for n in own):
                raise ValueError(f"{own} is not an offset of {key!r}, of shape {entry.shape}")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CheckpointFileError(
            f"{path}: the metadata {layout.CUSTOM_METADATA_KEY} is not valid: {error!r}",
            path=path,
            cause=str(error),
            remedy=REMEDY,
        ) from error
    return offsets


def _add_chunk(
    tensors: dict[str, TensorStorageMetadata],
    path: str,
    entry: Entry,
    dtype: torch.dtype,
    offsets: list[int],
) -> None:
    lengths = _shape(entry)
    ends = [n + first for n, first in zip(lengths, offsets, strict=True)]
    chunk = ChunkStorageMetadata(torch.Size(offsets), torch.Size(lengths))
    known = tensors.get(entry.name)
    if known is None:
        properties = TensorProperties(dtype=dtype)
        tensors[entry.name] = TensorStorageMetadata(properties, torch.Size(ends), [chunk])
        return
    if len(known.size) != len(ends) or known.properties.dtype != dtype:
        cause = f"{entry.name!r} has another type or number of dimensions than in other files"
        raise _mixed(path, cause)
    known.chunks.append(chunk)
    known.size = torch.Size(map(max, known.size, ends))


def _is_whole(tensor: TensorStorageMetadata) -> bool:
    """Whether the parts of a tensor hold each element once: all of them, and none twice."""
    parts = [one for one in tensor.chunks if one.sizes.numel()]
    if sum(one.sizes.numel() for one in parts) != tensor.size.numel():
        return False
    begins = np.array([one.offsets for one in parts])
    ends = begins + np.array([one.sizes for one in parts])
    return len(parts) < 2 or overlapping(begins, ends) is None


def _mixed(path: object, cause: str) -> CheckpointFileError:
    return damaged(
        path, cause, "give each checkpoint a folder of its own, with all files of all ranks"
    )
