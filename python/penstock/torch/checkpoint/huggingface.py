"""Distributed checkpoints as safetensors files, in the layout of Hugging Face."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
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
from penstock.errors import IncompatibleError
from penstock.overlaps import overlapping
from penstock.replacement import Replacement
from penstock.torch.checkpoint.archive import Part, StoredTensor, bytes_of
from penstock.torch.checkpoint.errors import REMEDY, CheckpointFileError
from penstock.torch.checkpoint.reader import FileReads
from penstock.torch.checkpoint.writer import Parts, dense, finished, is_plain
from penstock.torch.safetensors.dtypes import NAMES
from penstock.torch.safetensors.header import Entry, Header, encode_header, header_of, read_header

_DTYPES = {name: getattr(torch, dtype) for name, dtype in NAMES.items() if hasattr(torch, dtype)}
"""The data types of torch by the format's names."""
_BY_DTYPE = {dtype: name for name, dtype in _DTYPES.items()}


class PenstockHuggingFaceWriter(HuggingFaceStorageWriter):  # type: ignore[misc, unused-ignore]
    """Writes safetensors files as ``HuggingFaceStorageWriter`` does, whose arguments it takes.

    Tensors go from their memory to the files by one request for each file. The files are put in
    place under the names of the layout when all files of the rank are complete, and the index
    follows. Consolidation is torch's.

    >>> dcp.save(state_dict, storage_writer=PenstockHuggingFaceWriter("model"))
    """

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write the items of a plan; the future is complete."""
        indices = plan.storage_data.get("fqn_to_index_mapping")
        shard = plan.storage_data.get("shard_index")
        last = max(indices.values()) if indices else 1
        results = []
        with ExitStack() as stack:
            for index, items in self._split_by_storage_plan(indices, plan.items).items():
                if not items:
                    continue
                name = layout._gen_file_name(index, last, shard)
                new = Replacement(Path(self.path) / name, durable=self.sync_files)
                descriptor = stack.enter_context(new)
                results += self._write_items(descriptor, name, items, planner)
        return finished(results)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Write the index of all files, or consolidate those of ranks, as torch does."""
        if self.save_distributed:
            super().finish(metadata, results)
            return
        listed = list(chain.from_iterable(results))
        index = {
            "metadata": {"total_size": sum(one.storage_data.length for one in listed)},
            "weight_map": {one.index.fqn: one.storage_data.relative_path for one in listed},
        }
        path = Path(self.path) / self.metadata_path
        content = json.dumps(index, indent=2).encode()
        Replacement(path, durable=self.sync_files).write(content)

    def _write_items(
        self, descriptor: int, name: str, items: Iterable[WriteItem], planner: SavePlanner
    ) -> list[WriteResult]:
        tensors, offsets, results = {}, {}, []
        for item in items:
            data = planner.resolve_data(item)
            key = item.index.fqn
            if not is_plain(data) or data.dtype not in _BY_DTYPE:
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
            info = torch_files._StorageInfo(name, 0, data.nbytes)
            results.append(WriteResult(item.index, data.nbytes, info))
        header, entries = encode_header(
            {key: (_BY_DTYPE[one.dtype], tuple(one.shape)) for key, one in tensors.items()},
            {
                layout.CUSTOM_METADATA_KEY: json.dumps(offsets),
                layout.DCP_VERSION_KEY: str(layout.HF_DCP_VERSION),
                layout.FORMAT_KEY: layout.FORMAT_VALUE,
            },
        )
        parts = Parts(descriptor, self.sync_files)
        parts.add([Part(0, header)])
        for key, entry in entries.items():
            if entry.nbytes:
                tensor, copied = dense(key, tensors[key])
                parts.add([Part(entry.begin, bytes_of(tensor.untyped_storage()))], copied)
        parts.write()
        return results


class PenstockHuggingFaceReader(HuggingFaceStorageReader):  # type: ignore[misc, unused-ignore]
    """Reads safetensors files as ``HuggingFaceStorageReader`` does.

    All tensors of a file come by one request, or few for a large file, straight into the memory of
    the state dict; of a tensor that is needed in part, only that part is read. ``thread_count`` has
    no effect.

    >>> dcp.load(state_dict, storage_reader=PenstockHuggingFaceReader("model"))
    """

    def read_metadata(self) -> Metadata:
        """Return the metadata that the headers of all safetensors files in the folder make.

        Raises:
            SafetensorError: A header is not valid.
            CheckpointFileError: The parts of a tensor overlap, leave a gap or differ in type: the
                folder holds files of several checkpoints, or not all files of one.
        """
        tensors: dict[str, TensorStorageMetadata] = {}
        storage_data: dict[MetadataIndex, Any] = {}
        for path in sorted(self.fs.ls(self.path)):
            if not path.endswith(layout.SUFFIX):
                continue
            header = read_header(path)
            saved = _saved_offsets(path, header)
            for key, entry in header.entries.items():
                offsets = saved.get(key, [0] * len(entry.shape))
                dtype = _dtype(path, entry)
                _add_chunk(tensors, path, entry, dtype, offsets)
                index = MetadataIndex(fqn=key, offset=offsets)
                shape = torch.Size(entry.shape)
                if entry.nbytes and index in storage_data:
                    other = storage_data[index].relative_path
                    raise _mixed(path, f"{key!r} is also in {other}")
                storage_data[index] = layout._HFStorageInfo(path, shape, dtype)
        for key, tensor in tensors.items():
            if not _is_whole(tensor):
                raise _mixed(self.path, f"the parts of {key!r} overlap, or some are missing")
        meta = StorageMeta()
        meta.load_id = self.load_id
        return Metadata(tensors, storage_data=storage_data, storage_meta=meta)

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read the items of a plan; the future is complete."""
        by_file: dict[str, list[Any]] = {}
        for item in plan.items:
            name = self.storage_data[item.storage_index].relative_path
            by_file.setdefault(name, []).append(item)
        with FileReads(planner) as reads:
            for name, items in by_file.items():
                # As torch has it, the path is that which read_metadata has given, with the folder.
                with reads.start(Path(name)) as read:
                    entries = header_of(read.file, name).entries
                    for item in items:
                        entry = entries.get(item.storage_index.fqn)
                        if entry is None:
                            raise read.wrong(item, "is not in the file")
                        read.add_tensor(item, _stored(name, entry))
        return finished(None)


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
    return StoredTensor(dtype, entry.begin, entry.shape, c_strides(entry.shape, dtype.itemsize))


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
    ends = [n + first for n, first in zip(entry.shape, offsets, strict=True)]
    chunk = ChunkStorageMetadata(torch.Size(offsets), torch.Size(entry.shape))
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
    return CheckpointFileError(
        f"{path}: {cause}",
        path=str(path),
        cause=cause,
        remedy="give each checkpoint a folder of its own, with all files of all ranks",
    )
