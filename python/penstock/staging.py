"""Copies between a NumPy array and the memory of a view, in order with its stream."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from penstock import arrays, paths, request
from penstock._native import NULL
from penstock.device_array import DeviceArray
from penstock.dtypes import numpy_dtype
from penstock.files import READ, NativeFile
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
    """Wait until the work queued on the view's stream is done.

    The C API orders transfers with streams, so the one that is waited for here is the shortest
    there is: one byte, of a file that is always there, into the device that the stream is of.
    """
    if view.stream is None:
        return
    scratch = arrays.view(_scratch(max(view.device, 0)))
    with NativeFile(paths.library(), READ) as file:
        request.submit(
            file,
            request.READ,
            request.one_range(0, scratch.pointer, scratch.nbytes),
            1,
            NULL,
            stream=view.stream,
            flags=request.AFTER_STREAM,
            array=None,
            keep=scratch,
            owns_file=False,
        ).wait()


@lru_cache
def _scratch(device: int) -> DeviceArray:
    return DeviceArray(1, "uint8", device)
