"""Reads and writes of a dataset in the fewest steps, and the choice of who carries them out.

A native call reads without HDF5 and its lock, if the dataset cannot change.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from time import perf_counter_ns
from typing import Any, Final, NamedTuple
from weakref import ref

import numpy as np

from penstock import arrays, frameworks, request, staging, transfer
from penstock._core import Reader, Typed, elements
from penstock._native import CData, address, ffi, lib
from penstock._options import OptionKeys, current, resolve
from penstock.device_array import DeviceArray, element_of
from penstock.dtypes import ElementType, element_type
from penstock.hdf5 import dropped, small
from penstock.hdf5.cf import Decoding, decoding_of
from penstock.hdf5.conversions import Conversions, InMemory, OnlyH5pyError, is_equal_to_equals
from penstock.hdf5.h5py_reader import H5pyReader
from penstock.hdf5.library import check_dataset, is_writable, lock
from penstock.hdf5.selection import split
from penstock.native_calls import library
from penstock.placement import Device, Placement, allocate, is_numpy
from penstock.records import in_c_order
from penstock.request import Request
from penstock.streams import stream_handle

_UNKNOWN: Final = object()
_NUMBERS_OF_PYTHON: Final = (bool, int, float, complex, np.generic, list, tuple)


class DatasetReader:
    """Reads what integers, slices and a list select of a dataset, and writes few elements.

    Of a dataset that may change, or that only HDF5 can read, it reads small parts, by HDF5.

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
        self._is_for_h5py = True
        """Whether h5py does small transfers of the elements if there is no native reader."""
        self.conversions = Conversions(identifier, how)
        self._on_gpu: ElementType | None = None
        """The type of elements in a new array of a GPU."""
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
            if native is None or native is _UNKNOWN or native.shape is None:
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
        # The loop of `_natives`, whose generator takes a small read 2 us of 7.
        native = self._native if small.LIMIT else None
        if native is _UNKNOWN:
            native = self._open(dataset)
        if native is None:
            is_plain = self.how is None and dtype is None and self._is_for_h5py
            if not is_plain or not small.LIMIT:
                return None, False
            return self._h5py_reader(dataset).read(dataset, selection)
        while True:
            if dtype is None:
                made, is_filled = native.read(selection)
                if not is_filled and native.dtype.names is not None:
                    made, is_filled = self._read_field(native, selection)
            elif isinstance(dtype, np.dtype) and not is_equal_to_equals(dtype):
                return None, False
            else:
                made, is_filled = native.read(selection, self, dtype)
            again = None if is_filled else self._renewed(dataset, native)
            if again is None:
                return made, is_filled
            native = again

    def _read_field(self, native: Reader, selection: Any) -> tuple[Any, bool]:
        """Do what :meth:`read` does for a selection that names a field."""
        indices, names = split(selection)
        if len(names) != 1 or names[0] not in (native.dtype.names or ()):
            return None, False
        return native.read(indices, self, _Field(names[0]))

    def read_into(
        self, dataset: Any, selection: Any, out: Any, stream: Any, options: OptionKeys, is_new: bool
    ) -> bool:
        """Fill an array; return false if another way may be faster.

        With a stream, as callers pass it, GPU memory is used after the work that is queued there.
        ``is_new`` says that the old elements of the array must not be seen again.
        """
        after = None if stream is None else stream_handle(stream)
        of_call = resolve(options) if options else None
        native = self._opened(dataset)  # the loop of `_natives`, as in `read`
        while native is not None:
            if self._fill(native, selection, out, after, of_call, is_new=is_new):
                return True
            native = self._renewed(dataset, native)
        return False

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
                made = self._allocate(native, selection, device, dtype, after)
                extent = native.shape
            if made is not None and self._fill(
                native, selection, made, after, of_call, is_new=True
            ):
                return made[()] if on_host else made, True
            if on_host or native.shape is None:  # which may be another one in the next step
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
            if native.shape is None:
                break
            if out is None and (made is None or native.shape != extent):
                made, extent = self._allocate(native, selection, device), native.shape
            if made is not None:
                new = is_new or out is None
                started = self._start(native, selection, made, of_call, began, is_new=new)
                if started is not None:
                    return started, made
        is_usable = made is out or extent == _extent(dataset)
        return None, made if is_usable else None

    def write(self, dataset: Any, selection: Any, array: Any) -> bool:
        """Write few elements, without options; return false if another way may be faster."""
        if self.how is not None or current() or not small.LIMIT:
            return False
        native = self._opened(dataset)
        if native is not None:
            array = _values_of(native, array)
            if array is None:
                return False
        elif not self._is_for_h5py or not self.is_writable(dataset):
            return False
        with lock():
            is_written = True
            try:
                if native is None:
                    is_written = self._h5py_reader(dataset).write(dataset, selection, array)
                else:
                    is_written = self._write(native, selection, array)
            finally:
                if is_written:  # HDF5 may buffer the elements
                    dropped.watch(dataset)
            return is_written

    def open_type(self, native: Reader, key: Any) -> Typed | None:
        """Open elements of another type for the native reader, which keeps them; ``None`` if none.

        The key is the type of an array, as its library says it, or a field.
        """
        identifier = self._identifier()
        if identifier is None or key is None:  # as for a type that NumPy lacks
            return None
        stored = native.dtype
        names: tuple[str, ...] = ()
        wanted = None
        if isinstance(key, _Field):
            stored, names = stored[key.name], (key.name,)
        else:
            wanted = key if isinstance(key, ElementType) else element_type(key)
            if wanted.is_numpys(stored):
                return native.own
            if self.how is not None or not _are_numbers(stored, wanted):
                return None
        with lock():
            if not identifier.valid:
                return None
            try:
                memory = self.conversions.to_read(names, wanted)
            except OnlyH5pyError:
                return None
            if not _is_native(stored):
                return None
            return native.open_as(identifier, self._in_memory(memory))

    def _in_memory(self, memory: InMemory) -> tuple[int, Any, int, int, bool, Any]:
        """Return what :class:`Reader` takes for elements in memory."""
        kind, rules = memory.type, memory.rules
        dtype = None if memory.element.is_extended else memory.element.numpy
        is_stored = rules is None and kind.equal(self.conversions.kind)
        decoding = 0 if rules is None else address(rules)
        return kind.id, dtype, kind.get_size(), decoding, is_stored, memory

    def _h5py_reader(self, dataset: Any) -> H5pyReader:
        if self._by_h5py is None:
            check_dataset(dataset)
            self._by_h5py = H5pyReader(dataset)
        return self._by_h5py

    def _natives(self, dataset: Any) -> Iterator[Reader]:
        """Yield the native reader, and a new one for each that reads nothing any more."""
        native = self._opened(dataset)
        while native is not None:
            yield native
            native = self._renewed(dataset, native)

    def _opened(self, dataset: Any) -> Reader | None:
        if not small.LIMIT:
            return None
        found: Reader | None = self._native
        return self._open(dataset) if found is _UNKNOWN else found

    def _open(self, dataset: Any) -> Reader | None:
        """Open the native reader; ``None`` if NumPy does not hold such elements itself."""
        is_decoded = self.how is not None
        if is_decoded and self.is_writable(dataset):
            self._native = None
            return None
        identifier = dataset.id
        with lock():
            where = library(), identifier, lock(), _LIMITS
            made = None if is_decoded else Reader.open(*where, None)
            if made is None and identifier.shape and _is_native(self.conversions.stored):
                try:
                    memory = self.conversions.to_read()
                except OnlyH5pyError:
                    pass
                else:
                    made = Reader.open(*where, self._in_memory(memory))
                self._is_for_h5py = made is not None  # HDF5 may lack a filter
            self._native = made
        return made

    def _renewed(self, dataset: Any, native: Reader) -> Reader | None:
        """Return another native reader if this one will read nothing any more."""
        if not native.is_forgotten():
            return None
        check_dataset(dataset)  # the library also forgets those that were closed
        return self._open(dataset)

    def _allocate(
        self,
        native: Reader,
        selection: Any,
        device: Device,
        dtype: Any = None,
        stream: int | None = None,
    ) -> Any | None:
        """Return a new array for selected elements; ``None`` if they are not small.

        ``None``, too, for an array of a type to which the library does not convert. That of a
        scalar has no dimensions. The memory is used after the work that is queued on ``stream``.
        """
        stored = native.dtype
        if dtype is not None and not native.has(self, dtype):
            return None
        shape = native.shape_of(selection)
        if shape is None:
            return None
        if not isinstance(device, Placement) and device != "cuda" and is_numpy(device):
            kind = stored if dtype is None else element_type(dtype).numpy
            make = np.zeros if stored.kind == "V" else np.empty  # gaps stay as they are
            return None if kind is None else make(shape, kind)
        if native.shape is None and math.prod(shape) * stored.itemsize > small.DECODED:
            return None  # HDF5 reads no more into a GPU
        if self._on_gpu is None:
            self._on_gpu = element_type(stored.newbyteorder("="))
        wanted = self._on_gpu if dtype is None else element_type(dtype)
        return allocate(shape, wanted, device, stream)

    def _fill(
        self,
        native: Reader,
        selection: Any,
        out: Any,
        stream: int | None,
        options: CData | None,
        *,
        is_new: bool,
    ) -> bool:
        """Fill an array; return false if the elements are not small, or other than its own.

        Args:
            native: The native reader.
            selection: What ``dataset[...]`` takes.
            out: The array.
            stream: GPU memory is used after the work that is queued there; if ``None``, after that
                of the library's current stream.
            options: The ``penstock_options *`` of the call; ``None`` for those of the thread.
            is_new: Whether the caller has not seen the array yet.
        """
        is_numpy = type(out) is np.ndarray
        if not is_numpy and request.stream_holders:
            return False
        of_call = 0 if options is None else address(options)
        if native.fill(self, selection, out, stream, of_call, is_new):
            return True
        if is_numpy:
            is_plain = options is None and stream is None
            return is_plain and self._fill_strided(native, selection, out)
        if native.shape is None:
            return False
        began, memory = perf_counter_ns(), out
        if type(out) is not DeviceArray and not frameworks.is_torch(out):
            memory = _view(out, stream, is_new=is_new)
            if native.fill(self, selection, memory, stream, of_call, is_new):
                return True
        made = self._start(native, selection, memory, options, began, stream=stream, is_new=is_new)
        if made is None:
            return False
        transfer.finish(made)
        return True

    def _fill_strided(self, native: Reader, selection: Any, out: np.ndarray[Any, Any]) -> bool:
        """Fill a NumPy array of few elements that are not in C order, by way of a copy.

        The copy also has what HDF5 leaves as it is.
        """
        if out.flags.c_contiguous or out.nbytes > small.LIMIT:
            return False
        arrays.strided_destination(out)  # raises an error if its elements share memory
        copy = out.copy()
        if not native.fill(self, selection, copy, None, 0, False):
            return False
        out[...] = copy
        return True

    def _start(
        self,
        native: Reader,
        selection: Any,
        out: Any,
        options: CData | None,
        began: int,
        *,
        stream: int | None = None,
        is_new: bool,
    ) -> Request[Any] | None:
        """Start to fill an array as :meth:`_fill` does. The report counts from ``began``."""
        memory, kind = out, _type_of(out)
        if kind is None:
            memory = _view(out, stream, is_new=is_new)
            kind = memory.dtype
        if native.shape is None or not native.has(self, kind):
            return None
        of_call = 0 if options is None else address(options)
        where = self, selection, memory, stream, of_call, is_new
        return request.submit_if(
            lambda place: native.start(*where, int(ffi.cast("uintptr_t", place))),
            out,
            (memory, self._identifier()),
            before_ns=perf_counter_ns() - began,
        )

    def _write(self, native: Reader, selection: Any, array: np.ndarray[Any, Any]) -> bool:
        """Write few elements of the array's shape, or broadcast; return whether that is done."""
        if array.dtype.kind not in _KINDS or array.dtype.hasobject:
            return False
        if not array.flags.c_contiguous and array.nbytes <= small.LIMIT:
            array = in_c_order(array)
        if native.write(self, selection, array):
            return True
        identifier = self._identifier()
        if identifier is None or not identifier.valid:
            return False
        found = elements(identifier.shape, selection)
        if found is None or not found.is_regular or array.shape == found.shape:
            return False
        if math.prod(found.shape) * array.itemsize > small.LIMIT:
            return False
        try:
            spread = in_c_order(np.broadcast_to(array, found.shape))
        except ValueError:  # another way says why
            return False
        return native.write(self, selection, spread)


@dataclass(frozen=True)
class _Field:
    """The key of elements of a field."""

    name: str


class _Limits(NamedTuple):
    """The sizes that decide who reads, as :class:`Reader` takes them."""

    most: int = small.STARTED
    at_once: int = small.ROWS
    brief: int = small.BRIEF
    few: int = small.FEW_CHUNKS
    flags: int = request.CALLER_WAITS


_LIMITS: Final = _Limits()

_KINDS: Final = "biufcSV"
"""The kinds of elements that NumPy holds itself, and HDF5 has types for."""


def _is_native(dtype: np.dtype[Any]) -> bool:
    """Whether NumPy holds elements of a type itself: numbers, enumerations, bytes, structures."""
    if dtype.hasobject or dtype.subdtype or dtype.kind not in _KINDS:
        return False
    return dtype.kind == "S" or set(dtype.metadata or ()) <= {"enum"}


def _are_numbers(stored: np.dtype[Any], wanted: ElementType) -> bool:
    """Whether the library converts stored numbers to others."""
    target = None if wanted.is_extended else wanted.numpy
    is_number = stored.kind in "iuf" and not stored.metadata
    return is_number and (target is None or target.kind in "biufc")


def _values_of(native: Reader, array: Any) -> np.ndarray[Any, Any] | None:
    """Return what is written: numbers of Python and few elements of any library, too.

    ``None`` stands for all else. Memory of a GPU is copied after the work that its library has
    queued, so the caller holds no lock.
    """
    if native.shape is not None:
        return None
    if type(array) is np.ndarray:
        return array
    if isinstance(array, _NUMBERS_OF_PYTHON):
        stored = native.dtype
        return np.asarray(array, stored) if stored.kind in "biufc" else None
    is_for_h5py = isinstance(array, (np.ndarray, str, bytes))
    found = None if is_for_h5py else arrays.find(array)
    if found is None or not found.contiguous or found.dtype.is_extended:
        return None
    if found.nbytes > small.DECODED:
        return None
    host = staging.to_host(found)
    return host if found.device >= 0 else host.copy()  # the view may own the memory


def _type_of(out: Any) -> Any:
    """Return the type of elements by which an array finds its reader; ``None`` if it has none."""
    if type(out) is DeviceArray:
        return element_of(out).numpy
    if type(out) is arrays.View:
        return out.dtype
    return out.dtype if type(out) is np.ndarray or frameworks.is_torch(out) else None


def _view(out: Any, stream: int | None, *, is_new: bool) -> arrays.View:
    """Return the memory of an array that is to be filled."""
    return arrays.new(out, stream) if is_new else arrays.strided_destination(out, stream)


_MOST_DECODED: Final = 4

_known: dict[int, DatasetReader] = {}
"""By the address of h5py's identifier of the dataset, which goes with the last object of it."""


def _in_child() -> None:
    """Let a forked child open readers of its own library."""
    for reader in list(_known.values()):
        for one in (reader, *reader._decoded):
            if one._native is not None:
                one._native = _UNKNOWN
    _known.clear()


os.register_at_fork(after_in_child=_in_child)


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
