"""Loaders of batches: Penstock's, and torch's over h5py."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import h5py
import numpy as np

import penstock as ps

from .measure import Contestant
from .place import Place
from .sample_files import SampleFile

SPAWN = "spawn"


class H5pySamples:
    """A map-style data set over h5py, as programs write it: a worker opens the file once."""

    def __init__(self, data: SampleFile, count: int) -> None:
        self.path = data.path
        self.names = data.names
        self.count = count
        """Samples of the data set: the first ones, for a loader that is too slow for all."""
        self.datasets: dict[str, Any] | None = None

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        torch: Any = import_module("torch")
        if self.datasets is None:
            file = h5py.File(self.path, "r")
            self.datasets = {name: file[name] for name in self.names}
        return {name: torch.as_tensor(part[index]) for name, part in self.datasets.items()}


Work = Callable[[Any], None]
"""What is done with a batch."""


class Step:
    """The step of a model that takes a given time: products of matrices, or sleep on the host."""

    def __init__(self, seconds: float, place: Place) -> None:
        self.seconds = seconds
        self._products = 0
        if place.is_gpu:
            torch: Any = import_module("torch")
            self._matrix = torch.randn(4096, 4096, device=place.name, dtype=torch.bfloat16)
            self._products = 20
            for _ in range(3):
                self(None)
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(10):
                self(None)
            torch.cuda.synchronize()
            per_step = (time.perf_counter() - began) / 10
            self._products = max(round(self._products * seconds / per_step), 1)

    def __call__(self, _: Any) -> None:
        if not self._products:
            time.sleep(self.seconds)
        for _ in range(self._products):
            self._matrix @ self._matrix


def consume(batches: Iterable[Any], place: Place, work: Work | None = None) -> Any:
    """Bring batches to their place, work on each, and return one of them."""
    torch: Any = import_module("torch")
    kept = None
    for batch in batches:
        if place.is_gpu:
            batch = {name: part.to(place.name, non_blocking=True) for name, part in batch.items()}
        if work is not None:
            work(batch)
        kept = batch if kept is None else kept
    if place.is_gpu:
        torch.cuda.synchronize()
    return kept


def loader(dataset: Any, batch: int, workers: int, place: Place, **more: Any) -> Any:
    """Return torch's loader at the settings that its documentation recommends for rate."""
    torch_data: Any = import_module("torch.utils.data")
    if workers:
        more |= {"multiprocessing_context": SPAWN, "persistent_workers": True, "prefetch_factor": 4}
    return torch_data.DataLoader(
        dataset,
        batch_size=batch,
        shuffle=True,
        num_workers=workers,
        pin_memory=place.is_gpu and workers > 0,
        **more,
    )


def penstock(
    data: SampleFile,
    batch: int,
    place: Place,
    work: Work | None = None,
    *,
    prefetch: int,
    **options: Any,
) -> Contestant:
    """Return ``penstock.torch.Batches``."""
    library: Any = import_module("penstock.torch")
    dataset = library.HDF5Dataset(data.path, data.names, device=place.name, **options)
    batches = library.Batches(dataset, batch, prefetch=prefetch)
    setting = ", ".join([f"prefetch {prefetch}", *(f"{k}={v}" for k, v in options.items())])
    return _contestant("Penstock Batches", setting, data, lambda: consume(batches, place, work))


def raw(data: SampleFile, batch: int, place: Place, work: Work | None = None) -> Contestant:
    """Return the reads of the same batches by ``read_many``, one after the other."""
    file = ps.File(data.path)
    datasets = [file[name] for name in data.names]
    source = np.random.default_rng(1)

    def read() -> Iterator[Any]:
        order = source.permutation(data.count)
        for start in range(0, data.count, batch):
            pieces = [(dataset, order[start : start + batch]) for dataset in datasets]
            found = ps.read_many(pieces, device=place.name, like="torch")
            yield dict(zip(data.names, found, strict=True))

    return _contestant("Penstock read_many", "", data, lambda: consume(read(), place, work))


def in_torch(data: SampleFile, batch: int, place: Place) -> Contestant:
    """Return Penstock's data set in torch's loader, without workers."""
    library: Any = import_module("penstock.torch")
    dataset = library.HDF5Dataset(data.path, data.names, device=place.name)
    made = loader(dataset, batch, 0, place)
    return _contestant("Penstock in DataLoader", "0 workers", data, lambda: consume(made, place))


def over_h5py(
    data: SampleFile,
    batch: int,
    workers: int,
    place: Place,
    work: Work | None = None,
    share: int = 1,
) -> Contestant:
    """Return torch's loader over h5py, for one sample of ``share``."""
    samples = H5pySamples(data, min(max(data.count // share, batch), data.count))
    made = loader(samples, batch, workers, place)
    setting = f"{workers} {SPAWN}ed workers" if workers else "0 workers"
    run = partial(consume, made, place, work)
    return _contestant("DataLoader over h5py", setting, data, run, count=len(samples))


def steps(data: SampleFile, batch: int, place: Place, work: Work) -> Contestant:
    """Return the steps of the model alone."""
    count = -(-data.count // batch)
    empty: dict[str, Any] = {}
    return Contestant("Steps alone", "", data.count, lambda: consume([empty] * count, place, work))


def _contestant(
    name: str, setting: str, data: SampleFile, run: Callable[[], Any], count: int | None = None
) -> Contestant:
    return Contestant(name, setting, count or data.count, run, check=data.check)


def cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0))
