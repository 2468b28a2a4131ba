"""Datasets that read into and write from any array."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from penstock import request
from penstock._keys import BlockKeys
from penstock._native import lib
from penstock._options import OptionKeys
from penstock.hdf5 import (
    blocks,
    direct,
    dropped,
    lists,
    memory_types,
    pending,
    reading,
    varying,
    virtual,
    writing,
)
from penstock.hdf5 import selection as selections
from penstock.hdf5.cf import Decoding
from penstock.hdf5.library import (
    creation_properties,
    creation_property,
    explain,
    is_virtual,
    lock,
    make_durable,
)
from penstock.hdf5.objects import Object
from penstock.hdf5.quick import QuickReader, drop
from penstock.hdf5.rows import rows_at_a_time
from penstock.hdf5.views import View, refuse_no_copy, structure_of
from penstock.placement import Device, Library, place
from penstock.request import Request

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from penstock.hdf5.file import File


ALL: tuple[()] = ()
"""The selection of a whole dataset."""


class Dataset(Object):
    """A dataset of an HDF5 file, which does what an ``h5py.Dataset`` does.

    ``dataset[selection]`` is a NumPy array, or what h5py returns for scalars, strings and other
    objects. :meth:`read` puts the elements into the memory of a GPU or into a given array.

    Args:
        dataset: An open ``h5py.Dataset``, or its identifier.
        file: The file that it was reached from.
    """

    def __init__(self, dataset: Any, file: File | None = None) -> None:
        import h5py

        known = isinstance(dataset, (Dataset, h5py.Dataset))
        super().__init__(dataset if known else h5py.Dataset(dataset), file)
        dropped.adopt(self._h5py, file)
        self._quick: QuickReader | None = None

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Lengths of the dimensions; ``None`` for a null dataspace. Setting it resizes."""
        shape: tuple[int, ...] | None = self._h5py.shape
        return shape

    @shape.setter
    def shape(self, shape: tuple[int, ...]) -> None:
        self.resize(shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The data type as which h5py reads it."""
        dtype: np.dtype[Any] = self._h5py.dtype
        return dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return int(self._h5py.ndim)

    @property
    def size(self) -> int | None:
        """The number of elements; ``None`` for a null dataspace."""
        size: int | None = self._h5py.size
        return size

    @property
    def nbytes(self) -> int:
        """Bytes of the elements in memory, as h5py reads them."""
        return int(self._h5py.nbytes)

    @property
    def maxshape(self) -> tuple[int | None, ...] | None:
        """Lengths to which the dimensions can be resized; ``None`` for no limit."""
        maxshape: tuple[int | None, ...] | None = self._h5py.maxshape
        return maxshape

    @property
    def chunks(self) -> tuple[int, ...] | None:
        """Lengths of a chunk; ``None`` if the dataset is not chunked."""
        chunks: tuple[int, ...] | None = creation_property(self._h5py, "chunks")
        return chunks

    @property
    def compression(self) -> str | None:
        """h5py's name of the compression filter, such as ``"gzip"``."""
        compression: str | None = creation_property(self._h5py, "compression")
        return compression

    @property
    def compression_opts(self) -> Any:
        """The settings of the compression filter, such as the level of gzip."""
        return creation_property(self._h5py, "compression_opts")

    @property
    def filter_ids(self) -> tuple[int, ...]:
        """HDF5's numbers of the filters, in the order in which a write applies them."""
        numbers: tuple[int, ...] = creation_property(self._h5py, "filter_ids")
        return numbers

    @property
    def filter_names(self) -> tuple[str, ...]:
        """The names of the filters, in the same order."""
        names: tuple[str, ...] = creation_property(self._h5py, "filter_names")
        return names

    @property
    def shuffle(self) -> bool:
        """Whether the bytes of chunks are shuffled."""
        return bool(creation_property(self._h5py, "shuffle"))

    @property
    def fletcher32(self) -> bool:
        """Whether chunks have a checksum."""
        return bool(creation_property(self._h5py, "fletcher32"))

    @property
    def scaleoffset(self) -> int | None:
        """The setting of the scale-offset filter; ``None`` without it."""
        scaleoffset: int | None = creation_property(self._h5py, "scaleoffset")
        return scaleoffset

    @property
    def fillvalue(self) -> Any:
        """The value of elements that were never written."""
        return creation_property(self._h5py, "fillvalue")

    @property
    def external(self) -> list[tuple[str, int, int]] | None:
        """Name, offset and bytes of each external file; ``None`` if there is none."""
        external: list[tuple[str, int, int]] | None = creation_property(self._h5py, "external")
        return external

    @property
    def is_virtual(self) -> bool:
        """Whether the dataset consists of parts of other datasets."""
        return is_virtual(self._h5py)

    def virtual_sources(self) -> Any:
        """Return the parts of a virtual dataset, as h5py describes them."""
        with creation_properties(self._h5py) as known:
            return known.virtual_sources()

    @property
    def dims(self) -> Any:
        """Labels and scales of the dimensions, h5py's ``DimensionManager``."""
        return self._h5py.dims

    @property
    def is_scale(self) -> bool:
        """Whether the dataset is a scale of a dimension."""
        return bool(self._h5py.is_scale)

    def make_scale(self, name: str = "") -> None:
        """Make the dataset a scale, to be attached to a dimension of another one."""
        self._h5py.make_scale(name)

    def __getitem__(self, selection: Any) -> Any:
        """Read selected elements to host memory: see :func:`penstock.read`."""
        quick = self._quick or self._quick_reader()
        found, is_filled = quick.read(self._h5py, selection)
        if is_filled:
            return found
        return reading.read_new(self._h5py, selection, found)

    def __setitem__(self, selection: Any, array: Any) -> None:
        """Write selected elements from an array in any memory: see :func:`penstock.write`."""
        self.write(array, selection)

    def __len__(self) -> int:
        return len(self._h5py)

    def len(self) -> int:
        """The length of the first dimension."""
        return int(self._h5py.len())

    def __iter__(self) -> Iterator[Any]:
        """Read along the first dimension, several indices at a time if the file cannot change."""
        if not self.shape:
            raise TypeError("a dataset without dimensions cannot be iterated over")
        step = rows_at_a_time(self._h5py)
        for start in range(0, len(self), step):
            try:
                rows = self[start : start + step]
            except Exception:  # one row after the other, so that its own raises it
                rows = map(self.__getitem__, range(start, min(start + step, len(self))))
            for row in rows:
                # A copy, because a row that is kept would keep the memory of all of them.
                yield row.copy() if isinstance(row, (np.ndarray, np.void)) else row

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        refuse_no_copy(self, copy)
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
        return self._view(wanted, self._h5py.astype(wanted))  # which HDF5 may refuse to convert

    def asstr(self, encoding: str | None = None, errors: str = "strict") -> View:
        """Return a view that reads strings as ``str``.

        >>> names = dataset.asstr()[:]
        """
        return self._view(object, self._h5py.asstr(encoding, errors))

    def fields(self, names: str | Iterable[str]) -> View:
        """Return a view that reads some fields of structures.

        >>> points = dataset.fields(["x", "y"])[:]
        """
        chosen = (names,) if isinstance(names, str) else tuple(names)
        view = self._h5py.fields(names if isinstance(names, str) else chosen)  # checks the names
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
            return structure_of(chosen[0], dtype, found) if is_structure else found

        return View(self, np.dtype([(chosen[0], dtype)]) if is_structure else dtype, read)

    def _view(self, dtype: Any, view: Any) -> View:
        """Return a view that reads by a view of h5py."""

        def read(selection: Any) -> Any:
            selection, reorder = lists.readable(self._h5py, selection)
            with lock():
                pending.wait_for_dataset(self._h5py, request.READ)
                virtual.refuse_misread(self._h5py, selection)
                try:
                    value = view[selection]
                except OSError as error:
                    explain(self._h5py, error)
                    raise
            varying.correct(value, np.dtype(dtype))
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
        quick = self._quick or self._quick_reader()
        return reading.read_placed(
            self._h5py, quick, selection, out, device, dtype, stream, options, cf=cf
        )

    def _quick_reader(self) -> QuickReader:
        self._quick = QuickReader.of(self._h5py)
        return self._quick

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
        writing.write(self._h5py, array, selection, stream=stream, **options)

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
        quick = self._quick or self._quick_reader()
        return reading.start(
            self._h5py, quick, selection, out, device, dtype, stream, options, cf=cf
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
        return writing.write_async(self._h5py, array, selection, stream=stream, **options)

    def read_direct(self, dest: Any, source_sel: Any = None, dest_sel: Any = None) -> None:
        """Read into a part of an array, by default the whole of it, as ``h5py.Dataset`` does.

        Args:
            dest: The array.
            source_sel: The elements to read, an index such as ``np.s_[0:10]``.
            dest_sel: Where they go in ``dest``.
        """
        direct.read(self._h5py, dest, source_sel, dest_sel)

    def write_direct(self, source: Any, source_sel: Any = None, dest_sel: Any = None) -> None:
        """Write from a part of an array, by default the whole of it, as ``h5py.Dataset`` does.

        Args:
            source: The array.
            source_sel: The elements to write, an index such as ``np.s_[0:10]``.
            dest_sel: Where they go in the dataset.
        """
        direct.write(self._h5py, source, source_sel, dest_sel)

    def iter_chunks(self, selection: Any = None) -> Iterator[tuple[slice, ...]]:
        """Yield the index of each chunk, or of its part within a selection of slices."""
        with creation_properties(self._h5py) as known:
            chunks: Iterator[tuple[slice, ...]] = known.iter_chunks(selection)
        return chunks

    def refresh(self) -> None:
        """Reload the metadata of the dataset, to which a SWMR writer may have added elements."""
        self._quick = None
        drop(self._h5py)
        self._h5py.refresh()
        with lock():
            lib.penstock_hdf5_forget(
                self._h5py.id.id
            )  # fails in a forked child, which keeps nothing

    def flush(self) -> None:
        """Wait for the pending requests of the dataset, and make HDF5 write its buffers.

        With the option ``durable``, what HDF5 has written of the whole file is then on the medium,
        as after :meth:`File.flush`.
        """
        with lock():
            pending.wait_for_dataset(self._h5py, request.WRITE)
            self._h5py.flush()
            make_durable(self._h5py)

    def resize(self, size: Any, axis: SupportsIndex | None = None) -> None:
        """Change the lengths of the dataset as ``h5py.Dataset.resize`` does.

        This first waits for the pending requests of the dataset.
        """
        with lock():
            pending.wait_for_dataset(self._h5py, request.WRITE)
            self._h5py.resize(size, axis)
            dropped.watch(self._h5py)

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
        return blocks.blocks(self._h5py, shape, **keys)
