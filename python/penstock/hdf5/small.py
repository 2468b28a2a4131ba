"""The decision that a transfer of host memory is so small that h5py does it faster."""

from __future__ import annotations

import math
from typing import Any

from penstock import transfer
from penstock.hdf5.library import creation_properties, holds_objects
from penstock.hdf5.selection import Selection

# The sizes that decide who carries out a read or a write. Decision 24 in docs/decisions has the
# measurement behind each; crates/engine/src/request/limits.rs has those of the native library.

BRIEF = 64 << 10
"""The most bytes that are copied in less time than another thread needs to wake up for the GIL, and
than HDF5 needs to take the shape of the memory."""

LIMIT = 128 << 10
"""The most bytes of host memory that h5py moves sooner, because it takes less time to start. With
0, h5py moves nothing because it is small."""

DECODED = 1 << 20
"""The most bytes that one call decodes while it holds h5py's lock, and other threads may wait."""

ROWS = transfer.AT_ONCE
"""The most bytes that are moved sooner in one call, which nothing can interrupt, than as a
request: by h5py if they are whole rows, by a call that holds h5py's lock, and to a GPU."""

STARTED = 64 << 20
"""The most bytes of a read that a reader starts: ``MOST_OF_WAITER`` of the library."""

SPAN = 256 << 20
"""The most bytes from the first to the last element of such a call: it reads the chunks between."""

FEW_CHUNKS = 16
"""The most chunks that one thread reads sooner than several."""

REASON = "small read: HDF5 is faster at this size"
"""What the report of such a transfer says."""


OF_FIXED_LENGTH = (2, 3, 5)
"""Filters that give all chunks of a dataset one length: shuffle, Fletcher32 and N-bit."""

WITHOUT_FAILURES = (6, 32004, 32008, 32015)
"""Filters that encode every chunk: scale-offset, LZ4, bitshuffle and Zstd."""

DEFLATE = 1
FASTEST = 1
"""The level of deflate at which the output of zlib-ng may be longer than HDF5 has room for. At the
other levels, as by zlib at all levels, incompressible data are stored with a few bytes more."""

SMALL_CHUNK = 64 << 10
"""Output that is exactly as long as a larger chunk is too rare to decode and encode that chunk for
each small write."""


def is_small_whole(dataset: Any) -> bool:
    """Whether all elements of a dataset, not converted, are small.

    A dataset without elements is not: the report gives another reason why h5py reads it.
    """
    nbytes = dataset.nbytes
    return nbytes > 0 and _is_small(dataset, nbytes, copied_rows=True)


def is_small_selection(dataset: Any, selection: Selection, nbytes: int, *, copied: bool) -> bool:
    """Whether selected elements are small.

    Args:
        dataset: The ``h5py.Dataset``.
        selection: The elements.
        nbytes: Their length in memory.
        copied: Whether the elements are copied as they are, without a conversion.
    """
    if selection.has_lists:  # h5py takes milliseconds for some hundred indices, or refuses them
        return False
    if not _is_small(dataset, nbytes, copied_rows=copied and selection.is_rows):
        return False
    chunk = chunk_of(dataset)
    if chunk is None or selection.parsed is not None:
        return True
    return are_few_chunks(dataset, chunk, selection.chunks(chunk))


def chunk_of(dataset: Any) -> tuple[int, ...] | None:
    """Return the shape of the chunks; ``None`` for objects, or if there are none."""
    if holds_objects(dataset) or dataset.is_virtual:
        return None
    chunk: tuple[int, ...] | None = dataset.chunks
    return chunk


def is_kept(dataset: Any, chunk: tuple[int, ...]) -> bool:
    """Whether HDF5 keeps a chunk that it has decoded."""
    return bool(math.prod(chunk) * dataset.dtype.itemsize <= _cache_of(dataset))


def are_few_chunks(dataset: Any, chunk: tuple[int, ...], touched: int) -> bool:
    """Whether HDF5 reads few elements of this number of chunks sooner than workers.

    HDF5 reads and decodes chunk after chunk, and all of each, however few elements of it are
    selected; it keeps what fits its cache. Of a chunk that it can neither keep nor must decode, it
    reads the selected elements alone.
    """
    nbytes: int = touched * math.prod(chunk) * dataset.dtype.itemsize
    if touched < 2 or nbytes <= DECODED:
        return True
    if is_kept(dataset, chunk):
        return nbytes <= _cache_of(dataset)
    return is_plain(dataset)


def _cache_of(dataset: Any) -> int:
    return int(dataset.id.get_access_plist().get_chunk_cache()[1])


def is_plain(dataset: Any) -> bool:
    """Whether rows of the dataset are copied from the file as they are; false for objects."""
    import h5py

    if holds_objects(dataset):
        return False
    properties = dataset.id.get_create_plist()
    return bool(properties.get_nfilters() == 0 and properties.get_layout() != h5py.h5d.VIRTUAL)


def may_leave_memory(dataset: Any, *, is_new: bool) -> bool:
    """Whether h5py may leave memory as it is: that of elements that were never written.

    It fills a new array with zeros before, but reads objects, and records with objects or fields of
    them, by way of a buffer that it does not fill. HDF5 may crash when it copies a fill value of
    variable length to an array that is given.

    Args:
        dataset: The ``h5py.Dataset``.
        is_new: Whether the caller must not see what the memory holds.
    """
    import h5py

    if holds_objects(dataset) != is_new:
        return not is_new
    with creation_properties(dataset) as known:
        properties = known.id.get_create_plist()
    return bool(
        properties.get_fill_time() == h5py.h5d.FILL_TIME_NEVER
        or properties.fill_value_defined() == h5py.h5d.FILL_VALUE_UNDEFINED
        or properties.get_layout() == h5py.h5d.VIRTUAL
    )


def may_fail(number: int, values: tuple[int, ...]) -> bool:
    """Whether a filter with these client data may fail, if its output varies in length."""
    if number == DEFLATE:
        return values[:1] == (FASTEST,)
    return number not in OF_FIXED_LENGTH + WITHOUT_FAILURES


def may_mix_masks(dataset: Any) -> bool:
    """Whether HDF5 may give chunks of one length different filter masks.

    HDF5 skips an optional filter that fails on a chunk, but records that only where the length of
    the chunk changes. Penstock writes the chunks of such a dataset and makes sure of their masks.
    """
    import h5py

    with creation_properties(dataset) as known:
        creation = known.id.get_create_plist()
    if creation.get_layout() != h5py.h5d.CHUNKED:
        return False
    filters = [creation.get_filter(at)[:3] for at in range(creation.get_nfilters())]
    varying = [number for number, _, _ in filters if number not in OF_FIXED_LENGTH]
    failing = [
        number
        for number, is_optional, values in filters
        if is_optional and may_fail(number, values)
    ]
    if len(varying) > 1:
        return bool(failing)
    chunk = math.prod(creation.get_chunk()) * dataset.dtype.itemsize
    return bool(failing) and chunk <= SMALL_CHUNK


def is_small_bytes(nbytes: int, *, is_rows: bool) -> bool:
    """Whether this number of bytes is small; ``is_rows`` if they are copied rows."""
    return nbytes <= (max(LIMIT, ROWS) if is_rows and LIMIT else LIMIT)


def _is_small(dataset: Any, nbytes: int, *, copied_rows: bool) -> bool:
    if is_small_bytes(nbytes, is_rows=False):
        return True
    return is_small_bytes(nbytes, is_rows=copied_rows) and is_plain(dataset)
