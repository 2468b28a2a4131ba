"""Reads of one dataset by one native call.

That takes neither HDF5 nor its lock if the dataset cannot change.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, Final
from weakref import WeakSet, ref

import numpy as np

from penstock import arrays, frameworks, request, staging, transfer
from penstock._core import Reader, elements
from penstock._native import NULL, CData, address, ffi, lib
from penstock.device_array import DeviceArray, element_of
from penstock.dtypes import ElementType, element_type, numpy_dtype
from penstock.errors import check
from penstock.hdf5 import small
from penstock.hdf5.conversions import (
    Conversions,
    InMemory,
    OnlyH5pyError,
    is_equal_to_equals,
)
from penstock.hdf5.library import lock
from penstock.hdf5.selection import split
from penstock.native_calls import FALLBACK_STATUSES, library
from penstock.placement import Device, Placement, allocate, is_numpy
from penstock.records import in_c_order
from penstock.request import Request

_NUMBERS: Final = {
    (ord(letter), order, size): np.dtype(f"{'<>'[order]}{letter}{size}")
    for letter, sizes in (("i", (1, 2, 4, 8)), ("u", (1, 2, 4, 8)), ("f", (2, 4, 8)))
    for order in (0, 1)
    for size in sizes
}
"""NumPy's types of the numbers in ``penstock_reader_facts``."""

_KINDS: Final = "biufcSV"
"""The kinds of elements that NumPy holds itself, and HDF5 has types for."""


def _is_native(dtype: np.dtype[Any]) -> bool:
    """Whether NumPy holds elements of a type itself: numbers, enumerations, bytes, structures."""
    if dtype.hasobject or dtype.subdtype or dtype.kind not in _KINDS:
        return False
    return dtype.kind == "S" or set(dtype.metadata or ()) <= {"enum"}


def _are_numbers(stored: np.dtype[Any], wanted: ElementType | None) -> bool:
    """Whether the library converts stored numbers to others."""
    target = None if wanted is None or wanted.is_extended else wanted.numpy
    is_number = stored.kind in "iuf" and not stored.metadata
    return is_number and (target is None or target.kind in "biufc")


@dataclass(frozen=True)
class _Field:
    """The key of the reader of a field."""

    name: str


_NUMBERS_OF_PYTHON: Final = (bool, int, float, complex, np.generic, list, tuple)


class NativeReader:
    """Reads what integers, slices and a list select of a dataset.

    Of a dataset that may change, or that only HDF5 can read, it reads small parts, by HDF5.
    """

    def __init__(
        self,
        identifier: Any,
        shape: tuple[int, ...],
        stored: np.dtype[Any],
        conversions: Conversions,
    ) -> None:
        # A reference to the reader must not keep the dataset, and with it the file, open.
        self._identifier = ref(identifier)
        self.shape = shape
        """That of a dataset which may change is the one when it was opened."""
        self.is_fixed = True
        """Whether the dataset cannot change. The first reader finds that out."""
        self._stored = stored
        """The type as which elements are read, unless another one is asked for."""
        self._on_gpu: ElementType | None = None
        """Their type in a new array of a GPU."""
        self._conversions = conversions
        self._own: Reader | None = None
        """The reader of elements of the dataset's own type."""
        self._readers: dict[Any, Reader | None] = {}
        """By the type of an array."""
        self._places: list[CData] = []
        _all.add(self)

    @classmethod
    def of(
        cls, identifier: Any, conversions: Conversions, *, is_decoded: bool
    ) -> NativeReader | None:
        """Make a reader of an open dataset; ``None`` if elements are none that NumPy holds itself.

        The conversions may decode elements; ``None``, too, if the library cannot.
        """
        numbers = None if is_decoded else cls._of_numbers(identifier, conversions)
        if numbers is not None:
            return numbers
        shape, dtype = identifier.shape, conversions.stored
        if not shape or not _is_native(dtype):
            return None
        if is_decoded:
            try:
                dtype = numpy_dtype(conversions.to_read().element)
            except OnlyH5pyError:
                return None
        return cls(identifier, shape, dtype, conversions)

    @classmethod
    def _of_numbers(cls, identifier: Any, conversions: Conversions) -> NativeReader | None:
        """Make a reader of machine numbers, whose type the library describes itself."""
        place = _new_place()
        with lock():
            facts = _open(identifier, 0, None, place)
            if facts is None or not facts.rank:
                return None
            dtype = _NUMBERS.get((facts.number, facts.order, facts.size))
            if dtype is None:
                return None
            is_fixed = bool(facts.ways & _WITHOUT_HDF5)
            shape = tuple(ffi.unpack(facts.shape, facts.rank)) if is_fixed else identifier.shape
            made = cls(identifier, shape, dtype, conversions)
            made._own = made._made(identifier, place, (0, dtype, dtype.itemsize), None, facts)
        made._readers[dtype] = made._own
        return made

    def is_forgotten(self) -> bool:
        """Whether the library has forgotten the dataset, so that this reads nothing any more."""
        return any(lib.penstock_reader_is_forgotten(place[0]) for place in self._places)

    def read(self, selection: Any, dtype: Any = None) -> tuple[Any, bool]:
        """Return a new NumPy array or a scalar, and whether it has the elements.

        If not, they are not small. The array is then still to be filled, or ``None``. With
        ``dtype``, numbers are converted to that type.
        """
        reader = self._own or self._own_reader()
        if dtype is not None and reader is not None:
            if isinstance(dtype, np.dtype) and not is_equal_to_equals(dtype):
                return None, False
            reader = self._reader(dtype)
        if reader is None:
            return None, False
        made, is_filled = reader.read(selection)
        if not is_filled and self._stored.names is not None and dtype is None:
            return self._read_field(selection)
        return made, is_filled

    def _read_field(self, selection: Any) -> tuple[Any, bool]:
        """Do what :meth:`read` does for a selection that names a field."""
        indices, names = split(selection)
        if len(names) != 1 or names[0] not in (self._stored.names or ()):
            return None, False
        reader = self._reader(_Field(names[0]))
        return (None, False) if reader is None else reader.read(indices)

    def allocate(
        self, selection: Any, device: Device, dtype: Any = None, stream: int | None = None
    ) -> Any | None:
        """Return a new array for selected elements; ``None`` if they are not small.

        ``None``, too, for an array of a type to which the library does not convert. That of a
        scalar has no dimensions.

        Args:
            selection: What ``dataset[...]`` takes.
            device: The device, or a placement.
            dtype: The type of the elements; ``None`` for the dataset's.
            stream: The memory is used after the work that is queued there, if it is not ``None``.
        """
        own = self._own or self._own_reader()
        is_own = dtype is None
        if not is_own and self._reader(dtype) is None:
            return None
        shape = None if own is None else own.shape_of(selection)
        if shape is None:
            return None
        if not isinstance(device, Placement) and device != "cuda" and is_numpy(device):
            kind = self._stored if is_own else element_type(dtype).numpy
            make = np.zeros if self._stored.kind == "V" else np.empty  # gaps stay as they are
            return None if kind is None else make(shape, kind)
        if not self.is_fixed and math.prod(shape) * self._stored.itemsize > small.DECODED:
            return None  # HDF5 reads no more into a GPU
        if self._on_gpu is None:
            self._on_gpu = element_type(self._stored.newbyteorder("="))
        wanted = self._on_gpu if is_own else element_type(dtype)
        out = allocate(shape, wanted, device, stream)
        if is_own and self._stored.isnative and type(out) is not DeviceArray:
            self._readers.setdefault(out.dtype, self._own)
        return out

    def read_into(
        self,
        selection: Any,
        out: Any,
        stream: int | None = None,
        options: CData | None = None,
        *,
        is_new: bool = False,
    ) -> bool:
        """Fill an array.

        Args:
            selection: What ``dataset[...]`` takes.
            out: The array.
            stream: GPU memory is used after the work that is queued there; if ``None``, after that
                of the library's current stream.
            options: The ``penstock_options *`` of the call; ``None`` for those of the thread.
            is_new: Whether the caller has not seen the array yet.

        Returns:
            False if the elements are not small, or other than those of the array.
        """
        own = self._own or self._own_reader()
        is_numpy = type(out) is np.ndarray
        if own is None or (not is_numpy and request.stream_holders):
            return False
        of_call = 0 if options is None else address(options)
        if self._fill(own, selection, out, stream, of_call, is_new=is_new):
            return True
        if is_numpy:
            is_plain = options is None and stream is None
            return is_plain and self._read_strided(own, selection, out)
        if not self.is_fixed:
            return False
        began, memory = perf_counter_ns(), out
        if type(out) is not DeviceArray and not frameworks.is_torch(out):
            memory = _view(out, stream, is_new=is_new)
            if self._fill(own, selection, memory, stream, of_call, is_new=is_new):
                return True
        made = self.start_into(selection, memory, options, began, stream=stream, is_new=is_new)
        if made is None:
            return False
        transfer.finish(made)
        return True

    def _fill(
        self,
        own: Reader,
        selection: Any,
        out: Any,
        stream: int | None = None,
        options: int = 0,
        *,
        is_new: bool = False,
    ) -> bool:
        is_filled = own.fill(selection, out, self._readers, stream, options, is_new)
        if is_filled is None and self._reader(_type_of(out)) is not None:
            is_filled = own.fill(selection, out, self._readers, stream, options, is_new)
        return bool(is_filled)

    def _read_strided(self, own: Reader, selection: Any, out: np.ndarray[Any, Any]) -> bool:
        """Fill a NumPy array of few elements that are not in C order, by way of a copy.

        The copy also has what HDF5 leaves as it is.
        """
        if out.flags.c_contiguous or out.nbytes > small.LIMIT:
            return False
        arrays.strided_destination(out)  # raises an error if its elements share memory
        copy = out.copy()
        if not self._fill(own, selection, copy):
            return False
        out[...] = copy
        return True

    def values_of(self, array: Any) -> np.ndarray[Any, Any] | None:
        """Return what :meth:`write` takes: numbers of Python and few elements of any library, too.

        ``None`` stands for all else. Memory of a GPU is copied after the work that its library has
        queued, so the caller holds no lock.
        """
        if self.is_fixed:
            return None
        if type(array) is np.ndarray:
            return array
        if isinstance(array, _NUMBERS_OF_PYTHON):
            return np.asarray(array, self._stored) if self._stored.kind in "biufc" else None
        is_for_h5py = isinstance(array, (np.ndarray, str, bytes))
        found = None if is_for_h5py else arrays.find(array)
        if found is None or not found.contiguous or found.dtype.is_extended:
            return None
        if found.nbytes > small.DECODED:
            return None
        host = staging.to_host(found)
        return host if found.device >= 0 else host.copy()  # the view may own the memory

    def write(self, selection: Any, array: np.ndarray[Any, Any]) -> bool:
        """Write few elements from a NumPy array of their shape.

        Returns false if they are not few, or of types between which the library does not convert.
        """
        own = self._own or self._own_reader()
        if own is None:
            return False
        if array.dtype.kind not in _KINDS or array.dtype.hasobject:
            return False
        if not array.flags.c_contiguous and array.nbytes <= small.LIMIT:
            array = in_c_order(array)
        if self._write(own, selection, array):
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
        return self._write(own, selection, spread)

    def _write(self, own: Reader, selection: Any, array: np.ndarray[Any, Any]) -> bool:
        is_written = own.write(selection, array, self._readers)
        if is_written is None and self._reader(array.dtype) is not None:
            is_written = own.write(selection, array, self._readers)
        return bool(is_written)

    def start_into(
        self,
        selection: Any,
        out: Any,
        options: CData | None,
        began: int,
        *,
        stream: int | None = None,
        is_new: bool = False,
    ) -> Request[Any] | None:
        """Start to fill an array as :meth:`read_into` does.

        Returns ``None`` if the elements are not small, or other than those of the array. The report
        counts from ``began``.
        """
        own = self._own or self._own_reader()
        if own is None or not self.is_fixed:
            return None
        memory, kind = out, _type_of(out)
        if kind is None:
            memory = _view(out, stream, is_new=is_new)
            kind = memory.dtype
        if self._reader(kind) is None:
            return None
        readers = self._readers
        of_call = 0 if options is None else address(options)
        return request.submit_if(
            lambda place: own.start(
                selection,
                memory,
                readers,
                stream,
                of_call,
                is_new,
                int(ffi.cast("uintptr_t", place)),
            ),
            out,
            (memory, self._identifier()),
            before_ns=perf_counter_ns() - began,
        )

    def _own_reader(self) -> Reader | None:
        self._own = self._reader(self._stored)
        return self._own

    def _reader(self, dtype: Any) -> Reader | None:
        """Return the reader of elements of a type; ``None`` if there is none.

        ``None`` is not a type.
        """
        try:
            return self._readers[dtype]
        except KeyError:
            pass  # it is not a context of an error below
        except TypeError:  # the type of a structure that is no key
            return None
        return self._open(dtype)

    def _open(self, dtype: Any) -> Reader | None:
        self._readers[dtype] = None
        if dtype is None:
            return None
        try:
            return self._opened(dtype)
        except BaseException:  # a later call may succeed
            self._readers.pop(dtype, None)
            raise

    def _opened(self, dtype: Any) -> Reader | None:
        identifier = self._identifier()
        if identifier is None:
            return None
        stored = self._stored
        names: tuple[str, ...] = ()
        wanted = None
        if isinstance(dtype, _Field):
            stored, names = stored[dtype.name], (dtype.name,)
        else:
            wanted = dtype if isinstance(dtype, ElementType) else element_type(dtype)
        is_same = wanted is None or wanted.numpy == stored
        if not is_same and not _are_numbers(stored, wanted):
            return None
        place = _new_place()
        with lock():
            if not identifier.valid:
                return None
            try:
                memory = self._conversions.to_read(names, wanted)
            except OnlyH5pyError:
                return None
            is_decoded = memory.rules is not None
            if not _is_native(stored) or (is_decoded and not is_same):
                return None
            facts = _open(identifier, memory.type.id, memory.rules, place)
            if facts is None:
                return None
            target = None if memory.element.is_extended else memory.element.numpy
            element = (memory.type.id, target, memory.type.get_size())
            made = self._made(identifier, place, element, memory, facts)
        self._readers[dtype] = made
        return made

    def _made(
        self,
        identifier: Any,
        place: CData,
        element: tuple[int, np.dtype[Any] | None, int],
        memory: InMemory | None,
        facts: CData,
    ) -> Reader:
        """Return the native reader of elements: HDF5's identifier, NumPy's type and bytes."""
        number, dtype, itemsize = element
        is_fixed = bool(facts.ways & _WITHOUT_HDF5)
        if self._own is None:
            self.is_fixed = is_fixed
        is_plain = memory is None or (
            memory.rules is None and memory.type.equal(self._conversions.kind)
        )
        pieces: int = lib.penstock_reader_pieces(place[0], small.BRIEF) if is_plain else 0
        self._places.append(place)
        return Reader(
            library=library(),
            handle=address(place[0]),
            owner=(place, memory),
            dataset=identifier,
            rank=len(self.shape),
            shape=self.shape if is_fixed else None,
            lock=lock() if facts.ways & _WITH_HDF5 else None,
            element=number,
            dtype=dtype,
            itemsize=itemsize,
            most=small.STARTED,
            at_once=small.ROWS,
            brief=small.BRIEF,
            flags=request.CALLER_WAITS,
            copies=0 < pieces <= small.FEW_CHUNKS,
        )


_SIZE_OF_FACTS: Final = ffi.sizeof("penstock_reader_facts")
_WITHOUT_HDF5: Final = 1
_WITH_HDF5: Final = 2


def _open(identifier: Any, kind: int, rules: CData | None, place: CData) -> CData | None:
    """Open a ``penstock_reader``, under the lock of HDF5, and return what it knows; or ``None``."""
    decoding = NULL if rules is None else rules
    status = lib.penstock_reader_open_decoded(identifier.id, kind, decoding, place)
    if status not in FALLBACK_STATUSES:
        check(status)
    if place[0] == NULL:
        return None
    # A signal handler may open another reader in between.
    facts = ffi.new("penstock_reader_facts *")
    facts.struct_size = _SIZE_OF_FACTS
    check(lib.penstock_reader_describe(place[0], facts))
    return facts


def _new_place() -> CData:
    """Return a place for a reader, which closes it.

    The native call puts the reader there itself. So an exception of a signal handler after the call
    does not leave it open.
    """
    return ffi.gc(ffi.new("penstock_reader **"), lib.penstock_reader_release)


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


_all: WeakSet[NativeReader] = WeakSet()


def _in_child() -> None:
    """Let a forked child open readers of its own library."""
    for reader in _all:
        reader._own, reader._readers, reader._places = None, {}, []


os.register_at_fork(after_in_child=_in_child)
