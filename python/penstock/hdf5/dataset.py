"""Datasets that read into and write from any array."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock import request
from penstock._options import OptionKeys
from penstock.hdf5 import blocks, by_h5py, pending, reading, writing
from penstock.hdf5.library import lock
from penstock.placement import Device
from penstock.request import Request

if TYPE_CHECKING:
    from typing_extensions import Unpack


ALL: tuple[()] = ()
"""The selection of a whole dataset."""


class Dataset:
    """A dataset of a :class:`File`. :attr:`h5py` has all that this class lacks."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._quickly: Callable[[], Any] | None = None
        self._quickly_known = False

    @property
    def h5py(self) -> Any:
        """The ``h5py.Dataset``."""
        return self._dataset

    @property
    def name(self) -> str:
        """The path within the file."""
        return str(self._dataset.name)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Lengths of the dimensions; ``None`` for a null dataspace."""
        shape: tuple[int, ...] | None = self._dataset.shape
        return shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The data type as which h5py reads it."""
        dtype: np.dtype[Any] = self._dataset.dtype
        return dtype

    def read(
        self,
        selection: Any = ALL,
        *,
        out: Any = None,
        device: Device = None,
        dtype: Any = None,
        stream: Any = None,
        **options: Unpack[OptionKeys],
    ) -> Any:
        """Read the dataset, or a part of it: see :func:`penstock.read`.

        >>> x = f["group/rho"].read(np.s_[0:10], device="cuda")
        """
        whole = selection is ALL and out is None and device is None and dtype is None
        if whole and stream is None and not options:
            if not self._quickly_known:
                self._quickly, self._quickly_known = by_h5py.quick_reader(self._dataset), True
            if self._quickly is not None:
                return self._quickly()
        return reading.read(
            self._dataset,
            selection,
            out=out,
            device=device,
            dtype=dtype,
            stream=stream,
            **options,
        )

    def write(
        self,
        array: Any,
        selection: Any = (),
        *,
        stream: Any = None,
        **options: Unpack[OptionKeys],
    ) -> None:
        """Write the dataset, or a part of it: see :func:`penstock.write`.

        >>> f["group/rho"].write(t)
        """
        writing.write(self._dataset, array, selection, stream=stream, **options)

    def read_async(
        self,
        selection: Any = (),
        *,
        out: Any = None,
        device: Device = None,
        dtype: Any = None,
        stream: Any = None,
        **options: Unpack[OptionKeys],
    ) -> Request[Any]:
        """Start to read the dataset, or a part of it: see :func:`penstock.read_async`.

        >>> r = f["group/rho"].read_async(device="cuda")
        >>> x = r.wait()      # or, in asyncio: x = await r
        """
        return reading.read_async(
            self._dataset,
            selection,
            out=out,
            device=device,
            dtype=dtype,
            stream=stream,
            **options,
        )

    def write_async(
        self,
        array: Any,
        selection: Any = (),
        *,
        stream: Any = None,
        **options: Unpack[OptionKeys],
    ) -> Request[Any]:
        """Start to write the dataset, or a part of it: see :func:`penstock.write_async`.

        >>> f["group/rho"].write_async(t).wait()
        """
        return writing.write_async(self._dataset, array, selection, stream=stream, **options)

    def resize(self, size: int | tuple[int, ...], axis: int | None = None) -> None:
        """Change the lengths of the dataset as ``h5py.Dataset.resize`` does.

        This first waits for the pending requests of the dataset.
        """
        with lock():
            pending.wait_for_dataset(self._dataset, request.WRITE)
            self._dataset.resize(size, axis)

    def blocks(
        self,
        shape: int | tuple[int | None, ...],
        *,
        prefetch: int = 2,
        device: Device = None,
        dtype: Any = None,
        reuse: bool = False,
        **options: Unpack[OptionKeys],
    ) -> Iterator[tuple[tuple[slice, ...], Any]]:
        """Read the dataset slab by slab, while reads of the next slabs are pending.

        The dataset can thus be larger than memory. Closing the iterator cancels the pending reads.

        Args:
            shape: Lengths of a slab. A length that is ``None`` or left out is that of the whole
                dimension. The last slabs of a dimension may be smaller.
            prefetch: How many reads are pending while a slab is used.
            device: Where the slabs go, as for :func:`penstock.load`.
            dtype: Convert the elements to this type.
            reuse: Fill arrays again. Each is then valid only until the iterator is advanced.
            **options: See :class:`penstock.OptionKeys`.

        Yields:
            The index of the slab in the dataset, a tuple of slices, and the array.

        >>> for index, rho in f["group/rho"].blocks(64, device="cuda"):
        ...     total += rho.sum()
        """
        return blocks.blocks(
            self._dataset,
            shape,
            prefetch=prefetch,
            device=device,
            dtype=dtype,
            reuse=reuse,
            **options,
        )

    def __repr__(self) -> str:
        return f"<penstock.Dataset {self._dataset!r}>"
