"""A program of h5py, which does not refer to Penstock. Run it on Penstock's driver:

penstock run --report -- python examples/plain_h5py.py [NEW_FILE]
"""

import sys
import tempfile

import h5py
import numpy as np


def main(path: str) -> None:
    """Write a year of temperatures, and read some days of it."""
    rng = np.random.default_rng(seed=1)
    shape, chunks = (365, 45, 90), (1, 45, 90)
    with h5py.File(path, "x") as file:
        field = file.create_dataset("temperature", shape, "f4", chunks=chunks, compression="gzip")
        field.attrs["unit"] = "K"
        for day in range(shape[0]):
            season = 15 * np.sin(2 * np.pi * day / 365)
            field[day] = np.round(280 + season + rng.normal(size=shape[1:]), 1)

    with h5py.File(path) as file:
        field = file["temperature"]
        means = [field[day].mean() for day in range(0, 365, 73)]
        print(f"{field.shape} in {field.attrs['unit']}:", " ".join(f"{mean:.1f}" for mean in means))


with tempfile.TemporaryDirectory() as folder:
    main(sys.argv[1] if len(sys.argv) > 1 else f"{folder}/temperatures.h5")
