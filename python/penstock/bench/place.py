"""The place of a benchmark's arrays: host memory, or the memory of this rank's GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import typer

import penstock as ps
from penstock import cufile_json, frameworks

from . import gpu
from .measure import Contestant, absent
from .ranks import Ranks
from .session import RefusedError

CHOICES = ("auto", "cpu", "cuda")
Device = Annotated[str, typer.Option(help=f"One of {', '.join(CHOICES)}.")]


@dataclass(frozen=True)
class Place:
    device: int
    """The GPU's ordinal; -1 for the host."""

    @property
    def is_gpu(self) -> bool:
        return self.device >= 0

    @property
    def name(self) -> str:
        """The value for the facade's ``device=``."""
        return f"cuda:{self.device}" if self.is_gpu else "cpu"

    @property
    def in_words(self) -> str:
        return "GPU memory" if self.is_gpu else "host memory"

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        kind = np.dtype(dtype)
        return gpu.empty(shape, kind.name) if self.is_gpu else np.empty(shape, kind)

    def put(self, host: np.ndarray[Any, Any]) -> Any:
        return gpu.to_gpu(host) if self.is_gpu else host

    def get(self, array: Any) -> np.ndarray[Any, Any]:
        return array if isinstance(array, np.ndarray) else gpu.to_host(array)


def without_cufile() -> str:
    """Return why cuFile does not start here; empty if it does."""
    cufile = ps.describe(None)["cufile"]
    if not (cufile["available"] and cufile["starts"]):
        return str(cufile["reason"])
    try:
        cufile_json.in_force()
    except ps.InvalidError as error:
        return str(error)
    return ""


def with_known_routes(entered: list[Contestant], name: str) -> list[Contestant]:
    """Mark the contestant of this name, which needs cuFile, as absent if cuFile does not start.

    This is not a failure of Penstock.
    """
    why = without_cufile()
    return [absent(name, c.setting, why) if why and c.name == name else c for c in entered]


def choose(text: str, ranks: Ranks) -> Place:
    """Return the place of a rank. GPUs are assigned round-robin."""
    if text not in CHOICES:
        raise RefusedError(f"there is no device {text!r}: choose from {', '.join(CHOICES)}")
    found = ps.devices()
    if text == "cuda" and not found:
        raise RefusedError("there is no GPU: use --device cpu, or run on a machine with one")
    if text == "cpu" or not found:
        return Place(-1)
    place = Place(ranks.rank % len(found))
    gpu.use(place.device)
    return place


def choose_for_torch(text: str, ranks: Ranks) -> tuple[Any, Place]:
    """Return torch, which must be installed and find the GPU, and the place of a rank."""
    torch: Any = frameworks.installed("torch")
    if torch is None:
        raise RefusedError("torch is not installed")
    place = choose(text, ranks)
    if place.is_gpu and not torch.cuda.is_available():
        raise RefusedError("torch finds no GPU: use --device cpu")
    return torch, place
