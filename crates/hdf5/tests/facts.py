"""A file with one dataset of each layout: python facts.py FILE."""

import sys

import h5py
import numpy as np

numbers = np.arange(1_000_000, dtype="<i4").reshape(1000, 1000)
with h5py.File(sys.argv[1], "w") as file:
    file["contiguous"] = numbers
    file.create_dataset("chunked", data=numbers, chunks=(100, 1000))
    file.create_dataset("gzip", data=numbers, chunks=(100, 1000), compression="gzip")
