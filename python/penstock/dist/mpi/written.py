"""A dataset that ranks write together: each rank writes its own slab."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from penstock import arrays
from penstock._native import CData
from penstock._options import OptionKeys, Unpack, resolve
from penstock.dist import transfers
from penstock.dist.description import Description, StoredArray
from penstock.dist.mpi.ranks import Ranks
from penstock.dist.mpi.shared import Shared
from penstock.dist.mpi.slabs import refuse_overlap, row_of
from penstock.dist.storage import Storage
from penstock.dist.transfers import EncodedChunks, Ranges, lengths
from penstock.errors import InvalidError
from penstock.streams import stream_handle

_ENCODED_AT_A_TIME = 1 << 30
"""Bytes of elements whose chunks a rank encodes before all ranks write theirs."""


class WrittenDataset:
    """A dataset to write. ``file.create`` makes it.

    Args:
        shared: The file.
        description: Where the elements go, as far as that is known.
        storage: On rank 0, the HDF5 file and its dataset.
    """

    def __init__(
        self, shared: Shared[Ranks], description: Description, storage: tuple[Storage, Any] | None
    ) -> None:
        self._shared = shared
        self._stored = StoredArray(description)
        self._storage = storage
        self.name = description.name
        self.shape = description.shape
        self.dtype = description.dtype
        self.chunks = description.chunks

    def write(
        self, array: Any, slab: Any = (), *, stream: Any = None, **options: Unpack[OptionKeys]
    ) -> None:
        """Write an array to this rank's slab of the dataset. Collective.

        Ranks write at the same time, and no two of them the same element. Slabs of datasets with
        filters must consist of whole chunks.

        Args:
            array: Any array on the CPU or a GPU of the slab's shape, whose elements are converted
                to the type of the dataset.
            slab: A tuple of slices without steps, as :func:`penstock.dist.partition` returns them;
                the whole dataset by default. ``None`` writes nothing.
            stream: A CUDA stream whose queued work makes the array.
            **options: See :class:`penstock.OptionKeys`.

        Raises:
            RankError: Two slabs overlap, and none is written; or a rank could not write its slab.
                What the other ranks wrote may be in the dataset, and the file is not complete.
        """
        step = f"{self.name}.write"
        parsed = resolve(options)
        is_filtered = self._stored.description.is_filtered
        ranks = self._shared.ranks

        def cut() -> tuple[np.ndarray[Any, Any], list[tuple[Ranges, arrays.View]]]:
            ranges, view = self._source(array, slab, stream)
            pieces = []
            if view is not None and all(lengths(ranges)):
                pieces = list(self._pieces(ranges, view)) if is_filtered else [(ranges, view)]
            none = np.empty((0, 2 + 2 * len(self.shape)), np.int64)
            return (row_of(ranks.rank, 0, ranges) if pieces else none), pieces

        own, pieces = self._shared.together(step, cut)
        tables = ranks.gather(own, step)
        ranks.broadcast(
            f"{step} (slabs)", lambda: refuse_overlap(self.name, np.concatenate(tables))
        )
        if not is_filtered:
            self._shared.together(
                f"{step} (elements)", lambda: self._write_in_place(pieces, parsed)
            )
            return
        for at in range(ranks.maximum(len(pieces), step)):
            self._write_encoded(pieces[at] if at < len(pieces) else None, step, parsed)

    def _source(self, array: Any, slab: Any, stream: Any) -> tuple[Ranges, arrays.View | None]:
        if slab is None:
            return (range(0),), None
        ranges = transfers.ranges_of(slab, self.shape)
        view = transfers.source(self._stored.description, ranges, array, stream_handle(stream))
        return ranges, view

    def _write_in_place(self, pieces: list[tuple[Ranges, arrays.View]], options: CData) -> None:
        for ranges, view in pieces:
            transfers.write(self._stored, self._shared.native(), ranges, view, options)

    def _pieces(self, ranges: Ranges, view: arrays.View) -> Iterator[tuple[Ranges, arrays.View]]:
        """Cut a slab along its first dimension into pieces whose encoded chunks fit in memory."""
        count = math.prod(lengths(ranges))
        assert self.chunks is not None
        for index, chunk, side in zip(ranges, self.chunks, self.shape, strict=True):
            if index.start % chunk or (index.stop % chunk and index.stop != side):
                raise InvalidError(
                    f"the slab from {index.start} to {index.stop} cuts chunks of length {chunk}, "
                    "which are encoded as a whole",
                    remedy="divide the dataset by penstock.dist.partition(shape, chunks, n)",
                )
        rows, chunk = ranges[0], self.chunks[0]
        row = max(count // len(rows) * self.dtype.itemsize, 1)
        step = max(_ENCODED_AT_A_TIME // (row * chunk), 1) * chunk
        stride = view.byte_strides[0]
        for start in range(rows.start, rows.stop, step):
            part = range(start, min(start + step, rows.stop))
            piece = replace(
                view,
                pointer=view.pointer + (start - rows.start) * stride,
                nbytes=view.nbytes // len(rows) * len(part),
                shape=(len(part), *view.shape[1:]),
                keep=view,
            )
            yield (part, *ranges[1:]), piece

    def _write_encoded(
        self, piece: tuple[Ranges, arrays.View] | None, step: str, options: CData
    ) -> None:
        """Encode a piece on each rank, have rank 0 find storage for all, and write them."""
        ranks = self._shared.ranks

        def encode() -> tuple[EncodedChunks | None, np.ndarray[Any, Any]]:
            if piece is None:
                return None, np.empty((0, 3), np.int64)
            chunks = EncodedChunks(self._stored, *piece, options)
            return chunks, chunks.table()

        encoded, own = self._shared.together(f"{step} (encode)", encode)
        tables = ranks.gather(own, step)
        found: list[np.ndarray[Any, Any]] = []

        def allocate() -> None:
            assert self._storage is not None
            storage, dataset = self._storage
            together = np.concatenate(tables)
            addresses = storage.allocate(dataset, *together.T)
            ends = np.cumsum([len(table) for table in tables])
            found.extend(np.split(addresses, ends[:-1]))

        ranks.broadcast(f"{step} (storage)", allocate)
        addresses = ranks.scatter(found, len(own), step)

        def put() -> None:
            if encoded is not None:
                encoded.write(self._shared.native(), addresses, options)

        self._shared.together(f"{step} (chunks)", put)

    def __repr__(self) -> str:
        return f"<WrittenDataset {self.name} of shape {self.shape}, {self.dtype}>"
