"""Pickling of files by path, and of their objects by name.

Unpickling opens the file again, for reading. A file that is open for writing cannot be
pickled: HDF5 keeps parts of it in the memory of the process that writes. The exception is SWMR: a
writer's file is opened again as a reader.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.errors import IncompatibleError

if TYPE_CHECKING:
    from penstock.hdf5.file import File
    from penstock.hdf5.objects import Object

# Arguments of h5py.File that concern only a file that is created.
_CREATION = {
    "fs_persist",
    "fs_strategy",
    "fs_threshold",
    "track_order",
    "track_times",
    "userblock_size",
}


def of_object(item: Object) -> tuple[Any, ...]:
    """Return what ``__reduce__`` of a group or a dataset returns."""
    name = item.name if item else None
    if name is None:
        what = "without a name" if item else "that is closed"
        raise IncompatibleError(
            f"an object {what} cannot be pickled: it is found again by its name"
        )
    return _member, (item.file, name)


def of_file(
    file: File,
    connector: str | None,
    connector_options: Mapping[str, Any] | None,
    arguments: Mapping[str, Any] | None,
) -> tuple[Any, ...]:
    """Return what ``__reduce__`` of a file returns.

    Args:
        file: The file.
        connector: The connector that it was opened with, and its options.
        connector_options: See there.
        arguments: The arguments of ``h5py.File``; ``None`` if h5py opened the file.
    """
    if not file:
        raise IncompatibleError("a file that is closed cannot be pickled")
    path = file.filename
    if file.driver == "fileobj" or (file.driver == "core" and not os.path.exists(path)):
        raise _refusal(path, "it is in memory, which other processes cannot open", None)
    if file.mode != "r" and not file.swmr_mode:
        raise _refusal(
            path,
            "it is open for writing, and parts of it are in this process alone",
            'close it and open it with mode="r"',
        )
    if arguments is None and file.driver not in ("sec2", "stdio", "core"):
        raise _refusal(
            path,
            f"h5py opened it by the driver {file.driver}, with arguments that are not known",
            "open it by penstock.File",
        )
    kept = {key: value for key, value in (arguments or {}).items() if key not in _CREATION}
    kept.setdefault("driver", file.driver if file.driver in ("stdio", "core") else None)
    kept["swmr"] = file.swmr_mode
    if "://" not in path:
        path = os.path.abspath(path)
    return _open, (path, connector, connector_options, kept)


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
    from penstock.hdf5.file import File

    return File(path, "r", connector=connector, connector_options=connector_options, **arguments)


def _member(file: File, name: str) -> Any:
    return file[name]
