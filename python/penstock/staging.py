"""Copies between a NumPy array and the memory of a view, ordered after its stream."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock import arrays
from penstock.dtypes import numpy_dtype
from penstock.memory import copy_bytes
from penstock.streams import wait_for


def to_host(view: arrays.View) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the contents of a C-contiguous view in host memory; copy them if they are on a GPU."""
    wait_for(view.stream, view.device)
    if view.device < 0:
        return arrays.host_array(view)
    host = np.empty(view.shape, numpy_dtype(view.dtype))
    copy_bytes(host.__array_interface__["data"][0], view.pointer, view.nbytes)
    return host


def from_host(view: arrays.View, host: np.ndarray[Any, np.dtype[Any]]) -> None:
    """Fill a C-contiguous view from an array of the same shape, converting the elements."""
    if view.device < 0:
        wait_for(view.stream, view.device)
        np.copyto(arrays.host_array(view), host, casting="unsafe")
        return
    converted = np.ascontiguousarray(host, numpy_dtype(view.dtype))
    wait_for(view.stream, view.device)
    copy_bytes(view.pointer, converted.__array_interface__["data"][0], view.nbytes)
