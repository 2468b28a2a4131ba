"""Copies of objects by HDF5, kept from its defects.

``H5Ocopy`` (1.14.4, 2.0.0, 2.2.0) copies the bytes of the file, without the elements that HDF5 has
not written yet, of all handles of the file. It copies stored chunks with filters from the cache of
an open dataset into a buffer that can be shorter than a chunk, which ends the process or damages
its memory. For chunks in the cache that are not stored the buffer suffices, except where the index
is an extensible array.

An open virtual dataset keeps the sources that HDF5 has read through it open as well, without
identifiers. HDF5 does not report which, so all its sources in open files count as open.

One defect remains: see ``Group.copy``. It concerns elements with strings or arrays of variable
length, which ``H5Ocopy`` decodes and encodes again, from the file as from the cache.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from penstock._native import lib
from penstock.errors import check
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
    keys = set(_opened())
    if isinstance(source, (str, bytes)):
        source = group.get(source)
        if source is None:
            return  # h5py says so
    pending.wait_for_file(source)
    if not expands:
        keys = _copied(source, keys)
    if not keys:
        return
    files = {file for file, _ in keys}
    for identifier in h5py.h5f.get_obj_ids(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE):
        if _key(identifier)[0] in files:
            h5py.h5f.flush(identifier)  # what was written by this handle
    # The flush ends what is pending, and closes identifiers that the connector had of datasets.
    for key, identifier in _opened().items():
        if key in keys:
            _forget(identifier)


def _opened() -> dict[_Key, Any]:
    """Return an identifier of each open dataset, and of the sources of those that are virtual."""
    import h5py

    identifiers = h5py.h5f.get_obj_ids(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_DATASET)
    opened = {_key(identifier): identifier for identifier in identifiers}
    # One file may have several identifiers.
    files = {
        _key(file)[0]: (file, os.path.basename(h5py.h5f.get_name(file)))
        for file in h5py.h5f.get_obj_ids(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE)
    }
    rest = list(opened.items())
    while rest:
        (own, _), dataset = rest.pop()
        for place, name in _sources(dataset):
            for number, (file, last) in files.items():
                # HDF5 looks for a file in several folders, but always under the last part of its
                # name. Links to it that have other names are not recognized.
                if number != own if place == b"." else os.path.basename(place) != last:
                    continue
                with suppress(KeyError, OSError, RuntimeError):  # there is no such dataset
                    source = h5py.h5d.open(file, name)
                    key = _key(source)
                    if key not in opened:
                        opened[key] = source
                        rest.append((key, source))
    return opened


def _sources(dataset: Any) -> set[tuple[bytes, bytes]]:
    """Return the files and names of the sources of a dataset, none unless it is virtual.

    Names with running numbers are left out: HDF5 may still crash where such sources are copied.
    """
    import h5py

    names = set()
    # A dataset whose header cannot be read matters to other calls only.
    with suppress(Exception), creation_properties(h5py.Dataset(dataset)):
        known = dataset.get_create_plist()
        if known.get_layout() == h5py.h5d.VIRTUAL:
            for at in range(known.get_virtual_count()):
                file, name = known.get_virtual_filename(at), known.get_virtual_dsetname(at)
                names.add((os.fsencode(file), os.fsencode(name)))
    plain = {(_unescaped(file), _unescaped(name)) for file, name in names}
    return {(file, name) for file, name in plain if file is not None and name is not None}


def _unescaped(name: bytes) -> bytes | None:
    """Return a name of a mapping with ``%`` for ``%%``, and none if it has running numbers."""
    parts = name.split(b"%%")
    return None if any(b"%b" in part for part in parts) else b"%".join(parts)


def _key(identifier: Any) -> _Key:
    """Identify an object. ``h5o.get_info`` would measure its chunk index as well."""
    import h5py

    about = h5py.h5g.get_objinfo(identifier)
    return about.fileno[0], about.objno[0]


def _copied(source: Any, opened: set[_Key]) -> set[_Key]:
    """Return those of the open datasets that are the source or below it."""
    import h5py

    key = file, _ = _key(source.id)
    if not isinstance(source, h5py.Group):
        return {key} & opened
    if all(other != file for other, _ in opened):
        return set()
    below: set[_Key] = set()
    h5py.h5o.visit(source.id, lambda _, about: below.add((file, about.addr)), info=True)
    return below & opened


def _forget(dataset: Any) -> None:
    """Make HDF5 forget the elements of a dataset that it would copy wrongly."""
    check(lib.penstock_dataset_prepare_copy(dataset.id))
