"""Reads a dataset by Legate and writes it by Legate: round_trip.py FROM TO."""

import sys

import h5py
import numpy as np
from legate.core import get_legate_runtime
from legate.io.hdf5 import from_file, from_file_batched, to_file

source, target = sys.argv[1:]
expected = np.arange(200_000, dtype="float64").reshape(100, 2000)
with h5py.File(source, "w") as file:
    file["x"] = expected

array = from_file(source, "x")
assert np.array_equal(np.asarray(array.get_physical_array()), expected)
for part, (row, column) in from_file_batched(source, "x", (30, 700)):
    found = np.asarray(part.get_physical_array())
    rows, columns = found.shape
    assert np.array_equal(found, expected[row : row + rows, column : column + columns])

to_file(array, target, "y")
get_legate_runtime().issue_execution_fence(block=True)
with h5py.File(target) as file:
    assert np.array_equal(file["y"], expected)
print("equal")
