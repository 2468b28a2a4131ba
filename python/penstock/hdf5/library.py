"""h5py's copy of HDF5: its binding to the native library, its lock, its datasets, and the waits
that a call of h5py needs before it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from weakref import ref

from penstock._native import ffi, lib
from penstock._options import resolve
from penstock.errors import IncompatibleError, InvalidError, IOFailure, check

_lock: Any = None

unsettled = lib.penstock_hdf5_unsettled()
"""``unsettled[0]`` is how many requests are pending, or failed without a report of the failure.

It is read without a call, and may include requests that have ended since the last call.
"""

_UNKNOWN = (1,)
"""Placeholder for the count of a forked child's own library until the first use."""

# Calls of this thread in which HDF5 cannot flush a file.
_calls = threading.local()


def lock() -> Any:
    """Return h5py's lock, under which HDF5 is called."""
    return _lock or _bind()


def _bind() -> Any:
    """Bind the native library to h5py's copy of HDF5, and set the path of nvCOMP's wheel.

    nvCOMP decodes chunks on the GPU.
    """
    global _lock
    import h5py
    from h5py._objects import phil

    with phil:
        if _lock is None:
            check(lib.penstock_hdf5_bind(os.fsencode(h5py.h5.__file__)))
            for path in nvcomp_libraries():
                check(lib.penstock_nvcomp_path(os.fsencode(path)))
                break
            _lock = phil
    return phil


def make_durable(located: Any) -> None:
    """Flush and sync the file of an h5py object, if the options in force request durability.

    For what HDF5 has written itself. A write by the library syncs its file at its end.
    """
    with lock():
        check(lib.penstock_hdf5_sync(located.id.id, resolve({})))


def _in_child() -> None:
    """Let a forked child bind its own copy of the native library."""
    global _lock, unsettled
    _lock, unsettled = None, _UNKNOWN


os.register_at_fork(after_in_child=_in_child)


def any_pending() -> bool:
    """Whether a request is pending, or a failure is unreported."""
    global unsettled
    if unsettled is _UNKNOWN:
        unsettled = lib.penstock_hdf5_unsettled()
    return bool(unsettled[0]) and not lib.penstock_hdf5_is_settled()


def wait_for_dataset(dataset: Any, operation: int) -> None:
    """Wait for the pending requests that conflict with h5py's own access to a dataset.

    The caller holds the lock until that access ends, so that no request starts before. The
    failure of a request is reported to the caller that waits for it, or when the file is closed.

    Args:
        dataset: The ``h5py.Dataset``.
        operation: ``request.READ`` or ``request.WRITE``: what h5py is about to do.
    """
    if any_pending():
        check(lib.penstock_dataset_settle(dataset.id.id, operation))


def wait_for_path(name: Any) -> None:
    """Wait for all pending requests of the file of this name, if the argument is a path.

    The caller holds the lock.
    """
    if isinstance(name, (str, bytes, os.PathLike)) and any_pending():
        check(lib.penstock_hdf5_settle_path(os.fsencode(name)))


def wait_for_file(item: Any) -> None:
    """Wait for all pending requests of the file of an h5py object.

    Raises:
        Error: A write failed, and no caller has waited for it.
    """
    if any_pending():
        with lock():
            check(lib.penstock_hdf5_settle(item.id.id))


def nvcomp_libraries() -> Iterator[Path]:
    """Find nvCOMP's library in the wheels that contain it, without importing them."""
    spec = find_spec("nvidia")
    for folder in (spec and spec.submodule_search_locations) or ():
        for package in ("libnvcomp", "nvcomp"):
            found = Path(folder, package).glob("**/libnvcomp.so.*")
            yield from sorted(found, key=lambda path: len(path.name))


def plain(item: Any) -> Any:
    """Return h5py's own object, whose methods are h5py's, for an object of Penstock's classes."""
    return getattr(item, "h5py", item)


def open_readonly(group: Any, name: str) -> Any | None:
    """Open an object of an ``h5py.Group`` in a file that is open only for reading.

    Returns its identifier; ``None`` for a name that ``group[name]`` has to open. h5py makes an
    object for the file each time, only to ask for its mode. That takes a third of the time of the
    first small read of a dataset.
    """
    import h5py

    if not name.isascii():
        return None
    with lock():
        return h5py.h5o.open(group.id, name.encode(), lapl=getattr(group, "_lapl", None))


def check_dataset(dataset: Any) -> None:
    """Raise an error unless the argument is an open ``h5py.Dataset``."""
    import h5py

    if not isinstance(dataset, h5py.Dataset):
        raise IncompatibleError(f"a {type(dataset).__name__} is not an h5py.Dataset")
    if not dataset.id.valid:
        raise InvalidError("the dataset is closed")


def never_changes(function: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Have a function of an ``h5py.Dataset`` called once for each identifier that is open."""
    known: dict[int, tuple[ref[Any], bool]] = {}

    @wraps(function)
    def call(dataset: Any) -> bool:
        identifier = dataset._id
        address, number = id(identifier), identifier.id
        found = known.get(address)
        # h5py clears the number of an identifier that is closed.
        if number and found is not None and found[0]() is identifier:
            return found[1]
        answer = function(dataset)
        known[address] = ref(identifier, lambda _: known.pop(address, None)), answer
        return answer

    return call


@contextmanager
def creation_properties(dataset: Any) -> Iterator[Any]:
    """Hold the lock, with an ``h5py.Dataset`` whose creation properties h5py may query.

    HDF5 may crash when h5py queries those of strings and other objects, unless the library has
    queried them before: see ``penstock_dataset_creation_list``. A read needs none of them.
    """
    with lock():
        if holds_objects(dataset):
            creation_list(dataset.id)
        yield plain(dataset)


def creation_list(identifier: Any) -> Any:
    """Return the library's ``h5py.h5p.PropDCID`` of an open dataset; ``None`` if it fails."""
    import h5py

    with lock():
        place = ffi.new("penstock_hid *")
        status = lib.penstock_dataset_creation_list(identifier.id, place)
        return h5py.h5p.PropDCID(place[0]) if status == lib.PENSTOCK_OK else None


@never_changes
def is_virtual(dataset: Any) -> bool:
    """Whether an ``h5py.Dataset`` consists of parts of others."""
    import h5py

    with lock():
        if dataset.id.get_offset() is not None:  # that of contiguous elements
            return False
        known = creation_list(dataset.id) if holds_objects(dataset) else None
        if known is None:
            return bool(plain(dataset).is_virtual)  # h5py keeps the properties
        return bool(known.get_layout() == h5py.h5d.VIRTUAL)


def creation_property(dataset: Any, name: str) -> Any:
    """Return an attribute of an ``h5py.Dataset`` that depends on its creation properties."""
    with creation_properties(dataset) as known:
        return getattr(known, name)


@never_changes
def holds_objects(dataset: Any) -> bool:
    """Whether elements may be strings or other objects, whose creation properties need care."""
    try:
        return bool(dataset.dtype.hasobject)
    except (TypeError, ValueError):  # a type that NumPy lacks, or a closed dataset
        return True


@contextmanager
def calls_back() -> Iterator[None]:
    """Mark a call of HDF5 that calls functions of the program, in which it cannot flush a file."""
    lib.penstock_hdf5_begin_call()
    _calls.depth = getattr(_calls, "depth", 0) + 1
    try:
        yield
    finally:
        _calls.depth -= 1
        lib.penstock_hdf5_end_call()


def file_id(identifier: Any) -> Any:
    """Return h5py's identifier of the file of an object.

    A file that only links have opened has none. HDF5 flushes it when a new one is closed, if the
    file is also open in another way. Where it cannot flush, the other identifier is returned.
    """
    from h5py import h5f, h5i, h5o

    if getattr(_calls, "depth", 0):
        number = h5o.get_info(identifier).fileno
        for other in h5f.get_obj_ids(h5f.OBJ_ALL, h5f.OBJ_FILE):
            if h5o.get_info(other).fileno == number:
                return other
    return h5i.get_file_id(identifier)


class MissingFilterError(IOFailure):
    """HDF5 lacks a filter of a dataset, which the native library may have."""


def explain(dataset: Any, error: Exception) -> None:
    """Raise an error with a remedy if h5py failed because HDF5 lacks a filter.

    HDF5's own error then names only a folder of plugins.
    """
    import h5py

    if not isinstance(error, OSError):
        return
    filters: list[tuple[int, str]] = []
    with suppress(Exception), creation_properties(dataset) as known:
        filters = list(zip(known.filter_ids, known.filter_names, strict=True))
    for number, name in filters:
        if not h5py.h5z.filter_avail(number):
            raise MissingFilterError(
                f"HDF5 lacks filter {number} ({name}): {error}",
                path=dataset.file.filename,
                remedy="install hdf5plugin and import it, or set HDF5_PLUGIN_PATH to the folder of "
                "the filter's plugin",
            ) from error


def is_writable(dataset: Any) -> bool:
    """Whether the file of a dataset is open for writing.

    h5py's own flag is that of the file from which an external link leads to the dataset.
    """
    import h5py

    return bool(file_id(dataset.id).get_intent() & h5py.h5f.ACC_RDWR)
