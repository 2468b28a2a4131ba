"""Writes a contiguous dataset that is larger than HDF5's sieve buffer."""

import sys

import h5py
import numpy as np

with h5py.File(sys.argv[1], "w") as file:
    file["contiguous"] = np.full(1 << 18, 99, "u1")
