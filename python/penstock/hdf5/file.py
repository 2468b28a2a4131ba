"""HDF5 files and their groups, whose datasets read into and write from any array."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.errors import Error
from penstock.hdf5 import create, pending
from penstock.hdf5.connector import open_file
from penstock.hdf5.dataset import Dataset
from penstock.hdf5.library import lock


class Group:
    """A group: ``group["name"]`` is a :class:`Dataset`, a :class:`Group` or h5py's object."""

    def __init__(self, group: Any) -> None:
        self._group = group

    @property
    def h5py(self) -> Any:
        """The ``h5py.Group``."""
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
            name: The path within the group; missing groups in it are created. ``None`` for no name.
            shape: Lengths of the dimensions; those of ``data`` by default.
            dtype: The type of the elements; that of ``data`` by default.
            data: Any array on the CPU or a GPU, or any value that ``h5py`` accepts.
            stream: A CUDA stream whose queued work makes the data.
            **arguments: Further arguments of ``h5py.Group.create_dataset``: ``chunks``,
                ``compression``, ``compression_opts``, ``shuffle``, ``fletcher32``,
                ``scaleoffset``, ``fillvalue``, ``maxshape`` and so on.

        >>> f.create("group/rho", data=t, chunks=(64, 64), compression="gzip", shuffle=True)
        """
        made = create.create(self._group, name, shape, dtype, data, stream, arguments)
        return Dataset(made)

    def __delitem__(self, name: str) -> None:
        """Wait for the pending requests of the file, and remove a name from the group."""
        pending.wait_for_file(self._group)
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
    """An HDF5 file, with the arguments and the errors of ``h5py.File``.

    Args:
        name: The path.
        mode: ``"r"``, ``"r+"``, ``"w"``, ``"x"`` or ``"a"``. ``"w"`` first waits for the pending
            requests of a file of that name, which may hold the source of a virtual dataset.
        connector: ``"penstock_async"`` for that HDF5 connector, above the driver of the file.
        connector_options: The options of the connector, such as ``{"copy": "never"}``.
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
                pending.wait_for_path(name)
            super().__init__(open_file(name, mode, connector, connector_options, arguments))

    def flush(self) -> None:
        """Wait for the pending requests of the file, and make HDF5 write its buffers to the file.

        Raises:
            Error: A write failed, and no caller has waited for its request.
        """
        pending.wait_for_file(self._group)
        self._group.flush()

    def close(self) -> None:
        """Wait for the pending requests of the file, and close it with all objects in it.

        A second call does nothing.

        Raises:
            Error: As :meth:`flush`. The file is closed nevertheless.
        """
        try:
            if self._group:
                pending.wait_for_file(self._group)
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
