"""Files of samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest


class Files:
    """Files of different lengths, and what they hold."""

    def __init__(self, folder: Path, lengths: tuple[int, ...]) -> None:
        source = np.random.default_rng(0)
        self.paths: list[Path] = []
        parts: dict[str, list[np.ndarray[Any, Any]]] = {"image": [], "state": [], "label": []}
        for number, length in enumerate(lengths):
            self.paths.append(folder / f"{number}.h5")
            made = {
                "image": source.integers(0, 200, (length, 6, 5), "u1"),
                "state": source.random((length, 3), "f4"),
                "label": source.permutation(length) + 1000 * number,
            }
            with h5py.File(self.paths[-1], "w") as file:
                file.create_dataset(
                    "image",
                    data=made["image"],
                    chunks=(4, 6, 5),
                    maxshape=(None, 6, 5),
                    compression="gzip",
                )
                file.create_dataset("group/state", data=made["state"])
                file.create_dataset("label", data=made["label"].astype(">i8"))
                file["name"] = "one"
            for name, array in made.items():
                parts[name].append(array)
        self.parts = parts
        self.arrays = {name: np.concatenate(arrays) for name, arrays in parts.items()}


NAMES = {"image": "image", "state": "group/state", "label": "label"}


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path, (11, 1, 20, 7))
