"""File descriptors of transfers: one for each file that HDF5 has open, and some for sources."""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import h5py
import numpy as np
import pytest

import penstock as ps
from penstock._native import ffi, lib, new_options
from penstock.errors import check
from penstock.hdf5.library import lock

PENDING = 2000
OURS = 4
"""Descriptors of one file: buffered and direct; threads may have one for a moment."""
ROW = 64


@pytest.fixture
def path(tmp_path):
    return tmp_path / "f.h5"


def rows(count=PENDING):
    return np.random.default_rng(3).integers(0, 255, (count, ROW), dtype="u1")


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@contextmanager
def limit(count: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    taken = []
    with limit(descriptors() + 16):
        try:
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            yield
        finally:
            for descriptor in taken:
                os.close(descriptor)


@pytest.mark.long
@pytest.mark.parametrize(
    "layout", [{}, {"chunks": (1, ROW), "compression": 1}], ids=["plain", "gzip"]
)
def test_pending_writes_and_reads_share_one_open_file(path, layout):
    data = rows()
    with ps.File(path, "w") as file:
        dataset = file.create_dataset("x", data=np.zeros_like(data), **layout)
        file.flush()
        before = descriptors()
        requests = [dataset.write_async(data[i : i + 1], np.s_[i : i + 1]) for i in range(PENDING)]
        assert descriptors() <= before + OURS
        for request in requests:
            request.wait()
        requests = [dataset.read_async(np.s_[i : i + 1]) for i in range(PENDING)]
        assert descriptors() <= before + OURS
        found = np.concatenate([request.wait() for request in requests])
        np.testing.assert_array_equal(found, data)
    with ps.File(path) as file:
        before = descriptors()
        requests = [file["x"].read_async(np.s_[i : i + 1]) for i in range(PENDING)]
        assert descriptors() <= before + OURS
        np.testing.assert_array_equal(np.concatenate([r.wait() for r in requests]), data)


def test_pending_writes_of_c_share_one_open_file(path):
    data = rows()
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", data.shape, "u1", chunks=(1, ROW), compression=1)
        file.flush()
        before = descriptors()
        requests, kept = [], []
        for i in range(PENDING):
            space = dataset.id.get_space()
            space.select_hyperslab((i, 0), (1, ROW))
            shape = ffi.new("uint64_t[]", (1, ROW))
            array = ffi.new("penstock_array *")
            array.struct_size = ffi.sizeof("penstock_array")
            array.data = ffi.cast("void *", data[i].ctypes.data)
            array.type, array.rank, array.shape = h5py.h5t.NATIVE_UINT8.id, 2, shape
            made = ffi.new("penstock_request **")
            submit = lib.penstock_dataset_write_submit
            with lock():
                check(submit(dataset.id.id, space.id, array, new_options(), ffi.NULL, 0, made))
            requests.append(made)
            kept.append((shape, space))
        assert descriptors() <= before + OURS
        for made in requests:
            with lock():
                while (status := lib.penstock_request_wait(made[0], -1)) == lib.PENSTOCK_TURN:
                    check(lib.penstock_request_turn(made[0]))
                check(status)
            lib.penstock_request_free(made[0])
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["x"][()], data)


def test_no_descriptor_stays_when_all_requests_have_ended(path):
    data = rows(100)
    before = descriptors()
    with ps.File(path, "w") as file:
        dataset = file.create_dataset("x", data=data, chunks=(1, ROW), compression=1)
        for request in [dataset.write_async(data[i : i + 1], np.s_[i : i + 1]) for i in range(100)]:
            request.wait()
    assert descriptors() == before


def test_a_read_of_a_file_that_is_open_for_writing_is_no_write_to_those_that_watch_it(path):
    close_of_writer = 8  # IN_CLOSE_WRITE
    libc = ctypes.CDLL(None, use_errno=True)
    with ps.File(path, "w") as file:
        dataset = file.create_dataset("x", data=rows(1 << 16))
        file.flush()
        watch = libc.inotify_init1(os.O_NONBLOCK)
        assert libc.inotify_add_watch(watch, os.fsencode(path), close_of_writer) >= 0
        dataset.read_async().wait()
        ps.read_many([dataset])
        time.sleep(0.2)
        with pytest.raises(BlockingIOError):
            os.read(watch, 4096)
        os.close(watch)


def test_a_file_that_replaces_one_with_pending_reads_has_its_own_bytes(path):
    old, new = rows(50), 255 - rows(50)
    for name, data in ((path, old), (path.with_name("new"), new)):
        with h5py.File(name, "w") as file:
            file.create_dataset("x", data=data, chunks=(1, ROW))
    with ps.File(path, "r+") as file:
        requests = [file["x"].read_async(np.s_[i : i + 1]) for i in range(50)]
        os.replace(path.with_name("new"), path)
        with ps.File(path, "r+") as other:
            np.testing.assert_array_equal(other["x"].read_async().wait(), new)
        np.testing.assert_array_equal(np.concatenate([r.wait() for r in requests]), old)


def test_a_transfer_without_a_descriptor_left_is_carried_out_by_hdf5(path):
    data = rows(100)
    with ps.File(path, "w") as file:
        dataset = file.create_dataset("x", data=data, chunks=(1, ROW), compression=1)
        file.flush()
        out = np.zeros_like(data)
        with no_descriptor_left():
            dataset.write(255 - data)
            dataset.read(out=out)
        np.testing.assert_array_equal(out, 255 - data)


@contextmanager
def files_cannot_be_opened_again(path) -> Iterator[None]:
    """Penstock then duplicates HDF5's descriptor, which shares HDF5's lock."""
    user = os.geteuid()
    path.chmod(0o000)
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
        path.chmod(0o600)


@pytest.mark.parametrize("connector", [None, "penstock_async"])
@pytest.mark.parametrize("driver", [None, "penstock"])
def test_a_file_that_was_closed_after_its_requests_is_not_locked(path, driver, connector):
    data = rows(100_000)
    with h5py.File(path, "w", locking=True) as file:
        file["x"] = data
    # A lock belongs to the file, whatever process has opened it.
    with path.open("rb") as other:
        for turn in range(20):
            with ps.File(path, "r+", driver=driver, connector=connector, locking=True) as file:
                with files_cannot_be_opened_again(path):
                    request = file["x"].write_async(data) if turn % 2 else file["x"].read_async()
                while not request.done:
                    pass
                request.wait()
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(other, fcntl.LOCK_UN)


SOURCES = 300


@pytest.fixture
def virtual(tmp_path, nothing_is_small):
    layout = h5py.VirtualLayout((SOURCES, ROW), "i4")
    for i in range(SOURCES):
        with h5py.File(tmp_path / f"{i}.h5", "w") as file:
            file.create_dataset(
                "y", data=np.full((1, ROW), i, "i4"), chunks=(1, ROW), compression=1
            )
        layout[i] = h5py.VirtualSource(f"{i}.h5", "y", (1, ROW))[0]
    path = tmp_path / "v.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file.create_virtual_dataset("x", layout, fillvalue=-1)
    return path


EXPECTED = np.repeat(np.arange(SOURCES, dtype="i4"), ROW).reshape(SOURCES, ROW)


@pytest.mark.parametrize("spare", [200, 60, 12])
def test_a_virtual_dataset_of_more_files_than_descriptors_is_read(virtual, spare):
    with ps.File(virtual) as file, limit(descriptors() + spare):
        np.testing.assert_array_equal(file["x"].read(), EXPECTED)


def test_pending_reads_of_many_sources_leave_descriptors_to_the_program(virtual):
    with ps.File(virtual) as file, limit(256):
        requests = [file["x"].read_async() for _ in range(20)]
        taken = [os.open("/dev/null", os.O_RDONLY) for _ in range(100)]
        for descriptor in taken:
            os.close(descriptor)
        for request in requests:
            np.testing.assert_array_equal(request.wait(), EXPECTED)


def test_a_source_that_cannot_be_opened_for_want_of_descriptors_is_an_error_and_no_fill_value(
    virtual,
):
    with ps.File(virtual) as file:
        dataset = file["x"]
        with no_descriptor_left(), pytest.raises(OSError, match="Too many open files"):
            dataset.read()
        np.testing.assert_array_equal(dataset.read(), EXPECTED)


def test_a_source_of_one_of_many_datasets_that_cannot_be_opened_is_an_error_and_no_fill_value(
    virtual,
):
    with ps.File(virtual) as file:
        dataset = file["x"]
        with no_descriptor_left(), pytest.raises(OSError, match="Too many open files"):
            ps.read_many([dataset])
        np.testing.assert_array_equal(ps.read_many([dataset])[0], EXPECTED)


def test_no_descriptor_of_a_source_stays(virtual):
    before = descriptors()
    with ps.File(virtual) as file, limit(256):
        file["x"].read()
    # A worker may still be leaving the request when the read returns.
    deadline = time.monotonic() + 10
    while descriptors() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert descriptors() == before


def test_a_source_that_is_deleted_while_it_is_read_is_read(virtual):
    with ps.File(virtual) as file:
        request = file["x"].read_async()
        (virtual.parent / "7.h5").unlink()
        np.testing.assert_array_equal(request.wait(), EXPECTED)


@pytest.mark.parametrize("layout", [{}, {"chunks": (100, ROW)}], ids=["plain", "chunks"])
def test_a_durable_write_needs_no_descriptor(path, layout):
    data = rows()
    with ps.File(path, "w") as file:
        dataset = file.create_dataset("x", data=np.zeros_like(data), **layout)
        file.flush()
        with no_descriptor_left():
            dataset.write(data, durable=True)
            assert "too many open files" not in ps.last_report().note.lower()
        assert data.tobytes() in path.read_bytes()


@pytest.mark.parametrize("value", [3, "text"], ids=["scalar", "text"])
def test_a_durable_write_that_h5py_carries_out_is_in_the_file_when_it_returns(path, value):
    with ps.File(path, "w") as file:
        kind = h5py.string_dtype(length=200) if isinstance(value, str) else "u1"
        dataset = file.create_dataset("x", (100,), kind)
        file.flush()
        before = path.read_bytes()
        dataset.write(value, np.s_[2:5], durable=True)
        assert path.read_bytes() != before


def test_direct_io_that_found_no_descriptor_is_tried_again(path):
    with h5py.File(path, "w") as file:
        file["x"] = rows(100)
    with ps.File(path) as file:
        dataset = file["x"]
        try:
            ps.read_async(dataset, direct="yes").wait()
        except ps.UnavailableError:
            pytest.skip("the file system has no direct I/O")
    with ps.File(path) as file:
        dataset = file["x"]
        pending = ps.read_async(dataset, direct="no")
        with no_descriptor_left(), suppress(OSError):
            ps.read_async(dataset, direct="yes").wait()
        np.testing.assert_array_equal(ps.read_async(dataset, direct="yes").wait(), rows(100))
        pending.wait()
