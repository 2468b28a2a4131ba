"""A copier for fastsafetensors, which reads files by Penstock.

>>> import penstock.torch.fastsafetensors       # registers the copier "penstock"
>>> loader = BaseSafeTensorsFileLoader(pg, device, copier_type="penstock")
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from penstock import frameworks, request, transfer
from penstock._options import resolve
from penstock.files import READ, NativeFile
from penstock.request_group import RequestGroup

NAME = "penstock"
_POLL = 1e-4
"""Seconds between two looks at what has arrived."""

_base: Any = import_module("fastsafetensors.copier.base")
_registry: Any = import_module("fastsafetensors.copier.registry")


class PenstockCopier(_base.CopierInterface):  # type: ignore[misc]
    """Reads the tensors of one file into one allocation, by one request."""

    def __init__(self, metadata: Any, device: Any, framework: Any, options: Any) -> None:
        self.metadata, self.device, self.framework = metadata, device, framework
        self._options = options
        self._ranges: list[tuple[int, int]] | None = None
        self._names: set[str] | None = None
        self._allocation: int | None = None
        self._origin = metadata.header_length
        self._file: NativeFile | None = None
        self._request: request.Request[None] | None = None
        self._arrived_before: list[tuple[int, int, int]] = []

    @classmethod
    def chunk_transient_multiplier(cls, paths: list[str]) -> int:
        """Return how many times a chunk is in GPU memory while it is read."""
        return 1

    @classmethod
    def fixed_device_overhead(cls, paths: list[str]) -> int:
        """Return the bytes of GPU memory beside the chunks."""
        return 0

    def set_byte_ranges(self, byte_ranges: Any) -> None:
        """Read these parts of the file only."""
        self._ranges = _base.validated_byte_ranges(self.metadata, byte_ranges)

    def set_chunk(self, byte_ranges: Any, names: set[str], allocation_size: Any = None) -> None:
        """Read these tensors into an allocation for them alone."""
        ranges = _base.validated_byte_ranges(self.metadata, byte_ranges)
        self._ranges, self._names = ranges, names
        self._allocation = _base.validated_chunk_allocation_size(ranges, allocation_size)

    def enable_tensor_readiness(self) -> bool:
        """Allow tensors to be used as soon as their own bytes are there."""
        return True

    def submit_io(self, use_buf_register: bool, max_copy_block_size: int) -> Any:
        """Start the request, and return the allocation that it fills."""
        begin, end = self.metadata.header_length, self.metadata.size_bytes
        ranges = [(begin, end)] if self._ranges is None else self._ranges
        nbytes = end - begin
        if self._names is not None:
            self._origin = min((first for first, _ in ranges), default=begin)
            last = max((last for _, last in ranges), default=self._origin)
            nbytes = self._allocation or last - self._origin
        buffer = self.framework.alloc_tensor_memory(nbytes, self.device)
        try:
            self._start(ranges, buffer, nbytes)
        except BaseException:
            self.framework.free_tensor_memory(buffer, self.device)
            raise
        return buffer

    def _start(self, ranges: Sequence[tuple[int, int]], buffer: Any, nbytes: int) -> None:
        address = int(buffer.get_base_address())
        ends = itertools.accumulate(last - first for first, last in ranges)
        self._arrived_before = [
            (first, last, end - (last - first))
            for (first, last), end in zip(ranges, ends, strict=True)
        ]
        wanted = np.array(
            [(first, last - first, address + first - self._origin) for first, last in ranges],
            transfer.RANGE,
        )
        if not len(wanted) or not nbytes:
            return
        ordinal = -1 if self.device.type.value == "cpu" else self.device.index or 0
        # The allocation may have been freed with work queued on the current stream.
        stream = frameworks.torch_pending(ordinal) if ordinal >= 0 else None
        self._file = NativeFile(self.metadata.src, READ)
        self._request = transfer.start(
            self._file, request.READ, wanted, self._options, stream=stream, keep=buffer
        )

    def prepare_tensors(self, gbuf: Any, owner: Any = None) -> Any:
        """Return tensors whose bytes :meth:`wait_tensor` waits for."""
        return self.metadata._get_tensors(
            gbuf, self.device, self._origin, names=self._names, owner=owner
        )

    def wait_tensor(self, name: str) -> None:
        """Wait for the bytes of a tensor."""
        first, last = self.metadata.tensors[name].data_offsets
        if first == last:
            return
        first, last = first + self.metadata.header_length, last + self.metadata.header_length
        for begin, end, before in self._arrived_before:
            if begin <= first and last <= end:
                self._wait(before + last - begin)
                return
        raise ValueError(f"tensor {name} includes unread bytes")

    def _wait(self, nbytes: int) -> None:
        made = self._request
        while made is not None and made.arrived() < nbytes and not made.done():
            time.sleep(_POLL)
        if made is not None and made.done():
            made.wait()

    def finish_io(self) -> None:
        """Wait for the whole request, and close the file."""
        made, self._request = self._request, None
        file, self._file = self._file, None
        try:
            if made is not None:
                RequestGroup([made]).wait()
        finally:
            if file is not None:
                file.close()

    def wait_io(
        self, gbuf: Any, dtype: Any = None, noalign: bool = False, owner: Any = None
    ) -> Any:
        """Wait for the whole request, and return its tensors."""
        self.finish_io()
        types = {} if dtype is None else {"dtype": dtype}
        return self.metadata._get_tensors(
            gbuf, self.device, self._origin, names=self._names, owner=owner, **types
        )


def new_copier(device: Any, **keys: Any) -> Any:
    """Return what makes copiers; ``options`` are those of :class:`penstock.OptionKeys`."""
    options = resolve(keys.get("options") or {})

    def construct(metadata: Any, device: Any, framework: Any) -> PenstockCopier:
        return PenstockCopier(metadata, device, framework, options)

    return construct


_registry.register_copier_constructor(NAME, PenstockCopier)(new_copier)
