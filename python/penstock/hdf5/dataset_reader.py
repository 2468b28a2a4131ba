"""Reads and writes of a dataset in the fewest steps, and the choice of who carries them out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from time import perf_counter_ns
from typing import Any, Final
from weakref import ref

from penstock._native import lib
from penstock._options import OptionKeys, current, resolve
from penstock.hdf5 import dropped, small
from penstock.hdf5.cf import Decoding, decoding_of
from penstock.hdf5.conversions import Conversions
from penstock.hdf5.h5py_reader import H5pyReader
from penstock.hdf5.library import check_dataset, is_writable, lock
from penstock.hdf5.native_reader import NativeReader
from penstock.placement import Device, is_numpy
from penstock.request import Request
from penstock.streams import stream_handle

_UNKNOWN: Final = object()


class DatasetReader:
    """Reads what integers, slices and a list select of a dataset, and writes few elements.

    Each method takes the dataset, an ``h5py.Dataset`` with the identifier for which the reader was
    made: the reader does not keep it, and with it the file, open. A method that refuses leaves the
    transfer to ``reading`` or ``writing``.
    """

    def __init__(
        self, identifier: Any, how: Decoding | None = None, native: Any = _UNKNOWN
    ) -> None:
        self._identifier = ref(identifier, partial(_forget, id(identifier)))
        self.how = how
        """How elements are decoded; ``None`` if they are not."""
        self._native: Any = native
        """The native reader; ``None`` if it lacks such elements, ``_UNKNOWN`` before the first."""
        self._by_h5py: H5pyReader | None = None
        self.conversions = Conversions(identifier, how)
        self._is_writable: bool | None = None
        self._attributes: tuple[Decoding | None] | None = None
        """The decoding by the attributes, if they cannot change."""
        self._decoded: list[DatasetReader] = []
        """Readers that decode elements, the last made first."""

    @classmethod
    def of(cls, dataset: Any) -> DatasetReader:
        """Return the reader of an ``h5py.Dataset``: the same one as long as its identifier lives.

        Raises:
            IncompatibleError: The argument is something else.
            InvalidError: The dataset is closed.
        """
        identifier = getattr(dataset, "_id", None)  # without the lock that `id` takes
        known = _known.get(id(identifier))
        if known is not None and known._identifier() is identifier:
            native = known._native
            if native is None or native is _UNKNOWN or not native.is_fixed:
                return known
            if native.shape == _extent(dataset):
                return known
            with lock():  # h5py has looked at the file again
                lib.penstock_hdf5_forget(dataset.id.id)
        check_dataset(dataset)
        made = _known[id(identifier)] = cls(identifier)
        return made

    @classmethod
    def once(cls, dataset: Any) -> DatasetReader:
        """Return the reader for one read of a file that is closed afterwards.

        h5py has read a small part before a native reader is open.
        """
        check_dataset(dataset)
        return cls(dataset.id, native=None)

    def is_writable(self, dataset: Any) -> bool:
        """Whether the file is open for writing."""
        if self._is_writable is None:
            self._is_writable = is_writable(dataset)
        return self._is_writable

    def decoding(self, dataset: Any) -> Decoding | None:
        """Return the decoding by the attributes, which cannot change in a file open for reading."""
        if self._attributes is not None:
            return self._attributes[0]
        check_dataset(dataset)
        found = decoding_of(dataset)
        if not self.is_writable(dataset) and not dataset.file.swmr_mode:
            self._attributes = (found,)
        return found

    def decoded(self, dataset: Any, how: Decoding) -> DatasetReader:
        """Return a reader that decodes the elements."""
        for known in self._decoded:
            if known.how is how:
                return known
        made = DatasetReader(dataset.id, how, None if self._native is None else _UNKNOWN)
        self._decoded = [made, *self._decoded[: _MOST_DECODED - 1]]
        return made

    def read(self, dataset: Any, selection: Any, dtype: Any = None) -> tuple[Any, bool]:
        """Return a new array or a value, and whether it has the elements.

        If not, another way reads them, into the array if it is not ``None``. With ``dtype``, they
        are converted to that type.
        """
        native = self._native if small.LIMIT else None
        if native is _UNKNOWN:
            native = self._open(dataset)
        if native is not None:
            made, is_filled = native.read(selection, dtype)
            if not is_filled and (again := self._renewed(dataset, native)):
                made, is_filled = again.read(selection, dtype)
            return made, is_filled
        if self.how is not None or dtype is not None or not small.LIMIT:
            return None, False
        return self._h5py_reader(dataset).read(dataset, selection)

    def read_into(
        self, dataset: Any, selection: Any, out: Any, stream: Any, options: OptionKeys, is_new: bool
    ) -> bool:
        """Fill an array; return false if another way may be faster.

        With a stream, as callers pass it, GPU memory is used after the work that is queued there.
        ``is_new`` says that the old elements of the array must not be seen again.
        """
        after = None if stream is None else stream_handle(stream)
        of_call = resolve(options) if options else None
        # Those of `_natives`, whose generator takes a small read 2 us of 7.
        native = self._opened(dataset)
        while native is not None:
            if native.read_into(selection, out, after, of_call, is_new=is_new):
                return True
            native = self._renewed(dataset, native)
        return False

    def write(self, dataset: Any, selection: Any, array: Any) -> bool:
        """Write few elements, without options; return false if another way may be faster."""
        if self.how is not None or current() or not small.LIMIT:
            return False
        native = self._opened(dataset)
        if native is not None:
            array = native.values_of(array)
            if array is None:
                return False
        elif not self.is_writable(dataset):
            return False
        write = native.write if native else partial(self._h5py_reader(dataset).write, dataset)
        with lock():
            is_written = True
            try:
                is_written = write(selection, array)
            finally:
                if is_written:  # HDF5 may buffer the elements
                    dropped.watch(dataset)
            return is_written

    def read_new(
        self,
        dataset: Any,
        selection: Any,
        device: Device,
        dtype: Any,
        stream: Any,
        options: OptionKeys,
    ) -> tuple[Any, bool]:
        """Return what :meth:`read` does, but on a device, in a placement, or with options."""
        after = stream_handle(stream)
        of_call = resolve(options) if options else None
        on_host = is_numpy(device)
        made = extent = None
        for native in self._natives(dataset):
            # The next reader fills the same array: to free GPU memory waits for all work there.
            if made is None or native.shape != extent:
                made, extent = native.allocate(selection, device, dtype, after), native.shape
            if made is not None and native.read_into(selection, made, after, of_call, is_new=True):
                return made[()] if on_host else made, True
            if on_host or not native.is_fixed:  # the shape may be another one in the next step
                return None, False
        return made if made is not None and extent == _extent(dataset) else None, False

    def start(
        self,
        dataset: Any,
        selection: Any,
        out: Any,
        device: Device,
        options: OptionKeys,
        *,
        is_new: bool = False,
    ) -> tuple[Request[Any] | None, Any]:
        """Start to fill an array, or a new one.

        ``is_new`` says that the old elements of the array must not be seen again.

        Returns:
            The request, and the array. Without a request, another way fills the array; ``None``
            stands for one that is still to be made.
        """
        if out is not None and device is not None:
            return None, out
        began = perf_counter_ns()
        of_call = resolve(options) if options else None
        made, extent = out, None
        for native in self._natives(dataset):
            if not native.is_fixed:
                break
            if out is None and (made is None or native.shape != extent):
                made, extent = native.allocate(selection, device), native.shape
            if made is not None:
                new = is_new or out is None
                started = native.start_into(selection, made, of_call, began, is_new=new)
                if started is not None:
                    return started, made
        is_usable = made is out or extent == _extent(dataset)
        return None, made if is_usable else None

    def _h5py_reader(self, dataset: Any) -> H5pyReader:
        if self._by_h5py is None:
            check_dataset(dataset)
            self._by_h5py = H5pyReader(dataset)
        return self._by_h5py

    def _natives(self, dataset: Any) -> Iterator[NativeReader]:
        """Yield the native reader, and a new one for each that reads nothing any more."""
        native = self._opened(dataset)
        while native is not None:
            yield native
            native = self._renewed(dataset, native)

    def _opened(self, dataset: Any) -> NativeReader | None:
        if not small.LIMIT:
            return None
        found: NativeReader | None = self._native
        return self._open(dataset) if found is _UNKNOWN else found

    def _open(self, dataset: Any) -> NativeReader | None:
        is_decoded = self.how is not None
        if is_decoded and self.is_writable(dataset):
            self._native = None
        else:
            self._native = NativeReader.of(dataset.id, self.conversions, is_decoded=is_decoded)
        found: NativeReader | None = self._native
        return found

    def _renewed(self, dataset: Any, native: NativeReader) -> NativeReader | None:
        """Return another native reader if this one will read nothing any more."""
        if not native.is_forgotten():
            return None
        check_dataset(dataset)  # the library also forgets those that were closed
        return self._open(dataset)


_MOST_DECODED: Final = 4

_known: dict[int, DatasetReader] = {}
"""By the address of h5py's identifier of the dataset, which goes with the last object of it."""

os.register_at_fork(after_in_child=_known.clear)  # the child binds a library of its own


def _extent(dataset: Any) -> Any:
    try:
        return dataset.shape
    except (ValueError, RuntimeError):
        check_dataset(dataset)  # it may have been closed
        raise


def drop(dataset: Any) -> None:
    """Have the next call for an ``h5py.Dataset`` make a new reader."""
    _known.pop(id(dataset.id), None)


def _forget(address: int, identifier: ref[Any]) -> None:
    known = _known.get(address)
    if known is not None and known._identifier is identifier:  # not a later one at that address
        del _known[address]
