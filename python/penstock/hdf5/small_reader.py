"""Reads of datasets that cannot change: by one native call, without HDF5 and its lock."""

from __future__ import annotations

import math
import os
from functools import cache
from time import perf_counter_ns
from typing import Any, Final, NamedTuple
from weakref import WeakSet, ref

import numpy as np

from penstock import frameworks, request, transfer
from penstock._core import Library, Reader
from penstock._native import NULL, CData, ffi, lib, new_report, pointer
from penstock._options import address_of, current
from penstock.device_array import DeviceArray
from penstock.dtypes import element_type
from penstock.errors import check
from penstock.hdf5 import memory_types, small
from penstock.hdf5.library import lock, seems_writable
from penstock.placement import HOST, Device, Placement, allocate, parse_device
from penstock.report import remember
from penstock.request import Request

_AFTER_STREAM: Final = request.CALLER_WAITS | request.AFTER_STREAM
FALLBACK_STATUSES: Final = (lib.PENSTOCK_PENDING, lib.PENSTOCK_ERR_FORKED)
"""What a reader returns for reads of another kind, and in a forked child that has no library."""
_STRUCTS: Final = ("penstock_axis", "penstock_selection", "penstock_array", "penstock_report")


@cache
def _library() -> Library:
    """Return the library of this process."""
    return Library(
        read=int(ffi.cast("uintptr_t", lib.penstock_reader_read)),
        start=int(ffi.cast("uintptr_t", lib.penstock_reader_start)),
        sizes=tuple(ffi.sizeof(name) for name in _STRUCTS),
        fallback=FALLBACK_STATUSES,
        options=current,
        parse=address_of,
        check=check,
        remember=remember,
    )


class _Stored(NamedTuple):
    """A type of stored numbers."""

    kind: Any
    """The ``h5py.h5t.TypeID``."""
    numpy: np.dtype[Any]


_stored: list[_Stored] = []
"""Those that datasets had: to find an equal one is cheaper than to make NumPy's type again."""

_MOST_STORED: Final = 16


def _stored_type(kind: Any) -> _Stored:
    """Return the same type for all equal types of numbers."""
    for known in _stored:
        if known.kind.equal(kind):
            return known
    dtype = kind.dtype
    if dtype.kind not in "iuf" or dtype.metadata or len(_stored) == _MOST_STORED:
        return _Stored(kind, dtype)
    made = _Stored(kind.copy(), dtype)  # a type of the file's own would keep the file open
    _stored.append(made)
    return made


class SmallReader:
    """Reads what integers, slices and a list select of a dataset of a file open for reading."""

    def __init__(self, identifier: Any, shape: tuple[int, ...], stored: _Stored) -> None:
        # A reference to the reader must not keep the dataset, and with it the file, open.
        self._identifier = ref(identifier)
        self.shape = shape
        self._stored = stored.numpy
        self._kind = stored.kind
        self._own: Reader | None = None
        """The reader of elements of the dataset's own type."""
        self._readers: dict[Any, Reader | None] = {}
        """By the type of an array."""
        self._places: list[CData] = []
        _all.add(self)

    @classmethod
    def of(cls, dataset: Any) -> SmallReader | None:
        """Make a reader of an open dataset; ``None`` if that may change, or has no numbers."""
        if seems_writable(dataset):
            return None
        identifier = dataset.id
        shape, stored = identifier.shape, _stored_type(identifier.get_type())
        is_ours = shape and stored.numpy.kind in "iuf" and not stored.numpy.metadata
        return cls(identifier, shape, stored) if is_ours else None

    def is_forgotten(self) -> bool:
        """Whether the library has forgotten the dataset, so that this reads nothing any more."""
        return any(lib.penstock_reader_is_forgotten(place[0]) for place in self._places)

    def read(self, selection: Any) -> tuple[Any, bool]:
        """Return a new NumPy array or a scalar, and whether it has the elements.

        If not, they are not small. The array is then still to be filled, or ``None``.
        """
        reader = self._own or self._own_reader()
        return (None, False) if reader is None else reader.read(selection)

    def allocate_on_host(self, selection: Any) -> Any | None:
        """Return a new NumPy array for selected elements; ``None`` if they are not small."""
        own = self._own or self._own_reader()
        shape = None if own is None else own.shape_of(selection)
        return None if shape is None else np.empty(shape, self._stored)

    def allocate(self, selection: Any, device: Device, stream: int | None = None) -> Any | None:
        """Return a new array on a GPU for selected elements; ``None`` if they are not small.

        Args:
            selection: What ``dataset[...]`` takes.
            device: The GPU.
            stream: The memory is used after the work that is queued there, if it is not ``None``.
        """
        own = self._own or self._own_reader()
        shape = None if own is None else own.shape_of(selection)
        return None if shape is None else self._allocate(shape, device, stream)

    def read_on_gpu(
        self,
        selection: Any,
        out: Any,
        stream: int | None,
        options: CData,
        *,
        is_new: bool = False,
    ) -> bool:
        """Fill an array on a GPU: a tensor of torch, or a ``DeviceArray``.

        Args:
            selection: What ``dataset[...]`` takes.
            out: The array.
            stream: The memory is used after the work that is queued there, if it is not ``None``.
            options: The ``penstock_options *`` of the call, or NULL.
            is_new: Whether the caller has not seen the array yet.

        Returns:
            False if the elements are not small, or other than those of the array.
        """
        found = self._find(out)
        if found is None or request.has_stream_holders():
            return False
        reader, address = found
        if stream is None and type(out) is not DeviceArray:
            stream = _current_stream(out)
        flags = request.CALLER_WAITS if stream is None else _AFTER_STREAM
        flags |= request.ZERO_HOLES if is_new else 0
        of_call = int(ffi.cast("uintptr_t", options))
        if not reader.read_at(selection, out.shape, address, stream or 0, flags, of_call):
            made = self._start_on_gpu(reader, selection, out, address, stream, flags, of_call)
            if made is None:
                return False
            transfer.finish(made)
        if not is_new:
            _note_write(out)
        return True

    def read_into(self, selection: Any, out: np.ndarray[Any, Any]) -> bool:
        """Fill an array of NumPy.

        Returns false if the elements are not small, or other than those of the array.
        """
        reader = self._own or self._own_reader()
        filled = None if reader is None else reader.read_into(selection, out)
        if filled is None:
            reader = self._reader(out.dtype)
            filled = None if reader is None else reader.read_into(selection, out)
        return bool(filled)

    def start_into(
        self, selection: Any, out: Any, options: CData, began: int, *, is_new: bool = False
    ) -> Request[Any] | None:
        """Start to fill an array of NumPy, or one on a GPU.

        Returns ``None`` if the elements are not small, or other than those of the array. The report
        counts from ``began``.
        """
        flags = request.ZERO_HOLES if is_new else 0
        made = self._start(selection, out, options, began, flags)
        if made is not None:
            _note_write(out)
        return made

    def _start(
        self, selection: Any, out: Any, options: CData, began: int, flags: int = 0
    ) -> Request[Any] | None:
        of_call = int(ffi.cast("uintptr_t", options))
        keep = (out, self._identifier())
        if type(out) is np.ndarray:
            of_host = self._reader(out.dtype)
            if of_host is None:
                return None
            return request.submit_if(
                lambda place: of_host.start_into(
                    selection, out, flags, of_call, int(ffi.cast("uintptr_t", place))
                ),
                out,
                keep,
                before_ns=perf_counter_ns() - began,
            )
        found = self._find(out)
        if found is None:
            return None
        reader, address = found
        stream = _current_stream(out)
        flags |= 0 if stream is None else request.AFTER_STREAM
        return self._start_on_gpu(reader, selection, out, address, stream, flags, of_call, began)

    def _start_on_gpu(
        self,
        reader: Reader,
        selection: Any,
        out: Any,
        address: int,
        stream: int | None,
        flags: int,
        of_call: int,
        began: int | None = None,
    ) -> Request[Any] | None:
        """Start to fill an array on a GPU, whose first element is at ``address``."""
        began = perf_counter_ns() if began is None else began
        shape = out.shape
        return request.submit_if(
            lambda place: reader.start(
                selection,
                shape,
                address,
                stream or 0,
                flags,
                of_call,
                int(ffi.cast("uintptr_t", place)),
            ),
            out,
            (out, self._identifier()),
            before_ns=perf_counter_ns() - began,
        )

    def _allocate(
        self, shape: tuple[int, ...], device: Device, stream: int | None = None
    ) -> Any | None:
        """Return a new array on a GPU; ``None`` for host memory and for CuPy."""
        if type(device) is not str:
            is_cupy = isinstance(device, Placement) and device.library == "cupy"
            if is_cupy or parse_device(device) == HOST:
                return None
        elif device != "cuda" and parse_device(device) == HOST:
            return None
        is_usual = type(device) is str and stream is None
        dtype = _torch_dtypes.get(self._stored) if is_usual else None
        if dtype is None or os.environ.get("PENSTOCK_ARRAYS", "torch") != "torch":
            out = allocate(shape, element_type(self._stored.newbyteorder("=")), device, stream)
            if type(out) is DeviceArray:
                return out
            if frameworks.is_torch(out):
                _torch_dtypes[self._stored] = out.dtype
        else:
            torch = frameworks.loaded("torch")
            assert torch is not None
            out = torch.empty(shape, dtype=dtype, device=device)
        if self._stored.isnative:
            self._readers.setdefault(out.dtype, self._own)
        return out

    def _find(self, out: Any) -> tuple[Reader, int] | None:
        """Return the reader for the elements of an array on a GPU, and the address of the first.

        ``None`` for what a reader cannot fill.
        """
        if type(out) is DeviceArray:
            address = out.data_ptr
        else:
            torch = frameworks.loaded("torch")
            if torch is None or type(out) is not torch.Tensor or not out.is_cuda:
                return None
            if not out.is_contiguous() or out.is_neg() or frameworks.records_gradients(out):
                return None
            address = out.data_ptr()
        reader = self._reader(out.dtype)
        return None if reader is None else (reader, address)

    def _own_reader(self) -> Reader | None:
        self._own = self._reader(self._stored)
        return self._own

    def _reader(self, dtype: Any) -> Reader | None:
        """Return the reader of elements of a type of NumPy or torch; ``None`` if there is none."""
        try:
            return self._readers[dtype]
        except KeyError:
            pass  # it is no context of an error below
        return self._open(dtype)

    def _open(self, dtype: Any) -> Reader | None:
        self._readers[dtype] = None
        try:
            return self._opened(dtype)
        except BaseException:  # a later call may succeed
            self._readers.pop(dtype, None)
            raise

    def _opened(self, dtype: Any) -> Reader | None:
        wanted = element_type(dtype)
        kind = memory_types.memory_type(wanted, self._stored)
        if kind is None or memory_types.needs_numpy(self._stored, wanted.numpy):
            return None
        if not memory_types.converts(self._kind, kind, wanted):
            return None
        identifier = self._identifier()
        if identifier is None:
            return None
        place = _new_place()
        with lock():
            status = lib.penstock_reader_open(identifier.id, kind.id, place)
        if status not in FALLBACK_STATUSES:
            check(status)
        if place[0] == NULL:
            if status == lib.PENSTOCK_PENDING:  # there may be one later
                self._readers.pop(dtype, None)  # another thread may have come first
            return None
        made = Reader(
            library=_library(),
            handle=int(ffi.cast("uintptr_t", place[0])),
            owner=(place, kind),
            dataset=identifier,
            shape=self.shape,
            element=kind.id,
            dtype=wanted.numpy,
            itemsize=kind.get_size(),
            most=small.WAITED,
            at_once=small.ROWS,
            brief=small.BRIEF,
            flags=request.CALLER_WAITS,
            copies=kind.equal(self._kind) and _is_copied(identifier),
        )
        self._places.append(place)
        self._readers[dtype] = made
        return made


def _new_place() -> CData:
    """Return a place for a reader, which closes it.

    The native call puts the reader there itself. So an exception of a signal handler after the call
    does not leave it open.
    """
    return ffi.gc(ffi.new("penstock_reader **"), lib.penstock_reader_release)


def _is_copied(identifier: Any) -> bool:
    """Whether a small read without conversion copies the bytes of a few places in the file."""
    import h5py

    with lock():
        if identifier.dtype.hasobject:  # see library.creation_properties
            return False
        creation = identifier.get_create_plist()
        layout = creation.get_layout()
        if creation.get_nfilters():
            return False
        if layout == h5py.h5d.CHUNKED:
            chunk = math.prod(creation.get_chunk()) * identifier.get_type().get_size()
            return bool(small.FEW_CHUNKS * chunk >= small.BRIEF)
        return bool(layout == h5py.h5d.CONTIGUOUS)


def _current_stream(out: Any) -> int | None:
    """Return torch's current stream, whose queued work a read into a tensor follows.

    ``None`` for a ``DeviceArray``, on which no library has queued work.
    """
    if type(out) is DeviceArray:
        return None
    return frameworks.torch_stream(frameworks.loaded("torch"), out.get_device())


def _note_write(out: Any) -> None:
    """Tell torch that a tensor has changed."""
    if type(out) is not DeviceArray and type(out) is not np.ndarray:
        frameworks.note_write(frameworks.loaded("torch"), out)


_all: WeakSet[SmallReader] = WeakSet()


_torch_dtypes: dict[np.dtype[Any], Any] = {}
"""torch's type for each type of stored numbers of which it made an array."""


def _in_child() -> None:
    """Let a forked child open readers of its own library."""
    _library.cache_clear()
    for reader in _all:
        reader._own, reader._readers, reader._places = None, {}, []


os.register_at_fork(after_in_child=_in_child)


def read_once(
    dataset: Any,
    kind: Any,
    selection: CData,
    array: CData,
    options: CData,
    stream: int | None,
    flags: int,
) -> CData | None:
    """Read selected elements of an ``h5py.Dataset`` on this thread, without HDF5's lock.

    Args:
        dataset: The dataset.
        kind: The ``h5py.h5t.TypeID`` of an element in memory.
        selection: The ``penstock_selection *``, or NULL for all elements.
        array: The ``penstock_array *`` to fill.
        options: The ``penstock_options *`` of the call, or NULL.
        stream: The stream whose queued work precedes the read.
        flags: Flags of the C API besides those for the stream.

    Returns:
        The ``penstock_report``; ``None`` if workers, or HDF5, are to carry out the read.
    """
    place = _new_place()
    with lock():
        status = lib.penstock_reader_open(dataset.id.id, kind.id, place)
    if status not in FALLBACK_STATUSES:
        check(status)
    if place[0] == NULL:
        return None
    flags |= request.CALLER_WAITS if stream is None else _AFTER_STREAM
    handle = NULL if stream is None else pointer(stream)
    report = new_report()
    try:
        status = lib.penstock_reader_read(
            place[0], selection, array, options, handle, flags, report
        )
    finally:
        ffi.release(place)
    if status in FALLBACK_STATUSES:
        return None
    check(status)
    return report
