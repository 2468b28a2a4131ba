"""A child made by fork reads and writes datasets, although its parent has used the engine."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import traceback
from multiprocessing import get_context

import h5py
import numpy as np
import pytest

import penstock as ps
from penstock._native import NULL
from penstock.files import READ, NativeFile
from penstock.transfer import read_into

pytestmark = [
    pytest.mark.usefixtures("nothing_is_small"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]

NUMBERS = np.arange(200_000, dtype="f8").reshape(500, 400)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file["plain"] = NUMBERS
        file.create_dataset("zipped", data=NUMBERS, chunks=(50, 400), compression="gzip")
    return path


def in_child(function):
    """Run a function in a child made by fork, and fail if it fails or hangs there."""
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        status = 1
        try:
            function()
            status = 0
        except BaseException:
            traceback.print_exc(file=sys.stderr)
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def assert_by_engine(dataset):
    """Check that the workers of this process read, and not h5py."""
    dataset.read(np.s_[::2, ::3], out=np.empty((250, 134)), threads=2)
    assert ps.last_report().route == "host"
    assert not ps.last_report().note


@pytest.fixture
def used(path):
    """A file that the parent has read by the engine's workers."""
    with ps.File(path) as file:
        for name in ("plain", "zipped"):
            np.testing.assert_array_equal(file[name].read(threads=2), NUMBERS)
        yield file


@pytest.mark.parametrize("name", ["plain", "zipped"])
def test_the_child_reads_a_file_of_its_parent(used, name):
    def read():
        dataset = used[name]
        np.testing.assert_array_equal(dataset[...], NUMBERS)
        np.testing.assert_array_equal(dataset[10:20, ::3], NUMBERS[10:20, ::3])
        np.testing.assert_array_equal(dataset.read(dtype="f4"), NUMBERS.astype("f4"))
        out = np.empty((400, 500)).T
        dataset.read(out=out)
        np.testing.assert_array_equal(out, NUMBERS)
        np.testing.assert_array_equal(dataset.read_async(np.s_[3]).wait(), NUMBERS[3])
        assert sum(slab.sum() for _, slab in dataset.blocks(100)) == NUMBERS.sum()
        assert_by_engine(dataset)

    in_child(read)


def test_the_child_reads_a_dataset_of_which_the_parent_has_dropped_a_reader(path):
    with ps.File(path, "r+") as file:
        theirs = file["plain"].h5py
        kept, refreshed = ps.Dataset(theirs), ps.Dataset(theirs)
        np.testing.assert_array_equal(kept[3], refreshed[3])
        refreshed.refresh()
        np.testing.assert_array_equal(refreshed[3], NUMBERS[3])
        in_child(lambda: np.testing.assert_array_equal(kept[3], NUMBERS[3]))


def test_the_child_opens_a_file_of_its_own(used, path):
    def read():
        with ps.File(path) as file:
            np.testing.assert_array_equal(file["zipped"][...], NUMBERS)
            assert_by_engine(file["plain"])
        np.testing.assert_array_equal(ps.read(f"{path}:plain"), NUMBERS)

    in_child(read)


def test_the_child_writes_a_file_of_its_own(used, tmp_path):
    def write():
        with ps.File(tmp_path / "child.h5", "w") as file:
            file.create_dataset("x", data=NUMBERS, chunks=(50, 400), compression="gzip")
            file["x"][3] = 1
            file["x"].write_async(np.ones((2, 400)), np.s_[4:6]).wait()

    in_child(write)
    with h5py.File(tmp_path / "child.h5") as file:
        assert (file["x"][3:6] == 1).all()
        np.testing.assert_array_equal(file["x"][6:], NUMBERS[6:])


def test_the_child_loads_and_saves_tensor_files(used, tmp_path):
    def load_and_save():
        for number in range(3):
            ps.save(tmp_path / "x.bin", NUMBERS + number)
            found = ps.load(tmp_path / "x.bin", dtype="f8")
            np.testing.assert_array_equal(found, NUMBERS.ravel() + number)
            found = ps.load_async(tmp_path / "x.bin", dtype="f8").wait()
            np.testing.assert_array_equal(found, NUMBERS.ravel() + number)

    in_child(load_and_save)


def test_a_request_of_the_parent_is_an_error_in_the_child(used, tmp_path):
    request = used["zipped"].read_async()
    saved = ps.save_async(tmp_path / "x.bin", NUMBERS)

    def wait():
        for inherited in (request, saved):
            with pytest.raises(ps.ForkedError, match="another process"):
                inherited.wait()

    in_child(wait)
    np.testing.assert_array_equal(request.wait(), NUMBERS)
    saved.wait()


def test_a_file_of_the_parent_is_an_error_in_the_child_after_errors_of_its_own(used, tmp_path):
    ps.save(tmp_path / "x.bin", NUMBERS)
    opened, out = NativeFile(tmp_path / "x.bin", READ), np.empty_like(NUMBERS)

    def read():
        with pytest.raises(ps.NotFoundError):
            ps.load(tmp_path / "missing.bin")
        with pytest.raises(ps.ForkedError, match="another process"):
            read_into(opened, out, 0, NULL)

    in_child(read)
    read_into(opened, out, 0, NULL)
    np.testing.assert_array_equal(out, NUMBERS)


def test_the_child_leaves_what_its_parent_writes(used, tmp_path):
    saved = ps.save_async(tmp_path / "x.bin", NUMBERS)
    with ps.File(tmp_path / "w.h5", "w") as file:
        made = file.create_dataset("x", shape=NUMBERS.shape, dtype="f8")
        writing = made.write_async(NUMBERS)
        in_child(lambda: used["plain"][...])
        writing.wait()
    saved.wait()
    np.testing.assert_array_equal(ps.load(tmp_path / "x.bin", dtype="f8"), NUMBERS.ravel())
    np.testing.assert_array_equal(ps.read(f"{tmp_path}/w.h5:x"), NUMBERS)


ENDS_WITH_A_PENDING_WRITE = """
import os, sys
import numpy as np
import penstock as ps

values = np.arange(400_000)
file = ps.File(sys.argv[1], "w")
dataset = file.create_dataset("x", values.shape, values.dtype)
request = dataset.write_async(values)
child = os.fork()
if child == 0:
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
request.wait()
file.close()
"""


def test_a_child_that_ends_says_nothing_of_a_request_of_its_parent(tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", ENDS_WITH_A_PENDING_WRITE, tmp_path / "f.h5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_child_of_the_child_has_an_engine_of_its_own(used):
    def fork_again():
        assert_by_engine(used["plain"])
        in_child(lambda: assert_by_engine(used["zipped"]))
        assert_by_engine(used["plain"])

    in_child(fork_again)


def test_threads_that_use_the_library_first_share_one_copy(used, tmp_path):
    """Handles of one copy mean other files, or nothing, to another."""
    for number in range(4):
        ps.save(tmp_path / str(number), np.full(1 << 16, number, "u1"))

    def read():
        start, right = threading.Barrier(4), []

        def load(number):
            start.wait()
            right.append((ps.load(tmp_path / str(number)) == number).all())

        threads = [threading.Thread(target=load, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert right == [True] * 4

    for _ in range(5):
        in_child(read)


def test_a_child_without_memfd_create_uses_the_library(used, monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    in_child(lambda: assert_by_engine(used["plain"]))


def test_a_child_leaves_the_trace_of_its_parent_alone(path, tmp_path):
    program = f"""
import os, numpy as np, penstock as ps
ps.save({os.fspath(tmp_path / "a.bin")!r}, np.zeros(1 << 20))
open(os.environ["PENSTOCK_TRACE"]).close()  # a lock of the process would go with this descriptor
child = os.fork()
ps.load({os.fspath(tmp_path / "a.bin")!r})
if child:
    assert os.waitpid(child, 0)[1] == 0
"""
    trace = tmp_path / "t.json"
    environment = os.environ | {"PENSTOCK_TRACE": os.fspath(trace)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=60)
    found = {one.name: json.loads(one.read_text()) for one in tmp_path.glob("t.json*")}
    (other,) = set(found) - {"t.json"}
    assert {event["pid"] for event in found["t.json"]}.isdisjoint(
        event["pid"] for event in found[other]
    )


def test_a_child_looks_for_the_libraries_of_wheels_where_its_parent_does(used):
    def searched():
        return set(
            re.findall(r"[^ ,]*/site-packages/[^ ,\"]*", json.dumps(ps.describe()["cufile"]))
        )

    here = searched()
    in_child(lambda: check(searched() >= here))


@pytest.mark.parametrize("chunks", [None, (40, 4000)], ids=["contiguous", "chunked"])
def test_calls_by_the_connector_of_the_parent_find_nothing_pending(used, tmp_path, chunks):
    """HDF5 keeps the connector of the library that the child does not use."""
    first, last = np.ones((1000, 4000)), np.full((1000, 4000), 7.0)

    def write():
        with h5py.File(tmp_path / "child.h5", "w", driver="penstock_async") as file:
            dataset = file.create_dataset("x", data=first, chunks=chunks)
            file.flush()
            made = ps.write_async(dataset, last)
            assert (dataset[...] == 7).all()
            made.wait()
            made = ps.write_async(dataset, first)
            dataset[0:3] = 5
            made.wait()
            assert (dataset[:3] == 5).all()
            assert (dataset[3:] == 1).all()
            out = np.empty_like(first)
            made = ps.read_async(dataset, out=out)
            dataset[...] = 9
            made.wait()
            assert (out[3:] == 1).all()

    with ps.File(tmp_path / "parent.h5", "w", connector="penstock_async"):
        in_child(write)


def test_an_iterator_of_the_parent_ends_silently_in_the_child(used, capfd):
    slabs = used["plain"].blocks(100)
    next(slabs)

    def leave():
        nonlocal slabs
        del slabs

    in_child(leave)
    assert capfd.readouterr().err == ""


def check(holds):
    assert holds


# glibc's has no handlers for fork, and another thread may hold its lock.
CHECKS_BLOCKS = "libc_malloc_debug" in os.environ.get("LD_PRELOAD", "")


@pytest.mark.skipif(CHECKS_BLOCKS, reason="the allocator that checks blocks hangs after a fork")
def test_a_fork_beside_threads_that_read_hangs_no_child(used, path):
    over = threading.Event()

    def read():
        with ps.File(path) as file:
            while not over.is_set():
                for name in ("plain", "zipped"):
                    file[name].read(np.s_[::3, 1:], out=np.empty((167, 399)), threads=2)
                ps.load(path)

    # h5py's lock may be held by a thread at a fork, so the child leaves HDF5 alone.
    def load():
        assert ps.load(path).nbytes == path.stat().st_size

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            in_child(load)
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_workers_of_a_forked_pool_read(used):
    with get_context("fork").Pool(3) as pool:
        for number, found in enumerate(pool.map(_Rows(used["zipped"]), range(12))):
            np.testing.assert_array_equal(found, NUMBERS[[number, 99, number]])


class _Rows:
    """What a worker does with an index."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __call__(self, number):
        return self.dataset[[number, 99, number]]


def test_no_module_keeps_a_function_of_the_native_library():
    # It would be that of the parent in a child.
    from penstock import _native

    kept = []
    for module, found in list(sys.modules.items()):
        if module.partition(".")[0] == "penstock":
            for name, value in list(vars(found).items()):
                is_cdata = isinstance(value, _native.ffi.CData)
                if is_cdata and "(*)" in str(_native.ffi.typeof(value)):
                    kept.append(f"{module}.{name}")
    assert not kept


@pytest.mark.gpu
def test_a_gpu_that_the_parent_has_used_is_an_error_in_the_child(used):
    kept = used["plain"].read(device="cuda", like="device")
    np.testing.assert_array_equal(kept.numpy(), NUMBERS)

    def use():
        with pytest.raises(ps.Error, match="fork"):
            used["plain"].read(device="cuda", like="device")
        with pytest.raises(ps.Error, match="fork"):
            kept.numpy()
        np.testing.assert_array_equal(used["plain"][...], NUMBERS)
        np.testing.assert_array_equal(used["zipped"].read(threads=2), NUMBERS)

    in_child(use)
    np.testing.assert_array_equal(kept.numpy(), NUMBERS)


def test_the_parent_continues(used):
    in_child(lambda: used["zipped"][...])
    np.testing.assert_array_equal(used["zipped"].read(threads=2), NUMBERS)
    assert "forked" not in ps.last_report().note


def test_a_child_of_a_parent_that_has_not_used_the_engine_has_one(path):
    code = f"""
import os, penstock as ps
from penstock.hdf5 import small
small.LIMIT = 0
file = ps.File({str(path)!r})
child = os.fork()
if child == 0:
    file["zipped"][...]
    os._exit(7 if ps.last_report().chunks == 10 else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "7", done.stderr
