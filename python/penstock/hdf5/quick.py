"""Reads with the fewest steps: by a native reader, or, of elements that it lacks, by h5py."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from typing import Any, Final
from weakref import ref

from penstock import request
from penstock._core import elements
from penstock._native import lib
from penstock._options import OptionKeys, current, resolve
from penstock.hdf5 import dropped, memory_types, pending, small, varying, virtual
from penstock.hdf5.cf import Decoding, decoding_of
from penstock.hdf5.library import (
    MissingFilterError,
    check_dataset,
    explain,
    is_virtual,
    is_writable,
    lock,
    plain,
)
from penstock.hdf5.small_reader import SmallReader
from penstock.placement import Device, is_numpy
from penstock.report import remember
from penstock.request import Request
from penstock.streams import stream_handle


class QuickReader:
    """Reads what integers, slices and a list select of a dataset.

    It asks for what never changes of the dataset only once. Each method takes the dataset, an
    ``h5py.Dataset`` with the identifier for which the reader was made: the reader does not keep it,
    and with it the file, open.
    """

    def __init__(self, identifier: Any, how: Decoding | None = None) -> None:
        self._how = how
        self._decoding: tuple[Decoding | None] | None = None
        self._decoded: list[QuickReader] = []
        """Readers that decode elements, the last made first."""
        self._identifier = ref(identifier, partial(_forget, id(identifier)))
        self._is_small_whole: bool | None = None
        self._chunk: tuple[tuple[int, ...] | None] | None = None
        """The shape of chunks; ``None`` for objects, or if there are none."""
        self._may_leave_memory: bool | None = None
        self._is_changed: bool | None = None
        self._is_virtual: bool | None = None
        self._lock = lock()
        self._reader: SmallReader | None = None
        self._knows_reader = False
        self._skips_h5py = how is not None
        """Whether h5py reads nothing here: HDF5 lacks a filter, or the elements are decoded."""

    @classmethod
    def of(cls, dataset: Any) -> QuickReader:
        """Return the reader of an ``h5py.Dataset``: the same one as long as its identifier lives.

        Raises:
            IncompatibleError: The argument is something else.
            InvalidError: The dataset is closed.
        """
        identifier = getattr(dataset, "id", None)
        known = _known.get(id(identifier))
        if known is not None and known._identifier() is identifier:
            reader = known._reader
            if reader is None or not reader.is_fixed:
                return known
            try:
                shape = dataset.shape
            except (ValueError, RuntimeError):
                check_dataset(dataset)  # it may have been closed
                raise
            if reader.shape == shape:
                return known
            with known._lock:  # h5py has looked at the file again
                lib.penstock_hdf5_forget(dataset.id.id)
        check_dataset(dataset)
        made = _known[id(identifier)] = cls(identifier)
        return made

    @classmethod
    def once(cls, dataset: Any) -> QuickReader:
        """Return the reader for one read of a file that is closed afterwards.

        h5py has read a small part before a native reader is open.
        """
        check_dataset(dataset)
        made = cls(dataset.id)
        made._knows_reader = True
        return made

    def decoding(self, dataset: Any) -> Decoding | None:
        """Return the decoding by the attributes, which cannot change in a file open for reading."""
        if self._decoding is not None:
            return self._decoding[0]
        check_dataset(dataset)
        found = decoding_of(dataset)
        if not is_writable(dataset) and not dataset.file.swmr_mode:
            self._decoding = (found,)
        return found

    def decoded(self, dataset: Any, how: Decoding) -> QuickReader:
        """Return a reader that decodes the elements."""
        for known in self._decoded:
            if known._how is how:
                return known
        made = QuickReader(dataset.id, how)
        made._knows_reader = self._knows_reader and self._reader is None
        self._decoded = [made, *self._decoded[: _MOST_DECODED - 1]]
        return made

    def read(self, dataset: Any, selection: Any, dtype: Any = None) -> tuple[Any, bool]:
        """Return a new array or a value, and whether it has the elements.

        If not, another way reads them, into the array if it is not ``None``. With ``dtype``, they
        are converted to that type.
        """
        made = None
        reader = self._native(dataset)
        if reader is not None:
            made, is_filled = reader.read(selection, dtype)
            if not is_filled and (again := self._renewed(dataset, reader)):
                made, is_filled = again.read(selection, dtype)
            return made, is_filled
        if self._skips_h5py or dtype is not None:
            return made, False
        start = perf_counter_ns()
        chosen = self._few(dataset, selection)
        if chosen is None:
            return made, False
        if self._is_changed_by_h5py(dataset) or self._may_leave_memory_of(dataset):
            return made, False
        if not self._is_read_alike(dataset, None if chosen is _ALL else chosen):
            return made, False
        try:
            value = self._read(dataset, selection)
        except MissingFilterError:
            self._skips_h5py = True
            return made, False
        remember((getattr(value, "nbytes", 0), perf_counter_ns() - start, small.REASON))
        return value, True

    def read_into(
        self, dataset: Any, selection: Any, out: Any, stream: Any, options: OptionKeys
    ) -> bool:
        """Fill an array; return false if another way may be faster.

        With a stream, as callers pass it, GPU memory is used after the work that is queued there.
        """
        after = None if stream is None else stream_handle(stream)
        reader = self._native(dataset)
        if reader is not None:
            of_call = resolve(options) if options else None
            if reader.read_into(selection, out, after, of_call):
                return True
            again = self._renewed(dataset, reader)
            if again is not None and again.read_into(selection, out, after, of_call):
                return True
        return False

    def write(self, dataset: Any, selection: Any, array: Any) -> bool:
        """Write few elements, without options; return false if another way may be faster."""
        reader = None if self._how is not None or current() else self._native(dataset)
        if reader is None or not reader.write(selection, array):
            return False
        dropped.watch(dataset)
        return True

    def read_new(
        self, dataset: Any, selection: Any, device: Device, stream: Any, options: OptionKeys
    ) -> tuple[Any, bool]:
        """Return a new array, as :meth:`read` does, but on a device or in a placement."""
        after = stream_handle(stream)
        reader = self._native(dataset)
        of_call = resolve(options) if options else None
        made = None
        while reader is not None:
            # The next reader fills the same array: to free GPU memory waits for all work there.
            if made is None:
                made = reader.allocate(selection, device, after)
            if made is not None and reader.read_into(selection, made, after, of_call, is_new=True):
                return made, True
            again = self._renewed(dataset, reader)
            if again is None and made is not None and reader.shape == dataset.shape:
                return made, False
            if again is not None and again.shape != reader.shape:
                made = None
            reader = again
        return None, False

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
        reader = self._native(dataset)
        if out is not None and device is not None:
            return None, out
        began = perf_counter_ns()
        of_call = resolve(options) if options else None
        made = out
        while reader is not None:
            if made is None and is_numpy(device):
                made = reader.allocate_on_host(selection)
            elif made is None:
                made = reader.allocate(selection, device)
            started = None
            if made is not None:
                new = is_new or out is None
                started = reader.start_into(selection, made, of_call, began, is_new=new)
            if started is not None:
                return started, made
            again = self._renewed(dataset, reader)
            if again is None and reader.shape == dataset.shape:
                return None, made
            if again is not None and again.shape != reader.shape:
                made = out
            reader = again
        return None, out

    def _renewed(self, dataset: Any, reader: SmallReader) -> SmallReader | None:
        """Return another reader if this one will read nothing any more."""
        if not reader.is_forgotten():
            return None
        check_dataset(dataset)  # the library also forgets those that were closed
        self._knows_reader = False
        return self._native(dataset)

    def _native(self, dataset: Any) -> SmallReader | None:
        if not small.LIMIT:
            return None
        if not self._knows_reader:
            self._reader = SmallReader.of(dataset, self._how)
            self._knows_reader = True
        return self._reader

    def _is_changed_by_h5py(self, dataset: Any) -> bool:
        """Whether h5py may return other numbers than those of the file."""
        if self._is_changed is None:
            kind = dataset.id.get_type()
            self._is_changed = memory_types.has_narrow_integers(kind) or varying.has_lists(kind)
        return self._is_changed

    def _is_read_alike(self, dataset: Any, elements: Any) -> bool:
        """Whether h5py reads the same elements; without any given, all."""
        if self._is_virtual is None:
            self._is_virtual = is_virtual(dataset)
        return not self._is_virtual or virtual.is_read_alike(dataset, elements)

    def _may_leave_memory_of(self, dataset: Any) -> bool:
        if self._may_leave_memory is None:
            self._may_leave_memory = small.may_leave_memory(dataset)
        return self._may_leave_memory

    def _read(self, dataset: Any, selection: Any) -> Any:
        return self._by_h5py(dataset, lambda: plain(dataset)[selection])

    def _by_h5py(self, dataset: Any, read: Callable[[], Any]) -> Any:
        with self._lock:
            self._wait(dataset)
            try:
                return read()
            except (ValueError, OSError, RuntimeError) as error:
                check_dataset(dataset)  # it may have been closed
                explain(dataset, error)
                raise

    def _wait(self, dataset: Any) -> None:
        if pending.count[0]:  # saves a call where nothing is pending
            pending.wait_for_dataset(dataset, request.READ)

    def _few(self, dataset: Any, selection: Any) -> Any | None:
        """Return the elements that a selection has, or ``_ALL``; ``None`` if they are not few."""
        if type(selection) is tuple and not selection:
            if self._is_small_whole is None:
                self._is_small_whole = small.is_small_whole(dataset)
            return _ALL if self._is_small_whole else None
        try:
            shape, itemsize = dataset.shape, dataset.dtype.itemsize
        except (ValueError, RuntimeError):
            check_dataset(dataset)
            raise
        found = elements(shape, selection) if shape else None
        if found is None or not found.is_regular or math.prod(found.shape) * itemsize > small.LIMIT:
            return None
        if self._chunk is None:
            check_dataset(dataset)  # h5py keeps the shape of a closed one
            self._chunk = (small.chunk_of(dataset),)
        chunk = self._chunk[0]
        is_few = chunk is None or small.are_few_chunks(dataset, chunk, found.chunks(chunk))
        return found if is_few else None


_ALL: Final = object()
_MOST_DECODED: Final = 4


_known: dict[int, QuickReader] = {}
"""By the address of h5py's identifier of the dataset, which goes with the last object of it."""

os.register_at_fork(after_in_child=_known.clear)  # the child binds a library of its own


def drop(dataset: Any) -> None:
    """Have the next call for an ``h5py.Dataset`` make a new reader."""
    _known.pop(id(dataset.id), None)


def _forget(address: int, identifier: ref[Any]) -> None:
    known = _known.get(address)
    if known is not None and known._identifier is identifier:  # not a later one at that address
        del _known[address]
