"""HDF5 files whose datasets read into and write from any array."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock import hdf5, hdf5_raw
from penstock._options import OptionKeys
from penstock.placement import Device

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Dataset:
    """A dataset of a :class:`File`. Everything else about it is at :attr:`h5py`."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

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
        selection: Any = (),
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
        mode: ``"r"``, ``"r+"``, ``"w"``, ``"x"`` or ``"a"``.
        **arguments: Further arguments of ``h5py.File``.

    >>> with ps.File("run.h5") as f:
    ...     x = f["group/rho"].read(device="cuda")
    ...     f.h5py.attrs["time"]
    """

    def __init__(self, name: str | os.PathLike[str], mode: str = "r", **arguments: Any) -> None:
        import h5py

        super().__init__(h5py.File(name, mode, **arguments))
        # Keeps the file that raw transfers use open from one dataset to the next.
        self._raw: object = None

    def __getitem__(self, name: str) -> Any:
        if self._raw is None:
            self._raw = hdf5_raw.native_file(self._group.id)
        return super().__getitem__(name)

    def close(self) -> None:
        """Close the file and all objects in it. Closing again does nothing."""
        self._raw = None
        self._group.close()

    def __enter__(self) -> File:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
