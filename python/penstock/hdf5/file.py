"""HDF5 files whose datasets read into and write from any array."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock import request
from penstock._options import OptionKeys
from penstock.errors import Error
from penstock.hdf5 import blocks as hdf5_blocks
from penstock.hdf5 import by_h5py
from penstock.hdf5 import connector as hdf5_connector
from penstock.hdf5 import create as hdf5_create
from penstock.hdf5 import submit as hdf5_native
from penstock.hdf5 import transfers as hdf5
from penstock.hdf5.library import lock
from penstock.placement import Device
from penstock.request import Request

if TYPE_CHECKING:
    from typing_extensions import Unpack


ALL: tuple[()] = ()
"""The selection of a whole dataset."""


class Dataset:
    """A dataset of a :class:`File`. Everything else about it is at :attr:`h5py`."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._quickly: Callable[[], Any] | None = None
        self._is_asked = False

    @property
    def h5py(self) -> Any:
        """The ``h5py.Dataset`` underneath."""
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
        """The data type that h5py reads it as."""
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
            if not self._is_asked:
                self._quickly, self._is_asked = by_h5py.quick_reader(self._dataset), True
            if self._quickly is not None:
                return self._quickly()
        return hdf5.read(
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
        hdf5.write(self._dataset, array, selection, stream=stream, **options)

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
        return hdf5.read_async(
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
        return hdf5.write_async(self._dataset, array, selection, stream=stream, **options)

    def resize(self, size: int | tuple[int, ...], axis: int | None = None) -> None:
        """Change the lengths of the dataset as ``h5py.Dataset.resize`` does.

        The requests under way on it are finished before.
        """
        with lock():
            hdf5_native.settle(self._dataset, request.WRITE)
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
        """Read the dataset slab by slab, with the next slabs on their way meanwhile.

        So a dataset can be larger than memory. Closing the iterator stops what is on its way.

        Args:
            shape: Lengths of a slab; ``None``, and dimensions that are left out, mean the whole
                dimension. Slabs at the edges are smaller.
            prefetch: How many slabs are on their way while one is used.
            device: Where the slabs go, as for :func:`penstock.load`.
            dtype: Convert the elements to this type.
            reuse: Fill arrays again: each is then valid only until the next one is asked for.
            **options: See :class:`penstock.OptionKeys`.

        Yields:
            The index of the slab in the dataset, a tuple of slices, and the array.

        >>> for index, rho in f["group/rho"].blocks(64, device="cuda"):
        ...     total += rho.sum()
        """
        return hdf5_blocks.blocks(
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


class Group:
    """A group: ``group["name"]`` is a :class:`Dataset`, a :class:`Group` or h5py's object."""

    def __init__(self, group: Any) -> None:
        self._group = group

    @property
    def h5py(self) -> Any:
        """The ``h5py.Group`` underneath."""
        return self._group

    @property
    def name(self) -> str:
        """The path within the file."""
        return str(self._group.name)

    def __getitem__(self, name: str) -> Any:
        import h5py

        found = self._group[name]
        if isinstance(found, h5py.Dataset):
            return Dataset(found)
        return Group(found) if isinstance(found, h5py.Group) else found

    def create(
        self,
        name: str | None,
        shape: int | tuple[int, ...] | None = None,
        dtype: Any = None,
        data: Any = None,
        *,
        stream: Any = None,
        **arguments: Any,
    ) -> Dataset:
        """Create a dataset, and write it if there are data.

        Args:
            name: The path within the group; groups on the way are made. ``None`` for no name.
            shape: Lengths of the dimensions; those of ``data`` by default.
            dtype: The type of the elements; that of ``data`` by default.
            data: Any array on the CPU or a GPU, or what ``h5py`` takes.
            stream: A CUDA stream whose queued work makes the data.
            **arguments: Further arguments of ``h5py.Group.create_dataset``: ``chunks``,
                ``compression``, ``compression_opts``, ``shuffle``, ``fletcher32``,
                ``scaleoffset``, ``fillvalue``, ``maxshape`` and so on.

        >>> f.create("group/rho", data=t, chunks=(64, 64), compression="gzip", shuffle=True)
        """
        made = hdf5_create.create(self._group, name, shape, dtype, data, stream, arguments)
        return Dataset(made)

    def __delitem__(self, name: str) -> None:
        """Remove a name from the group, after the requests of the file are finished."""
        hdf5_native.settle_file(self._group)
        del self._group[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._group)

    def __len__(self) -> int:
        return len(self._group)

    def __contains__(self, name: object) -> bool:
        return name in self._group

    def keys(self) -> Any:
        """The names in the group."""
        return self._group.keys()

    def __repr__(self) -> str:
        return f"<penstock.{type(self).__name__} {self._group!r}>"


class File(Group):
    """An HDF5 file. It takes what ``h5py.File`` takes, and raises what that raises.

    Args:
        name: The path.
        mode: ``"r"``, ``"r+"``, ``"w"``, ``"x"`` or ``"a"``. ``"w"`` waits for the requests
            that use a file of that name, as the source of a virtual dataset may.
        connector: ``"penstock_async"`` for that connector of HDF5's, above the driver of the file.
        connector_options: Its options, such as ``{"copy": "never"}``.
        **arguments: Further arguments of ``h5py.File``.

    >>> with ps.File("run.h5") as f:
    ...     x = f["group/rho"].read(device="cuda")
    ...     f.h5py.attrs["time"]
    """

    def __init__(
        self,
        name: str | os.PathLike[str],
        mode: str = "r",
        *,
        connector: str | None = None,
        connector_options: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> None:
        with lock():
            if mode == "w":
                hdf5_native.settle_path(name)
            super().__init__(
                hdf5_connector.open_file(name, mode, connector, connector_options, arguments)
            )

    def flush(self) -> None:
        """Wait for the requests of the file, and have HDF5 write what it holds in memory.

        Raises:
            Error: A write has failed, and nobody was told: nobody waited for its request.
        """
        hdf5_native.settle_file(self._group)
        self._group.flush()

    def close(self) -> None:
        """Wait for the requests of the file, and close it with all objects in it.

        Closing again does nothing.

        Raises:
            Error: As :meth:`flush`. The file is closed then, too.
        """
        try:
            if self._group:
                hdf5_native.settle_file(self._group)
        except Error as failure:
            try:
                self._group.close()
            except Exception as also:
                raise failure from also
            raise
        self._group.close()

    def __enter__(self) -> File:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
