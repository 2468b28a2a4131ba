"""Datasets that are dropped while HDF5 still buffers their elements."""

from __future__ import annotations

import errno
import gc
import os
import resource
import subprocess
import sys

import h5py
import numpy as np
import pytest

import penstock as ps
from penstock.hdf5 import dropped

VALUES = np.random.default_rng(1).integers(1, 1 << 60, (60, 100))
ROOM = 3000


@pytest.fixture
def no_longer_files():
    """Sets how long files may become, until the end of the test."""
    gc.collect()  # files of other tests, which close with their last object
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


@pytest.fixture
def linked(tmp_path):
    """A file whose names are external links to the datasets of "x.h5"."""
    made(tmp_path / "x.h5").close()
    with h5py.File(tmp_path / "links.h5", "w") as links:
        for name in ("chunked", "contiguous"):
            links[name] = h5py.ExternalLink(tmp_path / "x.h5", name)
    return ps.File(tmp_path / "links.h5", "r+")


LINKED = {
    name: WRITES[name] for name in ("of chunks", "of contiguous elements", "in the background")
}


@pytest.mark.parametrize("write", LINKED.values(), ids=LINKED)
@pytest.mark.parametrize("end", ["flush", "close"])
def test_elements_behind_an_external_link_are_an_error_of_the_file_with_the_link(
    tmp_path, no_longer_files, linked, write, end
):
    no_longer_files(ROOM)
    write(linked)
    gc.collect()
    no_longer_files()
    with pytest.raises(ps.IOFailure, match="could not write elements of /") as raised:
        getattr(linked, end)()
    linked.close()
    assert raised.value.path == str(tmp_path / "x.h5")
    h5py.File(tmp_path / "x.h5", "w").close()  # HDF5 refuses this for a file that is still open


@pytest.mark.parametrize("keeps", ["the request", "the dataset", "nothing"])
def test_a_failed_request_behind_an_external_link_is_an_error_of_the_file_with_the_link(
    tmp_path, no_longer_files, keeps
):
    values = np.ones((200, 1000))
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", values.shape, values.dtype, chunks=(1, 1000))
    with h5py.File(tmp_path / "links.h5", "w") as links:
        links["x"] = h5py.ExternalLink(tmp_path / "x.h5", "x")
    file = ps.File(tmp_path / "links.h5", "r+")
    no_longer_files(100_000)
    dataset = file["x"]
    request = dataset.write_async(values)
    if keeps != "the request":
        del request
    if keeps != "the dataset":
        del dataset
    gc.collect()
    no_longer_files(100_000 if keeps == "the request" else resource.RLIM_INFINITY)
    with pytest.raises(ps.IOFailure, match="cannot write") as raised:
        file.flush()
    no_longer_files()
    assert raised.value.path == str(tmp_path / "x.h5")
    file.close()


def test_an_error_that_no_file_can_raise_is_printed(tmp_path, no_longer_files, capsys):
    file = made(tmp_path / "x.h5")
    no_longer_files(ROOM)
    file["chunked"][...] = VALUES
    gc.collect()
    no_longer_files()
    file.h5py.close()
    file.close()
    assert "could not write elements of /chunked" in capsys.readouterr().err


WITHOUT_CLOSE = """
import gc, os, resource, signal, sys
import numpy as np
import penstock as ps

file = ps.File(sys.argv[1], "w")
file.create_dataset("x", (1000,), "i8", chunks=(1000,))
file.flush()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))
dataset = file["x"]
dataset[...] = np.ones(1000, "i8")
if sys.argv[2] == "dropped":
    del dataset
    gc.collect()
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""


@pytest.mark.parametrize("state", ["dropped", "open"])
def test_elements_of_a_file_that_is_never_closed_are_an_error_that_is_printed(tmp_path, state):
    command = [sys.executable, "-c", WITHOUT_CLOSE, tmp_path / "x.h5", state]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    # HDF5 (2.0.0) crashes at the end of a process that leaves such a dataset open.
    assert done.returncode == 0 or state == "open"
    lines = [line for line in done.stderr.splitlines() if line.startswith("penstock: ")]
    assert [
        str(tmp_path / "x.h5: HDF5 could not write elements of /x") in line for line in lines
    ] == [True]


def test_a_forked_child_leaves_the_elements_to_its_parent(tmp_path):
    file = made(tmp_path / "x.h5")
    dataset = file["chunked"]
    dataset[...] = VALUES
    child = os.fork()
    if not child:
        dropped._at_exit()
        os._exit(len(dropped._watched))
    assert os.waitpid(child, 0)[1] == 0
    assert VALUES.tobytes() not in (tmp_path / "x.h5").read_bytes()
    file.close()
    assert VALUES.tobytes() in (tmp_path / "x.h5").read_bytes()


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


def test_hdf5_reports_elements_of_a_file_that_only_h5py_has(tmp_path):
    command = [sys.executable, "-c", OF_A_FILE_THAT_ONLY_H5PY_HAS, tmp_path / "x.h5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "File too large" in done.stdout + done.stderr
