"""Selections for whose description there is no memory."""

import re
import subprocess
import sys

import h5py
import numpy as np
import pytest

COUNT = 3_000_000
# Bytes below which nothing is a list of a million pieces.
LIST = 1 << 20

# The selections are made before the address space is limited to what the process has and some MiB.
PROGRAM = """
import resource, sys
import h5py
import numpy as np
from penstock._native import NULL, ffi, lib
from penstock.hdf5.library import lock

dataset = h5py.File(sys.argv[1], "r+")["d"]
points = h5py.h5s.create_simple(dataset.shape)
points.select_elements(np.arange(1, len(dataset), 3)[:, None])
every_second = h5py.h5s.create_simple(dataset.shape)
every_second.select_hyperslab((0,), (points.get_select_npoints(),), (2,))
memory = np.zeros(len(dataset), "f4")
pointer = ffi.from_buffer(memory)
kind = h5py.h5t.NATIVE_FLOAT.id


def move(call, in_memory, in_file):
    return call(dataset.id.id, kind, in_memory.id, in_file.id, 0, pointer, NULL, NULL, NULL)


lock()
assert move(lib.penstock_dataset_read, every_second, every_second) == lib.PENSTOCK_OK
for call in lib.penstock_dataset_read, lib.penstock_dataset_write:
    for selections in (every_second, points), (points, points), (every_second, every_second):
        with open("/proc/self/statm") as file:
            pages = int(file.read().split()[0])
        limit = pages * resource.getpagesize() + (int(sys.argv[2]) << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
        status = move(call, *selections)
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
        print(status == lib.PENSTOCK_OK, flush=True)
"""


@pytest.mark.parametrize("chunks", [None, (100_000,)])
def test_a_selection_for_which_there_is_no_memory_is_an_error(tmp_path, chunks):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("d", data=np.zeros(COUNT, "f4"), chunks=chunks)
    had = set()
    for extra in range(16, 128, 48):
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(path), str(extra)], capture_output=True, text=True
        )
        had |= set(ended.stdout.split())
        if ended.returncode != 0:
            # Where not even some bytes are left, Rust or the C library ends the process.
            failed = re.findall(r"memory allocation of (\d+) bytes failed", ended.stderr)
            assert failed or "cannot allocate memory for thread-local data" in ended.stderr
            assert max(map(int, failed), default=0) < LIST, ended.stderr
    assert had == {"False", "True"}


# The elements pass through temporary memory: their mapping is unlimited, which only HDF5 reads, and
# their places in memory are not adjacent.
THROUGH_HDF5 = """
import resource, sys
import numpy as np
import penstock as ps

dataset = ps.File(sys.argv[1], "r+")["virtual"]
memory = np.zeros((len(dataset), 2), "u1")
dataset.read(np.s_[:10], out=memory[:10, 0])
with open("/proc/self/statm") as file:
    pages = int(file.read().split()[0])
limit = pages * resource.getpagesize() + (int(sys.argv[2]) << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
try:
    dataset.read(out=memory[:, 0])
    print("read")
except ps.OutOfMemoryError:
    print("no memory")
"""


def test_elements_that_hdf5_reads_and_for_which_there_is_no_memory_are_an_error(tmp_path):
    path, count = tmp_path / "x.h5", 64 << 20
    with h5py.File(path, "w") as file:
        source = file.create_dataset("x", (count,), "u1", maxshape=(None,), chunks=(1 << 20,))
        layout = h5py.VirtualLayout((count,), "u1", maxshape=(None,))
        every = np.s_[: h5py.h5s.UNLIMITED]
        layout[every] = h5py.VirtualSource(source)[every]
        file.create_virtual_dataset("virtual", layout)
    had = set()
    for extra in range(32, 256, 32):
        command = [sys.executable, "-c", THROUGH_HDF5, str(path), str(extra)]
        ended = subprocess.run(command, capture_output=True, text=True)
        assert ended.returncode == 0, (extra, ended.stderr[-2000:])
        had.add(ended.stdout.strip())
    assert had == {"read", "no memory"}
