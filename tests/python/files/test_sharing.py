"""Cached reads into one of several GPUs: the slots of the first blocks fit into the cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    made = tmp_path_factory.mktemp("sharing") / "data.bin"
    made.write_bytes(os.urandom(MIB) * (NBYTES // MIB))
    return made


def read(path, *devices, count):
    if not os.environ.get("PENSTOCK_CUDA_LIBRARY"):
        pytest.skip("needs the stand-in GPU, of which there can be several")
    done = subprocess.run(
        [sys.executable, "-c", READ, str(path), *devices],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ
        | {"CUDASIM_DEVICES": str(count), "PENSTOCK_ARRAYS": "device", "PENSTOCK_STAGING": "fixed"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.gpu
def test_one_gpu_has_blocks_of_at_least_four_mebibytes(path):
    if (os.cpu_count() or 1) > 4:
        pytest.skip("more workers have smaller blocks, so that there are enough for all")
    ((block, nbytes, _),) = read(path, "cuda:0", count=1)
    assert nbytes == NBYTES
    assert block >= 4 * MIB


@pytest.mark.gpu
def test_several_gpus_have_blocks_that_stay_in_the_cache_together(path):
    if not list(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")):
        pytest.skip("the system does not tell how large its caches are")
    alone, _, again = read(path, "cuda:0", "cuda:1", "cuda:0", count=2)
    for block, nbytes, _ in (alone, again):
        assert nbytes == NBYTES
        assert block < 8 * MIB
    assert alone[0] == again[0]  # slots that are pinned go on to serve
