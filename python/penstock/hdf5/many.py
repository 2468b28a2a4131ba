"""Reads of many datasets as one request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock import request, transfer
from penstock._keys import ReadKeys
from penstock._options import OptionKeys
from penstock.errors import Error, IncompatibleError, InvalidError
from penstock.hdf5.batch import Batch, Destination
from penstock.hdf5.cf import Decoding
from penstock.hdf5.library import check_dataset, lock
from penstock.hdf5.reading import read
from penstock.hdf5.source import Named, Opened, Origin, named
from penstock.hdf5.submit import SubmitOptions
from penstock.placement import Device, Library, memory_of, place
from penstock.report import remember_note
from penstock.request import Request
from penstock.sequences import check_indexed, described, listed

if TYPE_CHECKING:
    from typing_extensions import Unpack

ALL: tuple[()] = ()
_LEAST_ROWS = 4
"""Fewer rows of a dataset are read as pieces."""
_FORM = "datasets, or pairs (dataset, selection)"
_NAMED_FORM = "paths within the group, or pairs (path, selection)"


def read_many(
    pieces: Iterable[Any],
    **keys: Unpack[ReadKeys],
) -> list[Any]:
    """Read many datasets, or parts of them, as one request.

    Pieces that are close together in a file are read and decoded together, whatever their order.
    Strings, other objects, and all else that :func:`read` leaves to h5py are read one after the
    other.

    Args:
        pieces: Pairs of a dataset and a selection, or datasets alone, each as for :func:`read`. A
            dataset may occur several times.
        out: An array for each piece, as for :func:`read`. They must not overlap.
        device: Where new arrays go, as for :func:`read`. They share one allocation, which is freed
            with the last of them.
        dtype: Convert the elements to this type.
        stream: A CUDA stream, as for :func:`read`.
        like: The library of new arrays, as there.
        pin: Whether new arrays in host memory are page-locked, as there.
        cf: Whether packed and missing values are decoded, as there.
        **keys: The arguments above from ``out`` on, and those of :class:`penstock.OptionKeys`.

    Returns:
        The arrays, in the order of the pieces.

    Raises:
        InvalidError: ``out`` has another length than ``pieces``, or arrays of it overlap.
        IncompatibleError: A piece has another form; a ``TypeError`` that names its number.
        Error: What :func:`read` raises. It names the dataset.

    >>> a, b = ps.read_many([(f["rho"], np.s_[0:10]), (f["u"], np.s_[0:10])], device="cuda")
    """
    with ExitStack() as files:
        datasets, selections = [], []
        for number, piece in enumerate(listed(pieces, "pieces", _FORM)):
            dataset, selection = _pair(piece, number, _FORM)
            if isinstance(dataset, str):
                dataset = files.enter_context(named(dataset, "r"))
            try:
                check_dataset(dataset)
            except IncompatibleError as error:
                raise IncompatibleError(
                    f"piece {number}: {error}", remedy=f"give {_FORM}"
                ) from error
            except InvalidError as error:
                raise error.about(f"piece {number}") from error
            datasets.append(dataset)
            selections.append(selection)
        return _read(Opened(datasets), selections, keys.get("out"), _destination(**keys))


def read_named(
    group: Any,
    names: Iterable[Any],
    **keys: Unpack[ReadKeys],
) -> list[Any]:
    """Do what :meth:`penstock.Group.read_many` does, for an ``h5py.Group``."""
    paths, selections = [], []
    for number, item in enumerate(listed(names, "names", _NAMED_FORM)):
        path, selection = _pair(item, number, _NAMED_FORM)
        paths.append(path)
        selections.append(selection)
    return _read(Named(group, paths), selections, keys.get("out"), _destination(**keys))


def _destination(
    *,
    out: Sequence[Any] | None = None,
    device: Device = None,
    dtype: Any = None,
    stream: Any = None,
    like: Library | None = None,
    pin: bool = False,
    cf: bool | Decoding = False,
    **options: Unpack[OptionKeys],
) -> Destination:
    """Return where the elements go, by the arguments of the call."""
    where = place(device, like, pin, out)
    return Destination(where, dtype, SubmitOptions.of(stream, options), options, cf)


def _pair(piece: Any, number: int, form: str) -> tuple[Any, Any]:
    """Return a piece and what is selected of it."""
    if not isinstance(piece, tuple):
        return piece, ALL
    if len(piece) != 2:
        raise IncompatibleError(f"piece {number} is {described(piece)}", remedy=f"give {form}")
    return piece


def start_into(
    datasets: Sequence[Any],
    selections: Sequence[Any],
    out: Sequence[Any],
    options: OptionKeys,
    cf: bool | Decoding = False,
) -> StartedMany:
    """Start to read parts of ``h5py.Dataset`` objects into arrays that were never written.

    The arrays are C-contiguous. GPU memory is filled after the work that is queued on torch's or
    CuPy's current stream.
    """
    batch = Batch(Opened(datasets), list(selections), out, _destination(cf=cf, **options))
    with batch.requests, lock():
        started = _start(batch, request.ZERO_HOLES, ExitStack())
        if batch.can_change:
            started.wait()
    return started


class StartedMany:
    """A read of many datasets that was started. It keeps the arrays alive while it is pending."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def wait(self) -> list[Any]:
        """Wait for the read, and return the arrays in the order of the pieces.

        Raises:
            Error: The read failed. The error names the dataset.
        """
        batch = self._batch
        is_mixed = bool(batch.left and batch.requests)
        batch.requests.wait_each(self._finish)
        batch.complete()
        if is_mixed:
            count, total = len(batch.left), len(batch.results)
            remember_note(f"{count} of {total} datasets were read one after the other")
        return batch.results

    def stop(self, cause: BaseException | None = None) -> None:
        """End the read, whose errors are notes of ``cause``."""
        self._batch.requests.stop(cause)

    def _finish(self, made: Request[Any]) -> None:
        try:
            transfer.finish(made)
        except Error as error:
            if (what := self._batch.dataset_of(error)) is None:
                raise
            raise error.about(what) from error

    def cancel(self) -> None:
        """Cancel the read. Its memory is in use until :meth:`wait` has returned or raised."""
        self._batch.requests.cancel()


def _read(
    origin: Origin, selections: list[Any], out: Sequence[Any] | None, destination: Destination
) -> list[Any]:
    if out is not None:
        check_indexed(out, "out", "a list of arrays, one for each piece")
        if len(out) != len(selections):
            raise InvalidError(f"{len(out)} arrays are given for {len(selections)} pieces")
        if destination.dtype is not None:
            raise InvalidError("give out or dtype, not both: the elements become those of out")
    if not selections:
        return []
    if out is None and (rows := _rows_of_one(origin, selections, destination)) is not None:
        return rows
    batch = Batch(origin, selections, out, destination)
    flags = request.CALLER_WAITS | (0 if out is not None else request.ZERO_HOLES)
    with batch.requests, ExitStack() as locked:
        locked.enter_context(lock())
        return _start(batch, flags, locked).wait()


def _rows_of_one(
    origin: Origin, selections: list[Any], destination: Destination
) -> list[Any] | None:
    """Read rows of one dataset as one list of them; ``None`` for other pieces.

    ``None``, too, if that fails: the read of the pieces then names the one that is wrong.
    """
    where = destination.device
    has_views = memory_of(where) is where
    are_rows = all(type(one) is int or isinstance(one, np.integer) for one in selections)
    if not are_rows or len(selections) < _LEAST_ROWS or not has_views:
        return None
    dataset = origin.only()
    if dataset is None or len(dataset.shape or ()) < 2:
        return None
    how: dict[str, Any] = {"stream": destination.options.stream, "cf": destination.cf}
    how |= {"device": where, "dtype": destination.dtype, **destination.keys}
    try:
        return list(read(dataset, (np.array(selections, np.int64),), **how))
    except (IndexError, TypeError, ValueError, OverflowError):
        return None


def _start(batch: Batch, flags: int, locked: ExitStack) -> StartedMany:
    """Start a read under the lock of HDF5, which ``locked`` releases as soon as it may.

    What is read one after the other has been read on return. After an exception, the caller ends
    the requests of the batch.
    """
    try:
        batch.submit(flags)
    except Error as error:
        if not batch.is_left_to_h5py(error):
            if (what := batch.dataset_of(error)) is None:
                raise
            raise error.about(what) from error
        batch.leave_all()
    # In a file that is open for writing, no other access may change the elements meanwhile.
    if not batch.can_change:
        locked.close()
    batch.read_left()
    return StartedMany(batch)
