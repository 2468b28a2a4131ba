"""Transfers while an all-reduce of NCCL waits for the other rank: `late_all_reduce.py FOLDER RANK`.

Rank 1 joins each all-reduce only after rank 0 has ended an operation, so that an operation that
waited for NCCL's kernel would never end. Rank 0's first operation is its first use of Penstock.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from time import perf_counter

import torch
import torch.distributed
from tests.python.memory.busy_gpu import make_files, operation

OPERATIONS = (
    "read_gzip_auto",
    "read_gzip_cpu",
    "read_rows",
    "read_parts",
    "write_gzip",
    "load",
    "save",
)


def main() -> None:
    folder, rank = sys.argv[1], int(sys.argv[2])
    torch.cuda.set_device(rank)
    store = torch.distributed.FileStore(str(Path(folder, "store")), 2)
    torch.distributed.init_process_group("nccl", rank=rank, world_size=2, store=store)
    numbers = torch.full((1 << 22,), rank + 1.0, device="cuda")
    # Both ranks connect here, so that later ones only launch kernels.
    torch.distributed.all_reduce(numbers.clone())
    torch.cuda.synchronize()
    if rank == 0:
        make_files(folder)
    kept = []  # since cudaFree waits, as CUDA documents
    for name in OPERATIONS:
        total = numbers.clone()
        if rank == 0:
            perform = operation(name, folder)
            kept.append(perform)
            torch.cuda.synchronize()
            work = torch.distributed.all_reduce(total, async_op=True)
            for use in ("first", "later"):
                begin = perf_counter()
                perform()
                print(f"{name}, {use} use: {perf_counter() - begin:.2f} s", flush=True)
            assert not work.is_completed(), f"{name} ended after the all-reduce"
            store.set(name, "ended")
            work.wait()
        else:
            store.wait([name], timedelta(seconds=60))
            torch.distributed.all_reduce(total)
        torch.cuda.synchronize()
        assert torch.equal(total, torch.full_like(total, 3.0)), name
    torch.distributed.destroy_process_group()
    print("done", flush=True)


if __name__ == "__main__":
    main()
