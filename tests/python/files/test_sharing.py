"""Cached reads into GPUs of one host: the slots of all that are read at once fit the cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

MIB = 1 << 20
NBYTES = 128 * MIB
READ = f"""
import json, sys
import penstock as ps
found = []
for device in sys.argv[2:]:
    with open(sys.argv[1], "rb") as file:
        file.read()  # into the page cache
    array = ps.load(sys.argv[1], dtype="uint8", shape=({NBYTES},), device=device, route="staged")
    report = ps.last_report()
    found.append([report.block, report.bytes, report.note])
print(json.dumps(found))
"""
GO_ON = f"""
import select, sys
import penstock as ps
array = ps.DeviceArray({NBYTES}, "uint8", 0)
while not select.select([sys.stdin], [], [], 0)[0]:
    ps.load(sys.argv[1], out=array, route="staged")
    print("reads", flush=True)
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    made = tmp_path_factory.mktemp("sharing") / "data.bin"
    made.write_bytes(os.urandom(MIB) * (NBYTES // MIB))
    return made


def environment(count):
    return os.environ | {"CUDASIM_DEVICES": str(count), "PENSTOCK_ARRAYS": "device"}


def read(path, *devices, count):
    if not os.environ.get("PENSTOCK_CUDA_LIBRARY"):
        pytest.skip("needs the stand-in GPU, of which there can be several")
    done = subprocess.run(
        [sys.executable, "-c", READ, str(path), *devices],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(count),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def alone(path):
    """Return the block of a read while no other process reads into another GPU."""
    for _ in range(5):
        ((block, nbytes, _),) = read(path, "cuda:0", count=1)
        assert nbytes == NBYTES
        if block >= 4 * MIB:
            break
        time.sleep(1)  # another test has read into several
    return block


@pytest.mark.gpu
def test_one_gpu_has_blocks_of_four_mebibytes(path):
    if (os.cpu_count() or 1) > 4:
        pytest.skip("more workers have smaller blocks, so that there are enough for all")
    assert alone(path) == 4 * MIB


@pytest.mark.gpu
def test_several_gpus_have_blocks_that_stay_in_the_cache_together(path):
    one = alone(path)
    _, *both = read(path, "cuda:0", "cuda:1", "cuda:0", count=2)
    for block, nbytes, _ in both:
        assert nbytes == NBYTES
        assert MIB <= block <= one
    assert both[0] == both[1]


@pytest.mark.gpu
def test_processes_take_account_of_each_other(path):
    _, *both = read(path, "cuda:0", "cuda:1", "cuda:0", count=2)
    other = subprocess.Popen(
        [sys.executable, "-c", GO_ON, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(count=2),
    )
    assert other.stdout
    assert other.stdout.readline() == b"reads\n"
    ((block, *_),) = read(path, "cuda:1", count=2)
    other.communicate()
    assert other.returncode == 0
    assert block == both[0][0]
