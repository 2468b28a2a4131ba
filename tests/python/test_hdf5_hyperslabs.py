"""Hyperslabs with blocks of several elements, close together and far apart, compared with NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import penstock as ps

SIZE = 1 << 20

LAYOUTS: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "chunked": {"chunks": (100_003,)},
    "gzip": {"chunks": (100_003,), "compression": "gzip"},
}

# Gaps of 4 bytes to 800 KB: some are read together with what they separate, and some are skipped.
SLABS = [(3, 2), (300, 100), (10_000, 9_000), (20_000, 100), (25_000, 15_001), (300_000, 100_000)]


def slab(stride: int, block: int) -> tuple[h5py.MultiBlockSlice, np.ndarray[Any, Any]]:
    """What to select, and the indices of that."""
    start, count = 7, (SIZE - 7) // stride
    chosen = h5py.MultiBlockSlice(start=start, stride=stride, count=count, block=block)
    return chosen, (start + stride * np.arange(count)[:, None] + np.arange(block)).ravel()


def make(path: Path, layout: str) -> np.ndarray[Any, Any]:
    values = np.arange(SIZE, dtype="i4")
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=values, **LAYOUTS[layout])
    return values


@pytest.mark.parametrize("dtype", ["i4", ">f8"])
@pytest.mark.parametrize(("stride", "block"), SLABS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_blocks_are_read_and_written(tmp_path, memory, layout, stride, block, dtype):
    path = tmp_path / "x.h5"
    expected = make(path, layout)
    chosen, indices = slab(stride, block)
    with ps.File(path, "r+") as file:
        found = memory.empty(len(indices), dtype)
        file["x"].read(chosen, out=found)
        np.testing.assert_array_equal(memory.numpy(found), expected[indices])
        file["x"].write(memory.array((-expected[indices]).astype(dtype)), chosen)
    expected[indices] *= -1
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["x"][()], expected)


# Not the first: HDF5 itself takes minutes to open a mapping of 350,000 blocks.
@pytest.mark.parametrize(("stride", "block"), SLABS[1:])
def test_blocks_of_a_virtual_dataset_are_read(tmp_path, stride, block):
    values = np.arange(SIZE, dtype="i4")
    chosen, indices = slab(stride, block)
    whole = h5py.VirtualLayout((len(indices),), "i4")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        whole[:] = h5py.VirtualSource(file.create_dataset("source", data=values))[chosen]
        file.create_virtual_dataset("x", whole)
    with ps.File(tmp_path / "x.h5") as file:
        np.testing.assert_array_equal(file["x"].read(), values[indices])
        np.testing.assert_array_equal(file["x"][5::3], values[indices][5::3])
