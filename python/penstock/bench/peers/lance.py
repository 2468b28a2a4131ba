"""Lance by its package ``pylance``: rows at random by ``take``, alone and in torch's loader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ..loaders import consume, loader
from ..measure import Contestant, absent
from ..place import Place
from ..sample_files import DISTINCT, SampleFile, numbers, pictures

_ROWS = 1024


def contestants(
    data: SampleFile, folder: Path, batch: int, workers: int, place: Place
) -> list[Contestant]:
    """Return the ways to read the samples from a data set of Lance, which is made first."""
    try:
        lance: Any = import_module("lance")
        import_module("pyarrow")
    except ImportError as error:
        return [absent("Lance", "take", f"pylance is not installed: {error}")]
    path = folder / "samples.lance"
    _make(lance, data, path)
    samples = LanceSamples(str(path), data.names, data.shape)
    source = np.random.default_rng(1)

    def taken() -> Iterator[Any]:
        order = source.permutation(data.count)
        for start in range(0, data.count, batch):
            yield samples.take(order[start : start + batch])

    in_loader = loader(samples, batch, workers, place, collate_fn=_same)
    take, load = lambda: consume(taken(), place), lambda: consume(in_loader, place)
    setting = f"{workers} spawned workers"
    return [
        Contestant("Lance", "take", data.count, take, check=data.check),
        Contestant("Lance in DataLoader", setting, data.count, load, check=data.check),
    ]


class LanceSamples:
    """A map-style data set of torch over Lance, which takes a batch at a time."""

    def __init__(self, path: str, names: Sequence[str], shape: tuple[int, ...]) -> None:
        self.path = path
        self.names = list(names)
        self.shape = shape
        self.count = self._opened().count_rows()
        self.dataset: Any = None

    def _opened(self) -> Any:
        lance: Any = import_module("lance")
        return lance.dataset(self.path)

    def __len__(self) -> int:
        return int(self.count)

    def __getitem__(self, index: int) -> Any:
        return {name: part[0] for name, part in self.take([index]).items()}

    def __getitems__(self, indices: Sequence[int]) -> Any:
        return self.take(indices)

    def take(self, indices: Any) -> dict[str, Any]:
        """Return a batch as tensors in host memory."""
        torch: Any = import_module("torch")
        if self.dataset is None:
            self.dataset = self._opened()
        table = self.dataset.take(list(map(int, indices)), columns=self.names)
        batch = {}
        for name in self.names:
            column = table[name].combine_chunks()
            if name == "number":
                found = column.to_numpy()
            else:
                shape = self.shape if name == "image" else (-1,)
                found = column.flatten().to_numpy().reshape(len(table), *shape)
            batch[name] = torch.from_numpy(np.require(found, requirements="W"))
        return batch

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"dataset": None}


def _same(batch: Any) -> Any:
    return batch


def _make(lance: Any, data: SampleFile, path: Path) -> None:
    """Write the same samples, the images as lists of bytes of a fixed length."""
    if path.exists():
        return
    arrow: Any = import_module("pyarrow")
    images = pictures(data.shape).reshape(DISTINCT, -1)

    def column(array: Any) -> Any:
        values = arrow.array(array.reshape(-1))
        if array.ndim == 1:
            return values
        return arrow.FixedSizeListArray.from_arrays(values, array.shape[1])

    def batches() -> Iterator[Any]:
        for start in range(0, data.count, _ROWS):
            rows = np.arange(start, min(start + _ROWS, data.count))
            columns = [
                column(images[rows % DISTINCT] if name == "image" else numbers(name, rows))
                for name in data.names
            ]
            yield arrow.RecordBatch.from_arrays(columns, names=list(data.names))

    first = next(batches())
    reader = arrow.RecordBatchReader.from_batches(first.schema, batches())
    lance.write_dataset(reader, str(path))
