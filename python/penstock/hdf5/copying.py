"""Copies of objects by HDF5.

The library prepares them: ``penstock_object_prepare_copy`` finds the open datasets that a copy
reads, and makes HDF5 write and forget what it would copy wrongly. Python only waits for pending
requests first, as for every call of h5py.

One defect remains: see ``Group.copy``. It concerns elements with strings or arrays of variable
length, which ``H5Ocopy`` decodes and encodes again, from the file as from the cache.
"""

from __future__ import annotations

from typing import Any

from penstock._native import lib
from penstock.errors import check
from penstock.hdf5.library import any_pending, wait_for_file


def prepare(group: Any, source: Any, options: int) -> None:
    """Make HDF5's buffers of what is copied agree with the file. The caller holds the lock.

    Args:
        group: The h5py group that a path starts from.
        source: The h5py object, or its path.
        options: HDF5's flags for the links and references that the copy follows.
    """
    import h5py

    is_path = isinstance(source, (str, bytes))
    if any_pending():
        found = group.get(source) if is_path else source
        if found is None:
            return  # h5py says so
        wait_for_file(found)
        del found  # HDF5 has no buffers of a dataset that only this call has opened
        if options:  # into any other open file
            kinds = h5py.h5f.OBJ_FILE | h5py.h5f.OBJ_DATASET
            for identifier in h5py.h5f.get_obj_ids(h5py.h5f.OBJ_ALL, kinds):
                check(lib.penstock_hdf5_settle(identifier.id))
    where, name = (group, source) if is_path else (source, b".")
    encoded = name.encode("utf-8", "surrogateescape") if isinstance(name, str) else name
    properties = h5py.h5p.create(h5py.h5p.OBJECT_COPY)
    properties.set_copy_object(options)
    check(lib.penstock_object_prepare_copy(where.id.id, encoded, properties.id))
