"""Checkpoints of several ranks on the CPU, by gloo."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.torch.processes import run_ranks, start

from .conftest import torch

pytest.importorskip("torch.distributed.checkpoint")
checkpoint = pytest.importorskip("penstock.torch.checkpoint")
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
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
mesh = init_device_mesh("cpu", (RANKS,))
whole = torch.arange(60_000.0).reshape(300, 200)
"""


def run(tmp_path: Path, program: str, ranks: int = 2) -> list[str]:
    """Run a program by some ranks; return what each has printed."""
    whole = f"RANKS = {ranks}\n{BEGIN}{program}\ndist.barrier()\ndist.destroy_process_group()\n"
    return run_ranks(whole, [str(tmp_path / "c"), str(tmp_path / "store")], ranks)


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
assert [name[:4] for name in sorted(os.listdir(path))] == [".met", "__0_", "__1_"]
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
    assert "__1_0_" in first
    assert "True" in first


def test_if_one_rank_cannot_read_both_raise(tmp_path: Path) -> None:
    first, second = run(
        tmp_path,
        """
state = {"rows": distribute_tensor(whole, mesh, [Shard(0)])}
dcp.save(state, storage_writer=PenstockWriter(path))
dist.barrier()
if rank == 0:
    (name,) = (one for one in os.listdir(path) if one.startswith("__1_"))
    os.truncate(path + "/" + name, 1000)
dist.barrier()
try:
    dcp.load(state, storage_reader=PenstockReader(path))
except dcp.api.CheckpointException as error:
    print(*error.failures, *(type(cause).__name__ for cause, _ in error.failures.values()))
""",
    )
    assert first == second == "1 EndOfFileError\n"


SAVES = """
import re
class Planner(dcp.DefaultSavePlanner):
    def __init__(self, step=None, do=None):
        super().__init__()
        self.step, self.do = step, do
    def __getattribute__(self, name):
        if name == object.__getattribute__(self, "__dict__").get("step"):
            self.step = None
            self.do()
        return super().__getattribute__(name)

def state(value):
    return {f"part{rank}": torch.full((100 * (rank + 1),), value), "all": torch.full((9,), value)}

def save(value, planner=None, **keys):
    try:
        dcp.save(state(value), storage_writer=PenstockWriter(path), planner=planner, **keys)
    except dcp.api.CheckpointException as error:
        print(sorted(error.failures))

def check(value):
    dist.barrier()
    for reader in (PenstockReader, dcp.FileSystemReader):
        loaded = {name: torch.zeros_like(one) for name, one in state(value).items()}
        dcp.load(loaded, storage_reader=reader(path))
        assert all(torch.equal(one, state(value)[name]) for name, one in loaded.items()), loaded
    dist.barrier()

def fail():
    raise ValueError("fails")
"""


def test_a_save_that_others_overtake_before_one_rank_has_written_is_whole(tmp_path: Path) -> None:
    run(
        tmp_path,
        SAVES
        + """
def others():
    while not {f"__{n}_" for n in range(1, RANKS)} <= {name[:4] for name in os.listdir(path)}:
        pass
    for value in (2.0, 3.0):
        dcp.save({"other": torch.full((9,), value)}, storage_writer=PenstockWriter(path),
                 no_dist=True)

if rank == 0:
    dcp.save({"other": torch.zeros(9)}, storage_writer=PenstockWriter(path), no_dist=True)
dist.barrier()
save(4.0, Planner("resolve_data", others) if rank == 0 else None)
check(4.0)
if rank == 0:
    assert len(os.listdir(path)) == RANKS + 1, os.listdir(path)
""",
        3,
    )


@pytest.mark.parametrize("kind", ["", "HuggingFace"])
def test_a_save_in_which_a_rank_fails_at_a_step_leaves_the_last_checkpoint(
    tmp_path: Path, kind: str
) -> None:
    if kind:
        pytest.importorskip("safetensors")
    printed = run(
        tmp_path,
        SAVES
        + f"kind = {kind!r}"
        + """
if kind:
    PenstockWriter = lambda path: PenstockHuggingFaceWriter(path, save_distributed=True)
    PenstockReader, dcp.FileSystemReader = PenstockHuggingFaceReader, dcp.HuggingFaceStorageReader
save(1.0)
for step in ("create_local_plan", "finish_plan", "resolve_data"):
    save(2.0, Planner(step, fail) if rank == 1 else None)
    check(1.0)
writer = PenstockHuggingFaceWriter if kind else PenstockWriter
finish, writer.finish = writer.finish, lambda *rest: fail()
save(2.0)
writer.finish = finish
check(1.0)
save(3.0)
check(3.0)
""",
        3,
    )
    assert printed == ["[1]\n[1]\n[1]\n[0]\n"] * 3


@pytest.mark.parametrize("kind", ["", "HuggingFace"])
def test_a_rank_that_is_killed_leaves_the_last_checkpoint(tmp_path: Path, kind: str) -> None:
    options = ", save_distributed=True" if kind else ""
    program = f"""RANKS = 2
{BEGIN}{SAVES}
import signal
def writer():
    return Penstock{kind}Writer(path{options})
dcp.save(state(1.0), storage_writer=writer())
kill = Planner("resolve_data", lambda: os.kill(os.getpid(), signal.SIGKILL))
try:
    dcp.save(state(2.0), storage_writer=writer(), planner=kill if rank else None)
except BaseException as error:
    print(type(error).__name__)
parent.send((os.listdir(path),))
os._exit(0)
"""
    arguments = [str(tmp_path / "c"), str(tmp_path / "store")]
    started = [start(program, [str(rank), *arguments]) for rank in range(2)]
    try:
        assert started[0][1].poll(120)
        started[0][1].recv()
    finally:
        for process, _ in started:
            process.kill()
            process.join()
    assert started[1][0].exitcode == -9
    reader = getattr(checkpoint, f"Penstock{kind}Reader")(path=str(tmp_path / "c"))
    loaded = {"part0": torch.zeros(100), "part1": torch.zeros(200), "all": torch.zeros(9)}
    torch.distributed.checkpoint.load(loaded, storage_reader=reader, no_dist=True)
    assert all(bool((one == 1).all()) for one in loaded.values())
