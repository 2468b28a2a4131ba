"""Where GPU memory is nearly full, workers wait for what others hold instead of failing."""

from __future__ import annotations

import os
import subprocess
import sys

import h5py
import numpy as np
import pytest

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        "standin" not in os.environ.get("PENSTOCK_CUDA_LIBRARY", ""),
        reason="only the stand-in GPU can be given less memory",
    ),
]

# A worker that reads needs 4 MiB, one that writes 2 MiB, beside the 16 MiB of the array.
ARRAY = """
import sys
import numpy as np
import penstock as ps

ROWS, ROW = 64, 65536
values = np.arange(ROWS * ROW, dtype="f4").reshape(ROWS, ROW)
path = sys.argv[1]


def check(found, expected):
    assert np.array_equal(found.numpy(), expected)
"""

WRITE = (
    ARRAY
    + """
new = ps.DeviceArray.from_numpy(values[:, :65000].copy())
with ps.File(path, "r+") as file, ps.options(threads=8, decode=sys.argv[2]):
    for _ in range(5):
        file["x"].write(new, np.s_[:, :65000])
"""
)

READ = (
    ARRAY
    + """
out = ps.DeviceArray.from_numpy(np.zeros((ROWS, ROW - 1), "f4"))
with ps.File(path, "r") as file, ps.options(threads=8, decode=sys.argv[2]):
    for _ in range(5):
        file["x"].read(np.s_[:, 1:], out=out)
check(out, values[:, 1:])
"""
)

BOTH = (
    ARRAY
    + """
HALVES = (np.s_[:16], np.s_[16:32])
new = [ps.DeviceArray.from_numpy(values[half, :65000].copy()) for half in HALVES]
out = [ps.DeviceArray.from_numpy(np.zeros((16, ROW - 1), "f4")) for _ in HALVES]
with ps.File(path, "r+") as file, ps.File(sys.argv[3], "r") as other:
    for _ in range(5):
        requests = []
        with ps.options(threads=8, decode=sys.argv[2]):
            for half, read, written in zip(HALVES, out, new):
                requests.append(file["x"].write_async(written, np.s_[half, :65000]))
                requests.append(other["x"].read_async(np.s_[half, 1:], out=read))
        for request in requests:
            request.wait(60)
for half, read in zip(HALVES, out):
    check(read, values[half, 1:])
"""
)

KEPT = (
    ARRAY
    + """
out = ps.DeviceArray.from_numpy(np.zeros((ROWS, ROW - 1), "f4"))
with ps.File(path, "r+") as file, ps.options(threads=1, decode="cpu"):
    file["x"].read(np.s_[:, 1:], out=out)
    file["x"].write(out, np.s_[:, 1:])
"""
)

WHOLE = (
    ARRAY
    + """
out = ps.DeviceArray.from_numpy(np.zeros((ROWS, ROW), "f4"))
with ps.File(path, "r") as file, ps.options(threads=8, decode=sys.argv[2]):
    for _ in range(3):
        file["x"].read(out=out)
check(out, values)
"""
)

NEW = (
    ARRAY
    + """
new = ps.DeviceArray.from_numpy(values[:, :65000].copy())
with ps.File(path, "r+") as file:
    file["new"].write(new, threads=int(sys.argv[3]), decode=sys.argv[2])
"""
)

LARGE_SLOT = (
    ARRAY
    + """
bytes_ = ps.DeviceArray(80 << 20)
ps.load(sys.argv[2], out=bytes_, route="staged", block="64MiB", threads=1)
del bytes_
out = ps.DeviceArray.from_numpy(np.zeros((ROWS, ROW - 1), "f4"))
other = ps.DeviceArray(60 << 20)
with ps.File(path, "r+") as file, ps.options(threads=1, decode="cpu"):
    file["x"].read(np.s_[:, 1:], out=out)
    check(out, values[:, 1:])
    file["x"].write(out, np.s_[:, 1:])
"""
)

TOO_LITTLE = (
    ARRAY
    + """
out = ps.DeviceArray.from_numpy(np.zeros((ROWS, ROW - 1), "f4"))
with ps.File(path, "r+") as file, ps.options(threads=8, decode=sys.argv[2]):
    for _ in range(5):
        for transfer in (
            lambda: file["x"].read(np.s_[:, 1:], out=out),
            lambda: file["x"].write(out, np.s_[:, 1:]),
        ):
            try:
                transfer()
            except ps.OutOfMemoryError:
                continue
            raise AssertionError("there was memory")
"""
)

ROWS, ROW = 64, 65536


def made(path):
    """Make a file and return its path."""
    with h5py.File(path, "w") as file:
        keys = {"chunks": (1, ROW), "compression": "gzip", "compression_opts": 1}
        values = np.arange(ROWS * ROW, dtype="f4").reshape(ROWS, ROW)
        file.create_dataset("x", data=values, **keys)
    return path


def run(size, program, *arguments):
    """Run a program on a GPU that has so much memory."""
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        env=os.environ | {"CUDASIM_MEMORY": size},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


DECODERS = pytest.mark.parametrize("decode", ["cpu", "auto", "gpu"])


@DECODERS
@pytest.mark.parametrize("size", ["18M", "20M", "28M"])
def test_workers_that_write_parts_of_chunks_share_the_memory_for_one(tmp_path, decode, size):
    path = made(tmp_path / "f.h5")
    with h5py.File(path, "r+") as file:
        file["x"][:, :65000] = 0
    run(size, WRITE, path, decode)
    with h5py.File(path) as file:
        found = file["x"][...]
    assert np.array_equal(found.ravel(), np.arange(ROWS * ROW, dtype="f4"))


@pytest.mark.long
@DECODERS
@pytest.mark.parametrize("size", ["20M", "24M", "40M"])
def test_workers_that_read_chunks_share_the_memory_for_one(tmp_path, decode, size):
    run(size, READ, made(tmp_path / "f.h5"), decode)


@pytest.mark.long
@DECODERS
@pytest.mark.parametrize("size", ["21M", "26M"])
def test_requests_at_the_same_time_share_the_memory_for_one_worker(tmp_path, decode, size):
    path = made(tmp_path / "f.h5")
    run(size, BOTH, path, decode, made(tmp_path / "other.h5"))
    with h5py.File(path) as file:
        found = file["x"][...]
    assert np.array_equal(found.ravel(), np.arange(ROWS * ROW, dtype="f4"))


@pytest.mark.parametrize("decode", ["cpu", "auto"])
@pytest.mark.parametrize("size", ["17M", "21M"])
def test_whole_chunks_need_no_memory_besides_the_array(tmp_path, decode, size):
    run(size, WHOLE, made(tmp_path / "f.h5"), decode)


def test_cached_memory_is_freed_for_an_allocation_that_needs_it(tmp_path):
    path = made(tmp_path / "f.h5")
    run("20M", KEPT, path)
    with h5py.File(path) as file:
        found = file["x"][...]
    assert np.array_equal(found.ravel(), np.arange(ROWS * ROW, dtype="f4"))


@DECODERS
@pytest.mark.parametrize("threads", [1, 8])
def test_a_worker_after_an_attempt_of_the_gpu_needs_no_more_memory(tmp_path, decode, threads):
    path = made(tmp_path / "f.h5")
    with h5py.File(path, "r+") as file:
        file.create_dataset("new", (ROWS, 65000), "f4", chunks=(1, 64000), compression="gzip")
    run("20M", NEW, path, decode, threads)
    with h5py.File(path) as file:
        assert np.array_equal(file["new"][...], file["x"][:, :65000])


def test_memory_is_allocated_by_need_and_not_by_the_size_of_an_idle_slot(tmp_path):
    (tmp_path / "bytes").write_bytes(bytes(80 << 20))
    run("100M", LARGE_SLOT, made(tmp_path / "f.h5"), tmp_path / "bytes")


@DECODERS
def test_too_little_memory_for_one_worker_is_an_error_at_once(tmp_path, decode):
    run("17M", TOO_LITTLE, made(tmp_path / "f.h5"), decode)
