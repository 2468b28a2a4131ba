"""Chooses the GPU that a command uses, or reports why it has none; copies to and from it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

import penstock as ps
from penstock import frameworks
from penstock.cli.ending import refusing
from penstock.placement import HOST, parse_device

Device = Annotated[str | None, typer.Option(help="cuda, cuda:N or cpu; the first GPU by default.")]


@dataclass(frozen=True)
class Target:
    """The memory that arrays are read into."""

    device: str
    """The argument for Penstock's functions: "cuda:0" or "cpu"."""
    description: str
    reason: str = ""
    """Why the target is host memory, if the user did not request it."""

    @property
    def on_gpu(self) -> bool:
        return self.device != "cpu"


def choose(requested: str | None) -> Target:
    """Return the requested device; by default, the first GPU or else host memory."""
    with refusing("--device"):
        ordinal = parse_device("cuda" if requested is None else requested)
    if ordinal == HOST:
        return Target("cpu", "host memory")
    cuda = ps.describe(None)["cuda"]
    if requested is None and not cuda["devices"]:
        return Target("cpu", "host memory (no GPU here)", cuda["reason"] or "no device found")
    device = f"cuda:{ordinal or 0}"
    for found in cuda["devices"]:
        if device == f"cuda:{found['ordinal']}":
            return Target(device, f"{device}, {found['name']}")
    # The first use of the device raises an error with the cause.
    return Target(device, device)


def usual_copy(like: Any) -> tuple[str, Callable[[NDArray[Any]], object]]:
    """Return the usual copy from a NumPy array to an array like this one, and a label for it."""
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
    """Return the same numbers in the byte order of this machine."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def to_host(array: Any) -> NDArray[Any]:
    """Return any array as a NumPy array."""
    if frameworks.is_torch(array):
        array = array.cpu().numpy()
    elif frameworks.is_cupy(array):
        array = array.get()
    elif isinstance(array, ps.DeviceArray):
        array = array.numpy()
    return np.asarray(array)
