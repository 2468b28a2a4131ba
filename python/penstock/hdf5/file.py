"""HDF5 files, which are opened, closed and pickled."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import h5py

from penstock._native import lib
from penstock.errors import Error, IncompatibleError, InvalidError
from penstock.hdf5 import dropped
from penstock.hdf5.group import Group
from penstock.hdf5.library import (
    lock,
    make_durable,
    wait_for_file,
    wait_for_path,
)
from penstock.hdf5.objects import Object
from penstock.hdf5.plugins import open_file

# Arguments of h5py.File that concern only a file that is created.
_CREATION = {
    "fs_persist",
    "fs_strategy",
    "fs_threshold",
    "track_order",
    "track_times",
    "userblock_size",
}


class File(Group, h5py.File):  # type: ignore[misc]
    """An HDF5 file: an ``h5py.File`` whose datasets are those of Penstock.

    A file that is open for reading can be pickled, and so can its groups and datasets. Unpickling
    opens the path again, for reading, with the same arguments. A file that is open for writing
    cannot be pickled, because HDF5 keeps parts of it in the memory of the process that writes; that
    of a SWMR writer is opened again as a reader. A file in memory cannot be pickled.

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

    _class = h5py.File
    filename: str
    mode: str
    driver: str

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
        for key, value in (("driver", driver), ("libver", libver)):
            if value is not None:
                arguments[key] = value
        is_open = isinstance(name, h5py.File)
        kept = None if is_open else dict(arguments)
        if not is_open:
            with lock():
                if mode == "w":
                    wait_for_path(name)
                opened = open_file(name, mode, connector, connector_options, arguments)
        elif mode == "r" and connector is None and not connector_options and not arguments:
            dropped.last_reported(name)  # which all objects for it share
            opened = name
        else:
            raise InvalidError(
                f"{name.filename} is open already, so mode and other arguments change nothing",
                remedy="leave them out",
            )
        self._adopt(opened, None)
        self._connector = connector
        self._connector_options = connector_options
        self._arguments = kept
        self._closes = not is_open
        self._reads_only = mode == "r"
        self._is_closed = False

    @classmethod
    def in_memory(cls, file_image: bytes | None = None, **arguments: Any) -> File:
        """Make a file in memory, with the arguments of ``h5py.File.in_memory``."""
        return cls._of(h5py.File.in_memory(file_image, **arguments))

    @classmethod
    def _of(cls, file: Any) -> File:
        """Return an object for an open ``h5py.File`` whose :meth:`close` closes it."""
        made = cls(file)
        made._closes = True
        made._reads_only = False
        return made

    @property
    def file(self) -> File:
        """This file."""
        return self

    @property
    def swmr_mode(self) -> bool:
        """Whether one process may write while others read. Setting it to true starts that."""
        return bool(h5py.File.swmr_mode.__get__(self))

    @swmr_mode.setter
    def swmr_mode(self, value: bool) -> None:
        wait_for_file(self)
        h5py.File.swmr_mode.__set__(self, value)

    def flush(self) -> None:
        """Wait for the pending requests of the file, and make HDF5 write its buffers to the file.

        With the option ``durable``, what HDF5 has written is then on the medium. This also waits
        for the pending requests of datasets that external links of the file led to.

        Raises:
            Error: A write failed, and no caller has waited for its request; or HDF5 could not write
                elements of a dataset that was dropped.
        """
        self._wait()
        super().flush()
        make_durable(self)

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
            if self:
                self._wait()
                if self._closes and self.mode != "r":
                    make_durable(self)
        except Error as failure:
            try:
                self._close()
            except Exception as also:
                raise failure from also
            raise
        self._close()

    def _wait(self) -> None:
        dropped.forget_requests(self)
        wait_for_file(self)
        dropped.wait_for_linked_files(self)
        dropped.report(self)

    def _close(self) -> None:
        if not self._closes:
            return
        # HDF5 2.0 crashes on any call for a file whose close has failed.
        self._is_closed = True
        # Files that may change are not cached. In a forked child the call fails.
        if self._reads_only and self:
            with lock():
                lib.penstock_hdf5_forget(self.id.id)
        try:
            super().close()
        finally:
            dropped.release_closed()

    def _root(self) -> File:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()  # h5py would hold its lock meanwhile

    def __reduce__(self) -> tuple[Any, ...]:
        if not self:
            raise IncompatibleError("a file that is closed cannot be pickled")
        path = self.filename
        if self.driver == "fileobj" or (self.driver == "core" and not os.path.exists(path)):
            raise _refusal(path, "it is in memory, which other processes cannot open", None)
        if self.mode != "r" and not self.swmr_mode:
            raise _refusal(
                path,
                "it is open for writing, and parts of it are in this process alone",
                'close it and open it with mode="r"',
            )
        if self._arguments is None and self.driver not in ("sec2", "stdio", "core"):
            raise _refusal(
                path,
                f"h5py opened it by the driver {self.driver}, with arguments that are not known",
                "open it by penstock.File",
            )
        given = self._arguments or {}
        kept = {key: value for key, value in given.items() if key not in _CREATION}
        kept.setdefault("driver", self.driver if self.driver in ("stdio", "core") else None)
        kept["swmr"] = self.swmr_mode
        if "://" not in path:
            path = os.path.abspath(path)
        return _open, (path, self._connector, self._connector_options, kept)


Object._file_class = File


def _refusal(path: str, reason: str, remedy: str | None) -> IncompatibleError:
    return IncompatibleError(
        f"{path} and its objects cannot be pickled: {reason}", path=path, remedy=remedy
    )


def _open(
    path: str,
    connector: str | None,
    connector_options: Mapping[str, Any] | None,
    arguments: dict[str, Any],
) -> File:
    return File(path, "r", connector=connector, connector_options=connector_options, **arguments)
