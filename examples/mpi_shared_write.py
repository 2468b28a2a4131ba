"""Ranks of an MPI program write one compressed HDF5 file, and read it back into their GPUs.

    mpirun -n 2 python -m mpi4py examples/mpi_shared_write.py [NEW_FILE]

Neither HDF5 nor h5py needs to be built with MPI. `-m mpi4py` ends all ranks if one of them fails.
Without a name, the file is shared.h5, which the program removes at the end.
"""

import os
import sys
import time

import h5py
import numpy as np
from mpi4py import MPI

import penstock as ps
from penstock.dist import mpi, partition

comm = MPI.COMM_WORLD
path = sys.argv[1] if len(sys.argv) > 1 else "shared.h5"
shape, chunks = (1000, 64, 96), (16, 64, 96)
device = "cuda" if ps.devices() else "cpu"


def field(part: tuple[slice, ...]) -> np.ndarray:
    """Return a part of a smooth field."""
    i, j, k = np.ogrid[part]
    return np.round(np.sin(i / 50) * np.cos(j / 20) + k / 96, 3).astype("f4")


part = partition(shape, chunks, comm.size)[comm.rank]
mine = field(part)
comm.Barrier()
began = time.perf_counter()
with mpi.File(path, comm, mode="x") as file:
    data = file.create("rho", shape, "f4", chunks=chunks, compression="gzip", shuffle=True)
    data.write(mine, part)
wrote = time.perf_counter() - began

comm.Barrier()
began = time.perf_counter()
with mpi.File(path, comm) as file:
    again = file["rho"].read(part, device=device)
read = time.perf_counter() - began

if comm.rank == 0:
    # One process, by h5py alone: the file is an ordinary one.
    with h5py.File(path) as file:
        rho = file["rho"]
        whole = field(tuple(map(slice, shape)))
        assert (rho[()] == whole).all()
        stored = rho.id.get_storage_size()
    print(
        f"{comm.size} ranks wrote {whole.nbytes / 1e6:.1f} MB as {stored / 1e6:.1f} MB "
        f"in {wrote:.2f} s"
    )
    print(f"and read it into {device} memory in {read:.2f} s; h5py reads the same elements")
    if len(sys.argv) == 1:
        os.remove(path)
