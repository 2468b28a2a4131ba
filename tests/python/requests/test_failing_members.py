"""Each member of a group fails in turn, and none of the others uses memory after the error.

A child process, whose reads are delayed, makes the calls that have several requests. In each, one
request cannot be started, fails when it is waited for, or is interrupted there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MS = 8
"""The delay of a block. A member has 16 blocks."""

PROGRAM = """
import gc, json, os, sys, ctypes, weakref
import h5py, numpy as np, penstock as ps
from penstock import request
from penstock.dist.replicated import load as replicated

folder, kind, slow = sys.argv[1], sys.argv[2], int(sys.argv[3])
slow_ms = ctypes.CDLL(None).slow_ms
os.chdir(folder)
gc.disable()  # what an error keeps is kept by it alone
rows, size = 1024, 4 << 20
data = np.arange(6 * rows * 1024, dtype="f4").reshape(6 * rows, 1024)
data.tofile("raw")
for number in range(3):
    with h5py.File(f"{number}.h5", "w") as file:
        file["a"], file["b"] = data[:rows], data[rows:2 * rows]
with h5py.File("f.h5", "w") as file:
    file["x"] = data
    file["a"], file["b"] = data[:rows], data[rows:2 * rows]
file = ps.File("f.h5")
alive = weakref.WeakSet()

class Faults:
    kind, at, count, running = None, -1, 0, 0

def is_idle():
    return all(native.is_over() for native in request._pending.copy())

def hits(number, kind):
    found = (Faults.kind, Faults.at) == (kind, number)
    if found:
        running = [not native.is_over() for native in request._pending.copy()]
        Faults.running = max(Faults.running, sum(running))
    return found

submit, wait = request.Request._submit, request.Request.wait

def failing_submit(self, start):
    self.number, Faults.count = Faults.count, Faults.count + 1
    if hits(self.number, "start"):
        raise ps.IOFailure(f"member {self.number}")
    alive.add(self)
    return submit(self, start)

def failing_wait(self, timeout=None):
    if hits(self.number, "interrupt"):
        Faults.kind = None
        raise KeyboardInterrupt
    array = wait(self, timeout)
    if hits(self.number, "end"):
        raise ps.IOFailure(f"member {self.number}")
    return array

request.Request._submit, request.Request.wait = failing_submit, failing_wait

class Source:
    row = 4096

    def __init__(self):
        self.out = np.empty(6 * rows * self.row, "u1")

    def start(self, first, last):
        begin, end = first * self.row, last * self.row
        return ps.load_async("raw", out=self.out[begin:end], offset=begin)

    def start_all(self, shares):
        return ps.load_async("raw", out=self.out)

shares = [(at, min(at + rows, 6 * rows)) for at in range(0, 6 * rows, rows)]

def replicate(kind):
    reads = kind(Source(), shares)
    try:
        reads.start()
        for _ in shares:
            reads.wait()
        if reads.error is not None:
            raise ps.Error(str(reads.error))
    except BaseException:
        reads.stop()
        raise
    finally:
        reads.error = None  # which refers to the reads

def blocks():
    for _ in file["x"].blocks(rows, prefetch=2):
        pass

def reused_blocks():
    for _ in file["x"].blocks(rows, prefetch=2, reuse=True):
        pass

jobs = {
    "blocks": blocks,
    "reused blocks": reused_blocks,
    "read_many": lambda: ps.read_many([file["a"], file["b"]]),
    "a replicated array": lambda: replicate(replicated._ReadAhead),
    "a replicated array by one read": lambda: replicate(replicated._OneRead),
}
if kind == "cells":
    import anndata
    from penstock.anndata import Batches, Rows
    for number in range(3):
        anndata.AnnData(data[:rows]).write_h5ad(f"{number}.h5ad")
    cells = Rows([f"{number}.h5ad" for number in range(3)])

    def batches():
        for _ in Batches(cells, rows, shuffle=False, prefetch=2):
            pass

    jobs = {
        "rows": lambda: cells.start([np.arange(3 * rows)]).wait(),
        "batches of rows": batches,
    }
if kind == "gpu":
    def read_many():
        out = [np.empty((rows, 1024), "f4")]
        out += [ps.DeviceArray((rows, 1024), "f4", device=number) for number in (0, 1)]
        ps.read_many([file["a"], file["b"], file["a"]], out=out)

    jobs = {"read_many": read_many}
if kind == "torch":
    import torch, penstock.torch as pst
    from penstock.torch.checkpoint import reader
    from penstock.torch.checkpoint.archive import StoredTensor
    paths = [f"{number}.h5" for number in range(3)]
    dataset = pst.HDF5Dataset(paths, ["a", "b"], device="cpu")
    os.mkdir("model")
    names = {}
    for number in range(3):
        name = f"model-{number}.safetensors"
        names[f"x{number}"] = name
        pst.save_file({f"x{number}": torch.from_numpy(data[:rows])}, f"model/{name}")
    with open("model/model.safetensors.index.json", "w") as index:
        json.dump({"metadata": {}, "weight_map": names}, index)
    reader._LEAST_AT_ONCE = 1
    reader._REQUESTS = 1 << 20
    stored = StoredTensor(torch.float32, 0, (rows, 1024), (4096, 4))

    class Planner:
        def commit_tensor(self, item, target):
            pass

    def checkpoint():
        with reader.FileReads(Planner()) as reads:
            for _ in range(3):
                with reads.start("raw") as read:
                    for _ in range(2):
                        read.blocks.add(stored, (0, 0), torch.empty(rows, 1024))
            reads.wait()

    def batches():
        for _ in pst.Batches(dataset, rows, shuffle=False, prefetch=2):
            pass

    jobs = {
        "a batch of three files": lambda: dataset.start(range(3 * rows)).wait(),
        "batches": batches,
        "a checkpoint": checkpoint,
        "load_file": lambda: pst.load_file("model", backend="pread"),
    }

def run(job, kind, at):
    Faults.kind, Faults.at, Faults.count, Faults.running = kind, at, 0, 0
    slow_ms(slow)
    try:
        job()
        ended = "finished"
    except KeyboardInterrupt:
        ended, idle = "interrupted", is_idle()
    except ps.Error as error:
        ended, idle = str(error), is_idle()
    if ended == "finished":
        idle = is_idle()
    slow_ms(0)
    kept = len(alive)
    gc.collect()
    return ended, idle, kept, Faults.running

found = {}
route = {"route": "staged"} if kind == "gpu" else {}
with ps.options(threads=1, block="256KiB", io="threads", direct="no", **route):
    for name, job in jobs.items():
        found[name] = {"finished": run(job, None, -1)}
        count = Faults.count
        for place, at in (("first", 0), ("middle", count // 2), ("last", count - 1)):
            for fault in ("start", "end", "interrupt"):
                found[name][f"{fault} {place}"] = (at, count, *run(job, fault, at))
print(json.dumps(found))
"""

JOBS = {
    "host": (
        "blocks",
        "reused blocks",
        "read_many",
        "a replicated array",
        "a replicated array by one read",
    ),
    "cells": ("rows", "batches of rows"),
    "gpu": ("read_many",),
    "torch": ("a batch of three files", "batches", "a checkpoint", "load_file"),
}
ONE = ("read_many", "a replicated array by one read")
"""What has one member in host memory."""

_found: dict[str, Any] = {}


@pytest.fixture
def outcome(slow_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Returns what a call of a kind did; all calls of the kind are made by one process."""

    def find(kind: str, job: str) -> Any:
        if kind not in _found:
            preload = f"{slow_library} {os.environ.get('LD_PRELOAD', '')}".strip()
            done = subprocess.run(
                [sys.executable, "-c", PROGRAM, tmp_path_factory.mktemp("work"), kind, str(MS)],
                env=os.environ | {"LD_PRELOAD": preload, "CUDASIM_DEVICES": "2"},
                capture_output=True,
                text=True,
                timeout=300,
            )
            assert done.returncode == 0, done.stderr
            _found[kind] = json.loads(done.stdout)
        return _found[kind][job]

    return find


FAULTS = pytest.mark.parametrize("fault", ["start", "end", "interrupt"])
PLACES = pytest.mark.parametrize("place", ["first", "middle", "last"])


def check(found: Any, fault: str, place: str, least: int) -> None:
    assert found["finished"][:2] == ["finished", True]
    at, count, ended, is_idle, kept, running = found[f"{fault} {place}"]
    assert count >= least
    assert ended == "interrupted" if fault == "interrupt" else f"member {at}" in ended
    assert is_idle, "a request still uses memory"
    assert kept == 0, "a request is kept after its error"
    if fault == "interrupt" and place == "first":
        assert running, "no request was under way, so the test shows nothing"


@FAULTS
@PLACES
@pytest.mark.parametrize("job", JOBS["host"])
def test_a_failing_member_ends_all(outcome, job, place, fault):
    check(outcome("host", job), fault, place, 1 if job in ONE else 6)


@FAULTS
@PLACES
@pytest.mark.parametrize("job", JOBS["cells"])
def test_a_failing_member_ends_all_reads_of_cells(outcome, job, place, fault):
    pytest.importorskip("anndata", reason="anndata is not installed")
    check(outcome("cells", job), fault, place, 3)


@pytest.mark.gpu
@FAULTS
@PLACES
def test_a_failing_member_ends_the_reads_into_other_memories(outcome, place, fault):
    if not os.environ.get("PENSTOCK_CUDA_LIBRARY"):
        pytest.skip("needs the stand-in GPU, of which there can be several")
    check(outcome("gpu", "read_many"), fault, place, 3)


@FAULTS
@PLACES
@pytest.mark.parametrize("job", JOBS["torch"])
def test_a_failing_member_ends_all_reads_of_tensors(torch, outcome, job, place, fault):
    check(outcome("torch", job), fault, place, 3)
