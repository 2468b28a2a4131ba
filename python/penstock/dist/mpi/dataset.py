"""A dataset that ranks read together: each rank reads its own slab."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock._options import OptionKeys, Unpack, resolve
from penstock.dist import transfers
from penstock.dist.description import Description, StoredArray
from penstock.dist.mpi.ranks import Ranks
from penstock.dist.mpi.shared import Shared
from penstock.placement import Device, Library, place
from penstock.streams import stream_handle


class Dataset:
    """A dataset to read. ``file[name]`` makes it.

    Args:
        shared: The file.
        name: The path of the dataset in the file.
        about: The shape, the type of the elements and the shape of a chunk.
        description: Where the elements lie; ``None`` if only HDF5 can read them.
    """

    def __init__(
        self,
        shared: Shared[Ranks],
        name: str,
        about: tuple[tuple[int, ...], np.dtype[Any], tuple[int, ...] | None],
        description: Description | None,
    ) -> None:
        self._shared = shared
        self.name = name
        self.shape, self.dtype, self.chunks = about
        self._stored = None if description is None else StoredArray(description)

    @property
    def needs_hdf5(self) -> bool:
        """Whether each rank has to open the file by HDF5 to read its slab.

        This applies to virtual, external and compact datasets, those behind external links, strings
        of variable length, and filters that Penstock lacks. Avoid these for 10^4 ranks.
        """
        return self._stored is None

    def read(
        self,
        slab: Any = (),
        *,
        out: Any = None,
        device: Device = None,
        dtype: Any = None,
        stream: Any = None,
        like: Library | None = None,
        pin: bool = False,
        **options: Unpack[OptionKeys],
    ) -> Any:
        """Read this rank's slab of the dataset. Collective.

        Args:
            slab: A tuple of slices without steps, as :func:`penstock.dist.partition` returns them;
                the whole dataset by default. ``None`` reads nothing, and returns ``None``.
            out: An array of the slab's shape to fill, instead of a new one.
            device: Where a new array goes, as for :func:`penstock.load`. ``"cuda"`` is the GPU of
                this rank: the ranks of a host take its GPUs in turn.
            dtype: Convert the elements to this type.
            stream: A CUDA stream whose queued work must finish before the memory is used.
            like: The library of a new array, as for :func:`penstock.load`.
            pin: Whether a new array in host memory is page-locked.
            **options: See :class:`penstock.OptionKeys`.

        Returns:
            ``out``, or the new array, which is empty if the slab is.

        Raises:
            RankError: The slab of a rank is outside the dataset, a rank has no GPU, or the read of
                a rank has failed. Arrays that other ranks have read are complete.
        """

        def own() -> Any:
            if slab is None:
                return None
            where = place(self._shared.device(device), like, pin, out)
            ranges = transfers.ranges_of(slab, self.shape)
            if self._stored is None:
                slices = tuple(slice(r.start, r.stop) for r in ranges)
                dataset = self._shared.by_hdf5(self.name)
                return dataset.read(
                    slices, out=out, device=where, dtype=dtype, stream=stream, **options
                )
            return transfers.read(
                self._stored,
                self._shared.native() if all(map(len, ranges)) else None,
                ranges,
                out=out,
                device=where,
                dtype=dtype,
                stream=stream_handle(stream),
                options=resolve(options),
            )

        return self._shared.together(f"{self.name}.read", own)

    def __repr__(self) -> str:
        return f"<Dataset {self.name} of shape {self.shape}, {self.dtype}>"
