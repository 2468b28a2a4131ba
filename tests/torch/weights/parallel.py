"""A rank of tensor parallelism, which reads its slices alone: RANK FOLDER SIZE DEVICE."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

import penstock as ps
from penstock.torch import load_file

rank, folder, size, device = int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
if device == "cuda":
    torch.cuda.set_device(rank)
torch.distributed.init_process_group(
    "nccl" if device == "cuda" else "gloo",
    init_method=f"file://{folder / 'store'}",
    rank=rank,
    world_size=size,
)
path = folder / "model.safetensors"
whole = load_file(path, backend="pread")["matrix"]
for axis in range(2):
    length = whole.shape[axis] // size
    own = (np.s_[:],) * axis + (slice(rank * length, (rank + 1) * length),)
    found = load_file(path, device, plan={"matrix": own}, backend="pread")["matrix"]
    report = ps.last_report()
    assert report is not None
    assert report.bytes == whole.nbytes // size
    assert found.device.type == device
    parts = [torch.empty_like(found) for _ in range(size)]
    torch.distributed.all_gather(parts, found)
    assert torch.equal(torch.cat(parts, axis).cpu().view(torch.uint8), whole.view(torch.uint8))
print("done")
torch.distributed.destroy_process_group()
