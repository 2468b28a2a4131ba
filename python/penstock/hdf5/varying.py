"""Lists of variable length of numbers in the other byte order than the machine's.

h5py (3.16) returns the bytes of the file in arrays of the machine's order, so other numbers. A list
of one element, which is in memory alone, shows whether the h5py in use does.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from penstock.hdf5.library import lock


def has_lists(kind: Any) -> bool:
    """Whether elements of an HDF5 type hold lists, other than strings."""
    import h5py

    return bool(kind.detect_class(h5py.h5t.VLEN))


def correct(found: Any, stored: np.dtype[Any]) -> None:
    """Turn lists that h5py has read into those of the file, in place.

    Args:
        found: An array of elements, or one element.
        stored: h5py's type of the elements.
    """
    if _has_swapped(stored) and _leaves_bytes():
        _swap(found, stored)


def _of_list(stored: np.dtype[Any]) -> np.dtype[Any] | None:
    """Return the type of what a list holds; ``None`` for other types, strings among them."""
    found = None if stored.metadata is None else stored.metadata.get("vlen")
    return found if isinstance(found, np.dtype) else None


def _has_swapped(stored: np.dtype[Any]) -> bool:
    base = stored.base
    if base.names is not None:
        return any(_has_swapped(base[name]) for name in base.names)
    held = _of_list(base)
    if held is None:
        return False
    return _has_swapped(held) or (held.kind in "iufc" and not held.isnative)


def _swap(found: Any, stored: np.dtype[Any]) -> None:
    base = stored.base
    if base.names is not None:
        for name in base.names:
            if _has_swapped(base[name]):
                _swap(found[name], base[name])
    elif (held := _of_list(base)) is not None and isinstance(found, np.ndarray):
        if found.dtype.names is not None:
            _swap(found, held)
        elif found.dtype.hasobject:
            for one in found.flat:
                _swap(one, base)
        else:
            found.byteswap(inplace=True)


@lru_cache(maxsize=1)
def _leaves_bytes() -> bool:
    """Whether the h5py in use returns the bytes of the file."""
    import h5py

    other = np.dtype(np.int16).newbyteorder()
    with lock(), h5py.File("penstock", "w", driver="core", backing_store=False) as file:
        lists = file.create_dataset("lists", (1,), h5py.vlen_dtype(other))
        lists[0] = np.ones(1, other)
        return bool(lists[0][0] != 1)
