"""The same reads of cached datasets by Penstock and by h5py, into host or GPU memory.

Into GPU memory, torch copies what h5py has read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

import penstock as ps
from penstock.bench import gpu, native
from penstock.bench.measure import Contestant
from penstock.bench.verify import Expected

Read = Callable[[Any, Any], Any]
"""Reads ``dataset[selection]`` to where the results go."""


def places() -> list[str]:
    return ["host", *(["GPU"] if ps.devices() and gpu.torch else [])]


def readers(place: str) -> dict[str, Read]:
    """Return how Penstock and how h5py read a selection."""
    if place == "host":
        return {"Penstock": lambda d, s: d.read(s), "h5py": lambda d, s: d.h5py[s]}

    def theirs(dataset: Any, selection: Any) -> Any:
        found = gpu.torch.from_numpy(dataset.h5py[selection]).cuda()
        gpu.synchronize()
        return found

    return {"Penstock": lambda d, s: d.read(s, device="cuda"), "h5py": theirs}


def contestant(
    name: str, setting: str, expected: np.ndarray, calls: float, run: Callable[[], Any]
) -> Contestant:
    """Return a contestant whose run ends with an array that is compared."""
    detail = native.last if name == "Penstock" else str
    return Contestant(name, setting, calls, run, check=Expected(expected).check, detail=detail)


def pair(
    place: str, expected: np.ndarray, calls: float, work: Callable[[Read], Any]
) -> list[Contestant]:
    """Return both, at the same work."""
    settings = {"Penstock": "read", "h5py": "dataset[...]"}
    return [
        contestant(name, settings[name], expected, calls, partial(work, read))
        for name, read in readers(place).items()
    ]


def each(dataset: Any, parts: Iterable[Any], read: Read) -> Any:
    """Read parts one after the other, and return the last."""
    for part in parts:
        found = read(dataset, part)
    return found
