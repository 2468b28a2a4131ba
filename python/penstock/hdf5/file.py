"""HDF5 files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from penstock._native import lib
from penstock.errors import Error, IncompatibleError, InvalidError
from penstock.hdf5 import dropped, pending, pickling
from penstock.hdf5.connector import open_file
from penstock.hdf5.group import Group
from penstock.hdf5.library import lock, make_durable
from penstock.hdf5.objects import open_readonly, unwrap, wrap


class File(Group):
    """An HDF5 file, with the arguments, the methods and the errors of ``h5py.File``.

    A file that is open for reading can be pickled, and so can its groups and datasets. Unpickling
    opens the path again, with the same arguments. A file that is open for writing, or
    in memory, cannot be pickled; that of a SWMR writer is opened again as a reader.

    Args:
        name: The path, or what else ``h5py.File`` takes. For an open ``h5py.File``, the new object
            uses that one, and does not close it: :meth:`close` waits for the pending requests.
        mode: ``"r"``, ``"r+"``, ``"w"``, ``"x"`` or ``"a"``. ``"w"`` first waits for the pending
            requests of a file of that name, which may hold the source of a virtual dataset.
        driver: h5py's name of the file driver.
        libver: The versions of the format, as for ``h5py.File``.
        connector: ``"penstock_async"`` for that HDF5 connector, above the driver of the file.
        connector_options: The options of the connector, such as ``{"copy": "never"}``.
        **arguments: Further arguments of ``h5py.File``.

    >>> with ps.File("run.h5") as f:
    ...     x = f["group/rho"].read(device="cuda")
    ...     f.attrs["time"]
    """

    def __init__(
        self,
        name: Any,
        mode: str = "r",
        driver: str | None = None,
        libver: Any = None,
        *,
        connector: str | None = None,
        connector_options: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> None:
        import h5py

        for key, value in (("driver", driver), ("libver", libver)):
            if value is not None:
                arguments[key] = value
        self._connector = connector
        self._connector_options = connector_options
        self._arguments: dict[str, Any] | None = None
        self._closes = True
        self._reads_only = mode == "r"
        self._is_readonly: bool | None = None
        self._is_closed = False
        name = unwrap(name)
        if isinstance(name, h5py.File):
            if mode != "r" or connector is not None or connector_options or arguments:
                raise InvalidError(
                    f"{name.filename} is open already, so mode and other arguments change nothing",
                    remedy="leave them out",
                )
            super().__init__(name)
            self._closes = False
            return
        self._arguments = dict(arguments)
        with lock():
            if mode == "w":
                pending.wait_for_path(name)
            super().__init__(open_file(name, mode, connector, connector_options, arguments))

    @classmethod
    def in_memory(cls, file_image: bytes | None = None, **arguments: Any) -> File:
        """Make a file in memory, with the arguments of ``h5py.File.in_memory``."""
        import h5py

        return cls._of(h5py.File.in_memory(file_image, **arguments))

    @classmethod
    def _of(cls, file: Any) -> File:
        """Return an object for an open ``h5py.File`` whose :meth:`close` closes it."""
        made = cls(file)
        made._closes = True
        made._reads_only = False
        return made

    def __getitem__(self, name: Any) -> Any:
        """Open an object by its name or by a reference to it."""
        found = None
        if type(name) is str and name.isascii():
            if self._is_readonly is None:
                self._is_readonly = self.mode == "r"
            if self._is_readonly:
                found = open_readonly(self._h5py, name)
        return super().__getitem__(name) if found is None else wrap(found, self)

    @property
    def file(self) -> File:
        """This file."""
        return self

    @property
    def filename(self) -> str:
        """The path by which the file was opened."""
        return os.fsdecode(self._h5py.filename)

    @property
    def mode(self) -> str:
        """``"r"`` for a file that is open for reading, else ``"r+"``."""
        return str(self._h5py.mode)

    @property
    def driver(self) -> str:
        """h5py's name of the file driver."""
        return str(self._h5py.driver)

    @property
    def libver(self) -> Any:
        """The oldest and the newest version of the format that is written."""
        return self._h5py.libver

    @property
    def userblock_size(self) -> int:
        """Bytes before HDF5's part of the file."""
        return int(self._h5py.userblock_size)

    @property
    def meta_block_size(self) -> int:
        """Bytes that HDF5 allocates at a time for its own data."""
        return int(self._h5py.meta_block_size)

    @property
    def swmr_mode(self) -> bool:
        """Whether one process may write while others read. Setting it to true starts that."""
        return bool(self._h5py.swmr_mode)

    @swmr_mode.setter
    def swmr_mode(self, value: bool) -> None:
        pending.wait_for_file(self._h5py)
        self._h5py.swmr_mode = value

    def flush(self) -> None:
        """Wait for the pending requests of the file, and make HDF5 write its buffers to the file.

        With the option ``durable``, what HDF5 has written is then on the medium. This also waits
        for the pending requests of datasets that external links of the file led to.

        Raises:
            Error: A write failed, and no caller has waited for its request; or HDF5 could not write
                elements of a dataset that was dropped.
        """
        self._wait()
        self._h5py.flush()
        make_durable(self._h5py)

    def close(self) -> None:
        """Wait for the pending requests of the file, and close it with all objects in it.

        With the option ``durable``, the file is flushed to the medium first. A file that was open
        before is left open. A second call does nothing.

        Raises:
            Error: As :meth:`flush`. The file is closed nevertheless.
        """
        if self._is_closed:
            return
        try:
            if self._h5py:
                self._wait()
                if self._closes and self.mode != "r":
                    make_durable(self._h5py)
        except Error as failure:
            try:
                self._close()
            except Exception as also:
                raise failure from also
            raise
        self._close()

    def _wait(self) -> None:
        dropped.forget_requests(self._h5py)
        pending.wait_for_file(self._h5py)
        dropped.wait_for_linked_files(self._h5py)
        dropped.report(self._h5py)

    def _close(self) -> None:
        if not self._closes:
            return
        # HDF5 2.0 crashes on any call for a file whose close has failed.
        self._is_closed = True
        # Files that may change are not cached. In a forked child the call fails.
        if self._reads_only and self._h5py:
            with lock():
                lib.penstock_hdf5_forget(self._h5py.id.id)
        try:
            self._h5py.close()
        finally:
            dropped.release_closed()

    def _root(self) -> File:
        return self

    def __enter__(self) -> File:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __fspath__(self) -> str:
        """Raise an error that names :attr:`h5py`.

        Functions that test for the class ``h5py.File`` take any other object for a path.
        """
        raise IncompatibleError(
            "a penstock.File is neither a path nor derived from h5py.File",
            remedy="give file.h5py where an h5py.File is needed, or file.filename for a path",
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return pickling.of_file(self, self._connector, self._connector_options, self._arguments)
