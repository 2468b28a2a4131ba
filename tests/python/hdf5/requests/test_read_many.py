"""Many datasets as one request, with h5py as the oracle."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from h5py._objects import phil
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.hdf5 import many

CASES = int(os.environ.get("PENSTOCK_TEST_MANY", "60"))
SHAPE = (12, 7, 9)

LAYOUTS: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "raw": {"chunks": (5, 3, 4)},
    "gzip": {"chunks": (4, 7, 2), "compression": "gzip", "shuffle": True},
    "lzf": {"chunks": (6, 7, 9), "compression": "lzf"},
}

pytestmark = pytest.mark.usefixtures("penstock_arrays")


def contents(number: int, dtype: Any = "i4") -> np.ndarray[Any, Any]:
    return (np.arange(np.prod(SHAPE)) + 1000 * number).astype(dtype).reshape(SHAPE)


def make(path: Path) -> None:
    """Make a file with datasets of every layout, type and shape."""
    with h5py.File(path, "w") as file:
        for number, (layout, arguments) in enumerate(LAYOUTS.items()):
            for dtype in ("i4", ">f8", "u1"):
                data = contents(number, dtype)
                file.create_dataset(f"{layout}/{dtype}", data=data, **arguments)
        compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        compact.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple(SHAPE)
        made = h5py.h5d.create(
            file.id, b"compact", h5py.h5t.py_create(np.dtype("i4")), space, dcpl=compact
        )
        h5py.Dataset(made)[...] = contents(7)
        whole = h5py.VirtualLayout(SHAPE, "i4")
        for name, rows in (("contiguous", slice(0, 6)), ("gzip", slice(6, 12))):
            whole[rows] = h5py.VirtualSource(file[f"{name}/i4"])[rows]
        file.create_virtual_dataset("virtual", whole)
        with open(path.with_suffix(".raw"), "wb") as raw:
            contents(8).tofile(raw)
        external = [(str(path.with_suffix(".raw")), 0, h5py.h5f.UNLIMITED)]
        file.create_dataset("external", SHAPE, "i4", external=external)
        file.create_dataset("unwritten", SHAPE, "i4", fillvalue=5)
        file.create_dataset("unwritten chunks", SHAPE, "i4", chunks=(4, 7, 9), fillvalue=6)
        file.create_dataset("empty", (0, 3), "i4")
        file.create_dataset("scalar", data=3.5)
        file.create_dataset("null", data=h5py.Empty("f4"))
        file.create_dataset("text", data=["a", "bc", "def"])
        file.create_dataset("flags", data=np.arange(30) % 3 == 0)
        file.create_dataset("vectors", data=np.ones(5, np.dtype(("f4", (3,)))))
        points = np.zeros(20, [("x", "f8"), ("n", "i4")])
        points["x"], points["n"] = np.arange(20) / 4, np.arange(20)
        file.create_dataset("points", data=points)


NUMBERS = [
    *(f"{layout}/{dtype}" for layout in LAYOUTS for dtype in ("i4", ">f8", "u1")),
    "compact",
    "virtual",
    "external",
    "unwritten",
    "unwritten chunks",
]
OTHERS = ["empty", "scalar", "null", "text", "flags", "vectors", "points"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("many") / "many.h5"
    make(found)
    return found


def equal(found: Any, expected: Any) -> None:
    if isinstance(expected, h5py.Empty):
        assert found == expected
        return
    assert np.asarray(found).dtype == np.asarray(expected).dtype
    np.testing.assert_array_equal(found, expected)


def test_every_layout_is_read_by_name_as_h5py_reads_it(path):
    names = NUMBERS + OTHERS
    with ps.File(path) as file:
        found = file.read_many(names)
        assert len(found) == len(names)
        for name, array in zip(names, found, strict=True):
            equal(array, file.h5py[name][()])


def test_every_layout_is_read_from_open_datasets(path):
    with h5py.File(path) as file:
        datasets = [file[name] for name in NUMBERS + OTHERS]
        for dataset, array in zip(datasets, ps.read_many(datasets), strict=True):
            equal(array, dataset[()])


@pytest.mark.gpu
def test_every_layout_is_read_into_gpu_memory(path):
    names = [*NUMBERS, "empty", "flags", "vectors"]
    with ps.File(path) as file:
        for name, array in zip(names, file.read_many(names, device="cuda"), strict=True):
            assert isinstance(array, ps.DeviceArray)
            expected = file.h5py[name][()]
            assert array.shape == expected.shape
            np.testing.assert_array_equal(array.numpy(), expected, err_msg=name)


def test_arrays_that_are_given_are_filled_in_any_memory(path, memory):
    with ps.File(path) as file:
        given = [memory.empty(SHAPE, file[name].dtype.newbyteorder("=")) for name in NUMBERS]
        found = file.read_many(NUMBERS, out=given)
        for name, array, out in zip(NUMBERS, found, given, strict=True):
            assert array is out
            np.testing.assert_array_equal(memory.numpy(out), file.h5py[name][()], err_msg=name)


@pytest.mark.gpu
def test_arrays_that_are_given_may_be_in_different_memories(path):
    names = ["gzip/i4", "contiguous/i4", "raw/i4", "compact"]
    given = [ps.DeviceArray(SHAPE, "i4") if n % 2 else np.empty(SHAPE, "i4") for n in range(4)]
    with ps.File(path) as file:
        file.read_many(names, out=given)
        for name, out in zip(names, given, strict=True):
            array = out.numpy() if isinstance(out, ps.DeviceArray) else out
            np.testing.assert_array_equal(array, file.h5py[name][()])


def test_arrays_with_strides_are_filled(path):
    whole = np.zeros((12, 14, 9), "i4")
    columns = np.zeros((9, 7, 12), "i4").T
    with ps.File(path) as file:
        file.read_many(["gzip/i4", "raw/i4"], out=[whole[:, ::2], columns])
        np.testing.assert_array_equal(whole[:, ::2], file.h5py["gzip/i4"][()])
        np.testing.assert_array_equal(columns, file.h5py["raw/i4"][()])
    assert not whole[:, 1::2].any()


SELECTIONS = st.one_of(
    st.just(()),
    st.just(Ellipsis),
    st.integers(-12, 11),
    st.tuples(st.integers(0, 11), st.slices(7)).filter(lambda s: (s[1].step or 1) > 0),
    st.lists(st.integers(0, 11), min_size=1, max_size=5, unique=True).map(sorted),
    st.builds(slice, st.integers(0, 6), st.integers(6, 12), st.integers(1, 4)),
    st.lists(st.booleans(), min_size=12, max_size=12).map(lambda mask: (np.array(mask),)),
)


@settings(
    max_examples=CASES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    pieces=st.lists(st.tuples(st.sampled_from(NUMBERS), SELECTIONS), max_size=8),
    by_name=st.booleans(),
    given_arrays=st.booleans(),
)
def test_any_pieces_are_what_numpy_selects(path, pieces, by_name, given_arrays):
    with ps.File(path) as file:
        expected = [file.h5py[name][()][selection] for name, selection in pieces]
        out = [np.zeros_like(array) for array in expected] if given_arrays else None
        if by_name:
            found = file.read_many(pieces, out=out)
        else:
            found = ps.read_many([(file[name], part) for name, part in pieces], out=out)
        for array, one in zip(found, expected, strict=True):
            equal(array, one)


@pytest.mark.gpu
def test_parts_are_read_into_gpu_memory(path):
    parts = [np.s_[2:9], np.s_[:, 3], np.s_[[7, 1, 1], :, 2:5], 4]
    with ps.File(path) as file:
        pieces = [(name, part) for name in NUMBERS for part in parts]
        for (name, part), array in zip(pieces, file.read_many(pieces, device="cuda"), strict=True):
            np.testing.assert_array_equal(array.numpy(), file.h5py[name][()][part], err_msg=name)


def test_fields_of_structures_are_read(path):
    with ps.File(path) as file:
        found = file.read_many([("points", "x"), ("points", np.s_[3:7, "n"]), "points"])
        equal(found[0], file.h5py["points"]["x"])
        equal(found[1], file.h5py["points"][3:7, "n"])
        equal(found[2], file.h5py["points"][()])


def test_elements_are_converted_to_the_type_requested(path):
    names = NUMBERS
    with ps.File(path) as file:
        for name, array in zip(names, file.read_many(names, dtype="f4"), strict=True):
            assert array.dtype == np.float32
            np.testing.assert_array_equal(array, file.h5py[name][()].astype("f4"), err_msg=name)


def test_datasets_of_several_files_and_names_of_files_are_read(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as a, h5py.File(tmp_path / "b.h5", "w") as b:
        a["x"], b["x"] = np.arange(1000), np.arange(1000, 3000)
    with ps.File(tmp_path / "a.h5") as file:
        found = ps.read_many([f"{tmp_path}/b.h5:x", file["x"], (f"{tmp_path}/b.h5:x", np.s_[5:8])])
    equal(found[0], np.arange(1000, 3000))
    equal(found[1], np.arange(1000))
    equal(found[2], np.arange(1005, 1008))


def test_a_dataset_behind_an_external_link_is_read(tmp_path):
    with h5py.File(tmp_path / "target.h5", "w") as target:
        target["x"] = np.arange(500)
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file["here"] = np.arange(10)
        file["there"] = h5py.ExternalLink("target.h5", "/x")
        file["soft"] = h5py.SoftLink("/here")
    with ps.File(tmp_path / "f.h5") as file:
        found = file.read_many(["there", "here", "soft"])
    equal(found[0], np.arange(500))
    equal(found[1], np.arange(10))
    equal(found[2], np.arange(10))


@pytest.fixture
def linked(tmp_path):
    """A file that is open for reading, and the target of its external links, open for writing."""
    with h5py.File(tmp_path / "target.h5", "w") as target:
        target.create_dataset("raw", data=np.zeros(300_000), chunks=(100,))
        target.create_dataset("gzip", data=np.zeros(3000), chunks=(100,), compression=1)
        target.create_dataset("flat", data=np.zeros(3000))
    with h5py.File(tmp_path / "f.h5", "w") as file:
        for name in ("raw", "gzip", "flat"):
            file[name] = h5py.ExternalLink("target.h5", f"/{name}")
        file["here"] = np.arange(10)
    with h5py.File(tmp_path / "target.h5", "r+") as target, ps.File(tmp_path / "f.h5") as file:
        yield file, target


def test_what_was_written_to_the_target_of_an_external_link_is_read(linked, memory):
    file, target = linked
    names = ["raw", "here", "gzip", "flat"]
    kept = [file[name] for name in names]
    for value in range(1, 4):
        for name in ("raw", "gzip", "flat"):
            target[name][value : value + 500] = value
        out = [memory.empty(dataset.shape, dataset.dtype) for dataset in kept]
        file.read_many(names, out=out)
        for found, name in zip(out, names, strict=True):
            equal(memory.numpy(found), (target if name in target else file.h5py)[name][()])
        for dataset, found in zip(kept, ps.read_many(kept), strict=True):
            equal(found, dataset.h5py[()])
            equal(dataset[value : value + 3], dataset.h5py[value : value + 3])


def test_the_target_of_an_external_link_is_not_written_while_it_is_read(linked, monkeypatch):
    file, _ = linked
    finish, free = many.transfer.finish, []

    def is_free() -> bool:
        taken = []

        def take() -> None:
            taken.append(phil.acquire(blocking=False))
            if taken[0]:
                phil.release()

        thread = threading.Thread(target=take)
        thread.start()
        thread.join()
        return bool(taken[0])

    def observed(made: Any) -> Any:
        free.append(is_free())
        return finish(made)

    monkeypatch.setattr(many.transfer, "finish", observed)
    file.read_many(["raw", "here"])
    assert free == [False]


def test_a_group_reads_names_within_it(path):
    with ps.File(path) as file:
        found = file["gzip"].read_many(["i4", "/contiguous/u1"])
        equal(found[0], file.h5py["gzip/i4"][()])
        equal(found[1], file.h5py["contiguous/u1"][()])


def test_an_empty_list_is_read(path):
    assert ps.read_many([]) == []
    with ps.File(path) as file:
        assert file.read_many([]) == []
        assert file.read_many([], device="cpu", out=[]) == []


@pytest.mark.parametrize("user_block", [0, 512])
def test_a_file_that_is_being_written_is_read_as_it_is_now(tmp_path, user_block):
    with ps.File(tmp_path / "f.h5", "w", userblock_size=user_block) as file:
        for number in range(4):
            file.create_dataset(f"flat/{number}", data=np.full(50_000, number, "f4"))
            file.create_dataset(
                f"gzip/{number}", data=np.full(50_000, number), chunks=(9000,), compression="gzip"
            )
        names = [f"{kind}/{number}" for kind in ("flat", "gzip") for number in range(4)]
        for kind in ("flat", "gzip"):
            file[f"{kind}/2"][100:200] = 77
        file["flat/4"] = np.arange(3)
        found = file.read_many([*names, "flat/4"])
        for name, array in zip([*names, "flat/4"], found, strict=True):
            equal(array, file.h5py[name][()])


def test_pending_writes_come_first(tmp_path, nothing_is_small):
    with ps.File(tmp_path / "f.h5", "w") as file:
        for number in range(6):
            chunks = {"chunks": (1 << 14,), "compression": "gzip"} if number % 2 else {}
            file.create_dataset(str(number), shape=(1 << 18,), dtype="i4", **chunks)
        data = [np.full(1 << 18, number + 1, "i4") for number in range(6)]
        pending = [file[str(number)].write_async(data[number]) for number in range(6)]
        found = file.read_many([str(number) for number in range(6)])
        for number, array in enumerate(found):
            np.testing.assert_array_equal(array, data[number])
        for made in pending:
            made.wait()


def test_neighbours_in_the_file_are_read_together(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        for number in range(200):
            file[f"{number:03}"] = np.full(1000, number, "f4")
    names = [f"{number:03}" for number in np.random.default_rng(1).permutation(200)]
    with ps.File(tmp_path / "f.h5") as file:
        found = file.read_many(names)
        report = ps.last_report()
    assert all((array == int(name)).all() for name, array in zip(names, found, strict=True))
    assert report.bytes == 200 * 4000
    assert report.io_calls < 100
    assert report.route == "host"


def test_a_report_counts_datasets_that_hdf5_reads(path):
    with ps.File(path) as file:
        file.read_many(["contiguous/i4", "compact"])
        report = ps.last_report()
        nbytes = contents(0).nbytes
        assert report.hdf5 == nbytes
        assert report.bytes == 2 * nbytes
        assert "some datasets through HDF5" in report.note
        file.read_many(["contiguous/i4", "text"])
        assert "1 of 2 datasets" in ps.last_report().note


def test_an_array_is_freed_with_the_last_that_shares_its_memory(path):
    with ps.File(path) as file:
        one, other = file.read_many(["contiguous/i4", "raw/i4"])
        expected = file.h5py["raw/i4"][()]
    del one
    np.testing.assert_array_equal(other, expected)


def test_a_missing_name_raises_what_h5py_raises(path):
    with ps.File(path) as file:
        with pytest.raises(KeyError, match="nowhere"):
            file.read_many(["contiguous/i4", "nowhere"])
        with pytest.raises(ps.InvalidError, match=r"gzip.*not a dataset"):
            file.read_many(["contiguous/i4", "gzip"])


@pytest.mark.parametrize(
    ("names", "out", "message"),
    [
        (None, None, "names is None, not a list"),
        ("raw/i4", None, "names is 'raw/i4', not a list"),
        (3, None, "names is 3, not a list"),
        (["raw/i4", 3], None, "piece 1: 3 is not the name"),
        (["raw/i4", None], None, "piece 1: None is not the name"),
        ([("raw/i4", 0, 1)], None, "piece 0 is a tuple of 3"),
        (["raw/i4"], (np.empty(SHAPE, "i4") for _ in range(1)), "out is a generator"),
        (["raw/i4"], "x", "out is 'x', not a list"),
        (["raw/i4"], [None], r"out\[0\]: "),
        (["raw/i4"], {0: np.empty(SHAPE, "i4")}, "out is a dict"),
    ],
)
def test_names_of_another_form_are_type_errors_with_their_number(path, names, out, message):
    with ps.File(path) as file, pytest.raises(TypeError, match=message):
        file.read_many(names, out=out)


def test_pieces_of_another_form_are_type_errors_with_their_number(path):
    with ps.File(path) as file:
        dataset = file["raw/i4"]
        for pieces, message in [
            (None, "pieces is None, not a list"),
            ("f.h5:raw/i4", "pieces is 'f.h5:raw/i4', not a list"),
            ([dataset, None], "piece 1: a NoneType is not"),
            ([dataset, (dataset, 0, 1)], "piece 1 is a tuple of 3"),
            ([dataset, (dataset,)], "piece 1 is a tuple of 1"),
            ([dataset, [dataset, 0]], "piece 1: a list is not"),
            ([dataset, (0, dataset)], "piece 1: a int is not"),
        ]:
            with pytest.raises(TypeError, match=message):
                ps.read_many(pieces)


def test_what_is_no_dataset_is_refused(path):
    with ps.File(path) as file:
        with pytest.raises(ps.IncompatibleError, match=r"not an h5py\.Dataset"):
            ps.read_many([file["contiguous/i4"], file["gzip"]])
        dataset = file["contiguous/i4"]
    with pytest.raises(ps.InvalidError, match="closed"):
        ps.read_many([dataset])


def test_arrays_that_do_not_fit_are_refused_by_the_name_of_the_dataset(path):
    with ps.File(path) as file:
        names = ["contiguous/i4", "raw/i4"]
        fits = np.empty(SHAPE, "i4")
        with pytest.raises(ps.InvalidError, match="1 arrays are given for 2"):
            file.read_many(names, out=[fits])
        with pytest.raises(ps.InvalidError, match=r"/raw/i4.*shape"):
            file.read_many(names, out=[fits, np.empty(3, "i4")])
        with pytest.raises(ps.InvalidError, match="share memory"):
            file.read_many(names, out=[fits, fits])
        with pytest.raises(ps.InvalidError, match="out or dtype"):
            file.read_many(names, out=[fits, fits.copy()], dtype="f4")
        with pytest.raises(IndexError):
            file.read_many([("raw/i4", [99])])


@pytest.mark.gpu
def test_strings_for_a_gpu_are_refused(path):
    with ps.File(path) as file, pytest.raises(ps.IncompatibleError):
        file.read_many(["contiguous/i4", "text"], device="cuda")


def test_a_damaged_chunk_is_named(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        for name in ("a", "b"):
            made = file.create_dataset(
                name, data=np.arange(1000), chunks=(1000,), compression="gzip"
            )
        place = made.id.get_chunk_info(0)
    with open(tmp_path / "f.h5", "r+b") as raw:
        raw.seek(place.byte_offset)
        raw.write(b"\xff" * place.size)
    with ps.File(tmp_path / "f.h5") as file, pytest.raises(ps.IOFailure, match="dataset /b"):
        file.read_many(["a", "b"])


def test_a_read_past_the_end_of_the_file_names_the_dataset(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        for number in range(3):
            file[f"{number}"] = np.arange(20_000)
    with ps.File(tmp_path / "f.h5") as file:
        end = file["2"].id.get_offset() + 100
        os.truncate(tmp_path / "f.h5", end)
        with pytest.raises(ps.EndOfFileError, match="dataset /2"):
            file.read_many(["0", "1", "2"])


def test_the_child_of_a_fork_reads_many(path):
    with ps.File(path) as file:
        file.read_many(["contiguous/i4"])
    child = os.fork()
    if child == 0:
        with ps.File(path) as file:
            found = file.read_many(["contiguous/i4", "gzip/i4"])
            expected = file.h5py["gzip/i4"][()]
        os._exit(0 if np.array_equal(found[1], expected) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_new_arrays_are_of_the_library_requested(path, torch):
    with ps.File(path) as file:
        names = ["contiguous/i4", "gzip/i4", "raw/u1"]
        for name, tensor in zip(names, file.read_many(names, like="torch"), strict=True):
            assert isinstance(tensor, torch.Tensor)
            np.testing.assert_array_equal(tensor.numpy(), file.h5py[name][()])
        weight = torch.ones(SHAPE, requires_grad=True)
        found = file.read_many(names, like="torch", dtype="float32")
        found[0].mul_(weight).sum().backward()
        assert weight.grad is not None


def test_new_arrays_in_host_memory_can_be_pinned(path):
    with ps.File(path) as file:
        names = ["contiguous/i4", "gzip/i4"]
        for name, array in zip(names, file.read_many(names, pin=True), strict=True):
            equal(array, file.h5py[name][()])


def test_single_elements_are_read_as_by_read(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file["x"] = np.arange(12.0).reshape(3, 4)
        file["y"] = np.arange(5)
    with ps.File(tmp_path / "f.h5") as file:
        pieces = [(file["x"], (row, 2)) for row in range(3)] * 20 + [(file["y"], 3)]
        found = ps.read_many(pieces)
        assert found == [2, 6, 10] * 20 + [3]
        assert isinstance(found[0], np.float64)
        assert ps.read_many([(file["x"], (2, 3))]) == [11]


def test_an_index_outside_a_dataset_names_the_piece(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file["a"] = file["b"] = np.arange(10)
    with (
        ps.File(tmp_path / "f.h5") as file,
        pytest.raises(IndexError, match=r"piece 1, dataset /b: .*50"),
    ):
        file.read_many(["a", ("b", 50)])


def test_a_read_of_many_is_started_without_a_wait(tmp_path: Path) -> None:
    make(tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5") as file:
        datasets = [file[f"{name}/i4"] for name in LAYOUTS]
        rows = np.array([7, 2, 2, 11])
        out = [np.full((4, *SHAPE[1:]), -1, "i4") for _ in datasets]
        started = many.start_into(datasets, [rows] * len(datasets), out, {})
        for found, array, dataset in zip(started.wait(), out, datasets, strict=True):
            assert found is array
            assert np.array_equal(found, dataset[:][rows])


def test_elements_that_were_never_written_are_zero_in_a_started_read(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", (8, 4), "f4", chunks=(1, 4), fillvalue=None)
    with h5py.File(tmp_path / "a.h5") as file:
        out = [np.ones((8, 4), "f4")]
        many.start_into([file["x"]], [()], out, {}).wait()
    assert not out[0].any()


def test_a_started_read_of_many_may_be_cancelled(tmp_path: Path) -> None:
    make(tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5") as file:
        out = [np.empty(SHAPE, "i4")]
        started = many.start_into([file["gzip/i4"]], [()], out, {})
        started.cancel()
        with suppress(ps.CancelledError):
            assert np.array_equal(started.wait()[0], file["gzip/i4"][:])


def test_a_started_read_of_a_file_that_is_written_has_ended_when_it_returns(tmp_path: Path) -> None:
    make(tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        before = file["raw/i4"][:]
        out = [np.empty(SHAPE, "i4")]
        started = many.start_into([file["raw/i4"]], [()], out, {})
        file["raw/i4"][...] = 0
        assert np.array_equal(started.wait()[0], before)


@pytest.mark.parametrize("filters", [{}, {"compression": "gzip", "chunks": (7, 6)}])
@pytest.mark.parametrize("by_name", [True, False])
def test_rows_of_one_dataset_are_those_of_h5py(tmp_path: Path, filters: Any, by_name: bool) -> None:
    values = np.arange(600, dtype=">f4").reshape(50, 12)
    with h5py.File(tmp_path / "f.h5", "w") as made:
        made.create_dataset("x", data=values, **filters)
    with ps.File(tmp_path / "f.h5") as file:
        for rows in (
            [3, -1, 3, 49, 0],
            list(range(49, -1, -1)),
            [np.uint8(7), 2, np.int64(-50), 7],
        ):
            pieces = [("x" if by_name else file["x"], row) for row in rows]
            found = file.read_many(pieces) if by_name else ps.read_many(pieces)
            for row, one in zip(rows, found, strict=True):
                expected = file["x"].h5py[int(row)]
                assert one.dtype == expected.dtype
                np.testing.assert_array_equal(one, expected)
        pieces = [("x" if by_name else file["x"], row) for row in (3, 4, 50, 6)]
        with pytest.raises(IndexError, match="piece 2, dataset /x"):
            file.read_many(pieces) if by_name else ps.read_many(pieces)
