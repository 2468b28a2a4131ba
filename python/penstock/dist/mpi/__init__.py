"""HDF5 files that the ranks of an MPI program read and write together, without parallel HDF5.

>>> from mpi4py import MPI
>>> from penstock.dist import mpi, partition
>>> comm = MPI.COMM_WORLD
>>> parts = partition(shape, chunks, comm.size)
>>> with mpi.File("run.h5", comm, mode="w") as f:
...     d = f.create("rho", shape=shape, dtype="f4", chunks=chunks, compression="gzip")
...     d.write(mine, parts[comm.rank])
>>> with mpi.File("run.h5", comm) as f:
...     x = f["rho"].read(parts[comm.rank], device="cuda")

Rank 0 alone calls HDF5: it opens or makes the file, and sends the places of the elements to the
other ranks. Each rank then moves its bytes itself, with at most one ``open`` of the file. With
``layout="file-per-rank"``, each rank makes a file of its own, by HDF5, and virtual datasets join
them.

All methods are collective: all ranks call them in the same order, with the same arguments but for
slabs and arrays. If one rank fails, all get a :class:`RankError` that names it.
"""

from penstock.dist.gathering import RankError
from penstock.dist.mpi.dataset import Dataset
from penstock.dist.mpi.divided import DividedDataset
from penstock.dist.mpi.file import File
from penstock.dist.mpi.written import WrittenDataset

__all__ = ["Dataset", "DividedDataset", "File", "RankError", "WrittenDataset"]
