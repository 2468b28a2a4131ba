"""Checkpoints of two ranks on the CPU, by gloo."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.torch.processes import run_ranks

from .conftest import torch

pytest.importorskip("torch.distributed.checkpoint")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this torch has no gloo", allow_module_level=True)

BEGIN = """
import os, sys
import torch, torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, zeros
from penstock.torch.checkpoint import *
rank, path, store = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))
whole = torch.arange(60_000.0).reshape(300, 200)
"""


def run(tmp_path: Path, program: str) -> list[str]:
    """Run a program by two ranks; return what each has printed."""
    whole = BEGIN + program + "\ndist.barrier()\ndist.destroy_process_group()\n"
    return run_ranks(whole, [str(tmp_path / "c"), str(tmp_path / "store")])


def test_sharded_tensors_are_saved_and_loaded_with_another_sharding(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
def check(writer, reader):
    state = {"rows": distribute_tensor(whole, mesh, [Shard(0)]),
             "columns": distribute_tensor(whole, mesh, [Shard(1)]),
             "all": distribute_tensor(whole, mesh, [Replicate()]), "step": 5}
    dcp.save(state, storage_writer=writer(path))
    for kinds in [(Shard(0), Shard(1), Shard(0)), (Shard(1), Shard(0), Replicate()),
                  (Replicate(), Replicate(), Shard(1))]:
        loaded = {name: zeros(300, 200, device_mesh=mesh, placements=[kind])
                   for name, kind in zip(("rows", "columns", "all"), kinds)}
        loaded["step"] = 0
        dcp.load(loaded, storage_reader=reader(path))
        assert loaded.pop("step") == 5
        for name, value in loaded.items():
            assert torch.equal(value.full_tensor(), whole), name

check(PenstockWriter, PenstockReader)
check(dcp.FileSystemWriter, PenstockReader)
check(PenstockWriter, dcp.FileSystemReader)
""",
    )


def test_one_process_loads_what_two_have_saved(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
state = {"rows": distribute_tensor(whole, mesh, [Shard(0)])}
dcp.save(state, storage_writer=PenstockWriter(path))
loaded = {"rows": torch.zeros(300, 200)}
dcp.load(loaded, storage_reader=PenstockReader(path), no_dist=True)
assert torch.equal(loaded["rows"], whole)
assert sorted(os.listdir(path)) == [".metadata", "__0_0.distcp", "__1_0.distcp"]
""",
    )


def test_safetensors_files_of_two_ranks_are_loaded(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
state = {"rows": distribute_tensor(whole, mesh, [Shard(0)]),
         "columns": distribute_tensor(whole, mesh, [Shard(1)])}
dcp.save(state, storage_writer=PenstockHuggingFaceWriter(path, save_distributed=True))
for kind in (Shard(1), Replicate()):
    loaded = {name: zeros(300, 200, device_mesh=mesh, placements=[kind]) for name in state}
    dcp.load(loaded, storage_reader=PenstockHuggingFaceReader(path))
    assert all(torch.equal(value.full_tensor(), whole) for value in loaded.values())
""",
    )


def test_an_async_save_of_two_ranks_is_complete(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
state = {"rows": distribute_tensor(whole, mesh, [Shard(0)])}
future = dcp.async_save(state, storage_writer=PenstockWriter(path))
getattr(future, "upload_completion", future).result()
loaded = {"rows": zeros(300, 200, device_mesh=mesh, placements=[Shard(1)])}
dcp.load(loaded, storage_reader=PenstockReader(path))
assert torch.equal(loaded["rows"].full_tensor(), whole)
""",
    )


def test_if_one_rank_cannot_write_both_raise_and_the_last_checkpoint_stays(tmp_path: Path) -> None:
    first, second = run(
        tmp_path,
        """
import resource, signal
def state(value):
    return {"rows": distribute_tensor(torch.full((4000, 200), value), mesh, [Shard(0)])}
dcp.save(state(1.0), storage_writer=PenstockWriter(path))
if rank == 1:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, -1))
try:
    dcp.save(state(2.0), storage_writer=PenstockWriter(path))
except dcp.api.CheckpointException as error:
    (failed, (cause, _)), = error.failures.items()
    print(failed, type(cause).__name__, cause.path, "File too large" in str(cause))
loaded = state(0.0)
dcp.load(loaded, storage_reader=PenstockReader(path))
assert torch.equal(loaded["rows"].full_tensor(), torch.full((4000, 200), 1.0))
""",
    )
    assert first == second
    assert first.startswith("1 ")
    assert "__1_1.distcp" in first
    assert "True" in first


def test_if_one_rank_cannot_read_both_raise(tmp_path: Path) -> None:
    first, second = run(
        tmp_path,
        """
state = {"rows": distribute_tensor(whole, mesh, [Shard(0)])}
dcp.save(state, storage_writer=PenstockWriter(path))
dist.barrier()
if rank == 0:
    os.truncate(path + "/__1_0.distcp", 1000)
dist.barrier()
try:
    dcp.load(state, storage_reader=PenstockReader(path))
except dcp.api.CheckpointException as error:
    print(*error.failures, *(type(cause).__name__ for cause, _ in error.failures.values()))
""",
    )
    assert first == second == "1 EndOfFileError\n"
