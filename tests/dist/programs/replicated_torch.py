"""The ranks of a process group of torch.distributed get the same array.

Arguments: the folder, the rank, the number of ranks, the backend and the device.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
import torch.distributed as distributed
from places import on_host

import penstock as ps
from penstock.dist import load_replicated
from penstock.dist.mpi import RankError

PIECE = 4096


def main(folder: Path, rank: int, size: int, backend: str, device: str) -> None:
    """Load datasets and plain bytes by the default group and another one; then fail."""
    if backend == "nccl":
        torch.cuda.set_device(rank)
    store = f"file://{folder / 'store'}"
    distributed.init_process_group(backend, init_method=store, rank=rank, world_size=size)
    path, raw = folder / "made.h5", folder / "made.bin"
    whole = np.arange(1003 * 30, dtype="f4").reshape(1003, 30)
    if rank == 0:
        whole.tofile(raw)
        with h5py.File(path, "w") as file:
            file["contiguous"] = whole
            file.create_dataset("gzip", data=whole, chunks=(16, 8), compression="gzip")
            file["scalar"] = 7.5
    distributed.barrier()
    keys: dict[str, Any] = {"device": device, "piece": PIECE}
    for name in ("contiguous", "gzip"):
        assert (on_host(load_replicated(f"{path}:{name}", **keys)) == whole).all(), name
        assert reported().bytes < whole.nbytes / size + PIECE, reported()
        way = {"nccl": "by NCCL", "cuda": "copies between", "cpu": "through host memory"}
        expected = way[backend if backend == "nccl" else device]
        # The stand-in, for example, has no memory that another process can open.
        is_other = device == "cuda" and "through host memory: rank" in reported().note
        assert expected in reported().note or is_other, reported().note
    assert (on_host(load_replicated(f"{path}:scalar", **keys)) == 7.5).all()
    with torch.device("meta"):  # as models are made before their weights are loaded
        found = load_replicated(raw, dtype="float32", shape=(1003, 30), **keys)
    assert (on_host(found) == whole).all()
    if device == "cpu":
        out = torch.zeros(1003, 30, dtype=torch.float64)
        load_replicated(f"{path}:gzip", out=out, piece=PIECE)
        assert (out.numpy() == whole).all()
    # Another group, whose first rank is not that of the default one, unless there are but two.
    last = size - 1
    others = distributed.new_group([last - 1, last])
    if rank in (last - 1, last):
        assert (on_host(load_replicated(f"{path}:gzip", others, **keys)) == whole).all()
    elif backend == "gloo":
        with pytest.raises(ps.InvalidError, match="not in the process group"):
            load_replicated(f"{path}:gzip", others, **keys)
    distributed.barrier()
    odd = rank == last
    with pytest.raises(RankError, match=r"disagree.*gzip.*contiguous") as caught:
        load_replicated(f"{path}:{'contiguous' if odd else 'gzip'}", **keys)
    assert caught.value.rank == last
    with pytest.raises(RankError, match=rf"rank {last}: IncompatibleError.*not a source") as caught:
        load_replicated(7.5 if odd else raw, **keys)
    assert caught.value.rank == last
    with pytest.raises(RankError, match=r"rank 0: .*missing"):
        load_replicated(f"{path}:missing", **keys)
    # Messages of ranks that are longer than what one call of the group carries.
    with pytest.raises(RankError, match=r"rank 0: .*missing"):
        load_replicated(f"{path}:{'missing' * 1000}", **keys)
    # Only the last rank reads the end of the file, which is not there.
    with pytest.raises(RankError, match=rf"rank {last}: EndOfFileError") as caught:
        load_replicated(raw, shape=whole.nbytes + 1, **{**keys, "piece": 1 << 30})
    assert caught.value.rank == last
    assert (on_host(load_replicated(raw, dtype="f4", **keys)) == whole.ravel()).all()
    distributed.barrier()
    world = distributed.group.WORLD
    distributed.destroy_process_group()
    with pytest.raises(ps.InvalidError, match="not usable"):
        load_replicated(raw, world, **keys)
    print("done", flush=True)


def reported() -> ps.Report:
    """The report of the last call."""
    found = ps.last_report()
    assert found is not None
    return found


main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5])
if sys.argv[4] == "gloo":
    os._exit(0)  # threads of gloo abort some processes that end in the usual way (torch 2.15)
