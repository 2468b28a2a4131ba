"""The sizes that decide who carries out a transfer, and what h5py reads because it is small."""

from __future__ import annotations

import math
from typing import Any

from penstock import transfer
from penstock.hdf5.library import creation_properties, holds_objects, never_changes

# The sizes that decide who carries out a read or a write. Decision 24 in docs/decisions has the
# measurement behind each; crates/engine/src/request/limits.rs has those of the native library.

BRIEF = 64 << 10
"""The most bytes that are copied in less time than another thread needs to wake up for the GIL, and
than HDF5 needs to take the shape of the memory."""

LIMIT = 128 << 10
"""The most bytes of objects, and of other elements without a native reader, that h5py reads sooner,
because it takes less time to start. With 0, nothing is moved because it is small."""

DECODED = 1 << 20
"""The most bytes that one call decodes while it holds h5py's lock, and other threads may wait."""

ROWS = transfer.AT_ONCE
"""The most bytes that are moved sooner in one call, which nothing can interrupt, than as a
request: by a native reader, by a call that holds h5py's lock, and to a GPU."""

STARTED = 64 << 20
"""The most bytes of a read that a reader starts: ``MOST_OF_WAITER`` of the library."""

SPAN = 256 << 20
"""The most bytes from the first to the last element of such a call: it reads the chunks between."""

FEW_CHUNKS = 16
"""The most chunks that one thread reads sooner than several."""

REASON = "small read: HDF5 is faster at this size"
"""What the report of such a read says."""

WRITE_REASON = "small write: HDF5 is faster at this size"
"""What the report of such a write says."""


def are_few_chunks(dataset: Any, chunk: tuple[int, ...], touched: int) -> bool:
    """Whether HDF5, which decodes whole chunks, reads parts of this many sooner than workers."""
    return touched < 2 or touched * math.prod(chunk) * dataset.dtype.itemsize <= DECODED


@never_changes
def may_leave_memory(dataset: Any) -> bool:
    """Whether h5py may leave memory of a new array as it is: that of elements never written.

    It fills a new array with zeros before, but reads objects, and records with objects or fields of
    them, by way of a buffer that it does not fill.
    """
    import h5py

    if not holds_objects(dataset):
        return False
    with creation_properties(dataset) as known:
        properties = known.id.get_create_plist()
    return bool(
        properties.get_fill_time() == h5py.h5d.FILL_TIME_NEVER
        or properties.fill_value_defined() == h5py.h5d.FILL_VALUE_UNDEFINED
        or properties.get_layout() == h5py.h5d.VIRTUAL
    )
