"""A rank that loads a file with all other ranks: RANK FOLDER SIZE DEVICE."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from penstock.dist.mpi import RankError
from penstock.torch import load_file, save_file
from penstock.torch.safetensors import replicated

rank, folder, size, device = int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
backend = "gloo" if device == "cpu" or torch.cuda.device_count() < size else "cpu:gloo,cuda:nccl"
if device != "cpu":
    torch.cuda.set_device(rank % torch.cuda.device_count())
torch.distributed.init_process_group(
    backend, init_method=f"file://{folder / 'store'}", rank=rank, world_size=size
)
world = torch.distributed.group.WORLD
alone = load_file(folder / "model.safetensors")
found = load_file(folder / "model.safetensors", device, group=world)
assert list(found) == list(alone)
for name, tensor in found.items():
    wanted = alone[name]
    assert tensor.dtype == wanted.dtype
    assert tensor.shape == wanted.shape
    assert tensor.device.type == device
    if wanted.numel():
        flat = [t.cpu().reshape(-1).view(torch.uint8) for t in (tensor, wanted)]
        assert torch.equal(*flat), name
    if device != "cpu" and tensor.numel() * tensor.element_size() % 16 == 0:
        assert tensor.data_ptr() % 16 == 0


def replace_and_lay_out(*arguments):
    """Replace the file after its header was read, on one rank."""
    if rank == size - 1:
        save_file({name: tensor.clone() for name, tensor in alone.items()}, folder / "replaced")
    return lay_out_contiguous(*arguments)


if rank == 0:
    save_file({name: tensor.clone() for name, tensor in alone.items()}, folder / "replaced")
torch.distributed.barrier()
lay_out_contiguous = replicated.lay_out_contiguous
replicated.lay_out_contiguous = replace_and_lay_out
with pytest.raises(RankError, match=r"was replaced|it has changed"):
    load_file(folder / "replaced", device, group=world)
replicated.lay_out_contiguous = lay_out_contiguous
with pytest.raises(RankError, match=r"NotFoundError"):
    load_file(folder / "none", device, group=world)
print("done")
torch.distributed.destroy_process_group()
