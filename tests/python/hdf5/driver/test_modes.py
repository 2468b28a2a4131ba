"""GPU memory read and written through HDF5 by each mode of the driver."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys

import h5py
import numpy as np
import pytest

import penstock as ps
from penstock._native import ffi, lib
from penstock.errors import check

pytestmark = pytest.mark.gpu

# HDF5 is among what h5py's module needs, so its functions are found through it.
_HDF5 = ctypes.CDLL(h5py.h5.__file__)
for _function in (_HDF5.H5Dread, _HDF5.H5Dwrite):
    _function.argtypes = [*[ctypes.c_int64] * 5, ctypes.c_void_p]

MODES = {
    "auto": {"staged_buffered", "staged_direct", "mapped"},
    "sec2": {"pageable"},
    "direct": {"pageable"},
    "sec2+pinned": {"pinned"},
    "direct+pinned": {"pinned"},
    "posix-mt": {"pageable"},
    "gds": {"gds_posix", "gds_unproven", "gds_p2p", "gds_nvfs"},
}
EACH_MODE = pytest.mark.parametrize("mode", MODES)
COUNT = 300_001


def open_file(path, mode, how="r", **options):
    return h5py.File(path, how, driver="penstock", driver_mode=mode, **options)


def move(function, dataset, array, first=0):
    """Move an array to or from the elements of a dataset from one on."""
    whole, part = dataset.id.get_space(), h5py.h5s.create_simple(array.shape)
    whole.select_hyperslab((first,), array.shape)
    kind = h5py.h5t.py_create(np.dtype(array.dtype))
    status = function(dataset.id.id, kind.id, part.id, whole.id, 0, array.data_ptr)
    if status < 0:
        _HDF5.H5Eprint2(ctypes.c_int64(0), None)
        raise OSError("HDF5 failed, as it says on the standard error")


def counted(file):
    text = ffi.new("char **")
    check(lib.penstock_hdf5_file_report(file.id.id, text))
    try:
        return json.loads(ffi.string(text[0]))
    finally:
        lib.penstock_string_free(text[0])


def ways(report, operation):
    return {name for name in report[operation] if name != "metadata"}


@pytest.fixture
def values():
    return np.random.default_rng(3).integers(0, 1 << 30, COUNT, dtype=np.int32)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file.h5"


@EACH_MODE
def test_what_is_written_is_read_and_counted_as_the_mode_says(path, values, mode):
    with open_file(path, mode, "w") as file:
        dataset = file.create_dataset("x", (COUNT,), "int32")
        move(_HDF5.H5Dwrite, dataset, ps.DeviceArray.from_numpy(values))
        report = counted(file)
        assert ways(report, "write"), report
        assert ways(report, "write") <= MODES[mode], report
    with h5py.File(path) as file:
        assert np.array_equal(file["x"], values)
    with open_file(path, mode) as file:
        seen = ps.DeviceArray(COUNT, "int32")
        move(_HDF5.H5Dread, file["x"], seen)
        assert np.array_equal(seen.numpy(), values)
        report = counted(file)
        assert ways(report, "read"), report
        assert ways(report, "read") <= MODES[mode], report
        assert sum(report["read"][way]["bytes"] for way in ways(report, "read")) == values.nbytes


@EACH_MODE
def test_parts_at_any_place_leave_the_rest_as_it_is(path, values, mode):
    with h5py.File(path, "w") as file:
        file["x"] = values
    with open_file(path, mode, "r+") as file:
        for first, count in ((0, 1), (1023, 3), (5000, 70_000), (COUNT - 7, 7)):
            part = ps.DeviceArray(count, "int32")
            move(_HDF5.H5Dread, file["x"], part, first)
            assert np.array_equal(part.numpy(), values[first : first + count])
            values[first : first + count] = np.arange(count)
            new = ps.DeviceArray.from_numpy(np.arange(count, dtype=np.int32))
            move(_HDF5.H5Dwrite, file["x"], new, first)
    with h5py.File(path) as file:
        assert np.array_equal(file["x"], values)


@EACH_MODE
def test_what_was_never_written_reads_as_zero(path, mode):
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    with open_file(path, mode, "w") as file:
        space = h5py.h5s.create_simple((COUNT,))
        h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_INT32, space, plist)
        # The file ends within the dataset.
        new = ps.DeviceArray.from_numpy(np.full(1000, 7, np.int32))
        move(_HDF5.H5Dwrite, file["x"], new)
        seen = ps.DeviceArray.from_numpy(np.full(COUNT, 9, np.int32))
        move(_HDF5.H5Dread, file["x"], seen)
        assert np.array_equal(seen.numpy()[:1000], new.numpy())
        assert not seen.numpy()[1000:].any()


@EACH_MODE
def test_a_mode_can_be_chosen_while_the_file_is_open(path, values, mode):
    with open_file(path, "auto", "w") as file:
        file["x"] = values
        check(lib.penstock_hdf5_set_options(file.id.id, f"mode={mode}".encode()))
        seen = ps.DeviceArray(COUNT, "int32")
        move(_HDF5.H5Dread, file["x"], seen)
        assert np.array_equal(seen.numpy(), values)
        assert ways(counted(file), "read") <= MODES[mode]


def test_threads_of_posix_mt_move_host_memory_too(path):
    data = np.random.default_rng(4).random(1 << 20)
    with open_file(path, "posix-mt", "w", threads=3, block="64KiB") as file:
        file["x"] = data
        assert np.array_equal(file["x"], data)
        report = counted(file)
        assert ways(report, "write") == ways(report, "read") == {"host_buffered"}


@pytest.mark.parametrize("failure", ["cufileopen:*", "cufilehandle:*"])
def test_without_cufile_the_mode_gds_is_an_error_and_not_another_way(path, values, failure):
    """Needs the stand-in, whose cuFile can be made to fail."""
    if "standin" not in os.environ.get("PENSTOCK_CUFILE_LIBRARY", ""):
        pytest.skip("needs the stand-in cuFile")
    with h5py.File(path, "w") as file:
        file["x"] = values
    code = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("modes", {__file__!r})
modes = importlib.util.module_from_spec(spec)
spec.loader.exec_module(modes)
with modes.open_file({str(path)!r}, "gds") as file:
    seen = modes.ps.DeviceArray(modes.COUNT, "int32")
    try:
        modes.move(modes._HDF5.H5Dread, file["x"], seen)
    except OSError:
        print(modes.ways(modes.counted(file), "read"))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"CUDASIM_FAIL": failure},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "set()\n"
    assert "cuFile" in done.stderr
    assert "mode=auto" in done.stderr
