"""Rank 0 describes a dataset of ten million chunks to all others."""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import numpy as np

from penstock.dist import partition
from penstock.dist.description import Description
from penstock.dist.mpi.ranks import Ranks

COUNT = 10**7
CHUNK = 512


def describe() -> Description:
    """A dataset of chunks that are compressed, each to another size."""
    sizes = np.random.default_rng(1).integers(1000, 2000, COUNT).astype("u8")
    return Description(
        name="/x",
        shape=(COUNT * CHUNK,),
        dtype=np.dtype("f4"),
        fill=bytes(4),
        file_size=1 << 62,
        offset=None,
        chunks=(CHUNK,),
        filters=((1, False, (6,)),),
        unfiltered_edges=False,
        stored=COUNT,
        addresses=np.cumsum(sizes) - sizes,
        sizes=sizes,
    )


def run(comm: Any) -> None:
    """Broadcast it, and find the slab of a rank of a hundred thousand."""
    ranks = Ranks(comm, timeout=60)
    made = describe() if comm.rank == 0 else None
    comm.Barrier()
    tracemalloc.start()
    began = time.perf_counter()
    found = ranks.broadcast("ten million chunks", lambda: made)
    took = time.perf_counter() - began
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found is not None
    assert took < 20, took
    lists = found.addresses.nbytes + found.sizes.nbytes
    # A rank has the lists once, and rank 0 sends its own uncopied.
    assert peak < (1 << 20 if comm.rank == 0 else lists + (1 << 20)), peak
    assert found.addresses[-1] == found.sizes[:-1].sum()
    (mine,) = partition(found.shape, found.chunks, 10**5)[99_999 - comm.rank]
    assert mine.stop - mine.start == COUNT * CHUNK // 10**5
    ranks.free()
