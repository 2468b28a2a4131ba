"""Writes of datasets to a file system that has no room for them."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest

import penstock as ps
from penstock.hdf5 import small

pytestmark = pytest.mark.usefixtures("penstock_arrays", "nothing_is_small")

SPACE = 32 << 20
LEFT = 4 << 20

LAYOUTS = {
    "chunks": {"chunks": (64, 1024)},
    "gzip": {"chunks": (64, 1024), "compression": "gzip"},
    "checksum": {"chunks": (64, 1024), "fletcher32": True},
    "contiguous": {},
}


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    return request.param


@pytest.fixture
def disk(tmp_path):
    """A file system with little room, and a file on it whose removal makes room."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SPACE}", "tmpfs", tmp_path],
        capture_output=True,
        text=True,
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted: {mounted.stderr.strip()}")
    try:
        with open(tmp_path / "filler", "wb") as filler:
            os.posix_fallocate(filler.fileno(), 0, SPACE - LEFT)
        yield tmp_path
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("dtype", ["u1", "u2"])
@pytest.mark.parametrize("columns", [1024, 1025])
def test_a_full_disk_is_reported_with_errno_file_and_range(disk, device, layout, dtype, columns):
    values = np.random.default_rng(1).integers(0, 256, (5120, 1024), dtype)
    array = ps.DeviceArray.from_numpy(values) if device == "cuda" else values
    with ps.File(disk / "f.h5", "w") as file:
        dataset = file.create("x", shape=(5120, columns), dtype="u1", **layout)
        with pytest.raises(ps.NoSpaceError) as caught:
            dataset.write(array, np.s_[:, :1024])
        with pytest.raises(ps.NoSpaceError):
            dataset.write_async(array, np.s_[:, :1024]).wait()
        (disk / "filler").unlink()
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.path == str(disk / "f.h5")
    assert caught.value.offset > 0
    assert caught.value.length > 0
    assert "free space" in caught.value.remedy
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("operation", ["read", "write"])
def test_a_chunk_that_hdf5_cannot_write_first_is_an_error(disk, monkeypatch, operation):
    monkeypatch.setattr(small, "LIMIT", 128 << 10)
    with ps.File(disk / "f.h5", "w") as file:
        keys = {"chunks": (200_000,), "rdcc_nbytes": 1_700_000}  # one chunk fits HDF5's cache
        dataset = file.create_dataset("x", (800_000,), "f8", **keys)
        dataset[:10] = 1
        file.flush()
        room = os.statvfs(disk)
        (disk / "rest").write_bytes(bytes(room.f_bavail * room.f_bsize - 4096))
        dataset[300_000:300_010] = 2  # stays in the cache
        with pytest.raises(ps.NoSpaceError) as caught:
            dataset[:10] if operation == "read" else dataset.__setitem__(0, 3)
        (disk / "rest").unlink()
        (disk / "filler").unlink()
    assert caught.value.path == str(disk / "f.h5")
    assert "/x" in str(caught.value)


def test_what_the_connector_could_not_allocate_is_not_written_by_another_interface(disk, device):
    values = np.arange(SPACE // 4, dtype="u4").astype("u1")
    array = ps.DeviceArray.from_numpy(values) if device == "cuda" else values
    options = {"implicit": True}
    with ps.File(disk / "f.h5", "w", connector="penstock_async", connector_options=options) as file:
        dataset = file.h5py.create_dataset("x", shape=values.shape, dtype="u1", fillvalue=7)
        file.h5py.flush()
        with pytest.raises(OSError, match="No space left"):
            dataset[...] = values
        (disk / "filler").unlink()
        with pytest.raises(ps.Error, match="fill values"):
            ps.write_async(dataset, array).wait()


FILLED_AFTER_THE_DATASET_IS_MADE = """
import os, sys
import numpy as np, penstock as ps
folder, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
file = ps.File(folder + "/f.h5", "w")
dataset = file.create("x", shape=(8192, 1024), dtype="f4")
file.flush()
space = os.statvfs(folder)
with open(folder + "/more", "wb") as more:
    os.posix_fallocate(more.fileno(), 0, space.f_bavail * space.f_frsize)
try:
    dataset.write(np.ones((last - first, 1024), "f4"), np.s_[first:last])
except ps.NoSpaceError:
    pass
else:
    raise AssertionError("there is no room")
del dataset
os.unlink(folder + "/more")
file.flush()
file.close()
"""


@pytest.mark.parametrize("rows", [(0, 8192), (0, 4096), (4096, 8192)])
def test_a_dataset_for_which_there_is_no_room_is_closed_without_an_error(disk, rows):
    command = [sys.executable, "-c", FILLED_AFTER_THE_DATASET_IS_MADE, disk, *map(str, rows)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


WRITTEN_AGAIN_BY_H5PY = """
import os, sys
import numpy as np, penstock as ps
folder = sys.argv[1]
values = np.ones((200, 9000), "f4")
file = ps.File(folder + "/f.h5", "w")
dataset = file.create("x", shape=values.shape, dtype="f4", fillvalue=7)
file.flush()
space = os.statvfs(folder)
with open(folder + "/more", "wb") as more:
    os.posix_fallocate(more.fileno(), 0, space.f_bavail * space.f_frsize)
for step in range(2):
    try:
        dataset.write(values[:, ::2], np.s_[:, ::2]) if step == 0 else dataset.write(values)
    except ps.Error as error:
        print(type(error).__name__)
    if step == 0:
        os.unlink(folder + "/more")
file.close()
"""


def test_storage_that_is_not_finished_is_not_written_by_h5py_either(disk):
    command = [sys.executable, "-c", WRITTEN_AGAIN_BY_H5PY, disk]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["NoSpaceError", "IOFailure"]


@contextmanager
def no_longer_files(most):
    """Nothing is written to files beyond this offset."""
    no_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, no_limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, no_limit)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("connector", [None, "penstock_async"])
def test_a_chunk_that_cannot_be_written_again_keeps_its_bytes_and_its_storage(
    tmp_path, device, connector, libver
):
    side = 1 << 20
    noise = np.random.default_rng(1)

    def made(random):
        values = np.zeros(side, "u1")
        values[:random] = noise.integers(0, 256, random)
        return values

    def write(number, values):
        array = ps.DeviceArray.from_numpy(values) if device == "cuda" else values
        dataset.write(array, np.s_[number * side : (number + 1) * side])

    old, new = made(side // 4), made(side)
    # Each fits into what the first chunk had.
    others = made(side // 5), made(side // 6)
    path = tmp_path / "f.h5"
    with ps.File(path, "w", connector=connector, libver=libver) as file:
        options = {"chunks": (side,), "compression": "gzip"}
        dataset = file.create("x", shape=(4 * side,), dtype="u1", **options)
        write(0, old)
        write(3, old)
        file.flush()
        with no_longer_files(path.stat().st_size), pytest.raises(ps.Error):
            write(0, new)
        np.testing.assert_array_equal(dataset.read(np.s_[:side]), old)
        write(1, others[0])
        write(0, new)
        write(2, others[1])
    with ps.File(path) as file:
        read = file["x"].read().reshape(4, side)
    for number, values in enumerate((new, *others, old)):
        np.testing.assert_array_equal(read[number], values)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_a_chunk_that_is_lost_because_its_filter_mask_changes_is_an_error_that_says_so(
    tmp_path, libver
):
    """Such a chunk is stored with another length first."""
    side, path = 1 << 16, tmp_path / "f.h5"
    old, new = np.random.default_rng(1).integers(0, 256, (2, side), "u1")
    with ps.File(path, "w", libver=libver) as file:
        dataset = file.create("x", (4 * side,), "u1", chunks=(side,), compression="gzip")
        dataset.write(new, np.s_[:side])
        length = dataset.h5py.id.get_chunk_info(0).size
        dataset.h5py.id.write_direct_chunk((0,), bytes(8))
        dataset.h5py.id.write_direct_chunk((0,), old.tobytes() + bytes(length - side), 1)
        file.flush()
        end = dataset.h5py.id.get_chunk_info(0).byte_offset + 100
        with no_longer_files(end), pytest.raises(ps.Error) as caught:
            dataset.write(new, np.s_[:side])
        assert "are lost" in caught.value.remedy
        dataset.write(new, np.s_[:side])
    with ps.File(path) as file:
        np.testing.assert_array_equal(file["x"].read(np.s_[:side]), new)


@pytest.mark.parametrize("layout", [{}, {"compression": "gzip"}, {"maxshape": (None,)}], ids=str)
@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_an_only_chunk_is_kept_or_its_loss_is_reported_once_there_is_room(disk, libver, layout):
    values = np.random.default_rng(1).integers(0, 256, 2 * LEFT, "u1")
    with ps.File(disk / "f.h5", "w", libver=libver) as file:
        dataset = file.create("x", values.shape, "u1", chunks=values.shape, **layout)
        with pytest.raises(ps.NoSpaceError):
            dataset.write(values)
        (disk / "filler").unlink()
        try:
            dataset.write(values)
            is_told = False
        except ps.IOFailure:
            is_told = True
    with ps.File(disk / "f.h5", "r+") as file:
        dataset = file["x"]
        if is_told:
            dataset.write(values)
        assert np.array_equal(dataset.read(), values)
