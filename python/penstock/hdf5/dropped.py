"""Datasets and requests that the program drops before their elements are in the file.

HDF5 buffers elements that it is given, and writes them when the dataset is closed: when the last
reference to h5py's object is dropped, where no error can be raised. So HDF5 is made to write them
just before. If that fails, the error is raised when its :class:`penstock.File` is flushed or
closed: the one from which the dataset was reached or, after an external link, the one that it is
in. An error that no file can raise any more is printed. The errors of datasets that no such file
has are HDF5's to report.

The failure of a write whose request is dropped is raised there, too, by the library. It is printed
if the file is closed otherwise, and at once if there is no such file.
"""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

from penstock import request
from penstock.ending import at_end
from penstock.errors import Error, IOFailure
from penstock.hdf5.library import any_pending, creation_list, lock, wait_for_file


class _Watched(NamedTuple):
    """A dataset whose elements HDF5 may buffer."""

    identifier: weakref.ref[Any]
    """A reference to h5py's identifier, which calls :func:`_write_before_close`."""
    file: Any
    """The :class:`penstock.File` from which it was reached."""


@dataclass
class _Unwritten:
    """A dropped ``h5py.Dataset`` whose elements HDF5 could not write.

    It stays open as long as the file from which it was reached: HDF5 (2.0.0) crashes after the
    close of a dataset has failed.
    """

    dataset: Any
    file: Any
    """The :class:`penstock.File` from which it was reached."""
    error: Error
    is_reported: bool = False


_watched: dict[int, _Watched] = {}
"""By HDF5's numbers of the identifiers."""

_unwritten: list[_Unwritten] = []


class _Lost(NamedTuple):
    """A failed write whose request was dropped."""

    file: weakref.ref[Any]
    """A reference to the :class:`penstock.File` from which the dataset was reached."""
    last: list[int]
    """Its :func:`last_reported`."""
    error: Error


_lost: list[_Lost] = []

_numbers = count(1)
"""The numbers of writes."""

_is_ending = False
"""Whether no file will raise an error any more."""


def adopt(dataset: Any, file: Any) -> None:
    """Note that an ``h5py.Dataset`` was reached from a :class:`penstock.File`, if there is one."""
    if file is not None:
        dataset._file = file


def watch(dataset: Any) -> None:
    """Watch an ``h5py.Dataset`` that HDF5 writes to, if a :class:`penstock.File` has it."""
    file = getattr(dataset, "_file", None)
    number = dataset.id.id
    if file is not None and number not in _watched:
        # Cython 3 makes the call before h5py closes the dataset. That of h5py 3.10 made it after.
        identifier = weakref.ref(dataset.id, lambda _: _write_before_close(number))
        _watched[number] = _Watched(identifier, file)


def keeper(dataset: Any) -> Callable[[Error], None]:
    """Return the function that keeps the failure of a write whose request is dropped."""
    reached_from = getattr(dataset, "_file", None)
    if reached_from is None:
        return request.print_error
    # Neither the request nor its error keeps the file open.
    file, last, number = weakref.ref(reached_from), last_reported(reached_from), next(_numbers)

    def keep(error: Error) -> None:
        if number <= last[0]:
            return
        if file() and not _is_ending:
            _lost.append(_Lost(file, last, error))
        else:
            request.print_error(error)

    return keep


def last_reported(file: Any) -> list[int]:
    """Return the number of an ``h5py.File``'s last write whose failure the library has raised.

    The number is in a list, because requests that outlive the file refer to it. All objects for one
    ``h5py.File`` have the same list.
    """
    last: list[int] = file.__dict__.setdefault("_last_reported", [0])
    return last


def forget_requests(file: Any) -> None:
    """Note that the library is about to raise the first failure of a write to an ``h5py.File``."""
    last = last_reported(file)
    last[0] = next(_numbers)
    _lost[:] = [one for one in _lost if one.last is not last]


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
        known = creation_list(identifier) if identifier.get_offset() is None else None
        if known is not None and known.get_layout() == h5py.h5d.CHUNKED:
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


def wait_for_linked_files(file: Any) -> None:
    """Wait for pending requests of other files whose datasets were reached from an ``h5py.File``.

    Raises:
        Error: A write failed, and no caller has waited for it.
    """
    if not any_pending():
        return
    for known in list(_watched.values()):
        identifier = known.identifier()
        if identifier is not None and known.file == file:
            _wait_for_linked_file(identifier, file)


def report(file: Any) -> None:
    """Raise the error of a dropped dataset of an ``h5py.File``, or reached from it, once.

    Raises:
        Error: HDF5 could not write elements.
    """
    release_closed()
    error = _error_of(file)
    if error is not None:
        raise error


def _error_of(file: Any) -> Error | None:
    """Return an error that was not reported, which has no traceback: see :func:`_kept_errors`."""
    for one in _unwritten:
        is_of_file = one.file == file or (one.dataset and one.dataset.file == file)
        if is_of_file and not one.is_reported:
            one.is_reported = True
            return one.error
    return None


def release_closed() -> None:
    """Release the datasets that were reached from closed files, and print errors not reported."""
    for lost in _lost:
        if not lost.file():
            request.print_error(lost.error)
    _lost[:] = [lost for lost in _lost if lost.file()]
    for one in _unwritten:
        if not one.file:
            _print_once(one)
    _unwritten[:] = [one for one in _unwritten if one.file]


def _print_once(one: _Unwritten) -> None:
    if not one.is_reported:
        request.print_error(one.error)
    one.is_reported = True


def _wait_for_linked_file(identifier: Any, file: Any) -> None:
    """Wait for the pending requests of a dataset's file, unless that is the file given."""
    import h5py

    if identifier.valid and h5py.h5i.get_file_id(identifier) != file.id:
        wait_for_file(h5py.Dataset(identifier))


def _write_before_close(number: int) -> None:
    import h5py

    known = _watched.pop(number, None)
    if known is None:
        return
    with lock():
        identifier = h5py.h5d.DatasetID(number)
        if not identifier.valid:
            return
        h5py.h5i.inc_ref(identifier)
        if any_pending():
            with _kept_errors(identifier, known.file):
                # A linked file is closed with its last dataset, and has no failures to report then.
                _wait_for_linked_file(identifier, known.file)
        with _kept_errors(identifier, known.file):
            _write_out(identifier)


@contextmanager
def _kept_errors(identifier: Any, file: Any) -> Iterator[None]:
    """Keep an error of a dataset until its file is flushed or closed."""
    import h5py

    try:
        yield
    except Error as error:
        # The frames of a traceback refer to the identifier, and would keep it open.
        error.__traceback__ = error.__cause__ = error.__context__ = None
        _unwritten.append(_Unwritten(h5py.Dataset(identifier), file, error))


@at_end
def _at_exit() -> None:
    """Print the errors of files that the program does not close."""
    global _is_ending
    if _watched:
        request.finish_all()
    for number in list(_watched):
        _write_before_close(number)
    for one in _unwritten:
        _print_once(one)
    for lost in _lost:
        request.print_error(lost.error)
    _is_ending = True


def _in_child() -> None:
    """Forget the writes of the parent, which reports them itself."""
    _watched.clear()
    _lost.clear()
    for one in _unwritten:
        one.is_reported = True


os.register_at_fork(after_in_child=_in_child)
