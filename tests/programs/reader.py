"""Another process, which reads the files during this one's writes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from .runner import ROOT

Array = np.ndarray[Any, Any]


class Reader:
    """A separate process that reads datasets with Penstock on request."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def read(self, path: Path, name: str, target: Path, way: str) -> Array:
        """The dataset as a SWMR reader finds it, which keeps the file open until :meth:`close`."""
        self._ask(path=str(path), name=name, target=str(target), way=way)
        return np.asarray(np.load(target))

    def close(self, path: Path) -> None:
        self._ask(path=str(path), name=None, target=None)

    def _ask(self, **what: Any) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline() or '"the reader is gone"')
        if answer is not None:
            raise RuntimeError(f"in another process: {answer}")


def _rows(dataset: Any) -> list[slice]:
    half = len(dataset) // 2
    return [slice(half, None), slice(0, half)]


def _by_list(dataset: Any) -> Array:
    order = np.random.default_rng(len(dataset)).permutation(len(dataset))
    found = np.empty(dataset.shape, dataset.dtype)
    found[order] = dataset[order.tolist()]
    return found


def _by_many(dataset: Any) -> Array:
    import penstock as ps

    last, first = ps.read_many([(dataset, rows) for rows in _rows(dataset)])
    return np.concatenate([first, last])


WAYS: dict[str, Callable[[Any], Any]] = {
    "h5py": lambda dataset: dataset.h5py[...],
    "async": lambda dataset: dataset.read_async().wait(),
    "rows": lambda dataset: np.stack([dataset[row] for row in range(len(dataset))]),
    "list": _by_list,
    "many": _by_many,
}
"""How a reader reads all of a dataset; ``h5py`` is without Penstock."""


@cache
def reader() -> Reader:
    return Reader()


def main() -> None:
    import penstock as ps
    from penstock.hdf5 import small

    files: dict[str, Any] = {}
    datasets: dict[str, Any] = {}
    """Dataset objects by path: a kept object must not return old elements."""
    limit = small.LIMIT
    for line in sys.stdin:
        asked = json.loads(line)
        answer = None
        try:
            path = asked["path"]
            if asked["name"] is None:
                if path in files:
                    datasets.pop(path)
                    files.pop(path).close()
            else:
                if path not in files:
                    files[path] = ps.File(path, libver="latest", swmr=True)
                    datasets[path] = files[path][asked["name"]]
                datasets[path].h5py.refresh()
                small.LIMIT = 0 if asked["way"] == "async" else limit
                np.save(asked["target"], WAYS[asked["way"]](datasets[path]))
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
