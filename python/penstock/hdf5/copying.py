"""Copies of objects by HDF5, kept from its defects.

``H5Ocopy`` (1.14.4, 2.0.0, 2.2.0) copies bytes of the file beside what HDF5 has not written yet, of
all handles of the file. From the cache of an open dataset it takes stored chunks with filters into
a buffer that can be shorter than a chunk, which ends the process or worse. Chunks in the cache that
are not stored have a buffer that suffices.

One defect remains: see ``Group.copy``. It concerns elements with strings or arrays of variable
length, which ``H5Ocopy`` decodes and encodes again, from the file as from the cache.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from penstock.hdf5 import pending
from penstock.hdf5.library import creation_properties

_Key = tuple[int, int]
"""The number of a file and the address of an object in it."""


def prepare(group: Any, source: Any, *, expands: bool) -> None:
    """Make HDF5's buffers of what is copied agree with the file. The caller holds the lock.

    Args:
        group: The h5py group that a path starts from.
        source: The h5py object, or its path.
        expands: Whether the copy follows links or references to objects elsewhere.
    """
    import h5py

    # A dataset that is opened here has no chunks to drop.
    opened = {
        _key(identifier): identifier
        for identifier in h5py.h5f.get_obj_ids(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_DATASET)
    }
    if isinstance(source, (str, bytes)):
        source = group.get(source)
        if source is None:
            return  # h5py says so
    pending.wait_for_file(source)
    if not expands:
        opened = _copied(source, opened)
    for identifier in {file: identifier for (file, _), identifier in opened.items()}.values():
        h5py.h5f.flush(h5py.h5i.get_file_id(identifier))
    for identifier in opened.values():
        _drop_chunks(h5py.Dataset(identifier))


def _key(identifier: Any) -> _Key:
    """Identify an object. ``h5o.get_info`` would measure its chunk index as well."""
    import h5py

    about = h5py.h5g.get_objinfo(identifier)
    return about.fileno[0], about.objno[0]


def _copied(source: Any, opened: dict[_Key, Any]) -> dict[_Key, Any]:
    """Return those of the open datasets that are the source or below it."""
    import h5py

    key = file, _ = _key(source.id)
    if not isinstance(source, h5py.Group):
        return {key: opened[key]} if key in opened else {}
    if all(other != file for other, _ in opened):
        return {}
    below: set[_Key] = set()
    h5py.h5o.visit(source.id, lambda _, about: below.add((file, about.addr)), info=True)
    return {key: identifier for key, identifier in opened.items() if key in below}


def _drop_chunks(dataset: Any) -> None:
    """Make HDF5 drop the filtered chunks that it keeps, as it does when they are read as stored."""
    with creation_properties(dataset) as known:
        if not known.chunks or not known.filter_ids or not _keeps_chunks(known):
            return
        if known.maxshape.count(None) == 1 and known.maxshape[0] is not None:
            _read_places(known)
            return
        for offset in _stored(known):
            _read_stored(known, offset)


def _read_stored(dataset: Any, offset: tuple[int, ...]) -> None:
    dataset.id.read_direct_chunk(offset)


def _keeps_chunks(dataset: Any) -> bool:
    """Whether a chunk fits into HDF5's cache."""
    size = dataset.id.get_type().get_size()
    for side in dataset.chunks:
        size *= side
    _, most, _ = dataset.id.get_access_plist().get_chunk_cache()
    return bool(size <= most)


def _stored(dataset: Any) -> list[tuple[int, ...]]:
    """Return the first elements of the stored chunks."""
    found: list[tuple[int, ...]] = []
    dataset.id.chunk_iter(lambda chunk: found.append(tuple(chunk.chunk_offset)))
    return found


def _read_places(dataset: Any) -> None:
    """Read the stored chunks of a dataset by trying places until all are found.

    HDF5 lists wrong places if the only unlimited dimension is not the first. To read a place
    without a chunk is an error of h5py, such as ``MemoryError``.
    """
    left = dataset.id.get_num_chunks()
    for offset in _places(dataset):
        if not left:
            return
        with suppress(MemoryError, OSError, RuntimeError, ValueError):
            _read_stored(dataset, offset)
            left -= 1


def _places(dataset: Any) -> Iterator[tuple[int, ...]]:
    sides = zip(dataset.shape, dataset.chunks, strict=True)
    return itertools.product(*(range(0, side, unit) for side, unit in sides))
