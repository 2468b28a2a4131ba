"""Copies between a NumPy array and the memory of a view, in order with its stream."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock import arrays
from penstock._native import lib, pointer
from penstock.dtypes import numpy_dtype
from penstock.errors import check
from penstock.memory import copy_bytes


def to_host(view: arrays.View) -> np.ndarray[Any, np.dtype[Any]]:
    """The contents of a C-contiguous view in host memory, copied if they are on a GPU."""
    _wait_for_stream(view)
    if view.device < 0:
        return arrays.host_array(view)
    host = np.empty(view.shape, numpy_dtype(view.dtype))
    copy_bytes(host.__array_interface__["data"][0], view.pointer, view.nbytes)
    return host


def from_host(view: arrays.View, host: np.ndarray[Any, np.dtype[Any]]) -> None:
    """Fill a C-contiguous view from an array of its shape, converting the elements."""
    if view.device < 0:
        _wait_for_stream(view)
        np.copyto(arrays.host_array(view), host, casting="unsafe")
        return
    converted = np.ascontiguousarray(host, numpy_dtype(view.dtype))
    _wait_for_stream(view)
    copy_bytes(view.pointer, converted.__array_interface__["data"][0], view.nbytes)


def _wait_for_stream(view: arrays.View) -> None:
    if view.stream is not None:
        check(lib.penstock_stream_wait(max(view.device, 0), pointer(view.stream)))
