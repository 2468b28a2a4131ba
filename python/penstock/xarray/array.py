"""Variables whose elements are read when xarray needs them."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
from xarray.backends import BackendArray
from xarray.core.indexing import ExplicitIndexer

from penstock.hdf5.cf import Decoding
from penstock.hdf5.dataset import Dataset
from penstock.placement import Device
from penstock.request import Request
from penstock.xarray.files import OpenFile
from penstock.xarray.indexers import Index, index_of


class LazyArray(BackendArray):  # type: ignore[misc, unused-ignore]
    """The elements of a dataset, which each index reads from the file.

    It can be pickled, as the file is opened again by its path. Threads read at the same time.

    Args:
        manager: xarray's file manager of the :class:`penstock.xarray.files.OpenFile`.
        path: The path of the dataset.
        shape: The shape of the variable.
        stored: The type of the elements in the file.
        dtype: The type of the elements that are returned.
        is_brief: Whether a read may be one of
            :meth:`penstock.xarray.files.OpenFile.first_read`.
        device: Where the elements go, as for :func:`penstock.read`.
        decoding: How numbers are decoded, if they are.
    """

    __slots__ = (
        "_decoding",
        "_device",
        "_is_brief",
        "_manager",
        "_path",
        "_stored",
        "dtype",
        "shape",
    )

    def __init__(
        self,
        manager: Any,
        path: str,
        shape: tuple[int, ...],
        stored: np.dtype[Any],
        dtype: np.dtype[Any],
        *,
        is_brief: bool = False,
        device: Device = None,
        decoding: Decoding | None = None,
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        self._manager = manager
        self._path = path
        self._stored = stored
        self._is_brief = is_brief
        self._device = device
        self._decoding = decoding

    def decoded(self, decoding: Decoding) -> LazyArray:
        """Return the same elements, decoded."""
        return self._with(decoding.dtype, self._device, decoding)

    def on_host(self) -> LazyArray:
        """Return the same elements in host memory."""
        return self._with(self.dtype, None, self._decoding)

    def _with(self, dtype: np.dtype[Any], device: Device, decoding: Decoding | None) -> LazyArray:
        return LazyArray(
            self._manager,
            self._path,
            self.shape,
            self._stored,
            dtype,
            device=device,
            decoding=decoding,
        )

    def __getitem__(self, key: ExplicitIndexer) -> Any:
        return self._read(index_of(key, self.shape))

    async def async_getitem(self, key: ExplicitIndexer) -> Any:
        """Read while other tasks of the event loop run."""
        index = index_of(key, self.shape)
        with self._manager.acquire_context() as file:
            return index.apply(await self._started(self._dataset(file), index.selection))

    def get_duck_array(self, dtype: Any = None) -> Any:
        """Read all elements, and convert them to a type."""
        return _as_type(super().get_duck_array(), dtype)

    async def async_get_duck_array(self, dtype: Any = None) -> Any:
        """Do what :meth:`get_duck_array` does."""
        return _as_type(await super().async_get_duck_array(), dtype)

    def _read(self, index: Index) -> Any:
        with self._manager.acquire_context() as file:
            # With an array among the parts, NumPy would count integers among the arrays.
            is_basic = not any(isinstance(part, np.ndarray) for part in index.selection)
            if self._is_brief and is_basic:
                is_whole = self._is_whole(index.selection)
                found = file.first_read(self._path, self.shape, self._stored, is_whole=is_whole)
                if found is not None:
                    return index.apply(found if is_whole else found[index.selection].copy())
            return index.apply(self._read_dataset(self._dataset(file), index.selection))

    def _dataset(self, file: OpenFile) -> Dataset:
        return file.dataset(self._path, self.shape, self._stored)

    def _is_whole(self, selection: tuple[Any, ...]) -> bool:
        return all(
            isinstance(part, slice) and part == slice(0, length, 1)
            for part, length in zip(selection, self.shape, strict=True)
        )

    def _read_dataset(self, dataset: Dataset, selection: tuple[Any, ...]) -> Any:
        if self._decoding is not None:
            return dataset.read(selection, device=self._device, cf=self._decoding)
        if self._device is not None:
            return dataset.read(selection, device=self._device)
        return (
            dataset.read(selection, dtype=self.dtype) if self._is_swapped() else dataset[selection]
        )

    def _started(self, dataset: Dataset, selection: tuple[Any, ...]) -> Request[Any]:
        if self._decoding is not None:
            return dataset.read_async(selection, device=self._device, cf=self._decoding)
        dtype = self.dtype if self._is_swapped() and self._device is None else None
        return dataset.read_async(selection, device=self._device, dtype=dtype)

    def _is_swapped(self) -> bool:
        return not self._stored.isnative


class ThreadedArray(LazyArray):
    """Elements that HDF5 reads, or that are changed after the read: a task waits in a thread."""

    __slots__ = ()

    async def async_getitem(self, key: ExplicitIndexer) -> Any:
        """Read in another thread."""
        return await asyncio.to_thread(self.__getitem__, key)


class LazyStrings(ThreadedArray):
    """Strings of variable length."""

    __slots__ = ()

    def _read_dataset(self, dataset: Dataset, selection: tuple[Any, ...]) -> Any:
        return dataset.asstr()[selection]


class PaddedArray(ThreadedArray):
    """A dataset that is shorter than an unlimited dimension of its file: the rest is filled."""

    __slots__ = ()

    def _dataset(self, file: OpenFile) -> Dataset:
        return file.dataset(self._path, (0,) * len(self.shape), self._stored)

    def _read_dataset(self, dataset: Dataset, selection: tuple[Any, ...]) -> Any:
        if is_text(self._stored):
            return dataset.asstr()[selection]
        return super()._read_dataset(dataset, selection)

    def _filled(self, dataset: Dataset, shape: list[int]) -> np.ndarray[Any, Any]:
        """Return an array of fill values."""
        if is_text(self._stored):
            return np.full(shape, "", object)
        numbers = type_in_lists(self._stored)
        if numbers is None:
            return np.full(shape, dataset.fillvalue, self.dtype)
        values = np.empty(shape, object)
        for place in np.ndindex(*shape):
            values[place] = np.empty(0, numbers.newbyteorder("="))
        return values

    def _read(self, index: Index) -> Any:
        with self._manager.acquire_context() as file:
            dataset = self._dataset(file)
            box = [
                _box(part, length) for part, length in zip(index.selection, self.shape, strict=True)
            ]
            assert dataset.shape is not None
            inner = tuple(
                slice(side.start, max(side.start, min(side.stop, length)))
                for side, length in zip(box, dataset.shape, strict=True)
            )
            lengths = [side.stop - side.start for side in box]
            values = self._filled(dataset, lengths)
            filled = tuple(slice(0, side.stop - side.start) for side in inner)
            if values[filled].size:
                values[filled] = self._read_dataset(dataset, inner)
        shifted: list[Any] = []
        view: list[Any] = []
        for part, side, length in zip(index.selection, box, self.shape, strict=True):
            if isinstance(part, slice):
                shifted.append(slice(part.start - side.start, part.stop - side.start, part.step))
                view.append(slice(None))
            elif isinstance(part, int):  # NumPy would count it among the arrays
                shifted.append(slice(at := part % length - side.start, at + 1))
                view.append(0)
            else:
                shifted.append(np.mod(part, length) - side.start)
                view += [slice(None)] * part.ndim
        found = values[tuple(shifted)]
        return index.apply(found[tuple(view)] if 0 in view else found)


def is_text(stored: np.dtype[Any]) -> bool:
    """Whether h5py's type is that of strings of variable length."""
    return stored.metadata is not None and stored.metadata.get("vlen") in (str, bytes)


def type_in_lists(stored: np.dtype[Any]) -> np.dtype[Any] | None:
    """Return the type of the elements of lists of variable length; ``None`` for other types."""
    found = None if stored.metadata is None else stored.metadata.get("vlen")
    return found if isinstance(found, np.dtype) else None


def _box(part: Any, length: int) -> slice:
    """Return the slice around the indices of a dimension."""
    if isinstance(part, slice):
        return slice(part.start, part.stop)
    indices = np.mod(part, length)
    if not indices.size:
        return slice(0, 0)
    return slice(int(indices.min()), int(indices.max()) + 1)


def _as_type(array: Any, dtype: Any) -> Any:
    return array if dtype is None else array.astype(dtype, copy=False)
