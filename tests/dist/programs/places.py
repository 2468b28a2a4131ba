"""Arrays of the programs: given to a device, and brought back from it."""

from __future__ import annotations

from typing import Any

import numpy as np

import penstock as ps


def on_device(array: Any, device: str) -> Any:
    """The array itself for "cpu", or a copy of it in GPU memory."""
    return array if device == "cpu" else ps.DeviceArray.from_numpy(np.array(array, order="C"))


def on_host(array: Any) -> np.ndarray[Any, Any]:
    """The array in host memory, whether a read has given NumPy's, Penstock's or torch's."""
    if isinstance(array, np.ndarray):
        return array
    return array.numpy() if isinstance(array, ps.DeviceArray) else np.asarray(array.cpu())
