"""The CUDA context in which Penstock works."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import penstock as ps

pytestmark = pytest.mark.gpu

NOTE = "the driver allows no context for Penstock alone"
READ = """
import sys
import h5py
import numpy as np
import penstock as ps

folder = sys.argv[1]
rows = np.arange(1 << 20, dtype="f4").reshape(4096, 256)
rows.tofile(f"{folder}/a.bin")
with h5py.File(f"{folder}/a.h5", "w") as made:
    made.create_dataset("x", data=rows, chunks=(64, 256), compression="gzip")
ps.init()
target = ps.DeviceArray(rows.shape, "f4")
for route in ("staged", "mapped"):
    ps.load(f"{folder}/a.bin", out=target, route=route)
    assert (target.numpy() == rows).all(), route
    print(ps.last_report().note)
with ps.File(f"{folder}/a.h5") as file:
    file["x"].read(out=target, decode="gpu")
    print(ps.last_report().note)
assert (target.numpy() == rows).all()
"""


@pytest.mark.skipif(
    "PENSTOCK_CUDA_LIBRARY" not in os.environ, reason="only the stand-in GPU refuses a context"
)
@pytest.mark.parametrize("code", [2, 46], ids=["no memory", "one context only"])
def test_a_driver_that_refuses_a_second_context_is_used_by_that_of_the_program(code, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", READ, tmp_path],
        env=os.environ | {"CUDASIM_FAIL": f"context:*:{code}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(NOTE) == 3, done.stdout


def test_a_device_that_is_no_gpu_is_refused():
    with pytest.raises(ps.InvalidError, match="is not a GPU"):
        ps.init("cpu")
    with pytest.raises(ps.UnavailableError, match="there is no CUDA device 77"):
        ps.init(77)


def test_a_gpu_may_be_prepared_several_times():
    ps.init()
    ps.init("cuda")
    ps.init(0)
