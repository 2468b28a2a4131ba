"""Datasets whose bytes in the file are the array's bytes, moved past HDF5.

HDF5 says where a contiguous dataset lies; the library moves the bytes. HDF5 keeps two copies of
its own that could differ from the file: data that it has not written yet (flushed before each
transfer), and the sieve buffer of a dataset (made to forget after each raw write).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from penstock import request, transfer
from penstock._native import NULL, CData, ffi
from penstock.arrays import View
from penstock.dtypes import ElementType, element_type
from penstock.errors import IncompatibleError
from penstock.files import READ, WRITE, NativeFile
from penstock.selection import Runs


@dataclass(frozen=True, slots=True)
class RawDataset:
    """Where a contiguous dataset lies."""

    file: NativeFile
    offset: int  # of the first element in the file
    shape: tuple[int, ...]
    dtype: ElementType
    nbytes: int
    writable: bool
    sieve: int  # bytes that HDF5's sieve buffer may hold

    @property
    def forgets(self) -> bool:
        """Whether HDF5's sieve buffer can be made to forget this dataset's bytes."""
        return self.nbytes - self.dtype.itemsize >= self.sieve


# What is known of a dataset never changes while it is open: a contiguous dataset does not grow,
# and its storage, once allocated, does not move.
_known: WeakKeyDictionary[Any, RawDataset] = WeakKeyDictionary()

# By HDF5's identifier of the open file, which HDF5 does not use again. An entry lives, and its
# file stays open, as long as one of the datasets that use it or the penstock.File.
_files: WeakValueDictionary[int, NativeFile] = WeakValueDictionary()


def locate(dataset: Any) -> RawDataset | str:
    """Where an open h5py dataset lies, or the reason why only HDF5 can read and write it."""
    known = _known.get(dataset)
    if known is not None:
        return known
    found = _locate(dataset)
    if isinstance(found, RawDataset):
        _known[dataset] = found
    return found


def flush(dataset: Any) -> None:
    """Have HDF5 write what it holds back, before the bytes are touched past it."""
    import h5py

    h5py.h5f.flush(dataset.id)


def move(raw: RawDataset, operation: int, runs: Runs, view: View, options: CData) -> None:
    """Move runs between the file and the memory of a view, in order."""
    itemsize = raw.dtype.itemsize
    count = len(runs.first)
    if count == 1:
        at = raw.offset + int(runs.first[0]) * itemsize
        if operation == request.READ:
            transfer.read_into(raw.file, view, at, options)
        else:
            one = request.one_range(at, view.pointer, view.nbytes)
            transfer.move(raw.file, operation, one, 1, view, options)
        return
    length = runs.length * itemsize
    ranges = np.empty((count, 3), np.uint64)  # the three members of a penstock_range
    ranges[:, 0] = runs.first * np.uint64(itemsize) + np.uint64(raw.offset)
    ranges[:, 1] = length
    ranges[:, 2] = np.arange(count, dtype=np.uint64) * np.uint64(length) + np.uint64(view.pointer)
    pointer = ffi.from_buffer("penstock_range[]", ranges) if count else NULL
    transfer.move(raw.file, operation, pointer, count, view, options)


def forget_sieve(dataset: Any) -> None:
    """Make HDF5's sieve buffer hold the bytes that are in the file now.

    The buffer is one window, no longer than the distance of the first element from the last. So
    at least one of the two reads finds its element outside, and fills the window anew.
    """
    first = (0,) * dataset.ndim
    last = tuple(length - 1 for length in dataset.shape)
    _ = dataset[first], dataset[last]


def _locate(dataset: Any) -> RawDataset | str:
    import h5py

    if dataset.shape is None:
        return "the dataspace is null"
    properties = dataset.id.get_create_plist()
    layout = properties.get_layout()
    if layout != h5py.h5d.CONTIGUOUS:
        names = {h5py.h5d.CHUNKED: "chunked", h5py.h5d.COMPACT: "compact"}
        return f"the layout is {names.get(layout, 'virtual')}"
    if properties.get_external_count():
        return "the storage is in external files"
    dtype = dataset.dtype
    try:
        element = element_type(dtype)
    except IncompatibleError:
        return f"the elements of type {dtype} are stored elsewhere in the file"
    stored = dataset.id.get_type()
    if (
        dtype.kind not in "biufcS"
        or not dtype.isnative
        or not stored.equal(h5py.h5t.py_create(dtype, logical=True))
    ):
        return f"the stored type is not a native one of {dtype}"
    # The offset alone does not tell: behind a user block HDF5 adds its length to "undefined".
    offset = dataset.id.get_offset()
    if offset is None or dataset.id.get_storage_size() < dataset.nbytes:
        return "no storage is allocated yet"
    file_id = h5py.h5i.get_file_id(dataset.id)
    file = native_file(file_id)
    if isinstance(file, str):
        return file
    return RawDataset(
        file=file,
        offset=offset,
        shape=dataset.shape,
        dtype=element,
        nbytes=dataset.nbytes,
        writable=_writable(file_id),
        sieve=file_id.get_access_plist().get_sieve_buf_size(),
    )


def native_file(file_id: Any) -> NativeFile | str:
    """The file of an ``h5py.h5f.FileID`` for raw transfers, or the reason why there can be none."""
    import h5py

    file = _files.get(file_id.id)
    if file is not None:
        return file
    access = file_id.get_access_plist()
    if access.get_driver() != h5py.h5fd.SEC2:
        return "the file is open with another driver than sec2"
    if access.get_page_buffer_size()[0]:
        return "the file is open with a page buffer"
    flags = READ | WRITE if _writable(file_id) else READ
    try:
        file = NativeFile(_name(file_id.get_vfd_handle()), flags)
    except OSError as error:
        return f"the file cannot be opened a second time: {error}"
    _files[file_id.id] = file
    return file


def _writable(file_id: Any) -> bool:
    import h5py

    return bool(file_id.get_intent() & h5py.h5f.ACC_RDWR)


def _name(descriptor: int) -> str:
    """A path that opens the file of a descriptor, also after a rename, chdir or unlink."""
    link = f"/proc/self/fd/{descriptor}"
    path = os.readlink(link)
    try:
        same = os.path.samestat(os.stat(path), os.fstat(descriptor))
    except OSError:
        same = False
    return path if same else link
