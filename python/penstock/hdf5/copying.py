"""Copies of objects by HDF5, kept from its defects.

``H5Ocopy`` (HDF5 2.0.0) copies bytes of the file beside what HDF5 has not written yet, of all
handles of the file. From the cache of an open dataset it takes filtered chunks into a buffer that
can be shorter than a chunk, which ends the process or worse.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from penstock.hdf5 import pending
from penstock.hdf5.library import creation_properties

_GRID = 1 << 16
"""Up to so many places of chunks are tried; else HDF5 lists those that are stored."""


def prepare(group: Any, source: Any, *, expands: bool) -> None:
    """Make HDF5's buffers of what is copied agree with the file. The caller holds the lock.

    Args:
        group: The h5py group that a path starts from.
        source: The h5py object, or its path.
        expands: Whether the copy follows links or references to objects elsewhere.
    """
    import h5py

    # A dataset that is opened here has no chunks to drop.
    opened = [
        (identifier, h5py.h5o.get_info(identifier))
        for identifier in h5py.h5f.get_obj_ids(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_DATASET)
    ]
    if isinstance(source, (str, bytes)):
        source = group.get(source)
        if source is None:
            return  # h5py says so
    pending.wait_for_file(source)
    number = h5py.h5o.get_info(source.id).fileno
    if not expands:
        opened = [(one, about) for one, about in opened if about.fileno == number]
    for identifier, _ in opened:
        h5py.h5f.flush(h5py.h5i.get_file_id(identifier))
    copied = None if expands else set(_addresses(source))
    for identifier, about in opened:
        if copied is None or about.addr in copied:
            _drop_chunks(h5py.Dataset(identifier))


def _addresses(source: Any) -> list[int]:
    """Return where an object and those below it lie in the file."""
    import h5py

    found = [h5py.h5o.get_info(source.id).addr]
    if isinstance(source, h5py.Group):
        h5py.h5o.visit(source.id, lambda _, about: found.append(about.addr), info=True)
    return found


def _drop_chunks(dataset: Any) -> None:
    """Make HDF5 drop the filtered chunks that it keeps, as it does when they are read as stored."""
    with creation_properties(dataset) as known:
        if not known.chunks or not known.filter_ids:
            return
        for offset in _offsets(known):
            with suppress(OSError, RuntimeError, ValueError, KeyError):  # not stored
                known.id.read_direct_chunk(offset)


def _offsets(dataset: Any) -> Iterable[tuple[int, ...]]:
    """Return the first elements of the chunks that may be stored."""
    counts = [-(-side // unit) for side, unit in zip(dataset.shape, dataset.chunks, strict=True)]
    if math.prod(counts) > _GRID:
        return _stored(dataset)
    sides = zip(dataset.shape, dataset.chunks, strict=True)
    return itertools.product(*(range(0, side, unit) for side, unit in sides))


def _stored(dataset: Any) -> Iterator[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    dataset.id.chunk_iter(lambda chunk: found.append(tuple(chunk.chunk_offset)))
    return iter(found)
