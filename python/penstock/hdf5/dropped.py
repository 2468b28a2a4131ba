"""Datasets that the program drops before HDF5 has written their elements to the file.

HDF5 buffers elements that it is given, and writes them when the dataset is closed: when the last
reference to h5py's object is dropped, where no error can be raised. So HDF5 is made to write them
just before. If that fails, the error is raised when the :class:`penstock.File` is flushed or
closed. The errors of datasets that no such file has are HDF5's to report.
"""

from __future__ import annotations

import re
import weakref
from dataclasses import dataclass
from typing import Any

from penstock.errors import IOFailure
from penstock.hdf5.library import creation_property, lock


@dataclass
class _Unwritten:
    """A dropped ``h5py.Dataset`` whose elements HDF5 could not write.

    It stays open as long as its file: HDF5 (2.0.0) crashes after the close of a dataset has failed.
    """

    dataset: Any
    error: IOFailure
    is_reported: bool = False


_watched: dict[int, weakref.ref[Any]] = {}
"""References to h5py's identifiers of written datasets, by HDF5's numbers of the identifiers."""

_unwritten: list[_Unwritten] = []


def adopt(dataset: Any) -> None:
    """Note that a :class:`penstock.File` has an ``h5py.Dataset``."""
    dataset._is_penstocks = True


def watch_adopted(dataset: Any) -> None:
    """Note that HDF5 is given elements of an ``h5py.Dataset``, if a file of ours has it."""
    if hasattr(dataset, "_is_penstocks"):
        watch(dataset)


def watch(dataset: Any) -> None:
    """Note that HDF5 is given elements of an ``h5py.Dataset`` of a :class:`penstock.File`."""
    number = dataset.id.id
    if number not in _watched:
        _watched[number] = weakref.ref(dataset.id, lambda _: _write_before_close(number))


def write_out(dataset: Any) -> None:
    """Make HDF5 write the elements of an ``h5py.Dataset`` that it buffers.

    HDF5 (2.0.0) takes a chunk that it could not write for stored, so a second call finds no error.

    Raises:
        IOFailure: It could not write them.
    """
    with lock():
        _write_out(dataset.id)


def _write_out(identifier: Any) -> None:
    import h5py

    try:
        if identifier.get_offset() is None and creation_property(
            h5py.Dataset(identifier), "chunks"
        ):
            # The lookup of any chunk writes all. H5Dflush may leave the metadata cache in disorder,
            # where an entry of the chunk index depends on another object.
            identifier.get_chunk_info_by_coord((0,) * identifier.rank)
        else:
            identifier.flush()
    except (OSError, RuntimeError, ValueError) as error:
        dataset = h5py.Dataset(identifier)
        path, cause = dataset.file.filename, " ".join(str(error).split())
        code = re.search(r"errno = (\d+)", cause)
        raise IOFailure(
            f"{path}: HDF5 could not write elements of {dataset.name}: {cause}",
            path=path,
            errno=int(code[1]) if code else None,
            remedy="make room, and write the elements again",
        ) from error


def report(file: Any) -> None:
    """Raise the error of a dropped dataset of an ``h5py.File``, once.

    Raises:
        IOFailure: HDF5 could not write elements.
    """
    _unwritten[:] = [one for one in _unwritten if one.dataset.id.valid]
    for one in _unwritten:
        if not one.is_reported and one.dataset.file == file:
            one.is_reported = True
            raise one.error


def _write_before_close(number: int) -> None:
    import h5py

    _watched.pop(number, None)
    with lock():
        identifier = h5py.h5d.DatasetID(number)
        if not identifier.valid:
            return
        h5py.h5i.inc_ref(identifier)
        try:
            _write_out(identifier)
        except IOFailure as error:
            _unwritten.append(_Unwritten(h5py.Dataset(identifier), error))
