"""Arrays that many processes read and write together.

Penstock partitions and moves; the engine that a program already has starts its processes:
:mod:`penstock.dist.mpi` for MPI, :mod:`penstock.dist.dask` for Dask, :mod:`penstock.dist.legate` for
Legate.
"""

from penstock.dist.partition import Partition, partition

__all__ = ["Partition", "partition"]
