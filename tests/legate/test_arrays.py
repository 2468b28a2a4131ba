"""Legate's arrays by penstock.dist.legate, on Legate's CPU tasks: `scripts/legate` runs this."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest

import penstock as ps

core = pytest.importorskip("legate.core", reason="Legate is not installed: make test-legate")

from penstock.dist import legate as penstock_legate  # noqa: E402
from penstock.dist.legate import from_file, from_file_batched, to_file  # noqa: E402

WHOLE = np.arange(37 * 11, dtype="f4").reshape(37, 11)
RUNTIME = core.get_legate_runtime()


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "data.h5"
    with h5py.File(path, "w") as file:
        file["contiguous"] = WHOLE
        file.create_dataset("chunked", data=WHOLE, chunks=(5, 4))
        file.create_dataset("gzip", data=WHOLE, chunks=(5, 4), compression="gzip", shuffle=True)
        file["big"] = WHOLE.astype(">f8")
        file.create_dataset("group/big", data=WHOLE.astype(">i2"), chunks=(7, 3), fletcher32=True)
        file["bool"] = WHOLE > 100
        file["complex"] = WHOLE * 1j
        file["half"] = WHOLE.astype("f2")
        file["enumeration"] = np.array([2, 1], h5py.enum_dtype({"a": 1, "b": 2}, "i2"))
        file["strings"] = np.array([b"abc", b"", b"de"], "S3")
        file["utf8"] = np.array(["né".encode(), b"b"], h5py.string_dtype(length=4))
        file["opaque"] = np.array([b"abc", b"de"], "V5")
        file["scalar"] = 5.5
        file["string"] = np.bytes_(b"abc")
        file["empty"] = np.empty((0, 3), "i4")
        file.create_dataset("unwritten", (20, 3), "i4", chunks=(4, 3), fillvalue=7)
        layout = h5py.VirtualLayout((37, 11), "f4")
        layout[:] = h5py.VirtualSource(file["gzip"])
        file.create_virtual_dataset("virtual", layout)
        file["variable"] = ["a", "bc"]
        file["structure"] = np.zeros(3, [("a", "i4")])
        file.create_dataset("arrays", (3,), np.dtype(("i4", (2,))))
        file["long"] = np.zeros(3, "g")
        file["null"] = h5py.Empty("f4")
    return path


@pytest.fixture
def tiles(monkeypatch):
    """A list to which each leaf adds the indices of its tile."""
    found, lock = [], threading.Lock()
    ranges = penstock_legate._ranges

    def noted(tile):
        with lock:
            found.append(ranges(tile))
        return ranges(tile)

    monkeypatch.setattr(penstock_legate, "_ranges", noted)
    return found


@pytest.fixture
def leaves():
    """A scope with eight leaves, whatever the number of processors."""
    factor = -(-8 // RUNTIME.get_machine().count())
    policy = core.ParallelPolicy(overdecompose_factor=factor)
    with core.Scope(parallel_policy=policy):
        yield 8


def values(array):
    return np.asarray(array.get_physical_array())


def by_h5py(path, name, selection=()):
    with h5py.File(path) as file:
        return file[name][selection]


def counts(tiles, shape):
    """How many tiles have each element."""
    found = np.zeros(shape, int)
    for tile in tiles:
        found[tuple(slice(part.start, part.stop) for part in tile)] += 1
    return found


NUMBERS = (
    *("contiguous", "chunked", "gzip", "big", "group/big", "bool", "complex", "half"),
    *("enumeration", "unwritten", "virtual", "empty"),
)
BYTES = ("strings", "utf8", "opaque")


@pytest.mark.usefixtures("leaves")
@pytest.mark.parametrize("name", NUMBERS)
def test_an_array_has_the_elements_that_h5py_reads(path, name):
    expected = by_h5py(path, name)
    found = from_file(path, name)
    assert isinstance(found, core.LogicalArray)
    assert tuple(found.shape) == expected.shape
    assert found.type.to_numpy_dtype() == expected.dtype.newbyteorder("=")
    assert np.array_equal(values(found), expected)


@pytest.mark.parametrize("name", BYTES)
def test_strings_of_a_fixed_length_and_opaque_elements_are_binary(path, name):
    expected = by_h5py(path, name)
    found = from_file(path, name)
    assert found.type == core.binary_type(expected.itemsize)
    assert values(found).dtype == f"S{expected.itemsize}"
    assert np.array_equal(values(found).view(expected.dtype), expected)


@pytest.mark.parametrize("name", ["scalar", "string"])
def test_a_scalar_is_an_array_of_one_element(path, name):
    found = values(from_file(path, name))
    assert found.shape == (1,)
    assert found[0] == by_h5py(path, name)


@pytest.mark.usefixtures("leaves")
@pytest.mark.parametrize("name", ["contiguous", "chunked", "gzip", "group/big", "virtual"])
@pytest.mark.parametrize("slab", [np.s_[3:20, 2:], np.s_[5:30, 4:8], np.s_[7:7], np.s_[..., 10:]])
def test_a_slab_has_the_elements_that_h5py_reads(path, name, slab):
    assert np.array_equal(values(from_file(path, name, slab=slab)), by_h5py(path, name, slab))


@pytest.mark.usefixtures("leaves")
def test_a_part_of_the_strings_is_read(path):
    found = values(from_file(path, "strings", slab=np.s_[1:]))
    assert found.tolist() == [b"", b"de"]


def test_leaves_read_whole_chunks_each_element_once(path, leaves, tiles):
    from_file(path, "gzip")
    assert 4 <= len(tiles) <= leaves
    assert (counts(tiles, WHOLE.shape) == 1).all()
    for tile in tiles:
        for part, chunk, side in zip(tile, (5, 4), WHOLE.shape, strict=True):
            assert part.start % chunk == 0
            assert part.stop % chunk == 0 or part.stop == side


def test_leaves_read_rows_of_a_contiguous_dataset(path, leaves, tiles):
    from_file(path, "contiguous")
    assert len(tiles) == leaves
    assert all(tile[1] == range(11) for tile in tiles)


@pytest.mark.usefixtures("leaves")
def test_random_shapes_and_chunks_are_read_and_written(tmp_path):
    random = np.random.default_rng(7)
    for case in range(40):
        shape = tuple(random.integers(0, 9, random.integers(1, 4)).tolist())
        chunks = tuple(int(random.integers(1, max(side, 1) + 1)) for side in shape)
        expected = random.integers(0, 1000, shape).astype(random.choice([">i2", "<f4", ">f8"]))
        path, copy = tmp_path / f"{case}.h5", tmp_path / "copy.h5"
        with h5py.File(path, "w") as file:
            limits = (
                {"chunks": chunks, "compression": "gzip"} if case % 2 and 0 not in shape else {}
            )
            file.create_dataset("x", data=expected, **limits)
        found = from_file(path, "x")
        assert np.array_equal(values(found), expected), (shape, chunks)
        to_file(found, copy, "x")
        assert np.array_equal(by_h5py(copy, "x"), expected), (shape, chunks)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("variable", "fixed length"), ("structure", "datasets"), ("arrays", "datasets"), ("long", "")],
)
def test_elements_that_legate_cannot_hold_are_refused_with_a_remedy(path, name, remedy):
    with pytest.raises(ps.IncompatibleError, match=f"data.h5:{name}.*cannot hold.*{remedy}"):
        from_file(path, name)


def test_more_dimensions_than_legate_knows_are_refused(path):
    with h5py.File(path, "a") as file:
        file["deep"] = np.zeros((1,) * (core.LEGATE_MAX_DIM + 1))
    with pytest.raises(ps.IncompatibleError, match="LEGATE_MAX_DIM"):
        from_file(path, "deep")


def test_a_null_dataspace_is_refused(path):
    with pytest.raises(ps.InvalidError, match="no elements"):
        from_file(path, "null")


def test_a_slab_outside_the_dataset_is_refused(path):
    with pytest.raises(ps.InvalidError, match="outside"):
        from_file(path, "gzip", slab=np.s_[30:40])


def test_a_wrong_option_is_an_error_of_the_call(path):
    with pytest.raises(ps.InvalidError, match="threads"):
        from_file(path, "gzip", threads=0)


@pytest.mark.parametrize("read", [from_file, lambda *where: from_file_batched(*where, (1, 1))])
def test_a_file_that_is_missing_is_named(tmp_path, read):
    with pytest.raises(FileNotFoundError, match=r"none\.h5"):
        read(tmp_path / "none.h5", "x")


@pytest.mark.parametrize("read", [from_file, lambda *where: from_file_batched(*where, (1, 1))])
@pytest.mark.parametrize("name", ["none", "group"])
def test_a_dataset_that_is_missing_is_named(path, read, name):
    with pytest.raises(ps.InvalidError, match=rf"data\.h5 has no dataset '{name}'"):
        read(path, name)


@pytest.fixture
def damaged(path):
    """The file, after its last compressed chunk was overwritten."""
    with h5py.File(path) as file:
        last = file["gzip"].id.get_chunk_info(file["gzip"].id.get_num_chunks() - 1)
    with open(path, "r+b") as file:
        file.seek(last.byte_offset)
        file.write(b"\xff" * last.size)
    return path


@pytest.mark.usefixtures("leaves")
def test_what_a_leaf_raises_reaches_the_caller(damaged):
    with pytest.raises(ps.Error, match=r"data\.h5"):
        from_file(damaged, "gzip")
    assert np.array_equal(values(from_file(damaged, "chunked")), WHOLE)


def test_a_deferred_error_is_raised_at_the_end_of_the_scope(damaged):
    reached = False
    deferred = core.Scope(exception_mode=core.ExceptionMode.DEFERRED)
    with pytest.raises(ps.Error, match=r"data\.h5"), deferred:  # noqa: PT012
        from_file(damaged, "gzip")
        reached = True
    assert reached


LONG = "begin" + 10_000 * "-" + "end"


class OddError(Exception):
    def __init__(self, first, second):
        super().__init__(first)


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (lambda: ps.IOFailure("short", path="a.h5", errno=5), ps.IOFailure, "short"),
        (lambda: ps.IOFailure(LONG, errno=5), ps.IOFailure, "^begin.* ... .*end$"),
        (lambda: ValueError(1100 * "-"), ValueError, "^-+$"),
        (lambda: ValueError(LONG), ps.IOFailure, "^ValueError: begin.* ... .*end$"),
        (lambda: OddError("odd", threading.Lock()), ps.IOFailure, "OddError: odd"),
    ],
    ids=["short", "long", "still short", "long and another's", "not to be pickled"],
)
def test_an_error_that_legate_could_not_carry_is_cut(path, monkeypatch, error, kind, words):
    def fail(*_):
        raise error()

    array = from_file(path, "gzip")
    monkeypatch.setattr(penstock_legate, "_memory", fail)
    with pytest.raises(kind, match=words):
        to_file(array, path, "x")


@pytest.mark.usefixtures("leaves")
@pytest.mark.parametrize("name", ["contiguous", "gzip", "virtual", "strings"])
def test_nothing_of_legates_memory_outlives_a_leaf(damaged, tmp_path, name):
    # Legate's objects that were freed after its runtime ended the process with a double free.
    kinds = (core.TaskContext, core.PhysicalStore, core.PhysicalArray, core.InlineAllocation)
    gc.disable()
    try:
        with contextlib.suppress(ps.Error):
            to_file(from_file(damaged, name), tmp_path / "copy.h5", "x")
        assert not [found for found in gc.get_objects() if isinstance(found, kinds)]
    finally:
        gc.enable()


def test_a_leaf_works_on_all_cores_and_returns_to_its_own():
    before, seen = os.sched_getaffinity(0), []
    of_leaf = {min(before)}
    try:
        os.sched_setaffinity(0, of_leaf)
        penstock_legate._leaf(lambda: seen.append(os.sched_getaffinity(0)))()
        assert os.sched_getaffinity(0) == of_leaf
    finally:
        os.sched_setaffinity(0, before)
    assert seen == [before]


@dataclass
class GpuTile:
    """What a task of Legate on a GPU sees of its tile, in memory that faults on the stand-in."""

    array: ps.DeviceArray
    domain: Any

    def get_inline_allocation(self):
        memory = {"__cuda_array_interface__": self.array.__cuda_array_interface__}
        return SimpleNamespace(target=core.StoreTarget.FBMEM, **memory)


@pytest.mark.gpu
@pytest.mark.parametrize("stream", [None, 1])
@pytest.mark.parametrize(
    ("name", "slab"),
    [
        *(("contiguous", np.s_[3:20, 2:9]), ("gzip", np.s_[3:20, 2:9]), ("big", np.s_[:4, :])),
        *(("group/big", np.s_[30:, 5:]), ("strings", np.s_[1:,]), ("scalar", ())),
    ],
)
def test_a_leaf_on_a_gpu_reads_and_writes_memory_of_the_gpu(path, tmp_path, name, slab, stream):
    # Legate's own tasks on a GPU need more of CUDA than the stand-in has.
    expected = by_h5py(path, name, slab)
    tile = np.asarray(expected).reshape(expected.shape or (1,))
    source = penstock_legate._Source.find(path, name, {})
    first = tuple(part.start or 0 for part in slab)
    low, high = (0,) * tile.ndim, tuple(side - 1 for side in tile.shape)
    memory = ps.DeviceArray(tile.shape, tile.dtype.newbyteorder("="))
    here = GpuTile(memory, SimpleNamespace(lo=low, hi=high))
    context = SimpleNamespace(task_stream=stream)
    penstock_legate._read_tile(context=context, tile=here, plan=pickle.dumps((source, first)))
    assert np.array_equal(memory.numpy(), tile)

    with h5py.File(tmp_path / "made.h5", "w", libver="v110") as file:
        kind = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        kind.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        file.create_dataset("x", tile.shape, tile.dtype.newbyteorder("="), dcpl=kind)
    plan = pickle.dumps((str(tmp_path / "made.h5"), "x"))
    penstock_legate._write_tile(context=context, tile=here, plan=plan)
    assert np.array_equal(by_h5py(tmp_path / "made.h5", "x"), tile)


@pytest.mark.usefixtures("leaves")
@pytest.mark.parametrize("name", ["contiguous", "gzip", "group/big"])
@pytest.mark.parametrize("sides", [(10, 8), (5, 4), (37, 11), (100, 1)])
def test_batches_cover_the_dataset_once_in_c_order(path, name, sides):
    whole = by_h5py(path, name)
    starts = []
    for batch, start in from_file_batched(path, name, sides):
        ends = tuple(
            min(at + n, side) for at, n, side in zip(start, sides, whole.shape, strict=True)
        )
        part = tuple(map(slice, start, ends))
        assert np.array_equal(values(batch), whole[part])
        starts.append(start)
    rows, columns = (range(0, side, n) for side, n in zip(whole.shape, sides, strict=True))
    assert starts == [(row, column) for row in rows for column in columns]


def test_an_array_without_elements_has_no_batches(path):
    assert list(from_file_batched(path, "empty", (2, 2))) == []


def test_a_scalar_is_one_batch(path):
    ((batch, start),) = from_file_batched(path, "scalar", ())
    assert values(batch).tolist() == [5.5]
    assert start == ()


@pytest.mark.parametrize("sides", [(0, 1), (-1, 2)])
def test_empty_batches_are_refused_by_the_call(path, sides):
    with pytest.raises(ps.InvalidError, match="has no elements"):
        from_file_batched(path, "gzip", sides)


def test_batches_of_other_dimensions_are_refused_by_the_call(path):
    with pytest.raises(ps.InvalidError, match=r"has 1 dimensions, and .* has 2"):
        from_file_batched(path, "gzip", (3,))


@pytest.mark.usefixtures("leaves")
@pytest.mark.parametrize("name", [*NUMBERS, "strings", "utf8"])
def test_what_is_written_is_what_h5py_reads(path, tmp_path, name):
    to_file(from_file(path, name), tmp_path / "copy.h5", "some/where")
    expected = by_h5py(path, name)
    with h5py.File(tmp_path / "copy.h5") as file:
        found = file["some/where"]
        assert found.dtype == expected.dtype.newbyteorder("=")
        assert found.chunks is None
        assert not found.is_virtual
        assert np.array_equal(found[()], expected)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["copy.h5", "data.h5"]


@pytest.mark.parametrize(
    "change",
    [
        lambda array: array[3:20, 2:],
        lambda array: array.transpose((1, 0)),
        lambda array: array.project(0, 4),
        lambda array: array.project(0, 4).promote(0, 3),
    ],
    ids=["slice", "transpose", "project", "promote"],
)
def test_an_array_that_is_a_view_is_written(path, tmp_path, change):
    array = change(from_file(path, "gzip"))
    to_file(array, tmp_path / "copy.h5", "x")
    assert np.array_equal(by_h5py(tmp_path / "copy.h5", "x"), values(array))


def test_a_store_without_dimensions_is_written_as_a_scalar(tmp_path):
    store = RUNTIME.create_store(core.float32, ())
    RUNTIME.issue_fill(store, 3.0)
    to_file(store, tmp_path / "made.h5", "x")
    assert by_h5py(tmp_path / "made.h5", "x") == 3
    with h5py.File(tmp_path / "made.h5") as file:
        assert file["x"].shape == ()


@pytest.mark.parametrize(
    "make",
    [
        lambda: RUNTIME.create_store_from_scalar(core.Scalar(2.5, core.float64)),
        lambda: RUNTIME.create_store_from_buffer(core.float64, (1,), np.array([2.5]), True),
    ],
    ids=["scalar", "attached"],
)
def test_a_store_of_any_origin_is_written(tmp_path, make):
    to_file(make(), tmp_path / "made.h5", "x")
    assert by_h5py(tmp_path / "made.h5", "x").tolist() == [2.5]


def test_a_relaxed_streaming_scope_writes_and_reads(tmp_path):
    mode = core.StreamingMode.RELAXED
    with core.Scope(parallel_policy=core.ParallelPolicy(streaming_mode=mode)):
        store = RUNTIME.create_store(core.float32, (50, 20))
        RUNTIME.issue_fill(store, 2.0)
        to_file(store, tmp_path / "made.h5", "x")
        found = values(from_file(tmp_path / "made.h5", "x"))
    assert found.shape == (50, 20)
    assert (found == 2).all()


def test_an_object_with_legates_data_interface_is_written(path, tmp_path):
    table = core.Table.from_arrays(["only"], [from_file(path, "gzip")])
    to_file(table, tmp_path / "copy.h5", "x")
    assert np.array_equal(by_h5py(tmp_path / "copy.h5", "x"), WHOLE)


def test_several_leaves_write_each_element_once(tmp_path, tiles):
    store = RUNTIME.create_store(core.float64, (2000, 1000))
    RUNTIME.issue_fill(store, 2.5)
    to_file(store, tmp_path / "made.h5", "x")
    if RUNTIME.get_machine().count() > 1:
        assert len(tiles) > 1
    assert (counts(tiles, (2000, 1000)) == 1).all()
    assert (by_h5py(tmp_path / "made.h5", "x") == 2.5).all()


def test_what_tasks_have_yet_to_compute_is_written(tmp_path):
    store = RUNTIME.create_store(core.int64, (500, 300))
    for number in range(20):
        RUNTIME.issue_fill(store, number)
    to_file(store, tmp_path / "made.h5", "x")
    RUNTIME.issue_fill(store, -1)
    assert (by_h5py(tmp_path / "made.h5", "x") == 19).all()


def test_the_file_of_before_is_replaced(path):
    array = from_file(path, "gzip")
    to_file(array, path, "only")
    with h5py.File(path) as file:
        assert list(file) == ["only"]
        assert np.array_equal(file["only"][()], WHOLE)


def test_missing_folders_are_made(path, tmp_path):
    to_file(from_file(path, "gzip"), tmp_path / "a" / "b" / "c.h5", "x")
    assert np.array_equal(by_h5py(tmp_path / "a" / "b" / "c.h5", "x"), WHOLE)


def test_a_relative_path_is_that_of_the_caller(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    to_file(from_file("data.h5", "gzip"), "copy.h5", "x")
    assert np.array_equal(by_h5py(tmp_path / "copy.h5", "x"), WHOLE)


@pytest.mark.parametrize("mode", ["IMMEDIATE", "DEFERRED"])
def test_a_leaf_that_fails_leaves_the_file_of_before(path, monkeypatch, mode):
    array = from_file(path, "gzip")
    before = path.read_bytes()

    def fail(*_):
        raise OSError(28, "no space")

    monkeypatch.setattr(penstock_legate, "_memory", fail)
    # What is deferred are errors of reads. A file that is not complete is told at once.
    scope = core.Scope(exception_mode=core.ExceptionMode[mode])
    with scope, pytest.raises(OSError, match="no space"):
        to_file(array, path, "x")
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == ["data.h5"]


def test_a_dataset_that_cannot_be_created_leaves_no_file(path, tmp_path):
    with pytest.raises(ValueError, match="name"):
        to_file(from_file(path, "gzip"), tmp_path / "copy.h5", ".")
    assert [entry.name for entry in tmp_path.iterdir()] == ["data.h5"]


def test_a_path_that_is_a_folder_is_refused(path, tmp_path):
    with pytest.raises(ps.InvalidError, match="is a folder"):
        to_file(from_file(path, "gzip"), tmp_path, "x")


@pytest.mark.parametrize("stream", ["array", "store"])
def test_an_unbound_array_is_refused(tmp_path, stream):
    make = RUNTIME.create_array if stream == "array" else RUNTIME.create_store
    with pytest.raises(ps.InvalidError, match="unbound"):
        to_file(make(core.float32, ndim=1), tmp_path / "x.h5", "x")
    assert not list(tmp_path.iterdir())


def test_an_array_with_a_null_mask_is_refused(tmp_path):
    array = RUNTIME.create_array(core.float32, (3,), nullable=True)
    with pytest.raises(ps.InvalidError, match="null mask"):
        to_file(array, tmp_path / "x.h5", "x")


def test_a_structure_is_refused(tmp_path):
    store = RUNTIME.create_store(core.struct_type([core.int8, core.float64]), (3,))
    with pytest.raises(ps.IncompatibleError, match="numbers"):
        to_file(store, tmp_path / "x.h5", "x")


def test_an_array_of_another_library_is_refused(tmp_path):
    with pytest.raises(ps.IncompatibleError, match="not an array of Legate"):
        to_file(WHOLE, tmp_path / "x.h5", "x")


def test_legates_own_reader_reads_what_was_written(path, tmp_path):
    from legate.io.hdf5 import from_file as legates_from_file

    to_file(from_file(path, "gzip"), tmp_path / "copy.h5", "x")
    assert np.array_equal(values(legates_from_file(tmp_path / "copy.h5", "x")), WHOLE)


def test_what_legates_own_writer_has_written_is_read(path, tmp_path):
    from legate.io.hdf5 import to_file as legates_to_file

    legates_to_file(from_file(path, "gzip"), tmp_path / "copy.h5", "x")
    RUNTIME.issue_execution_fence(block=True)
    with h5py.File(tmp_path / "copy.h5") as file:
        assert file["x"].is_virtual
    assert np.array_equal(values(from_file(tmp_path / "copy.h5", "x")), WHOLE)


def test_the_example_reads_computes_and_writes(tmp_path):
    example = Path(__file__).parents[2] / "examples" / "legate_read.py"
    launcher = Path(sys.executable).with_name("legate")
    done = subprocess.run(
        [launcher, "--cpus", "2", example], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "noise: (2000, 64, 32) of float32" in done.stdout
    assert "mean 0.500 from (1000, 0, 0)" in done.stdout
    assert "noise.h5.copy.h5: the same elements by h5py" in done.stdout
