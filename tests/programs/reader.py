"""Another process, which reads what this one is writing."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from .runner import ROOT

Array = np.ndarray[Any, Any]


class Reader:
    """Asks a process of its own to read datasets with Penstock."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def read(self, path: Path, name: str, target: Path, *, plain: bool) -> Array:
        """The dataset as a SWMR reader finds it, which keeps the file open until :meth:`close`; by
        h5py alone if it is ``plain``."""
        self._ask(path=str(path), name=name, target=str(target), plain=plain)
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


@cache
def reader() -> Reader:
    return Reader()


def main() -> None:
    import penstock as ps
    from penstock.hdf5 import small

    small.LIMIT = 0
    files: dict[str, Any] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        answer = None
        try:
            path = asked["path"]
            if asked["name"] is None:
                if path in files:
                    files.pop(path).close()
            else:
                if path not in files:
                    files[path] = ps.File(path, libver="latest", swmr=True)
                dataset = files[path][asked["name"]]
                dataset.h5py.refresh()
                plain = asked["plain"]
                found = dataset.h5py[...] if plain else ps.read_async(dataset.h5py).wait()
                np.save(asked["target"], found)
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
