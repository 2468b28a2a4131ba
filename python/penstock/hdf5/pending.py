"""Waiting for the pending operations with which another access to a file would conflict."""

from __future__ import annotations

import os
from typing import Any

from penstock._native import lib
from penstock.errors import check
from penstock.hdf5.library import lock

count = lib.penstock_hdf5_unsettled()
"""``count[0]`` is how many requests are pending, or failed without a report of the failure.

It is read without a call, and may include requests that have ended since the last call.
"""

_UNKNOWN = (1,)
"""Placeholder for the count of a forked child's own library until the first use."""


def any_pending() -> bool:
    """Whether a request is pending, or a failure is unreported."""
    global count
    if count is _UNKNOWN:
        count = lib.penstock_hdf5_unsettled()
    return bool(count[0]) and not lib.penstock_hdf5_is_settled()


def _in_child() -> None:
    global count
    count = _UNKNOWN


os.register_at_fork(after_in_child=_in_child)


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
