"""Arrays that many processes read and write together.

Penstock partitions and moves; the engine that a program already has starts its processes:
:mod:`penstock.dist.mpi` for MPI, :mod:`penstock.dist.dask` for Dask, :mod:`penstock.dist.legate` for
Legate. :func:`load_replicated` is for ranks of MPI or torch.distributed that all need the same array.
"""

from penstock.dist.partition import Partition, partition
from penstock.dist.replicated import load_replicated

__all__ = ["Partition", "load_replicated", "partition"]
