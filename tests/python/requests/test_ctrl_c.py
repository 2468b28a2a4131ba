"""Ctrl-C ends every call that waits for a transfer soon, whatever the medium takes for it.

A child process, whose reads and writes are delayed, makes the calls. In each, SIGINT comes after
``AFTER`` seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MS = 60
"""The delay of a block. There are 64 blocks, so that a whole call takes almost four seconds."""
AFTER = 0.1
SOON = 1.5
"""Seconds: a slice of a wait, a block, and what else the machine is busy with."""

PROGRAM = """
import ctypes, json, os, signal, sys, time
import h5py, numpy as np, penstock as ps
from penstock import request
from penstock.deepnvme import AsyncIOBuilder

folder, kind, slow, after = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
slow_ms = ctypes.CDLL(None).slow_ms
signal.signal(signal.SIGALRM, signal.default_int_handler)
os.chdir(folder)
size = 16 << 20
data = np.arange(size, dtype="u1")
many = [(at, data[at : at + (4 << 20)]) for at in range(0, size, 4 << 20)]
data.tofile("raw")
with h5py.File("f.h5", "w") as file:
    file["whole"] = data
    file.create_dataset("chunks", data=data, chunks=(256 << 10,))
file = ps.File("f.h5", "r+")
whole, chunks = file["whole"], file["chunks"]
data[:9].tofile("there")
handle = AsyncIOBuilder().load().aio_handle(block_size=256 << 10, intra_op_parallelism=1)

def wait_for_a_request():
    made = ps.load_async("raw", out=data)
    try:
        made.wait()
    except KeyboardInterrupt:
        made.cancel()
        try:
            made.wait()
        except ps.CancelledError:
            pass
        raise

jobs = {
    "save": lambda: ps.save("new", data),
    "durable save": lambda: ps.save("new", data, durable=True),
    "load": lambda: ps.load("raw"),
    "strided load": lambda: ps.load("raw", out=np.empty((size, 2), "u1")[:, 0]),
    "load_many": lambda: ps.load_many("raw", many),
    "read": lambda: whole.read(out=data),
    "read of chunks": lambda: chunks.read(out=data),
    "getitem": lambda: chunks[:],
    "write": lambda: whole.write(data),
    "read_many": lambda: ps.read_many([whole, chunks], out=[data, data.copy()]),
    "sync_pread": lambda: handle.sync_pread(data, "raw"),
    "sync_pwrite": lambda: handle.sync_pwrite(data, "there"),
    "wait": wait_for_a_request,
}
if kind == "gpu":
    ps.init()  # no transfer, and takes long on a busy machine
    there = ps.DeviceArray(size, "u1")
    jobs = {
        "save": lambda: ps.save("new", there),
        "load": lambda: ps.load("raw", out=there),
        "read": lambda: whole.read(out=there),
        "read of chunks": lambda: chunks.read(out=there),
        "read_many": lambda: ps.read_many([whole, chunks], out=[there, data]),
        "sync_pread": lambda: handle.sync_pread(there, "raw"),
    }
if kind == "torch":
    import torch, penstock.torch as pst
    tensor = torch.from_numpy(data)
    options = {"threads": 1, "block": "256KiB", "io": "threads", "direct": "no"}
    pst.save_file({"x": tensor}, "x.safetensors")
    pst.save_file({"y": tensor}, "y.safetensors")
    pst.save({"x": tensor}, "x.pt")
    jobs = {
        "save_file": lambda: pst.save_file({"x": tensor}, "new"),
        "load_file": lambda: pst.load_file("x.safetensors", copy=True, **options),
        "load_model": lambda: pst.load_model(model(), "x.safetensors"),
        "save of torch": lambda: pst.save({"x": tensor}, "new"),
        "load of torch": lambda: pst.load("x.pt"),
    }
    def model():
        made = torch.nn.Module()
        made.register_buffer("x", torch.empty_like(tensor))
        return made

found = {}
route = {"route": "staged"} if kind == "gpu" else {}
with ps.options(threads=1, block="256KiB", io="threads", direct="no", **route):
    for name, job in jobs.items():
        with open("new", "w") as old:
            old.write("old")
        before = sorted(os.listdir())
        ended = "finished"
        slow_ms(slow)
        signal.setitimer(signal.ITIMER_REAL, after)
        began = time.perf_counter()
        try:
            job()
        except KeyboardInterrupt:
            ended = "interrupted"
        took = time.perf_counter() - began
        signal.setitimer(signal.ITIMER_REAL, 0)
        is_idle = all(native.is_over() for native in request._pending.copy())
        slow_ms(0)
        with open("new", "rb") as new:
            is_old = new.read(8) == b"old"
        found[name] = ended, took, is_idle, is_old and sorted(os.listdir()) == before
print(json.dumps(found))
"""

HOST = (
    "save",
    "durable save",
    "load",
    "strided load",
    "load_many",
    "read",
    "read of chunks",
    "getitem",
    "write",
    "read_many",
    "sync_pread",
    "sync_pwrite",
    "wait",
)
GPU = ("save", "load", "read", "read of chunks", "read_many", "sync_pread")
TORCH = ("save_file", "load_file", "load_model", "save of torch", "load of torch")

_found: dict[str, dict[str, Any]] = {}


@pytest.fixture
def interrupted(slow_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Returns what a call of a kind did; all calls of the kind are made by one process."""

    def find(kind: str, call: str) -> Any:
        if kind not in _found:
            work = tmp_path_factory.mktemp("ctrl-c")
            preload = f"{slow_library} {os.environ.get('LD_PRELOAD', '')}".strip()
            done = subprocess.run(
                [sys.executable, "-c", PROGRAM, work, kind, str(MS), str(AFTER)],
                env=os.environ | {"LD_PRELOAD": preload},
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert done.returncode == 0, done.stderr
            _found[kind] = json.loads(done.stdout)
        return _found[kind][call]

    return find


def check(ended: str, took: float, is_idle: bool, is_as_before: bool) -> None:
    assert ended == "interrupted"
    assert took < AFTER + SOON
    assert is_idle, "a request still uses memory"
    assert is_as_before, "a file is new, or has changed"


@pytest.mark.parametrize("call", HOST)
def test_ctrl_c_ends_a_call_soon(interrupted, call):
    check(*interrupted("host", call))


@pytest.mark.gpu
@pytest.mark.parametrize("call", GPU)
def test_ctrl_c_ends_a_call_for_gpu_memory_soon(interrupted, call):
    check(*interrupted("gpu", call))


@pytest.mark.parametrize("call", TORCH)
def test_ctrl_c_ends_a_call_for_tensors_soon(torch, interrupted, call):
    check(*interrupted("torch", call))
