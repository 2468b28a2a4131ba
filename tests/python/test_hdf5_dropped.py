"""Datasets that are dropped while HDF5 still buffers their elements."""

from __future__ import annotations

import errno
import gc
import resource
import subprocess
import sys

import h5py
import numpy as np
import pytest

import penstock as ps

VALUES = np.random.default_rng(1).integers(1, 1 << 60, (60, 100))
ROOM = 3000


@pytest.fixture
def no_longer_files():
    """Sets how long files may become, until the end of the test."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda most=before[0]: resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


WRITES = {
    "of chunks": lambda file: file["chunked"].__setitem__((), VALUES),
    "of contiguous elements": lambda file: file["contiguous"].__setitem__((), VALUES[:50]),
    "of part of a dataset": lambda file: file["chunked"].write(VALUES[:5], np.s_[7:12]),
    "with a name": lambda file: file.__setitem__("new", VALUES[:10]),
    "of a list with a name": lambda file: file.__setitem__("new", VALUES[:10].tolist()),
    "of strings": lambda file: file.__setitem__("new", ["text"] * 1000),
    "of a new dataset": lambda file: file.create_dataset("new", data=VALUES, chunks=(60, 100)),
    "of a new dataset with gzip": lambda file: file.create_dataset(
        "new", data=VALUES, compression="gzip", chunks=(60, 100)
    ),
    "of a list in a new dataset": lambda file: file.create_dataset("new", data=[1] * 5000),
    "of chunks that become smaller": lambda file: file["filled"].resize((50, 100)),
    "of a list of indices": lambda file: file["contiguous"].write(VALUES[:3], [1, 5, 9]),
    "in the background": lambda file: file["contiguous"].write_async(VALUES[:50]).wait(),
    "of strided memory": lambda file: file["virtual"].write(VALUES[::-1]),
    "of strided memory in the background": lambda file: (
        file["virtual"].write_async(VALUES[::-1]).wait()
    ),
}


def made(path):
    """Return a new file with datasets whose metadata are in the file."""
    file = ps.File(path, "w")
    file.create_dataset("chunked", VALUES.shape, VALUES.dtype, chunks=(60, 100))
    file.create_dataset("contiguous", (50, 100), VALUES.dtype)
    layout = h5py.VirtualLayout(VALUES.shape, VALUES.dtype)
    layout[:] = h5py.VirtualSource(".", "chunked", VALUES.shape, VALUES.dtype)
    file.create_virtual_dataset("virtual", layout)
    file.create_dataset(
        "filled", data=VALUES, chunks=(60, 100), maxshape=(None, None), compression="gzip"
    )
    file.flush()
    return file


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("end", ["flush", "close"])
def test_elements_that_could_not_be_written_are_an_error_at_the_end(
    tmp_path, no_longer_files, write, end
):
    file = made(tmp_path / "x.h5")
    no_longer_files(ROOM)
    write(file)
    gc.collect()
    no_longer_files()
    with pytest.raises(ps.IOFailure, match="could not write elements of /") as raised:
        getattr(file, end)()
    file.close()
    assert raised.value.errno == errno.EFBIG
    assert raised.value.path == str(tmp_path / "x.h5")
    assert "\n" not in str(raised.value)


# HDF5 (2.0.0) crashes after the close of a file has failed.
OF_A_FILE_THAT_ONLY_H5PY_HAS = """
import os, resource, signal, sys
import h5py, numpy as np
import penstock as ps

file = h5py.File(sys.argv[1], "w")
file.create_dataset("x", (6000,), "i8")
file.flush()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))
ps.write(file["x"], np.ones(6000, "i8"))
try:
    file.close()
except (OSError, RuntimeError) as error:
    print(error, flush=True)
os._exit(0)
"""


def test_hdf5_tells_of_elements_of_a_file_that_only_h5py_has(tmp_path):
    command = [sys.executable, "-c", OF_A_FILE_THAT_ONLY_H5PY_HAS, tmp_path / "x.h5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "File too large" in done.stdout + done.stderr
