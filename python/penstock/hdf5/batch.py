"""The pieces of a read of many datasets, in the structures of the C API."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np

from penstock import arrays, request, transfer
from penstock._native import NULL, CData, ffi, lib, pointer
from penstock._options import OptionKeys
from penstock.arrays import View
from penstock.dtypes import ElementType
from penstock.errors import Error, InvalidError, check
from penstock.hdf5 import memory_types
from penstock.hdf5 import selection as selections
from penstock.hdf5.by_h5py import takes_over
from penstock.hdf5.cf import Decoding
from penstock.hdf5.conversions import Conversions, InMemory, OnlyH5pyError
from penstock.hdf5.dataset_reader import DatasetReader
from penstock.hdf5.library import lock
from penstock.hdf5.reading import read
from penstock.hdf5.selection import Selection
from penstock.hdf5.source import Origin
from penstock.hdf5.submit import Described, SubmitOptions, TypedMemory
from penstock.placement import Device, is_numpy
from penstock.request import Request
from penstock.request_group import RequestGroup
from penstock.stacks import Stack, Wanted, allocate_stacks
from penstock.streams import one_stream

_SHAPE = np.dtype([("rank", "i4"), ("type", "i4"), ("lengths", "u8")])
_PIECE = np.dtype([("selection", "u8"), ("array", "u8")])
_ARRAY = np.dtype(
    [
        ("struct_size", "u8"),
        ("data", "u8"),
        ("type", "i8"),
        ("rank", "i4"),
        ("reserved", "i4"),
        ("shape", "u8"),
        ("strides", "u8"),
        ("decoding", "u8"),
    ]
)


class Destination(NamedTuple):
    """Where the elements of a read go."""

    device: Device
    dtype: Any
    """The type to which they are converted; ``None`` for that of the dataset."""
    options: SubmitOptions
    keys: OptionKeys
    """The options as the caller gave them."""
    cf: bool | Decoding = False
    """Whether, or how, packed and missing values are decoded."""

    @property
    def on_host(self) -> bool:
        """Whether new arrays are NumPy's own."""
        return is_numpy(self.device)


class Batch:
    """A read of many datasets."""

    def __init__(
        self,
        origin: Origin,
        arguments: list[Any],
        out: Sequence[Any] | None,
        destination: Destination,
    ) -> None:
        self._origin = origin
        self._arguments = arguments
        self._out = out
        self._destination = destination
        self._conversions: dict[tuple[int, int], Conversions] = {}
        """By the number of the stored type and the address of the decoding, which they keep."""
        self._selected: dict[int, Selection] = {}
        """The selections of new arrays, except those of a whole dataset."""
        self._new: list[tuple[list[int], Stack]] = []
        """New arrays, with the numbers of their pieces."""
        self._rows: dict[int, np.ndarray[Any, Any]] = {}
        self._kept: list[Any] = []
        """Objects that must live until the native call returns."""
        self._memory: list[View] = []
        """The memory that is filled."""
        self.requests: RequestGroup[Request[Any]] = RequestGroup()
        """The requests that were started."""
        self.results: list[Any] = [None] * len(arguments)
        self.can_change = False
        """Whether a dataset is writable: then the caller keeps the lock until the read ends."""
        self.left: list[int] = []
        """The numbers of the pieces that are read one after the other."""

    def leave_all(self) -> None:
        """Leave all pieces to be read one after the other."""
        self.requests = RequestGroup()
        self.left = list(range(len(self._arguments)))

    def submit(self, flags: int) -> None:
        """Start the read, under the lock of HDF5: one request for each memory.

        The flags are those of the C API besides those for the stream.
        """
        count = len(self._arguments)
        opened = ffi.new("penstock_datasets **")
        described = np.empty(count, _SHAPE)
        try:
            self._origin.describe(_pointer("penstock_dataset_shape *", described), opened)
            can_change = ffi.new("int *")
            check(lib.penstock_datasets_can_change(opened[0], can_change))
            self.can_change = bool(can_change[0])
            self._plan(described["type"].tolist(), _shapes(described))
            with self.requests:
                for place, rows in self._rows.items():
                    self.requests.add(self._start(opened[0], place, rows, flags))
        finally:
            lib.penstock_datasets_close(opened[0])
        for numbers, stack in self._new:
            for number, array in zip(numbers, stack.arrays(), strict=True):
                self.results[number] = array

    def is_left_to_h5py(self, error: Error) -> bool:
        """Whether h5py can read the pieces although the library could not start to."""
        numbers = range(len(self._arguments))
        if all(takes_over(error, self._origin.dataset(number)) for number in numbers):
            return True
        self._origin.explain()
        return False

    def read_left(self) -> None:
        """Read the pieces that are read one after the other."""
        for number in self.left:
            with self.about(number):
                self.results[number] = read(
                    self._origin.dataset(number),
                    self._arguments[number],
                    out=None if self._out is None else self._out[number],
                    device=self._destination.device,
                    dtype=self._destination.dtype,
                    stream=self._destination.options.stream,
                    cf=self._destination.cf,
                    **self._destination.keys,
                )

    def complete(self) -> None:
        """Record the writes in the frameworks of the filled arrays."""
        for view in self._memory:
            arrays.note_write(view)

    def dataset_of(self, error: Error) -> str | None:
        """Return the contiguous dataset that an error is about, if the error does not name it."""
        if error.offset is None or "dataset " in str(error):
            return None
        for number in range(len(self._arguments)):
            dataset = self._origin.dataset(number)
            start, length = dataset.id.get_offset(), dataset.id.get_storage_size()
            if start is not None and start <= error.offset < start + length:
                return f"dataset {dataset.name}"
        return None

    @contextmanager
    def about(self, number: int) -> Iterator[None]:
        """Add the number and the dataset of a piece to errors of its index."""
        try:
            yield
        except (IndexError, TypeError, ValueError) as error:
            what = f"piece {number}, dataset {self._origin.dataset(number).name}"
            if isinstance(error, Error):
                raise error.about(what) from error
            if type(error) in (IndexError, TypeError, ValueError):
                raise type(error)(f"{what}: {error}") from error
            raise  # the constructor of another class may need more than a text

    # -- planning ----------------------------------------------------------------------------------

    def _plan(self, types: list[int], shapes: list[tuple[int, ...] | None]) -> None:
        new: dict[Any, list[int]] = defaultdict(list)
        """Numbers of the pieces for new arrays, by type, shape, fields and how they are decoded."""
        for number, (kind, shape, argument) in enumerate(
            zip(types, shapes, self._arguments, strict=True)
        ):
            if not shape:  # h5py returns no array for it
                self.left.append(number)
            elif self._out is None and type(argument) is tuple and not argument:
                new[kind, shape, None, self._own(number)].append(number)
            else:
                with self.about(number):
                    indices, names = selections.split(argument)
                    selection = _select(shape, indices)
                if selection is None or (self._out is None and not selection.shape):
                    self.left.append(number)  # such as a single element, which is not an array
                elif self._out is None:
                    self._selected[number] = selection
                    new[kind, selection.shape, names, self._own(number)].append(number)
                else:
                    self._plan_given(number, self._out[number], (kind, names), selection)
        found = []
        for (kind, shape, names, _), numbers in new.items():
            how = self._kind(kind, names or (), None, numbers[0])
            if how is None:
                self.left += numbers
            else:
                found.append((shape, how, numbers))
        if found:
            self._plan_new(found)
        self.left.sort()
        if self._out is not None:
            arrays.refuse_overlap(self._memory)

    def _plan_new(self, found: list[tuple[tuple[int, ...], InMemory, list[int]]]) -> None:
        """Plan reads into new arrays; arrays of one shape and type form one stack."""
        stream = self._destination.options.stream
        wanted = [
            Wanted(shape + how.inner, how.element, len(numbers)) for shape, how, numbers in found
        ]
        stacks, shared = allocate_stacks(wanted, self._destination.device, stream)
        view = arrays.view(shared, stream)
        rows = self._rows_of(view)
        for (shape, how, numbers), stack in zip(found, stacks, strict=True):
            places = np.arange(len(numbers))
            addresses = stack.address + stack.step * places
            lengths = np.array(shape, np.uint64)
            described = np.zeros(len(numbers), _ARRAY)
            described["struct_size"] = ffi.sizeof("penstock_array")
            described["data"] = addresses
            described["type"] = how.type.id
            described["rank"] = len(shape)
            described["shape"] = _address(lengths)
            if how.rules is not None:
                described["decoding"] = int(ffi.cast("uintptr_t", how.rules))
            self._kept += [lengths, described, how]
            rows["array"][numbers] = _address(described) + _ARRAY.itemsize * places
            self._new.append((numbers, stack))
            if numbers[0] in self._selected:
                for number, address in zip(numbers, addresses.tolist(), strict=True):
                    part = replace(view, pointer=address, shape=shape + how.inner)
                    memory = TypedMemory(part, how.type, None, how.rules)
                    self._describe(rows, number, self._selected[number], memory)

    def _plan_given(
        self, number: int, out: Any, what: tuple[int, tuple[str, ...]], selection: Selection
    ) -> None:
        """Plan the read of one piece, of a type and of some fields, into an array that is given."""
        try:
            transfer.check_device(out, self._destination.device)
            view = arrays.strided_destination(out, self._destination.options.stream)
        except Error as error:
            raise error.about(f"out[{number}]") from error
        how = self._kind(*what, view.dtype, number)
        if how is None:
            self.left.append(number)
            return
        inner = len(how.inner)
        if view.shape != selection.shape + how.inner:
            raise InvalidError(
                f"dataset {self._origin.dataset(number).name}: out has shape {view.shape}, and the "
                f"selection has shape {selection.shape + how.inner}"
            )
        has_gaps = view.dtype.numpy is not None and memory_types.has_gaps(view.dtype.numpy)
        is_direct = selection.is_grid and view.is_dense(inner) and not has_gaps
        if not view.contiguous and not is_direct:
            self.left.append(number)
            return
        memory = TypedMemory(view, how.type, view.outer_strides(inner), how.rules)
        self._describe(self._rows_of(view), number, selection, memory)
        self.results[number] = out

    def _describe(
        self, rows: np.ndarray[Any, Any], number: int, selection: Selection, memory: TypedMemory
    ) -> None:
        described = Described(selection, memory)
        self._kept += [described, memory.type]
        structs = described.selection, described.array
        rows[number] = tuple(int(ffi.cast("uintptr_t", struct)) for struct in structs)

    def _rows_of(self, view: View) -> np.ndarray[Any, Any]:
        """Return the pieces that are read into the memory where a view is, and keep the view."""
        self._memory.append(view)
        if view.device not in self._rows:
            self._rows[view.device] = np.zeros(len(self._arguments), _PIECE)
        return self._rows[view.device]

    def _kind(
        self, kind: int, names: tuple[str, ...], wanted: ElementType | None, number: int
    ) -> InMemory | None:
        """Return how elements are read; ``None`` if :func:`read` leaves them to h5py.

        Args:
            kind: The number of the stored type.
            names: The fields that are read; all if there are none.
            wanted: The type of the array that is given.
            number: A dataset of that type.
        """
        how = self._decoding(number) if self._destination.cf else None
        if how is not None and wanted is not None:
            how.check_out(wanted, self._origin.dataset(number))
        known = self._conversions.get((kind, id(how)))
        if known is None:
            identifier = self._origin.dataset(number).id
            known = self._conversions[kind, id(how)] = Conversions(identifier, how)
        dtype = None if wanted is not None or how is not None else self._destination.dtype
        try:
            return known.to_read(names, wanted, dtype, for_numpy=self._destination.on_host)
        except OnlyH5pyError:
            return None

    def _own(self, number: int) -> int | None:
        """Return a number of its own for each piece that may be decoded in a way of its own."""
        return number if self._destination.cf else None

    def _decoding(self, number: int) -> Decoding | None:
        cf = self._destination.cf
        dataset = self._origin.dataset(number)
        how = cf if isinstance(cf, Decoding) else DatasetReader.of(dataset).decoding(dataset)
        if how is not None and self._destination.dtype is not None:
            raise InvalidError(
                f"dataset {dataset.name} is decoded to {how.dtype}, and another dtype is given",
                remedy="give cf or dtype, not both",
            )
        return how

    # -- submission --------------------------------------------------------------------------------

    def _start(
        self, opened: CData, place: int, rows: np.ndarray[Any, Any], flags: int
    ) -> Request[Any]:
        options = self._destination.options
        memory = [view for view in self._memory if view.device == place]
        stream = one_stream((view.stream, view.device) for view in memory)
        flags |= transfer.stream_flags(stream, explicit=options.stream is not None)
        return request.submit_with(
            lambda made: int(
                lib.penstock_datasets_read(
                    opened,
                    _pointer("penstock_piece *", rows),
                    len(rows),
                    options.options,
                    NULL if stream is None else pointer(stream),
                    flags,
                    NULL,
                    made,
                )
            ),
            None,
            (memory, self.results),
            before_ns=perf_counter_ns() - options.began,
            step_lock=lock(),
            holds_stream=bool(flags & request.STREAM_WAITS),
        )


def _shapes(described: np.ndarray[Any, Any]) -> list[tuple[int, ...] | None]:
    """Return the shapes of datasets; ``None`` for one without elements."""
    ranks = described["rank"]
    counts = ranks.clip(0)
    total = int(counts.sum())
    lengths: list[int] = []
    if total:
        start = ffi.cast("uint64_t *", int(described["lengths"][0]))
        lengths = np.frombuffer(ffi.buffer(start, 8 * total), np.uint64).tolist()
    if len(ranks) and (ranks == ranks[0]).all() and ranks[0] > 0:
        return list(zip(*[iter(lengths)] * int(ranks[0]), strict=True))
    found: list[tuple[int, ...] | None] = []
    at = 0
    for rank in ranks.tolist():
        found.append(None if rank < 0 else tuple(lengths[at : at + rank]))
        at += max(rank, 0)
    return found


def _select(shape: tuple[int, ...], indices: tuple[Any, ...]) -> Selection | None:
    """Return what indices select; ``None`` for what h5py has to understand or refuse."""
    if indices == () or (len(indices) == 1 and indices[0] is Ellipsis):
        return Selection(shape, shape)
    found = selections.as_elements(shape, indices)
    return None if found is None else Selection(found.shape, shape, found)


def _address(array: np.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])


def _pointer(kind: str, array: np.ndarray[Any, Any]) -> CData:
    return ffi.cast(kind, _address(array))
