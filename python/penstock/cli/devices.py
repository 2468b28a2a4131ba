"""The GPU that a command uses, or the reason why it uses none, and copies from and to it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import penstock as ps
from penstock import frameworks


@dataclass(frozen=True)
class Target:
    """Where arrays are read to."""

    device: str
    """What the functions of Penstock take: "cuda:0" or "cpu"."""
    description: str
    reason: str = ""
    """Why it is host memory although nobody asked for that."""

    @property
    def on_gpu(self) -> bool:
        return self.device != "cpu"


def choose(asked: str | None) -> Target:
    """The device that was asked for; if none was, the first GPU, else host memory."""
    if asked == "cpu":
        return Target("cpu", "host memory")
    cuda = ps.describe(None)["cuda"]
    if asked is None and not cuda["devices"]:
        return Target("cpu", "host memory (no GPU here)", cuda["reason"] or "no device found")
    device = "cuda:0" if asked in (None, "cuda") else str(asked)
    for found in cuda["devices"]:
        if device == f"cuda:{found['ordinal']}":
            return Target(device, f"{device}, {found['name']}")
    # Penstock says what is wrong with it when it is used.
    return Target(device, device)


def usual_copy(like: Any) -> tuple[str, Callable[[NDArray[Any]], object]]:
    """How a NumPy array becomes an array of this kind today, and a word for it."""
    if frameworks.is_torch(like):
        torch = sys.modules["torch"]
        return " + torch", lambda array: torch.from_numpy(native(array)).to(like.device)
    if frameworks.is_cupy(like):
        cupy = sys.modules["cupy"]
        return " + CuPy", lambda array: cupy.asarray(native(array))
    if isinstance(like, ps.DeviceArray):
        ordinal = like.device
        return " + copy", lambda array: ps.DeviceArray.from_numpy(native(array), ordinal)
    return "", lambda array: array


def native(array: NDArray[Any]) -> NDArray[Any]:
    """The same numbers in the byte order of this machine."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def to_host(array: Any) -> NDArray[Any]:
    """The array as NumPy has it, from wherever it is."""
    if frameworks.is_torch(array):
        array = array.cpu().numpy()
    elif frameworks.is_cupy(array):
        array = array.get()
    elif isinstance(array, ps.DeviceArray):
        array = array.numpy()
    return np.asarray(array)
