"""The places of a dataset's elements in a file, as data that one process sends to others."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from penstock._native import NULL, CData, ffi, lib
from penstock.dtypes import ElementType, element_type
from penstock.errors import InvalidError, UnavailableError, check
from penstock.hdf5.library import check_dataset, lock

Numbers = np.ndarray[Any, Any]

_NOWHERE = (1 << 64) - 1
_LARGEST_FILE = (1 << 63) - 1

# The codes of penstock_number by NumPy's kind and size of a real number.
_CODES = {
    **{("u", 1 << at): 1 + 2 * at for at in range(4)},
    **{("i", 1 << at): 2 + 2 * at for at in range(4)},
    ("f", 2): 11,
    ("f", 4): 13,
    ("f", 8): 14,
}
_EXTENDED = {"bfloat16": 12}
_BIG_ENDIAN = 256


@dataclass(frozen=True)
class Description:
    """The data with which elements of an array are read and written without HDF5.

    The lists have an item for each stored chunk. A list is ``None`` where a rule gives its items.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    """The type of an element in the file."""
    fill: bytes | None
    """The value of unwritten elements."""
    file_size: int
    offset: int | None
    """Offset of the first element; of the first chunk, if ``addresses`` is ``None``."""
    chunks: tuple[int, ...] | None
    filters: tuple[tuple[int, bool, tuple[int, ...]], ...]
    unfiltered_edges: bool
    stored: int = 0
    """The number of stored chunks."""
    numbers: Numbers | None = None
    """Places of the chunks, counted in C order; ``None`` for 0, 1, 2 and so on."""
    addresses: Numbers | None = None
    """Offsets of the chunks; ``None`` if they follow each other, without filters."""
    sizes: Numbers | None = None
    """Stored bytes; ``None`` for those of chunks without filters."""
    masks: Numbers | None = None
    """Skipped filters, a bit each; ``None`` for none."""

    @classmethod
    def of(cls, dataset: Any) -> Description:
        """Describe an ``h5py.Dataset``.

        Raises:
            UnavailableError: Only HDF5 can read it; the message says why.
        """
        import h5py

        check_dataset(dataset)
        dtype = dataset.dtype
        if dtype.hasobject or not dataset.id.get_type().equal(
            h5py.h5t.py_create(dtype, logical=True)
        ):
            raise UnavailableError(f"only HDF5 reads elements of type {dtype} of {dataset.name}")
        if dtype.metadata:
            dtype = np.dtype(dtype.str)  # names of an enumeration, the encoding of a string
        opened = place_of("penstock_stored **", lib.penstock_stored_close)
        with lock():
            check(lib.penstock_dataset_describe(dataset.id.id, opened))
        shown = ffi.new("penstock_stored_array *")
        shown.struct_size = ffi.sizeof("penstock_stored_array")
        check(lib.penstock_stored_describe(opened[0], shown))
        chunks = None if shown.chunk == NULL else tuple(dataset.chunks)
        found = cls(
            name=os.fsdecode(dataset.name or ""),  # bytes, if they are not UTF-8
            shape=tuple(dataset.shape),
            dtype=dtype,
            fill=None if shown.fill == NULL else bytes(ffi.buffer(shown.fill, shown.element)),
            file_size=min(int(shown.file_size), _LARGEST_FILE),
            offset=None if shown.offset == _NOWHERE else int(shown.offset),
            chunks=chunks,
            filters=tuple(_filter(shown.filters[at]) for at in range(shown.filter_count)),
            unfiltered_edges=bool(shown.unfiltered_edges),
            stored=int(shown.chunk_count),
            numbers=_list(shown.chunk_numbers, shown.chunk_count, np.uint64),
            addresses=_list(shown.chunk_addresses, shown.chunk_count, np.uint64),
            sizes=_list(shown.chunk_sizes, shown.chunk_count, np.uint64),
            masks=_list(shown.chunk_masks, shown.chunk_count, np.uint32),
        )
        return found.shortened()

    def shortened(self) -> Description:
        """Return the same description without the lists that a rule can replace."""
        if self.chunks is None or self.addresses is None:
            return self
        counts = [-(-side // unit) for side, unit in zip(self.shape, self.chunks, strict=True)]
        plain = math.prod(self.chunks) * self.dtype.itemsize
        numbers, sizes, masks = self.numbers, self.sizes, self.masks
        if self.stored == math.prod(counts):
            numbers = None  # sorted, and none missing
        if sizes is not None and (sizes == plain).all():
            sizes = None
        if masks is not None and not masks.any():
            masks = None
        addresses: Numbers | None = self.addresses
        offset = self.offset
        is_whole = 0 < self.stored == math.prod(counts)
        has_rule = is_whole and sizes is None and masks is None and not self.filters
        if has_rule and (np.diff(self.addresses) == plain).all():
            offset, addresses = int(self.addresses[0]), None
        return replace(
            self, numbers=numbers, sizes=sizes, masks=masks, addresses=addresses, offset=offset
        )

    def for_writing(self) -> Description:
        """Return the description of an array whose file is being written, and has no length yet."""
        return replace(self, file_size=_LARGEST_FILE)

    @property
    def is_filtered(self) -> bool:
        """Whether the size of a chunk is known only after it is encoded."""
        return bool(self.filters)

    @property
    def has_numbers(self) -> bool:
        """Whether the elements are numbers, which the library converts."""
        return number_code(element_type(self.dtype.base)) != 0


class StoredArray:
    """An array that the native library knows by its description."""

    def __init__(self, description: Description) -> None:
        self.description = description
        self._opened = place_of("penstock_stored **", lib.penstock_stored_close)
        given = description
        _check_lengths(given)
        kept: list[Any] = []

        def numbers(values: Any, kind: str) -> CData:
            if values is None:
                return NULL
            if isinstance(values, np.ndarray):
                values = np.ascontiguousarray(values, dtype=kind)
                if not values.size:
                    return NULL
                made = ffi.from_buffer("uint32_t[]" if kind == "u4" else "uint64_t[]", values)
            else:
                made = ffi.new("uint32_t[]" if kind == "u4" else "uint64_t[]", list(values))
            kept.append((values, made))
            return made

        array = ffi.new("penstock_stored_array *")
        name = ffi.from_buffer("char[]", os.fsencode(given.name) + b"\0")
        filters = ffi.new("penstock_filter[]", len(given.filters))
        for at, (number, is_optional, values) in enumerate(given.filters):
            filters[at] = (number, is_optional, len(values), 0, numbers(values, "u4"))
        fill = NULL if given.fill is None else ffi.from_buffer("char[]", given.fill)
        array[0] = (
            ffi.sizeof("penstock_stored_array"),
            name,
            len(given.shape),
            number_code(element_type(given.dtype.base)),
            numbers(given.shape, "u8"),
            given.dtype.itemsize,
            fill,
            given.file_size,
            _NOWHERE if given.offset is None else given.offset,
            numbers(given.chunks, "u8"),
            given.stored,
            numbers(given.numbers, "u8"),
            numbers(given.addresses, "u8"),
            numbers(given.sizes, "u8"),
            numbers(given.masks, "u4"),
            filters,
            len(given.filters),
            given.unfiltered_edges,
        )
        check(lib.penstock_stored_open(array, self._opened))

    @property
    def handle(self) -> CData:
        """The ``penstock_stored *``."""
        return self._opened[0]


def place_of(kind: str, free: Callable[[CData], int]) -> CData:
    """Return a place for a handle, which is freed with the place.

    In a forked child, ``free`` is that of the parent's library, which does nothing.
    """
    place: CData = ffi.gc(ffi.new(kind), lambda place: free(place[0]))
    return place


def number_code(element: ElementType) -> int:
    """Return the ``penstock_number`` of which an element has one or two; 0 for other bytes."""
    if element.name in _EXTENDED:
        return _EXTENDED[element.name]
    if element.numpy is None or element.is_extended:
        return 0
    kind, size = element.numpy.kind, element.numpy.itemsize
    if kind == "c":
        kind, size = "f", size // 2
    code = _CODES.get((kind, size), 0)
    is_big = element.numpy.str.startswith(">")
    return code | _BIG_ENDIAN if code and is_big else code


def converts(stored: np.dtype[Any], memory: ElementType) -> bool:
    """Whether the library converts between the elements of a file and those of an array."""
    base = stored.base
    if memory.is_numpys(base):
        return True
    here, there = number_code(element_type(base)), number_code(memory)
    is_complex = memory.numpy is not None and memory.numpy.kind == "c"
    return bool(here and there) and is_complex == (base.kind == "c")


def _check_lengths(given: Description) -> None:
    """Raise an error if the library would read past the end of a list."""
    lists = (given.numbers, given.addresses, given.sizes, given.masks)
    is_whole = (
        (given.chunks is None or len(given.chunks) == len(given.shape))
        and (given.fill is None or len(given.fill) == given.dtype.itemsize)
        and all(one is None or one.shape == (given.stored,) for one in lists)
    )
    if not is_whole:
        raise InvalidError(f"the description of {given.name} contradicts itself")


def _filter(shown: CData) -> tuple[int, bool, tuple[int, ...]]:
    values = tuple(int(shown.values[at]) for at in range(shown.value_count))
    return int(shown.id), bool(shown.is_optional), values


def _list(start: CData, count: int, kind: Any) -> Numbers | None:
    if start == NULL:
        return None
    item = np.dtype(kind).itemsize
    found: Numbers = np.frombuffer(ffi.buffer(start, count * item), dtype=kind).copy()
    return found
