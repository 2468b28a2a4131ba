"""Small reads of files that are open for reading: what is kept of a dataset, and what is not."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import time
import weakref
from typing import Any

import h5py
import numpy as np
import pytest

import penstock as ps
from penstock import request
from penstock._native import NULL, ffi, lib
from penstock._options import current as current_options
from penstock.bench.files import DataFile, residency
from penstock.hdf5.dataset_reader import DatasetReader
from penstock.hdf5.library import lock

LAYOUTS: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "chunked": {"chunks": (7, 40)},
    "gzip": {"chunks": (7, 40), "compression": "gzip", "shuffle": True},
    "lzf, checksum": {"chunks": (16, 200), "compression": "lzf", "fletcher32": True},
    "big endian": {"dtype": ">f4", "chunks": (7, 40), "compression": "gzip"},
}
SHAPE = (60, 200)
SELECTIONS = (
    np.s_[3],
    np.s_[3, 5],
    np.s_[-1, -1],
    np.s_[3:4],
    np.s_[0:60],
    np.s_[5:50:4, 7],
    np.s_[5:50:4, 7:190:5],
    np.s_[:, 199:],
    np.s_[59, :],
    np.s_[...],
    (),
    np.s_[2:2],
    np.s_[10, 20:20],
)
# Read as adjacent integers, the field is [5, 7].
PACKED = np.array([(5, 7), (0, 9)], [("index", "i8"), ("other", "i4")])
LISTS = (
    PACKED["index"],
    PACKED["index"][::-1],
    PACKED["other"],
    np.frombuffer(bytes(3) + np.array([5, 2]).tobytes(), "i8", offset=3),
    np.arange(60)[3:50:7],
    np.s_[[5, 3, 3, -1]],
    ([0],),
    np.s_[:, [7, 0, 199, -200]],
    np.s_[[3, 59], 2:9],
    np.s_[5:50:4, [1, 0]],
    np.s_[..., [0, 5]],
    np.s_[[4, 2], ...],
    np.s_[[1, 2], 5],
    np.s_[5, [1, 2]],
    np.s_[[True, False] * 30],
    np.s_[[]],
    np.array([9, 2, 2, -3]),
    np.arange(60)[::-7],
    np.array([9, 2], "i4"),
    np.array([9, 2], "u8"),
    np.array([9, 2], ">i8"),
    np.array([[9, 2]]),
    np.arange(60) % 3 == 0,
    np.ma.array([9, 2]),
    range(3, 9, 2),
)


def values(seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).random(SHAPE, "f4")


@pytest.fixture(params=LAYOUTS)
def path(request, tmp_path):
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=values(), **LAYOUTS[request.param])
    return path


@pytest.mark.parametrize("selection", SELECTIONS, ids=str)
def test_the_elements_are_those_of_h5py(path, selection):
    with h5py.File(path) as theirs, ps.File(path) as ours:
        expected = theirs["x"][selection]
        for _ in range(2):
            found = ours["x"][selection]
            assert type(found) is type(expected)
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("selection", SELECTIONS, ids=str)
def test_an_array_of_any_memory_is_filled(path, selection, memory):
    expected = values()[selection]
    with ps.File(path) as file:
        for dtype in ("f4", "f8"):
            out = memory.array(np.full(expected.shape, -1, dtype))
            for _ in range(2):
                assert file["x"].read(selection, out=out) is out
                np.testing.assert_array_equal(memory.numpy(out), expected)


@pytest.mark.parametrize("selection", LISTS, ids=str)
def test_a_list_selects_what_it_does_with_numpy(path, selection, memory):
    expected = values()[selection]
    with ps.File(path) as file:
        found = file["x"][selection]
        assert (type(found), found.dtype) == (np.ndarray, file["x"].dtype)
        np.testing.assert_array_equal(found, expected)
        out = memory.array(np.full(expected.shape, -1, "f4"))
        file["x"].read(selection, out=out)
        np.testing.assert_array_equal(memory.numpy(out), expected)


@pytest.mark.parametrize("index", [[0, 60], [-61], np.array([3, 60])], ids=str)
def test_a_list_with_an_index_outside_the_dataset_is_an_error(path, index):
    with ps.File(path) as file, pytest.raises(IndexError):
        file["x"].read((index,))


@pytest.mark.gpu
@pytest.mark.usefixtures("penstock_arrays")
def test_reads_that_continue_together_fill_what_each_was_given(path):
    rows = np.random.default_rng(1).integers(0, 60, 200).tolist()
    outs = [ps.DeviceArray((200,), "f4") for _ in rows]
    with ps.File(path) as file:
        made = [file["x"].read_async(row, out=out) for row, out in zip(rows, outs, strict=True)]
        new = [file["x"].read_async(row, device="cuda") for row in rows]
        found = [request.wait().numpy() for request in (*made, *new)]
    np.testing.assert_array_equal(found, values()[rows + rows])


@pytest.mark.gpu
@pytest.mark.usefixtures("penstock_arrays")
def test_reads_that_have_ended_are_not_kept_for_later_ones_to_wait_for(path):
    def unsettled():
        """Release ended requests by a query. Other tests may leave storage unfinished."""
        lib.penstock_hdf5_is_settled()
        return count[0]

    count = lib.penstock_hdf5_unsettled()
    before = unsettled()
    out = ps.DeviceArray((200,), "f4")
    with ps.File(path) as file:
        for row in range(1000):
            file["x"].read_async(row % 60, out=out).wait()
        assert count[0] <= before + 64
        assert unsettled() == before


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_reads_that_were_awaited_keep_neither_descriptors_nor_memory(path, mode, memory):
    out = memory.array(np.zeros(SHAPE, "f4"))

    async def read(file):
        for _ in range(300):
            await file["x"].read_async(out=out)

    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    with ps.File(path, mode) as file:
        asyncio.run(read(file))
        before = descriptors()
        asyncio.run(read(file))
        assert descriptors() <= before + 2
        assert lib.penstock_hdf5_unsettled()[0] <= 64


@pytest.mark.gpu
@pytest.mark.usefixtures("penstock_arrays")
def test_a_new_array_of_a_read_that_continues_is_as_any_other(path):
    with ps.File(path) as file:
        made = file["x"].read_async(([4, 2],), device="cuda")
        assert made.array.shape == (2, 200)
        assert made.wait() is made.array
        assert (made.done(), made.report.bytes) == (True, 1600)
        np.testing.assert_array_equal(made.array.numpy(), values()[[4, 2]])


@pytest.mark.gpu
@pytest.mark.usefixtures("penstock_arrays")
@pytest.mark.parametrize("selection", SELECTIONS, ids=str)
def test_a_new_array_on_a_gpu_has_the_elements(path, selection):
    with ps.File(path) as file:
        found = file["x"].read(selection, device="cuda").numpy()
        np.testing.assert_array_equal(found, values()[selection])
        made = ps.DeviceArray(found.shape, "f4")
        file["x"].read_async(selection, out=made).wait()
        np.testing.assert_array_equal(made.numpy(), values()[selection])


@pytest.mark.gpu
@pytest.mark.usefixtures("penstock_arrays")
@pytest.mark.parametrize(
    "where",
    [
        {"device": "cuda:0"},
        {"device": 0},
        {"device": "cuda", "like": "device"},
        {"device": "cuda", "stream": 0},
        {"device": "cuda", "threads": 2},
    ],
    ids=str,
)
def test_a_gpu_may_be_named_in_any_way_for_a_small_read(path, monkeypatch, where):
    def not_small(*_, **__):
        raise AssertionError("a small read took the way of large ones")

    monkeypatch.setattr("penstock.hdf5.reading._start", not_small)
    with ps.File(path) as file:
        found = file["x"].read(np.s_[1:3], **where)
    np.testing.assert_array_equal(found.numpy(), values()[1:3])


@pytest.mark.gpu
@pytest.mark.usefixtures("penstock_arrays")
def test_a_dataset_of_h5py_is_read_as_quickly_as_ours(path, monkeypatch):
    def not_small(*_, **__):
        raise AssertionError("a small read took the way of large ones")

    monkeypatch.setattr("penstock.hdf5.reading._start", not_small)
    with h5py.File(path) as file:
        found = ps.read(file["x"], np.s_[1:3], device="cuda")
        np.testing.assert_array_equal(found.numpy(), values()[1:3])
        request = ps.read_async(file["x"], np.s_[4], device="cuda", threads=1)
        np.testing.assert_array_equal(request.wait().numpy(), values()[4])
        np.testing.assert_array_equal(ps.read_async(file["x"], 5).wait(), values()[5])
        np.testing.assert_array_equal(ps.read(file["x"], np.s_[1:3]), values()[1:3])
        np.testing.assert_array_equal(ps.read(file["x"], np.s_[1:3], device="cpu"), values()[1:3])
        out = np.empty((2, 200), "f4")
        assert ps.read(file["x"], np.s_[1:3], out=out) is out
        np.testing.assert_array_equal(out, values()[1:3])


def calls_of(function, native=None) -> int:
    """Return how many functions of Python a call runs.

    Those of readers that may enter the library are added to ``native``.
    """
    seen = []

    def note(_, event, what):
        seen.append(event)
        name = getattr(what, "__qualname__", "") if event == "c_call" else ""
        if native is not None and name in ("Reader.fill", "Reader.start"):
            native.append(name)

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return seen.count("call")


@pytest.mark.parametrize("rows", [np.s_[0, 0:16], np.s_[0:60]], ids=str)
def test_ps_read_takes_a_few_steps_more_than_the_method(path, rows):
    with ps.File(path) as file:
        dataset = file["x"]
        for given in (dataset, dataset.h5py):
            ps.read(given, rows)
            dataset.read(rows)
            assert calls_of(lambda given=given: ps.read(given, rows)) <= 14
        assert calls_of(lambda: dataset.read(rows)) <= 8


@pytest.mark.gpu
@pytest.mark.usefixtures("penstock_arrays")
def test_a_large_read_that_decodes_more_enters_the_library_once(tmp_path, monkeypatch):
    # A fourth of each of 40 chunks of 4 MiB.
    whole = np.tile(np.arange(1024, dtype="f4"), (40 << 10, 1))
    with h5py.File(tmp_path / "f.h5", "w") as file:
        chunks = (1024, 1024)
        file.create_dataset("x", data=whole, chunks=chunks, compression="gzip", compression_opts=1)
    made, entries = [], []
    allocate = ps.DeviceArray.__init__

    def noted(self, *arguments):
        made.append(self)
        allocate(self, *arguments)

    def enters(name):
        function = getattr(lib, name)

        def call(*arguments):
            entries.append(name)
            return function(*arguments)

        return call

    with ps.options(decode="cpu"), ps.File(tmp_path / "f.h5") as file:
        dataset = file["x"]
        for given in (dataset, dataset.h5py):
            ps.read(given, np.s_[0:4], device="cuda")
        with monkeypatch.context() as patched:
            patched.setattr(ps.DeviceArray, "__init__", noted)
            patched.setattr(request, "_SLICE_NS", 100_000_000_000)  # waits are not looked at
            for name in ("penstock_reader_open", "penstock_reader_read"):
                patched.setitem(vars(lib), name, enters(name))
            for name in ("penstock_dataset_read_selected", "penstock_dataset_read_submit"):
                patched.setitem(vars(lib), name, enters(name))
            calls = calls_of(lambda: ps.read(dataset, np.s_[:, ::4], device="cuda"), entries)
    assert len(made) == 1
    assert made[0].nbytes == 40 << 20
    np.testing.assert_array_equal(made[0].numpy(), whole[:, ::4])
    assert [name for name in entries if name != "Reader.fill"] == ["Reader.start"]
    assert calls <= 60


def test_a_small_dataset_that_is_named_is_read_without_a_native_reader(path, monkeypatch):
    def opened(*_):
        raise AssertionError("a reader was opened for one read")

    monkeypatch.setattr(DatasetReader, "_open", opened)
    np.testing.assert_array_equal(ps.read(f"{path}:x", 3), values()[3])


def test_what_is_kept_of_a_dataset_goes_with_h5pys_identifier_of_it(path):
    with h5py.File(path) as file:
        dataset = file["x"]
        np.testing.assert_array_equal(ps.read_async(dataset, 5).wait(), values()[5])
        identifier = weakref.ref(dataset.id)
        reader = weakref.ref(DatasetReader.of(dataset))
        assert reader() is DatasetReader.of(dataset)
        del dataset
        assert identifier() is None
        assert reader() is None


def grow(path, length):
    code = f"""
import h5py, numpy as np
with h5py.File({str(path)!r}, "r+", libver="latest", locking=False) as file:
    file["x"].resize(({length},))
    file["x"][:] = np.arange({length}) + 100
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("by", ["h5py", "penstock"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_dataset_that_grew_is_read_anew_after_a_refresh(tmp_path, by, dtype):
    path = tmp_path / "f.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("x", data=np.arange(10, dtype="f4"), maxshape=(None,), chunks=(100,))
    with h5py.File(path, locking=False) as file:
        theirs = file["x"]
        dataset = theirs if by == "h5py" else ps.File(file)["x"]
        assert ps.read_async(dataset, -1).wait() == 9
        grow(path, 20)
        dataset.refresh()
        out = np.empty(20, dtype)
        ps.read_async(dataset, np.s_[:], out=out).wait()
        np.testing.assert_array_equal(out, np.arange(20) + 100)
        assert ps.read(dataset, -1, out=np.empty((), dtype)) == 119
        with pytest.raises(ps.InvalidError, match="shape"):
            ps.read_async(dataset, np.s_[:], out=np.empty(10, dtype)).wait()


def test_a_reader_is_opened_anew_after_another_handle_was_closed(path):
    with ps.File(path) as file:
        dataset = file["x"]
        dataset.read_async(3).wait()
        ps.File(path).close()
        dataset.read_async(3).wait()
        reader = DatasetReader.of(dataset.h5py)._native
        assert not reader.is_forgotten()
        np.testing.assert_array_equal(dataset.read_async(4).wait(), values()[4])
        assert DatasetReader.of(dataset.h5py)._native is reader


class Spying:
    """An index that notes the options of the thread while it is asked for its number."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def __index__(self) -> int:
        self.seen.append(current_options())
        return 4


def test_options_of_a_call_are_those_of_no_other(path, memory):
    out, index = memory.empty((1, 200), "f4"), Spying()
    with ps.File(path) as file:
        file["x"].read_async(np.s_[3:index], out=out, threads=1).wait()
        file["x"].read(np.s_[3:index], out=out, threads=1)
    assert index.seen
    assert not any(index.seen)


def test_an_index_that_makes_the_array_read_only_keeps_it_from_being_filled(path):
    out = np.zeros((1, 200), "f4")

    class Locking:
        def __index__(self) -> int:
            out.flags.writeable = False
            return 4

    with ps.File(path) as file:
        file["x"].read_async(np.s_[3:4], out=np.empty_like(out)).wait()
        with pytest.raises(ps.InvalidError, match="read-only"):
            file["x"].read_async(np.s_[3 : Locking()], out=out).wait()
    assert not out.any()


@pytest.mark.parametrize("where", [{"like": "none"}, {"device": "cuda", "pin": True}], ids=str)
def test_a_place_that_is_none_is_refused_for_a_small_read(path, where):
    with ps.File(path) as file, pytest.raises(ps.InvalidError):
        file["x"].read(np.s_[1:3], **where)


def test_an_array_of_another_shape_is_refused(path, memory):
    with ps.File(path) as file, pytest.raises(ps.InvalidError, match="shape"):
        file["x"].read(np.s_[3], out=memory.empty(199, "f4"))


@pytest.mark.parametrize("index", [60, -61, np.s_[0, 200]], ids=str)
def test_an_index_outside_the_dataset_is_an_error(path, index):
    with ps.File(path) as file, pytest.raises(IndexError):
        file["x"][index]


@pytest.mark.parametrize("index", [np.s_[..., ...], np.s_[0, ..., ...], np.s_[0, 0, 0]], ids=str)
def test_an_index_that_h5py_refuses_is_refused(path, index):
    with h5py.File(path) as theirs, ps.File(path) as ours:
        with pytest.raises((ValueError, TypeError)) as expected:
            theirs["x"][index]
        with pytest.raises(expected.type):
            ours["x"][index]


@pytest.mark.parametrize("index", [np.s_[..., 3], np.s_[3, ...], np.s_[2:4, ..., 5]], ids=str)
def test_an_ellipsis_selects_the_other_dimensions(path, index):
    with ps.File(path) as file:
        np.testing.assert_array_equal(file["x"][index], values()[index])


def test_a_small_read_is_reported_as_any_other(path, memory):
    with ps.File(path) as file:
        file["x"].read(np.s_[3], out=memory.empty(200, "f4"))
    report = ps.last_report()
    assert (report.bytes, report.threads, report.note) == (800, 1, "")
    assert report.route == ("staged" if memory.kind == "device" else "host")
    assert report.elapsed_ns > 0


def test_options_that_ask_for_another_way_are_followed(path):
    with ps.File(path) as file:
        file["x"].read(np.s_[3])
        found = file["x"].read(np.s_[3], io="uring")
        np.testing.assert_array_equal(found, values()[3])
        with pytest.raises(ps.InvalidError):
            file["x"].read(np.s_[3], threads=0)


def test_a_file_that_was_written_anew_is_read_anew(path, memory):
    out = memory.empty(200, "f4")
    for seed in range(3):
        with h5py.File(path, "r+") as file:
            file["x"][...] = values(seed)
        with ps.File(path) as file:
            for _ in range(2):
                file["x"].read(np.s_[3], out=out)
                np.testing.assert_array_equal(memory.numpy(out), values(seed)[3])


def test_a_dataset_that_was_made_again_with_another_layout_is_read_anew(path):
    with ps.File(path) as file:
        np.testing.assert_array_equal(file["x"][3], values()[3])
    with h5py.File(path, "r+") as file:
        del file["x"]
        file.create_dataset("x", data=values(5)[:, ::2], chunks=(60, 1))
    with ps.File(path) as file:
        np.testing.assert_array_equal(file["x"][3], values(5)[3, ::2])


def test_a_file_that_another_one_replaced_is_read_anew(path, tmp_path):
    with h5py.File(path) as kept, ps.File(path) as file:
        np.testing.assert_array_equal(file["x"][3], values()[3])
        with h5py.File(tmp_path / "new.h5", "w") as new:
            new["x"] = values(7)
        os.replace(tmp_path / "new.h5", path)
        np.testing.assert_array_equal(file["x"][3], values()[3])
        assert kept["x"].shape == SHAPE
    with ps.File(path) as file:
        np.testing.assert_array_equal(file["x"][3], values(7)[3])


def test_what_is_written_is_read_at_once(path, memory):
    """Nothing is kept of a file that is open for writing, by whichever object."""
    with h5py.File(path, "r+") as theirs, ps.File(theirs) as file:
        out = memory.empty(200, "f4")
        for seed in range(4):
            (theirs if seed % 2 else file)["x"][3] = values(seed)[3]
            file["x"].read(np.s_[3], out=out)
            np.testing.assert_array_equal(memory.numpy(out), values(seed)[3])


def test_a_dataset_that_grows_is_read_with_its_new_elements(tmp_path):
    path = tmp_path / "f.h5"
    with ps.File(path, "w", libver="latest") as file:
        dataset = file.create_dataset("x", (1, 10), "i4", maxshape=(None, 10), chunks=(4, 10))
        for rows in range(2, 12):
            dataset.resize(rows, 0)
            dataset[rows - 1] = np.full(10, rows)
            assert dataset[rows - 1, 3] == rows
            assert dataset[rows - 2, 3] in (0, rows - 1)


def test_a_reader_of_a_file_that_grows_sees_the_new_elements(tmp_path):
    path = tmp_path / "f.h5"
    with h5py.File(path, "w", libver="latest") as writer:
        made = writer.create_dataset("x", (0,), "i4", maxshape=(None,), chunks=(16,))
        writer.swmr_mode = True
        with ps.File(path, swmr=True) as reader:
            dataset = reader["x"]
            for length in range(1, 100, 7):
                made.resize(length, 0)
                made[...] = np.arange(length) * length
                made.flush()
                dataset.refresh()
                assert dataset[length - 1] == (length - 1) * length


def test_a_closed_dataset_is_an_error(path, memory):
    file = ps.File(path)
    dataset = file["x"]
    out = memory.empty(200, "f4")
    dataset.read(np.s_[3], out=out)
    file.close()
    with pytest.raises(ps.InvalidError, match="closed"):
        dataset.read(np.s_[3], out=out)
    with pytest.raises((ps.InvalidError, ValueError)):
        dataset[3]


class Native:
    """A ``penstock_reader`` of the dataset ``x``, as a C program has it."""

    def __init__(self, file: h5py.File) -> None:
        place = ffi.new("penstock_reader **")
        dataset = file["x"]
        self._is_original = bool((dataset[-1] == values()[-1]).all())
        self._kind = h5py.h5t.py_create(np.dtype("f4"))
        with lock():  # binds h5py's HDF5 as well
            status = lib.penstock_reader_open(dataset.id.id, self._kind.id, place)
        assert (status, place[0] == NULL) == (lib.PENSTOCK_OK, False)
        self._reader = ffi.gc(place[0], lib.penstock_reader_close)

    def read(self, flags: int = 0) -> int:
        """Return the status of a read of the last row."""
        return self._read(
            lambda *described: lib.penstock_reader_read(
                self._reader, *described, NULL, NULL, flags, NULL
            )
        )

    def start(self) -> int:
        """Return the status of such a read that goes on, once it has ended."""
        made = ffi.new("penstock_request **")

        def start(*described: Any) -> int:
            status = lib.penstock_reader_start(self._reader, *described, NULL, NULL, 0, made)
            if status == lib.PENSTOCK_OK:
                status = lib.penstock_request_wait(made[0], -1)
                lib.penstock_request_free(made[0])
            else:
                assert made[0] == NULL
            return int(status)

        return self._read(start)

    def _read(self, function: Any) -> int:
        row = np.full(SHAPE[1], -1, "f4")
        axes = ffi.new("penstock_axis[]", [(SHAPE[0] - 1, 1, 1, NULL), (0, 1, SHAPE[1], NULL)])
        selection = ffi.new("penstock_selection *")
        selection.struct_size, selection.rank = ffi.sizeof("penstock_selection"), 2
        selection.axes = axes
        shape = ffi.new("uint64_t[]", [SHAPE[1]])
        array = ffi.new("penstock_array *")
        array.struct_size, array.rank = ffi.sizeof("penstock_array"), 1
        array.data, array.shape = ffi.from_buffer(row), shape
        status = int(function(selection, array))
        expected = values()[-1] if status == lib.PENSTOCK_OK else np.full(SHAPE[1], -1, "f4")
        is_changed = not np.array_equal(row, expected)
        assert not (is_changed and self._is_original)
        return status


@pytest.mark.parametrize("then", ["closed", "reopened", "rewritten", "another", "no HDF5"])
def test_a_native_reader_of_a_closed_file_is_an_error(path, tmp_path, then):
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["x"] = values(9)
    file = h5py.File(path)
    reader = Native(file)
    assert (reader.read(), reader.start()) == (lib.PENSTOCK_OK, lib.PENSTOCK_OK)
    descriptor = file.id.get_vfd_handle()
    file.close()
    if then == "rewritten":
        with h5py.File(path, "r+") as file:
            file["x"][...] = values(3)
    with contextlib.ExitStack() as files:
        if then == "no HDF5":
            again = files.enter_context(open(path, "rb")).fileno()
        elif then != "closed":
            name = tmp_path / "other.h5" if then == "another" else path
            opened = files.enter_context(h5py.File(name))
            again = opened.id.get_vfd_handle()
        if then != "closed":
            assert again == descriptor, "the test needs the descriptor of the closed file"
        assert reader.read() == lib.PENSTOCK_ERR_INVALID
        assert reader.start() == lib.PENSTOCK_ERR_INVALID
        if then in ("reopened", "rewritten", "another"):
            assert Native(opened).read() == lib.PENSTOCK_OK
            assert reader.read() != lib.PENSTOCK_OK


@pytest.mark.parametrize("layout", ["contiguous", "chunked", "gzip"])
def test_a_read_of_cached_bytes_alone_takes_place_where_it_only_copies(tmp_path, layout):
    path = tmp_path / "f.h5"
    chunks = {"contiguous": {}, "chunked": {"chunks": (7, SHAPE[1])}, "gzip": LAYOUTS["gzip"]}
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=values(), **chunks[layout])
    only_copies = layout != "gzip"
    with h5py.File(path) as file:
        reader = Native(file)
        expected = lib.PENSTOCK_OK if only_copies else lib.PENSTOCK_PENDING
        assert reader.read() == lib.PENSTOCK_OK
        assert reader.read(lib.PENSTOCK_ONLY_CACHED) == expected


def test_a_read_of_cached_bytes_alone_fills_elements_that_were_never_written(tmp_path):
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", SHAPE, "f4", chunks=(7, SHAPE[1]), fillvalue=3)[0] = 1
    with h5py.File(path) as file:
        reader = Native(file)
        assert reader.read() == lib.PENSTOCK_OK
        assert reader.read(lib.PENSTOCK_ONLY_CACHED) == lib.PENSTOCK_OK
    with ps.File(path) as file:
        for part in (np.s_[50], np.s_[50, 7], np.s_[6:9], np.s_[20:40]):
            wanted = np.full(SHAPE, 3, "f4")
            wanted[0] = 1
            np.testing.assert_array_equal(file["x"][part], wanted[part])


def test_a_read_of_cached_bytes_alone_opens_no_file(tmp_path):
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file["x"] = values()
    with h5py.File(path) as file:
        reader = Native(file)
        assert reader.read(lib.PENSTOCK_ONLY_CACHED) == lib.PENSTOCK_PENDING
        assert reader.read() == lib.PENSTOCK_OK
        assert reader.read(lib.PENSTOCK_ONLY_CACHED) == lib.PENSTOCK_OK
        time.sleep(0.3)  # the file is closed meanwhile
        assert reader.read(lib.PENSTOCK_ONLY_CACHED) == lib.PENSTOCK_PENDING


def test_a_read_of_cached_bytes_alone_waits_for_no_medium(tmp_path):
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file["x"] = values()
    size = path.stat().st_size
    with h5py.File(path) as file, open(path, "rb") as raw:
        descriptor = raw.fileno()
        reader = Native(file)
        assert reader.read() == lib.PENSTOCK_OK

        def drop():
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            if residency(DataFile(path, 0, size))[0] != 0:
                pytest.skip("this file system keeps the file in memory")

        def read_without_wait():
            drop()
            return reader.read(lib.PENSTOCK_ONLY_CACHED)

        # A read without wait starts the kernel's read ahead, which a fast medium finishes in time.
        if all(read_without_wait() == lib.PENSTOCK_OK for _ in range(20)):
            drop()
            assert os.preadv(descriptor, [bytearray(size)], 0, os.RWF_NOWAIT) == size
            pytest.skip("this medium answers before a read without wait returns")
        assert reader.read() == lib.PENSTOCK_OK
        assert reader.read(lib.PENSTOCK_ONLY_CACHED) == lib.PENSTOCK_OK


def test_a_flag_of_a_native_reader_that_does_not_exist_is_an_error(path):
    with h5py.File(path) as file:
        reader = Native(file)
        assert reader.read(lib.PENSTOCK_FILE_IS_OPEN << 1) == lib.PENSTOCK_ERR_INVALID


def test_a_file_that_is_closed_can_be_opened_for_writing_and_stays_open_nowhere(path):
    for _ in range(20):
        with ps.File(path) as file:
            assert file["x"][3].shape == (200,)
        with h5py.File(path, "r+") as file:
            file.attrs["n"] = 1
    real = os.path.realpath(path)
    links = (os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
    assert real not in [os.path.realpath(link) for link in links if os.path.islink(link)]


def test_threads_read_the_rows_that_they_ask_for(path, memory):
    failed: list[Any] = []

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        out = memory.empty(200, "f4")
        for _ in range(200):
            row = int(random.integers(60))
            dataset.read(np.s_[row], out=out)
            if not np.array_equal(memory.numpy(out), values()[row]):
                failed.append((seed, row))

    with ps.File(path) as file:
        dataset = file["x"]
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed


@pytest.mark.parametrize("selection", [np.s_[1], np.s_[2, 5:9], np.s_[3, 7]], ids=str)
def test_a_chunk_is_decoded_once_for_successive_reads(tmp_path, memory, selection):
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=values(), chunks=(60, 200), compression="gzip")
    with ps.File(path) as file:
        decoded = []
        for _ in range(3):
            out = memory.empty(values()[selection].shape, "f4")
            file["x"].read(selection, out=out)
            np.testing.assert_array_equal(memory.numpy(out), values()[selection])
            decoded.append(ps.last_report().decoded_cpu)
    assert decoded == [48000, 0, 0]


@pytest.mark.parametrize("shuffle", [False, True], ids=["gzip", "gzip, shuffle"])
def test_chunks_side_by_side_are_decoded_once_for_row_after_row(tmp_path, memory, shuffle):
    pixels = np.random.default_rng(0).integers(0, 9, (64, 8192), "u4")
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset(
            "x", data=pixels, chunks=(32, 4096), compression="gzip", shuffle=shuffle
        )
    decoded = 0
    with ps.File(path) as file:
        for row in range(64):
            out = memory.empty(8192, "u4")
            file["x"].read(row, out=out)
            np.testing.assert_array_equal(memory.numpy(out), pixels[row])
            report = ps.last_report()
            decoded += report.decoded_cpu + report.decoded_gpu
    assert decoded == pixels.nbytes


def test_a_window_of_more_than_a_mebibyte_is_decoded_once(tmp_path, memory):
    pixels = np.random.default_rng(1).integers(0, 9, (64, 1 << 16), "u4")
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=pixels, chunks=(64, 1 << 16), compression="gzip")
    decoded = []
    with ps.File(path) as file:
        for first in (0, 16, 8, 48):
            out = memory.empty((16, 1 << 16), "u4")
            file["x"].read(np.s_[first : first + 16], out=out)
            np.testing.assert_array_equal(memory.numpy(out), pixels[first : first + 16])
            report = ps.last_report()
            decoded.append(report.decoded_cpu + report.decoded_gpu)
    assert decoded == [pixels.nbytes, 0, 0, 0]


def test_a_file_that_is_open_for_writing_keeps_no_chunks(tmp_path, memory):
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=values(), chunks=(60, 200), compression="gzip")
    with ps.File(path, "r+") as file:
        for seed in range(3):
            file["x"][...] = values(seed)
            for row in (3, 4):
                out = memory.empty(200, "f4")
                file["x"].read(row, out=out)
                np.testing.assert_array_equal(memory.numpy(out), values(seed)[row])


def test_chunks_side_by_side_of_a_file_written_anew_are_decoded_anew(tmp_path, memory):
    path = tmp_path / "f.h5"
    for seed in range(3):
        pixels = np.random.default_rng(seed).integers(0, 9, (32, 8192), "u4")
        with h5py.File(path, "a") as file:
            made = file.require_dataset(
                "x", pixels.shape, "u4", chunks=(32, 4096), compression="gzip"
            )
            made[...] = pixels
        with ps.File(path) as file:
            for row in (0, 1):
                out = memory.empty(8192, "u4")
                file["x"].read(row, out=out)
                np.testing.assert_array_equal(memory.numpy(out), pixels[row])


def test_a_damaged_chunk_is_an_error_that_names_it(tmp_path):
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        made = file.create_dataset("x", data=values(), chunks=(7, 40), compression="gzip")
        where = made.id.get_chunk_info_by_coord((7, 0))
    with path.open("r+b") as raw:
        raw.seek(where.byte_offset + 8)
        raw.write(b"\xff" * 20)
    with ps.File(path) as file:
        for _ in range(2):
            with pytest.raises(ps.Error, match=r"chunk at \[1, 0\]"):
                file["x"][8, 3]
        np.testing.assert_array_equal(file["x"][0], values()[0])


def test_elements_that_were_never_written_have_the_fill_value(tmp_path, memory):
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        made = file.create_dataset("x", (40, 10), "i4", chunks=(4, 10), fillvalue=-7)
        made[4:8] = 1
    with ps.File(path) as file:
        out = memory.empty((6, 10), "i4")
        file["x"].read(np.s_[3:9], out=out)
        assert memory.numpy(out)[:, 0].tolist() == [-7, 1, 1, 1, 1, -7]


class Reading:
    """A bound of a slice that reads another dataset when it is asked for its number."""

    def __init__(self, read: Any) -> None:
        self.read = read

    def __index__(self) -> int:
        self.read()
        return 4


def test_a_read_within_a_read_changes_neither(path, memory):
    out, other = memory.empty((1, 200), "f4"), memory.empty(40, "f4")
    with ps.File(path) as file:
        dataset = file["x"]

        def inner() -> None:
            dataset.read(np.s_[9, 7:47], out=other)

        dataset.read(np.s_[3:4], out=out)
        dataset.read((slice(3, Reading(inner)),), out=out)
        np.testing.assert_array_equal(memory.numpy(out), values()[3:4])
        np.testing.assert_array_equal(memory.numpy(other), values()[9, 7:47])


def test_a_step_of_any_size_may_select_one_element(path):
    with ps.File(path) as file:
        np.testing.assert_array_equal(file["x"][3 : 9 : 10**30], values()[3:4])
        np.testing.assert_array_equal(file["x"][3 : 9 : 10**30, [1, 0]], values()[3:4][:, [1, 0]])
        out = np.zeros((1, 200), "f4")
        np.testing.assert_array_equal(file["x"].read(np.s_[3 : 9 : 10**30], out=out), values()[3:4])


def test_a_cache_of_a_size_that_is_none_is_an_error(path):
    code = f"""
import penstock as ps
with ps.File({str(path)!r}) as file:
    try:
        file["x"][3]
    except ps.InvalidError as error:
        assert "PENSTOCK_CHUNK_CACHE" in str(error), error
    else:
        raise SystemExit("no error")
"""
    environment = {**os.environ, "PENSTOCK_CHUNK_CACHE": "much"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_options_of_a_block_apply_to_small_reads(path):
    with ps.File(path) as file, ps.options(io="uring"):
        np.testing.assert_array_equal(file["x"].read(np.s_[3]), values()[3])
        with pytest.raises(ps.InvalidError), ps.options(threads=0):
            file["x"].read(np.s_[3])


def test_options_of_a_call_apply_to_small_reads(path, memory):
    out = memory.empty(200, "f4")
    with ps.File(path) as file:
        for read in (file["x"].read, lambda *a, **k: file["x"].read_async(*a, **k).wait()):
            read(np.s_[3], out=out, threads=1)
            np.testing.assert_array_equal(memory.numpy(out), values()[3])
            with pytest.raises(ps.InvalidError):
                read(np.s_[3], out=out, threads=0)


@pytest.mark.parametrize("keys", [{}, {"threads": 2}], ids=["defaults", "options"])
def test_a_read_that_continues_does_without_the_lock_of_h5py(path, memory, keys):
    out = memory.empty(200, "f4")
    with ps.File(path) as file:
        dataset = file["x"]
        dataset.read_async(np.s_[2], out=out).wait()
        is_locked, is_over = threading.Event(), threading.Event()

        def hold() -> None:
            with h5py._hl.base.phil:
                is_locked.set()
                is_over.wait(10)

        holder = threading.Thread(target=hold)
        holder.start()
        try:
            assert is_locked.wait(10)
            begin = time.perf_counter()
            dataset.read_async(np.s_[3], out=out, **keys).wait()
            assert time.perf_counter() - begin < 5
        finally:
            is_over.set()
            holder.join()
        np.testing.assert_array_equal(memory.numpy(out), values()[3])


@pytest.mark.gpu
def test_what_is_kept_of_a_closed_file_is_freed_although_its_datasets_live(tmp_path):
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=values(), chunks=(60, 200), compression="gzip")
    file = ps.File(path)
    dataset = file["x"]
    dataset[3]
    place = ffi.new("penstock_reader **")
    kind = h5py.h5t.py_create(np.dtype("f4"))
    assert lib.penstock_reader_open(dataset.id.id, kind.id, place) == 0
    file.close()
    out = np.full(12000, -1, "f4")
    shape = ffi.new("uint64_t[]", [60, 200])
    array = ffi.new("penstock_array *")
    array[0] = (ffi.sizeof("penstock_array"), ffi.from_buffer(out), kind.id, 2, 0, shape, ffi.NULL)
    status = lib.penstock_reader_read(place[0], ffi.NULL, array, ffi.NULL, ffi.NULL, 4, ffi.NULL)
    assert status == lib.PENSTOCK_ERR_INVALID
    assert (out == -1).all()
    lib.penstock_reader_close(place[0])


@pytest.mark.gpu
def test_a_native_reader_does_not_fill_a_gpu_while_a_stream_waits_for_a_request(tmp_path, driver):
    """The steps that end the request may be those of the thread that reads."""
    numbers = np.arange(3 << 20, dtype="u1")
    with h5py.File(tmp_path / "read.h5", "w") as file:
        file.create_dataset("x", data=numbers, chunks=(1 << 18,), compression="gzip")
    written = ps.DeviceArray.from_numpy(numbers)
    out = ps.DeviceArray(numbers.shape, "u1")
    place, shape = ffi.new("penstock_reader **"), ffi.new("uint64_t[]", numbers.shape)
    array = ffi.new("penstock_array *")
    kind = h5py.h5t.NATIVE_UINT8
    array[0] = (
        ffi.sizeof("penstock_array"),
        ffi.cast("void *", out.data_ptr),
        kind.id,
        1,
        0,
        shape,
        NULL,
    )
    with h5py.File(tmp_path / "written.h5", "w") as target, ps.File(tmp_path / "read.h5") as file:
        dataset = target.create_dataset("x", (3 << 20,), "u1", chunks=(1 << 18,), compression=1)
        assert lib.penstock_reader_open(file["x"].id.id, kind.id, place) == 0

        def read():
            flags = request.CALLER_WAITS
            return lib.penstock_reader_read(place[0], NULL, array, NULL, NULL, flags, NULL)

        made = ps.write_async(dataset, written, stream=driver.stream().value)
        assert read() == lib.PENSTOCK_PENDING
        made.wait()
        # The stream goes on after the request has ended, by the thread that ended it.
        until = time.monotonic() + 30
        while (code := read()) == lib.PENSTOCK_PENDING and time.monotonic() < until:
            time.sleep(0.001)
        assert code == lib.PENSTOCK_OK
        lib.penstock_reader_close(place[0])
    np.testing.assert_array_equal(out.numpy(), numbers)


def test_files_that_are_idle_do_not_use_up_the_descriptors(tmp_path):
    import resource

    files = []
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 70, before[1]))
    try:
        for number in range(45):
            with h5py.File(tmp_path / f"{number}.h5", "w") as file:
                file["x"] = np.full(100, number)
            files.append(h5py.File(tmp_path / f"{number}.h5"))
        for number, file in enumerate(files):
            dataset = ps.Dataset(file["x"])
            assert dataset[5] == dataset[6] == number
            assert ps.last_report().route == "host"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for file in files:
            file.close()


WRITES = """
import sys, h5py
with h5py.File(sys.argv[1], "r+", locking=False) as file:
    file["x"][...] = 7
"""


def write_in_place(path: Any, by: str) -> None:
    """Write all elements, without a lock, while other handles are open."""
    if by == "another process":
        subprocess.run([sys.executable, "-c", WRITES, str(path)], check=True)
        return
    with ps.File(path, "r+", locking=False, driver="penstock") as file:
        file["x"].write(np.full(SHAPE, 7, "f4"))


@pytest.mark.parametrize("is_reopened", [False, True])
@pytest.mark.parametrize("by", ["another process", "another driver"])
@pytest.mark.parametrize("options", [{"fletcher32": True}, {"shuffle": True}, {}])
@pytest.mark.parametrize("locking", [False, True])
def test_a_change_by_a_writer_without_a_lock_is_read_soon(
    tmp_path, memory, locking, options, by, is_reopened
):
    path = tmp_path / "f.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("x", data=np.zeros(SHAPE, "f4"), chunks=(15, 200), **options)
    time.sleep(0.05)  # the next write gives the file other times
    with ps.File(path, "r", locking=locking) as file:
        dataset = file["x"]
        out = memory.empty((2, 200), "f4")
        for _ in range(3):
            dataset.read(np.s_[0:2], out=out)
        write_in_place(path, by)
        time.sleep(0.03)
        if is_reopened:
            dataset = file["x"]
        dataset.read(np.s_[0:2], out=out)
        assert (memory.numpy(out) == 7).all()
        assert (dataset[1:3] == 7).all()


@pytest.mark.parametrize("chunks", [None, (100, 256), (1500, 300)], ids=str)
@pytest.mark.parametrize("dtype", ["f4", "i4", "f8", ">u2"])
def test_a_long_part_without_filters_is_read_in_pieces(tmp_path, memory, chunks, dtype):
    stored = np.random.default_rng(5).normal(0, 9000, (1500, 300)).astype("f4")
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=stored, chunks=chunks)
    parts = (np.s_[:, 5], np.s_[::7], np.s_[3:1400, 40:90], np.s_[1:], ())
    with ps.File(path) as file, h5py.File(path) as theirs:
        for part in parts:
            wanted = theirs["x"].astype(dtype)[part]
            np.testing.assert_array_equal(file["x"].read(part, dtype=dtype), wanted)
            if np.dtype(dtype).isnative:
                out = memory.empty(wanted.shape, dtype)
                file["x"].read(part, out=out)
                np.testing.assert_array_equal(memory.numpy(out), wanted)
            whole = np.zeros((*wanted.shape, 2), dtype)
            file["x"].read(part, out=whole[..., 1])
            np.testing.assert_array_equal(whole[..., 1], wanted)
            assert not whole[..., 0].any()


def test_many_chunks_that_were_never_written_are_filled_by_the_calling_thread(tmp_path):
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        for name, fill in {"zero": 0, "one": 1, "same": 0x0101}.items():
            file.create_dataset(name, (500, 300), "i2", chunks=(5, 300), fillvalue=fill)
    with ps.File(path) as file:
        for part in (np.s_[:, 5], np.s_[3:400, ::7], np.s_[::9], np.s_[:, 20:29]):
            for dataset in file.values():
                wanted = np.full((500, 300), dataset.fillvalue)[part]
                np.testing.assert_array_equal(dataset[part], wanted)
                assert ps.last_report().threads == 1


WITHOUT_ML_DTYPES = """
import sys
sys.modules["ml_dtypes"] = None  # as where it is not installed
import h5py, numpy as np, penstock as ps
from penstock import dlpack
from penstock.dtypes import element_type
path, mode = sys.argv[1:]
kind = element_type("bfloat16")
assert kind.numpy is None
with h5py.File(path, mode) as file:
    for fill in (ps.read, lambda *a, **k: ps.read_async(*a, **k).wait()):
        memory = np.full(64 * 8, 0xEE, "u1")
        out = dlpack.Lender(memory, memory.__array_interface__["data"][0], (64,), kind)
        fill(file["x"], out=out)
        wide = np.zeros((64, 2), "<u2")
        wide[:, 1] = memory[:128].view("<u2")
        np.testing.assert_array_equal(wide.view("<f4").reshape(-1), np.arange(64))
        assert (memory[128:] == 0xEE).all()
    try:
        print(ps.read(file["x"], dtype="bfloat16").dtype)
    except ps.IncompatibleError:
        print("refused")
"""


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_type_that_numpy_lacks_is_not_taken_for_its_default(tmp_path, mode):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file["x"] = np.arange(64, dtype="f8")
    program = [sys.executable, "-c", WITHOUT_ML_DTYPES, str(tmp_path / "f.h5"), mode]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "refused", done.stderr
