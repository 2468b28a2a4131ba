"""How many indices of the first dimension an iteration over a dataset reads at a time."""

from __future__ import annotations

import math
from typing import Any

from penstock.hdf5.library import creation_property, is_writable

READ_BYTES = 1 << 20
"""The approximate bytes of a read: enough to make the start of a read cheap."""

CHUNK_BYTES = 64 << 20
"""Limit of a read of whole chunks; larger chunks are read in part."""


def rows_at_a_time(dataset: Any) -> int:
    """Return how many indices to read at a time.

    It is 1 if another writer may change elements during the iteration: in a file that is open for
    writing or that a SWMR writer extends.
    """
    if is_writable(dataset) or dataset.file.swmr_mode:
        return 1
    row: int = max(math.prod(dataset.shape[1:]) * dataset.dtype.itemsize, 1)
    count = max(READ_BYTES // row, 1)
    chunks = creation_property(dataset, "chunks")
    chunk: int = chunks[0] if chunks else 1
    if chunk * row > CHUNK_BYTES:
        return count
    return -(-count // chunk) * chunk
