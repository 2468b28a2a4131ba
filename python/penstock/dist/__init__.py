"""Arrays that many processes read and write together.

Penstock partitions and moves the arrays; the program's own engine starts its processes:
:mod:`penstock.dist.mpi` for MPI, :mod:`penstock.dist.dask` for Dask, :mod:`penstock.dist.legate`
for Legate. :func:`load_replicated` is for ranks of MPI or torch.distributed that all need the same
array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.dist.partition import Partition, partition

if TYPE_CHECKING:
    from penstock.dist.replicated import load_replicated

__all__ = ["Partition", "load_replicated", "partition"]


def __getattr__(name: str) -> Any:
    # Commands import this package for ``launched`` only, and should not wait for the rest.
    if name == "load_replicated":
        from penstock.dist.replicated import load_replicated

        return load_replicated
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
