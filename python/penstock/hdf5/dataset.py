"""Datasets that read into and write from any array, and their views, which convert."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, SupportsIndex

import h5py
import numpy as np

from penstock import request
from penstock._keys import BlockKeys
from penstock._native import lib
from penstock._options import OptionKeys
from penstock.dtypes import element_type
from penstock.hdf5 import (
    blocks,
    by_h5py,
    dropped,
    memory_types,
    reading,
    writing,
)
from penstock.hdf5 import selection as selections
from penstock.hdf5.cf import Decoding
from penstock.hdf5.dataset_reader import DatasetReader, drop
from penstock.hdf5.library import (
    creation_list,
    creation_properties,
    creation_property,
    explain,
    holds_objects,
    is_writable,
    lock,
    make_durable,
    wait_for_dataset,
)
from penstock.hdf5.objects import Object
from penstock.placement import Device, Library, place
from penstock.request import Request

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from penstock.hdf5.file import File


ALL: tuple[()] = ()
"""The selection of a whole dataset."""

READ_BYTES = 1 << 20
"""The approximate bytes of each read of an iteration: enough to make the start of a read cheap."""

CHUNK_BYTES = 64 << 20
"""Limit of such a read of whole chunks; larger chunks are read in part."""


class _OfH5py:
    """An attribute that h5py sets when it makes an object, set on the first use."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, dataset: Dataset | None, owner: type) -> Any:
        if dataset is None:
            return self
        if holds_objects(dataset):
            creation_list(dataset.id)  # before h5py asks for the creation properties
        found = dataset.__dict__[self._name] = getattr(dataset.h5py, self._name)
        return found


class Dataset(Object, h5py.Dataset):  # type: ignore[misc]
    """A dataset of an HDF5 file: an ``h5py.Dataset`` that reads and writes by Penstock.

    ``dataset[selection]`` is a NumPy array, or what h5py returns for scalars, strings and other
    objects. :meth:`read` puts the elements into the memory of a GPU or into a given array.

    Args:
        dataset: An open ``h5py.Dataset``, or its identifier.
        file: The file that it was reached from.
    """

    _class = h5py.Dataset
    # What h5py returns.
    shape: tuple[int, ...] | None
    maxshape: tuple[int | None, ...] | None
    dtype: np.dtype[Any]
    ndim: int
    size: int | None
    nbytes: int
    _dcpl = _OfH5py("_dcpl")
    _dxpl = _OfH5py("_dxpl")
    _filters = _OfH5py("_filters")

    def __init__(self, dataset: Any, file: File | None = None) -> None:
        self._adopt(dataset if isinstance(dataset, h5py.Dataset) else h5py.Dataset(dataset), file)
        # h5netcdf asks an object for the module of its class.
        self.__module__ = h5py.Dataset.__module__
        self._reader: DatasetReader | None = None

    @classmethod
    def _opened(cls, identifier: Any, file: File) -> Dataset:
        """Return a dataset of a file that is open only for reading.

        It lacks what h5py makes for its own methods, until one of them asks for it.
        """
        made = cls.__new__(cls)
        made._id, made._readonly, made._cache_props = identifier, True, {}
        made._file, made._reader = file, None
        made.__module__ = h5py.Dataset.__module__
        return made

    @property
    def h5py(self) -> Any:
        """h5py's own object, whose methods are all h5py's."""
        if self._h5py is None:
            made = h5py.Dataset(self._id, readonly=self._readonly)
            made.__dict__.update(self.__dict__)
            self._h5py = made
        return self._h5py

    def __getitem__(self, selection: Any) -> Any:
        """Read selected elements to host memory: see :func:`penstock.read`."""
        reader = self._reader or self._dataset_reader()
        found, is_filled = reader.read(self, selection)
        if is_filled:
            return found
        return reading.read_new(self, reader, selection, found)

    def __setitem__(self, selection: Any, array: Any) -> None:
        """Write selected elements from an array in any memory: see :func:`penstock.write`."""
        self.write(array, selection)

    def __iter__(self) -> Iterator[Any]:
        """Read along the first dimension, several indices at a time if the file cannot change."""
        if not self.shape:
            raise TypeError("a dataset without dimensions cannot be iterated over")
        step = rows_at_a_time(self)
        for start in range(0, len(self), step):
            try:
                rows = self[start : start + step]
            except Exception:  # one row after the other, so that its own raises it
                rows = map(self.__getitem__, range(start, min(start + step, len(self))))
            for row in rows:
                # A copy, because a row that is kept would keep the memory of all of them.
                yield row.copy() if isinstance(row, (np.ndarray, np.void)) else row

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        _refuse_no_copy(self, copy)
        if self.shape is None:
            raise TypeError("a dataset without data cannot become an array")
        source = self if dtype is None else self.astype(dtype)
        return np.asarray(source[()], self.dtype.base if dtype is None else dtype)

    def astype(self, dtype: Any) -> Dataset | View:
        """Return a view that reads the elements as another type.

        >>> x = dataset.astype("f4")[0:10]
        """
        wanted = np.dtype(dtype)
        if wanted == self.dtype:
            return self
        kinds = {wanted.kind, self.dtype.base.kind}
        # HDF5 may convert narrow integers wrongly when h5py asks for it.
        is_narrow = memory_types.has_narrow_integers(self.id.get_type())
        if kinds <= set("iuf") or is_narrow:
            return View(self, wanted, lambda selection: self.read(selection, dtype=wanted))
        return self._view(wanted, self.h5py.astype(wanted))  # which HDF5 may refuse to convert

    def asstr(self, encoding: str | None = None, errors: str = "strict") -> View:
        """Return a view that reads strings as ``str``.

        >>> names = dataset.asstr()[:]
        """
        return self._view(object, self.h5py.asstr(encoding, errors))

    def fields(self, names: str | Iterable[str]) -> View:
        """Return a view that reads some fields of structures.

        >>> points = dataset.fields(["x", "y"])[:]
        """
        chosen = (names,) if isinstance(names, str) else tuple(names)
        view = self.h5py.fields(names if isinstance(names, str) else chosen)  # checks the names
        if not chosen:
            return self._view(np.dtype([]), view)
        dtype = selections.field_dtype(self.dtype, chosen)
        is_structure = not isinstance(names, str) and len(chosen) == 1
        # A value that is itself an array cannot be distinguished from an array of values.
        if is_structure and (dtype.hasobject or self.shape is None):
            return self._view(np.dtype([(chosen[0], dtype)]), view)

        def read(selection: Any) -> Any:
            parts = selection if isinstance(selection, tuple) else (selection,)
            found = self.read((*parts, *chosen))
            return _structure_of(chosen[0], dtype, found) if is_structure else found

        return View(self, np.dtype([(chosen[0], dtype)]) if is_structure else dtype, read)

    def _view(self, dtype: Any, view: Any) -> View:
        """Return a view that reads by a view of h5py."""

        def read(selection: Any) -> Any:
            selection, reorder = selections.readable(self, selection)
            with lock():
                wait_for_dataset(self, request.READ)
                selections.refuse_misread(self, selection)
                try:
                    value = view[selection]
                except OSError as error:
                    explain(self, error)
                    raise
            memory_types.correct_lists(value, np.dtype(dtype))
            return value if reorder is None else reorder(np.asarray(value))

        return View(self, dtype, read)

    def read(
        self,
        selection: Any = ALL,
        *,
        out: Any = None,
        device: Device = None,
        dtype: Any = None,
        stream: Any = None,
        like: Library | None = None,
        pin: bool = False,
        cf: bool | Decoding = False,
        **options: Unpack[OptionKeys],
    ) -> Any:
        """Read the dataset, or a part of it: see :func:`penstock.read`.

        >>> x = f["group/rho"].read(np.s_[0:10], device="cuda")
        """
        device = place(device, like, pin, out)
        reader = self._reader or self._dataset_reader()
        return reading.read_placed(
            self, reader, selection, out, device, dtype, stream, options, cf=cf
        )

    def _dataset_reader(self) -> DatasetReader:
        self._reader = DatasetReader.of(self)
        return self._reader

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
        writing.write(self, array, selection, stream=stream, **options)

    def read_async(
        self,
        selection: Any = (),
        *,
        out: Any = None,
        device: Device = None,
        dtype: Any = None,
        stream: Any = None,
        like: Library | None = None,
        pin: bool = False,
        cf: bool | Decoding = False,
        **options: Unpack[OptionKeys],
    ) -> Request[Any]:
        """Start to read the dataset, or a part of it: see :func:`penstock.read_async`.

        >>> r = f["group/rho"].read_async(device="cuda")
        >>> x = r.wait()      # or, in asyncio: x = await r
        """
        device = place(device, like, pin, out)
        reader = self._reader or self._dataset_reader()
        return reading.start(self, reader, selection, out, device, dtype, stream, options, cf=cf)

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
        return writing.write_async(self, array, selection, stream=stream, **options)

    def read_direct(self, dest: Any, source_sel: Any = None, dest_sel: Any = None) -> None:
        """Read into a part of an array, by default the whole of it, as ``h5py.Dataset`` does.

        Args:
            dest: The array.
            source_sel: The elements to read, an index such as ``np.s_[0:10]``.
            dest_sel: Where they go in ``dest``.
        """
        if self.shape is None:
            raise TypeError("a dataset without data cannot fill an array")
        chosen = () if source_sel is None else source_sel
        # An array without dimensions has no part, but a copy of its element.
        is_all = dest_sel is None or (type(dest_sel) is tuple and not dest_sel)
        part = dest if is_all else _part(dest, dest_sel)
        is_for_us = part is not None and not _is_of_objects(dest)
        if is_for_us and tuple(part.shape) == self._shape_of(chosen):
            self.read(chosen, out=part)
            return
        # h5py repeats elements by an offset of a dataspace, which HDF5 (2.0.0) ignores for virtual
        # datasets, and has HDF5 convert narrow integers wrongly.
        if self.is_virtual or memory_types.has_narrow_integers(self.id.get_type()):
            is_plain = dest.dtype.kind in "biufcV" and not dest.dtype.hasobject
            wanted = dest.dtype if is_plain else None
            if is_plain:
                stored = selections.stored_type(self, chosen).base
                by_h5py.refuse_more_fields(stored, element_type(wanted))
            found = self.read(chosen, dtype=wanted)
            dest[() if dest_sel is None else dest_sel] = found
            return
        # Only dataspaces can broadcast, or fill elements that no view consists of.
        with lock():
            wait_for_dataset(self, request.READ)
            self.h5py.read_direct(dest, source_sel, dest_sel)

    def _shape_of(self, index: Any) -> tuple[int, ...]:
        """Return the shape of selected elements, in which those of an array type are counted."""
        inner: tuple[int, ...] = self.dtype.shape
        if not self.shape:
            return inner
        indices, names = selections.split(index)
        if names:
            return ()
        return selections.select(self, self.shape, indices).shape + inner

    def write_direct(self, source: Any, source_sel: Any = None, dest_sel: Any = None) -> None:
        """Write from a part of an array, by default the whole of it, as ``h5py.Dataset`` does.

        Args:
            source: The array.
            source_sel: The elements to write, an index such as ``np.s_[0:10]``.
            dest_sel: Where they go in the dataset.
        """
        if self.shape is None:
            raise TypeError("a dataset without data cannot be written to")
        part = source if source_sel is None else source[source_sel]
        self.write(part, () if dest_sel is None else dest_sel)

    def iter_chunks(self, selection: Any = None) -> Iterator[tuple[slice, ...]]:
        """Yield the index of each chunk, or of its part within a selection of slices."""
        with creation_properties(self) as known:
            chunks: Iterator[tuple[slice, ...]] = known.iter_chunks(selection)
        return chunks

    def refresh(self) -> None:
        """Reload the metadata of the dataset, to which a SWMR writer may have added elements."""
        self._reader = None
        drop(self)
        self._h5py = None
        super().refresh()
        with lock():
            lib.penstock_hdf5_forget(self.id.id)  # fails in a forked child, which keeps nothing

    def flush(self) -> None:
        """Wait for the pending requests of the dataset, and make HDF5 write its buffers.

        With the option ``durable``, what HDF5 has written of the whole file is then on the medium,
        as after :meth:`File.flush`.
        """
        with lock():
            wait_for_dataset(self, request.WRITE)
            super().flush()
            make_durable(self)

    def resize(self, size: Any, axis: SupportsIndex | None = None) -> None:
        """Change the lengths of the dataset as ``h5py.Dataset.resize`` does.

        This first waits for the pending requests of the dataset.
        """
        with lock():
            wait_for_dataset(self, request.WRITE)
            super().resize(size, axis)
            dropped.watch(self)

    def blocks(
        self,
        shape: blocks.SlabShape,
        **keys: Unpack[BlockKeys],
    ) -> blocks.Blocks:
        """Read the dataset slab by slab, while reads of the next slabs are pending.

        The dataset can thus be larger than memory. Closing the iterator cancels the pending reads.

        Args:
            shape: Lengths of a slab. A length that is ``None`` or left out is that of the whole
                dimension. The last slabs of a dimension may be smaller.
            prefetch: The number of reads that are pending while a slab is used; 2 by default.
            device: Where the slabs go, as for :func:`penstock.load`.
            dtype: Convert the elements to this type.
            reuse: Fill arrays again. Each is then valid only until the iterator is advanced.
            like: The library of the slabs, as for :func:`penstock.load`.
            pin: Whether slabs in host memory are page-locked, as there.
            cf: Whether packed and missing values are decoded, as for :func:`penstock.read`.
            **keys: The arguments above from ``prefetch`` on, and those of
                :class:`penstock.OptionKeys`.

        Returns:
            An iterator, whose ``len`` is the number of slabs. It yields the index of each slab in
            the dataset, a tuple of slices, and the array.

        >>> for index, rho in f["group/rho"].blocks(64, device="cuda"):
        ...     total += rho.sum()
        """
        return blocks.blocks(self, shape, **keys)


class View:
    """A dataset whose elements are converted when they are read, as h5py's views are.

    Args:
        dataset: The dataset.
        dtype: The type of the converted elements.
        read: Reads and converts the elements of a selection.
    """

    def __init__(self, dataset: Dataset, dtype: Any, read: Callable[[Any], Any]) -> None:
        self._dataset = dataset
        self._dtype: np.dtype[Any] = np.dtype(dtype)
        self._read = read

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the converted elements."""
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Lengths of the dimensions; ``None`` for a null dataspace."""
        return self._dataset.shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self._dataset.ndim

    @property
    def size(self) -> int | None:
        """The number of elements; ``None`` for a null dataspace."""
        return self._dataset.size

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, selection: Any) -> Any:
        return self._read(selection)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        _refuse_no_copy(self, copy)
        return np.asarray(self._read(()), self._dtype if dtype is None else dtype)

    def __repr__(self) -> str:
        return f"<penstock view of {self._dataset!r} as {self._dtype}>"


def _refuse_no_copy(array: object, copy: bool | None) -> None:
    """Raise the error that NumPy expects where a copy is refused and cannot be avoided."""
    if copy is False:
        raise ValueError(
            f"a {type(array).__name__} is read from a file: memory allocation cannot be avoided"
        )


def _structure_of(name: str, dtype: np.dtype[Any], values: Any) -> Any:
    """Return structures of one field of that type, which has the values."""
    shape = np.shape(values)
    made = np.empty(shape[: len(shape) - dtype.ndim], np.dtype([(name, dtype)]))
    made[name] = values
    return made[()]


def rows_at_a_time(dataset: Any) -> int:
    """Return how many indices of the first dimension an iteration reads at a time.

    It is 1 if another writer may change elements during the iteration: in a file that is open for
    writing or that a SWMR writer extends.
    """
    if is_writable(dataset) or dataset.file.swmr_mode:
        return 1
    row: int = max(math.prod(dataset.shape[1:]) * dataset.dtype.itemsize, 1)
    count = max(READ_BYTES // row, 1)
    chunks = creation_property(dataset, "chunks")
    chunk: int = chunks[0] if chunks else 1
    if chunk * row > CHUNK_BYTES:
        return count
    return -(-count // chunk) * chunk


def _is_of_objects(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.hasobject


def _part(array: Any, index: Any) -> Any:
    """Return the view of selected elements of an array; ``None`` if the index makes a copy."""
    parts = index if isinstance(index, tuple) else (index,)
    is_basic = all(part is Ellipsis or isinstance(part, slice) for part in parts)
    return array[index] if is_basic else None
