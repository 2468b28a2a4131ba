"""Small reads to new host memory, with the fewest steps around h5py."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, Final

from penstock import request
from penstock.hdf5 import pending, small
from penstock.hdf5.library import check_dataset, lock
from penstock.report import remember

NOT_SMALL: Final = object()
"""What a quick reader returns for a selection that another way may read faster."""


def reader(dataset: Any) -> Callable[[Any], Any]:
    """Return a function that reads ``dataset[selection]`` if that is small, else ``NOT_SMALL``.

    It knows integers and slices. It asks for the dataset's filters and layout, which never change,
    only once.
    """
    check_dataset(dataset)
    is_small_whole = small.is_small_whole(dataset)
    is_plain = small.is_plain(dataset)
    hdf5_lock = lock()
    pending_count = pending.count

    def read(selection: Any) -> Any:
        start = perf_counter_ns()
        if type(selection) is tuple and not selection:
            if not is_small_whole:
                return NOT_SMALL
        elif not _is_small(dataset, selection, is_plain):
            return NOT_SMALL
        with hdf5_lock:
            if pending_count[0]:  # saves a call where nothing is pending
                pending.wait_for_dataset(dataset, request.READ)
            try:
                value = dataset[selection]
            except ValueError:
                check_dataset(dataset)  # it may have been closed
                raise
        remember((getattr(value, "nbytes", 0), perf_counter_ns() - start, small.REASON))
        return value

    return read


def _is_small(dataset: Any, selection: Any, is_plain: bool) -> bool:
    parts = selection if type(selection) is tuple else (selection,)
    try:
        shape = dataset.shape
    except ValueError:
        check_dataset(dataset)
        raise
    if not shape or len(parts) > len(shape):
        return False
    count, is_rows = 1, is_plain
    for number, size in enumerate(shape):
        if number >= len(parts):
            count *= size
            continue
        part = parts[number]
        if type(part) is slice:
            try:
                length = len(range(*part.indices(size)))
            except (TypeError, ValueError):
                return False
            is_rows = is_rows and part.step in (None, 1) and (number == 0 or length == size)
            count *= length
        elif type(part) is int:
            is_rows = is_rows and (number == 0 or size == 1)
        else:
            return False
    return small.is_small_bytes(count * dataset.dtype.itemsize, is_rows=is_rows)
