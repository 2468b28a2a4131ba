"""A rank that loads its own plan while others load theirs: RANK FOLDER SIZE DEVICE."""

from __future__ import annotations

import random
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from penstock.dist.mpi import RankError
from penstock.torch import load_file, save_file

rank, folder, size, device = int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
has_nccl = device == "cuda" and torch.cuda.device_count() >= size
if device != "cpu":
    torch.cuda.set_device(rank % torch.cuda.device_count())
torch.distributed.init_process_group(
    "cpu:gloo,cuda:nccl" if has_nccl else "gloo",
    init_method=f"file://{folder / 'store'}",
    rank=rank,
    world_size=size,
)
world = torch.distributed.group.WORLD
path = folder / "plans.safetensors"
shapes = {"rows": (96, 640), "columns": (130, 1800), "both": (9, 70, 900), "whole": (7, 333)}
whole = {}
for number, dtype in enumerate((torch.float32, torch.bfloat16, torch.uint8)):
    made = torch.Generator().manual_seed(number)
    for name, shape in shapes.items():
        numbers = torch.randint(0, 255, shape, generator=made)
        whole[f"{name}{number}"] = numbers.to(dtype)
whole["empty"] = torch.empty(0, 3)
if rank == 0:
    save_file(whole, path)
torch.distributed.barrier()


def same(found, plan):
    assert list(found) == list(plan)
    for name, tensor in found.items():
        wanted = whole[name] if plan[name] is None else whole[name][plan[name]]
        assert tensor.device.type == device
        assert tensor.dtype == wanted.dtype
        assert torch.equal(tensor.cpu(), wanted), (name, plan[name])


def part(length):
    """Return this rank's slice of a dimension."""
    return slice(length * rank // size, length * (rank + 1) // size)


def parts_of_a_rank():
    for name, tensor in whole.items():
        shape = tensor.shape
        if name.startswith("rows"):
            yield name, np.s_[part(shape[0])]
        elif name.startswith("columns"):
            yield name, np.s_[:, part(shape[1])]
        elif name.startswith("both"):
            yield name, np.s_[2:-1, part(shape[1]), 100:800]
        else:
            yield name, None


plan = dict(parts_of_a_rank())
same(load_file(path, device, plan=plan, group=world), plan)

# A tensor without elements alone.
same(load_file(path, device, plan={"empty": None}, group=world), {"empty": None})

# Ranks whose plans have nothing in common, in an order of their own.
draw = random.Random(10 * size + rank)
for _ in range(6):
    few = draw.sample(list(whole), draw.randrange(len(whole)))
    drawn = {}
    for name in few:
        shape = whole[name].shape
        ends = [sorted(draw.sample(range(length + 1), 2)) for length in shape if length]
        index = tuple(slice(*pair) for pair in ends)
        drawn[name] = draw.choice([None, index, (slice(None), *index[1:])])
    same(load_file(path, device, plan=drawn, group=world), drawn)

# A rank that fails before it has read anything, with a plan and without.
last = rank == size - 1
for asked, words in (
    ({}, "there is no such file|No such file"),
    ({"device_map": {"": 0}}, "one device of each rank"),
    ({"plan": 5}, "not iterable"),
    ({"plan": {"whole0": np.s_[::0]}}, "'whole0'.*zero"),
    ({"plan": {"whole0": "x"}}, "'whole0'"),
):
    here = folder / "missing.safetensors" if last and not asked else path
    plan_of_others = {"plan": {"whole0": None}} if "plan" in asked else {}
    with pytest.raises(RankError, match=f"(?s)rank {size - 1}.*({words})"):
        load_file(here, device, group=world, **(asked if last else plan_of_others))

# A rank that asks for a tensor that is not there, or for an exchange.
for wrong, words in (
    ({"plan": {"none": None}}, "does not contain tensor none"),
    ({"plan": {"whole0": None}, "exchange": "host"}, "needs a group, and no plan"),
):
    asked = wrong if last else {"plan": {"whole0": None}}
    with pytest.raises(RankError, match=words):
        load_file(path, device, group=world, **asked)

# A rank that has another file under the same name.
own = folder / str(rank)
own.mkdir()
shutil.copyfile(path, own / path.name)
with pytest.raises(RankError, match="not the same file on all ranks"):
    load_file(own / path.name, device, plan={"whole0": None}, group=world)
print("done")
torch.distributed.destroy_process_group()
