"""Lists, masks and products of several of them: what ``dataset[...]`` means to NumPy.

Lists may be in any order and have repeats. h5py reads none of those, so NumPy is the oracle.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps

CASES = int(os.environ.get("PENSTOCK_TEST_LISTS", "300"))
SHAPE = (12, 7, 9)

LAYOUTS: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "chunked": {"chunks": (5, 3, 4)},
    "gzip": {"chunks": (4, 7, 2), "compression": "gzip", "shuffle": True},
    "virtual": {},
}

pytestmark = pytest.mark.usefixtures("penstock_arrays")


def contents(dtype: Any = "i4") -> np.ndarray[Any, Any]:
    return np.arange(np.prod(SHAPE), dtype=dtype).reshape(SHAPE)


def make(path: Path, layout: str, dtype: Any = "i4") -> None:
    with h5py.File(path, "w") as file:
        made = file.create_dataset("x", data=contents(dtype), **LAYOUTS[layout])
        if layout == "virtual":
            whole = h5py.VirtualLayout(SHAPE, dtype)
            whole[:6], whole[6:] = h5py.VirtualSource(made)[:6], h5py.VirtualSource(made)[6:]
            file.move("x", "source")
            whole = h5py.VirtualLayout(SHAPE, dtype)
            source = h5py.VirtualSource(file["source"])
            whole[:6], whole[6:] = source[:6], source[6:]
            file.create_virtual_dataset("x", whole)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("lists")
    paths = {layout: folder / f"{layout}.h5" for layout in LAYOUTS}
    for layout, path in paths.items():
        make(path, layout)
    return paths


@st.composite
def indices(draw: st.DrawFn, most_lists: int = 3) -> tuple[Any, ...]:
    """The argument of ``dataset[...]`` with at least one list."""
    kinds = draw(
        st.lists(st.sampled_from(["list", "mask", "slice", "int"]), min_size=1, max_size=3).filter(
            lambda kinds: 0 < sum(k in ("list", "mask") for k in kinds) <= most_lists
        )
    )
    length = draw(st.integers(0, 5))
    several = sum(kind in ("list", "mask") for kind in kinds) > 1
    found: list[Any] = []
    for kind, size in zip(kinds, SHAPE, strict=False):
        if kind == "list" or (kind == "mask" and several):
            at_most = length if several else 9
            least = length if several else 0
            numbers = st.integers(-size, size - 1)
            found.append(draw(st.lists(numbers, min_size=least, max_size=at_most)))
        elif kind == "mask":
            found.append(np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size))))
        elif kind == "int":
            found.append(draw(st.integers(-size, size - 1)))
        else:
            start, stop = draw(st.integers(0, size)), draw(st.integers(0, size))
            found.append(slice(start, stop, draw(st.integers(1, 3))))
    return tuple(found)


def expected(array: np.ndarray[Any, Any], index: tuple[Any, ...]) -> np.ndarray[Any, Any]:
    """What NumPy returns; but one list keeps its place among integers, as by h5py."""
    lists = [one for one in index if isinstance(one, (list, np.ndarray))]
    if len(lists) > 1:
        return array[as_lists(index)]
    kept = tuple(slice(one, one + 1 or None) if isinstance(one, int) else one for one in index)
    dropped = tuple(d for d, one in enumerate(index) if isinstance(one, int))
    return array[as_lists(kept)].squeeze(dropped)


def as_lists(index: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(np.array(one, int) if isinstance(one, list) else one for one in index)


@settings(max_examples=CASES, deadline=None, suppress_health_check=list(HealthCheck))
@given(index=indices(), layout=st.sampled_from(sorted(LAYOUTS)))
def test_a_read_returns_what_numpy_would(index, layout, files, memory) -> None:
    with ps.File(files[layout]) as file:
        wanted = expected(contents(), index)
        out = memory.empty(wanted.shape, "i4")
        file["x"].read(index, out=out)
        np.testing.assert_array_equal(memory.numpy(out), wanted)
        np.testing.assert_array_equal(file["x"].read(index), wanted)


@settings(max_examples=CASES // 4, deadline=None, suppress_health_check=list(HealthCheck))
@given(index=indices(), layout=st.sampled_from(["contiguous", "chunked", "gzip"]))
def test_a_write_leaves_what_numpy_would(index, layout, memory, tmp_path_factory) -> None:
    path = tmp_path_factory.mktemp("lists") / "x.h5"
    make(path, layout)
    wanted = contents()
    shape = expected(wanted, index).shape
    values = -1 - np.arange(np.prod(shape), dtype="i4").reshape(shape)
    lists = [one for one in index if isinstance(one, (list, np.ndarray))]
    if len(lists) > 1:
        wanted[as_lists(index)] = values
    else:
        kept = tuple(slice(one, one + 1 or None) if isinstance(one, int) else one for one in index)
        wanted[as_lists(kept)] = values.reshape(wanted[as_lists(kept)].shape)
    with ps.File(path, "r+") as file:
        file["x"].write(memory.array(values), index)
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["x"][...], wanted)


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_a_product_is_read_in_the_order_of_its_lists(layout, files, memory) -> None:
    for rows, columns in [([5, 0, 5], [3, 1]), ([11, 2], [0, 0, 6])]:
        for index in [
            np.ix_(rows, columns),
            (np.array(rows)[:, None], slice(None), np.array(columns)),
            (np.array(rows)[:, None], 3, np.array(columns)),
            (slice(2, 11, 3), *np.ix_(columns, [8, 4, 0])),
        ]:
            wanted = contents()[index]
            with ps.File(files[layout]) as file:
                out = memory.empty(wanted.shape, "i4")
                file["x"].read(index, out=out)
            np.testing.assert_array_equal(memory.numpy(out), wanted)


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_a_mask_of_all_dimensions_is_read_in_c_order(layout, files, memory) -> None:
    mask = np.random.default_rng(3).random(SHAPE) < 0.3
    wanted = contents()[mask]
    with ps.File(files[layout]) as file:
        out = memory.empty(wanted.shape, "i4")
        file["x"].read(mask, out=out)
        np.testing.assert_array_equal(file["x"].read(mask[:, :, 0]), contents()[mask[:, :, 0]])
    np.testing.assert_array_equal(memory.numpy(out), wanted)


def test_a_list_of_two_dimensions_gives_the_result_both(files, memory) -> None:
    index = (slice(None), np.array([[6, 0], [3, 3]]))
    with ps.File(files["gzip"]) as file:
        out = memory.empty((12, 2, 2, 9), "i4")
        file["x"].read(index, out=out)
    np.testing.assert_array_equal(memory.numpy(out), contents()[index])


def test_elements_arrive_in_an_array_of_any_strides(files) -> None:
    out = np.zeros((9, 4, 7), "i4").transpose(1, 2, 0)
    with ps.File(files["chunked"]) as file:
        file["x"].read(([8, 1, 8, 3],), out=out)
    np.testing.assert_array_equal(out, contents()[[8, 1, 8, 3]])


@pytest.mark.parametrize("kind", ["strings", "arrays"])
def test_what_only_hdf5_reads_comes_in_the_same_order(tmp_path, kind) -> None:
    dtype = h5py.string_dtype() if kind == "strings" else h5py.vlen_dtype("i4")
    values = np.empty((5, 4), object)
    for at in np.ndindex(values.shape):
        number = at[0] * 4 + at[1]
        values[at] = str(number) if kind == "strings" else np.arange(number + 1, dtype="i4")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        made = file.create_dataset("x", values.shape, dtype)
        for at in np.ndindex(values.shape):
            made[at] = values[at]
    with ps.File(tmp_path / "x.h5") as file:
        for index in [
            ([4, 0, 4], slice(1, 3)),
            (slice(None), [3, 3, 0]),
            np.ix_([2, 1], [3, 0]),
            ([2, 1, 2], [3, 0, 3]),
            (2, [3, 0, 3]),
        ]:
            found = file["x"].read(index)
            assert found.shape == values[index].shape
            for one, wanted in zip(found.flat, values[index].flat, strict=True):
                if kind == "strings":
                    one = one.decode()
                np.testing.assert_array_equal(one, wanted)


def test_what_only_hdf5_writes_arrives_in_the_same_order(tmp_path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", (5,), h5py.string_dtype())
    with ps.File(tmp_path / "x.h5", "r+") as file:
        file["x"].write(np.array(["a", "b", "c"], object), ([4, 1, 4],))
        assert [one.decode() for one in file["x"].read()] == ["", "b", "", "", "c"]


def test_single_elements_that_only_hdf5_reads_take_no_others(tmp_path) -> None:
    values = np.array([[f"{row}{column}" for column in range(5)] for row in range(5)], object)
    kind = h5py.string_dtype()
    with h5py.File(tmp_path / "x.h5", "w") as file:
        made = file.create_dataset("x", data=values, dtype=kind, chunks=(1, 1), compression="gzip")
        made.id.write_direct_chunk((2, 2), b"no chunk of gzip")
    with ps.File(tmp_path / "x.h5") as file:
        with pytest.raises(OSError, match="filter"):
            file["x"].read((2, 2))
        for index in [([4, 0, 4], [4, 0, 4]), (np.array([[0, 4], [3, 1]]), [1, 3])]:
            assert np.char.decode(file["x"].read(index).astype("S")).tolist() == (
                values[index].tolist()
            )


@pytest.mark.parametrize(
    "index", [(), ([3, 1],), ([3, 1], [1, 2]), np.ix_([3, 1], [2, 1]), np.ones((5, 4), bool)]
)
@pytest.mark.parametrize("kind", ["i4", h5py.string_dtype()])
def test_a_write_to_a_file_that_is_open_for_reading_says_so(tmp_path, index, kind) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", (5, 4), kind)
    with ps.File(tmp_path / "x.h5") as file:
        for write in (file["x"].write, file["x"].write_async):
            with pytest.raises(OSError, match="is not open for writing"):
                write("1" if kind != "i4" else 1, index)


@pytest.mark.parametrize("index", [([0, 12],), (slice(None), [-8]), ([0, 1], [0, 1, 2])])
def test_lists_that_do_not_fit_are_index_errors(index, files) -> None:
    with ps.File(files["chunked"]) as file, pytest.raises(IndexError):
        file["x"].read(index)


def test_a_value_is_broadcast_to_the_listed_rows(tmp_path, memory) -> None:
    make(tmp_path / "x.h5", "gzip")
    wanted = contents()
    wanted[[7, 2, 7]] = 5
    wanted[:, [3, 1]] = np.arange(9, dtype="i4")
    with ps.File(tmp_path / "x.h5", "r+") as file:
        file["x"].write(5, ([7, 2, 7],))
        file["x"].write(memory.array(np.arange(9, dtype="i4")), (slice(None), [3, 1]))
        with pytest.raises(TypeError, match="broadcast"):
            file["x"].write(np.zeros((4, 7, 9), "i4"), ([7, 2, 7],))
        np.testing.assert_array_equal(file["x"].read(), wanted)


MASK = np.random.default_rng(6).random(SHAPE) < 0.2


@pytest.mark.parametrize(
    "index",
    [np.s_[2:9], ([7, 2, 7],), np.s_[:, [3, 1], 4], np.ix_([7, 2], [3, 1]), ([7, 2], [3, 1]), MASK],
)
def test_a_value_may_have_more_leading_dimensions_of_one(index, tmp_path, memory) -> None:
    make(tmp_path / "x.h5", "gzip")
    wanted = contents()
    shape = (1, 1, *wanted[index].shape)
    values = -1 - np.arange(np.prod(shape), dtype="i4").reshape(shape)
    wanted[index] = values[0, 0]
    with ps.File(tmp_path / "x.h5", "r+") as file:
        file["x"].write(memory.array(values), index)
        np.testing.assert_array_equal(file["x"].read(), wanted)
        with pytest.raises(TypeError, match="broadcast"):
            file["x"].write(np.ones((2, *shape[1:]), "i4"), index)


@pytest.mark.parametrize(
    "index", [([3, 1, 3],), np.s_[2, [3, 0]], np.ix_([4, 2], [3, 1]), ([4, 2], [3, 1])]
)
def test_one_array_is_broadcast_to_elements_that_are_arrays(index, tmp_path, memory) -> None:
    wanted = np.arange(5 * 4 * 2, dtype="i4").reshape(5, 4, 2)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", (5, 4), np.dtype(("i4", (2,))))[...] = wanted
    with ps.File(tmp_path / "x.h5", "r+") as file:
        for values in (np.array([-1, -2], "i4"), np.array([[-3, -4]], "i4")):
            wanted[index] = values
            file["x"].write(memory.array(values), index)
            np.testing.assert_array_equal(file["x"].read(), wanted)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2"])
def test_numbers_that_numpy_lacks_are_broadcast_to_single_elements(dtype, tmp_path) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype))
    wanted = np.arange(24).reshape(4, 6).astype(kind)
    index = ([2, 0, 3], [5, 1, 5])
    with ps.File(tmp_path / "x.h5", "w") as file:
        file.create("x", data=wanted)
        wanted[index] = kind.type(-1)
        file["x"].write(np.array([-1], kind), index)
        np.testing.assert_array_equal(file["x"].read(dtype=dtype), wanted)


def test_a_row_is_broadcast_where_an_integer_selects(tmp_path, memory) -> None:
    make(tmp_path / "x.h5", "chunked")
    wanted = contents()
    wanted[:, 2:5, 6] = [7, 8, 9]
    with ps.File(tmp_path / "x.h5", "r+") as file:
        file["x"].write(memory.array(np.array([7, 8, 9], "i4")), np.s_[:, 2:5, 6])
        np.testing.assert_array_equal(file["x"].read(), wanted)


def test_values_of_each_type_go_to_their_indices(tmp_path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("arrays", (5,), h5py.vlen_dtype("i4"))
        file.create_dataset("structures", (5,), [("a", "i4"), ("b", "f8")])
        file.create_dataset("inner", (5,), np.dtype(("i4", (2,))))
        file.create_dataset("texts", (5,), "S3")
    with ps.File(tmp_path / "x.h5", "r+") as file:
        file["arrays"].write([np.array([1, 2]), np.array([3, 4])], [3, 1])
        file["structures"].write((1, 2.0), [3, 1])
        file["inner"].write([[11, 12], [13, 14]], [3, 1])
        file["texts"].write(["ab", "cd"], [3, 1])
        assert [list(one) for one in file["arrays"].read()[[1, 3]]] == [[3, 4], [1, 2]]
        assert file["structures"].read()[[1, 3]].tolist() == [(1, 2.0)] * 2
        assert file["inner"].read()[[1, 3]].tolist() == [[13, 14], [11, 12]]
        assert file["texts"].read()[[1, 3]].tolist() == [b"cd", b"ab"]


@pytest.mark.parametrize("is_small", [True, False])
def test_inner_dimensions_stay_with_the_elements(tmp_path, monkeypatch, is_small) -> None:
    if not is_small:
        monkeypatch.setattr("penstock.hdf5.small.LIMIT", 0)
    values = np.arange(5 * 4 * 2, dtype="i4").reshape(5, 4, 2)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", (5, 4), np.dtype(("i4", (2,))))[...] = values
    with ps.File(tmp_path / "x.h5") as file:
        for index in [
            np.s_[[3, 1]],
            np.s_[3:1, [1, 0]],
            np.s_[3:1, np.array([[1]])],
            np.s_[[3, 1, 3], [0, 2, 0]],
            np.s_[:, np.array([[1, 0]])],
        ]:
            np.testing.assert_array_equal(file["x"].read(index), values[index])


@pytest.mark.parametrize("kind", ["i1", "u1", "i2"])
def test_lists_may_have_a_short_type(tmp_path, memory, kind) -> None:
    values = np.arange(40_000, dtype="i4")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = values
    index = np.array([3, 1, 120] if kind == "u1" else [3, -1, 120], kind)
    with ps.File(tmp_path / "x.h5") as file:
        out = memory.empty((3,), "i4")
        file["x"].read((index,), out=out)
    np.testing.assert_array_equal(memory.numpy(out), values[index])


def test_a_long_list_that_hdf5_must_read_takes_no_time_of_its_square(tmp_path) -> None:
    index = np.sort(np.random.default_rng(4).choice(200_000, 30_000, replace=False))
    with h5py.File(tmp_path / "x.h5", "w", driver="core") as file:
        file["x"] = np.arange(200_000, dtype="i4")
        out = np.empty(len(index), "i4")
        began = time.perf_counter()
        ps.read(file["x"], index, out=out)
        assert time.perf_counter() - began < 10  # it was 30 seconds
    np.testing.assert_array_equal(out, index)


def test_an_ellipsis_separates_lists_even_if_it_selects_nothing(tmp_path):
    array = np.arange(60).reshape(5, 4, 3)
    with ps.File(tmp_path / "f.h5", "w") as file:
        file["x"] = array
        for index in (np.s_[:, [0], ..., [1]], np.s_[:, [0, 2], [1, 0]], np.s_[..., [0], [1]]):
            np.testing.assert_array_equal(file["x"][index], array[index])


def test_a_list_outside_the_dataset_is_no_error_where_nothing_is_read(tmp_path):
    with ps.File(tmp_path / "f.h5", "w") as file:
        file["x"] = np.zeros((3, 3))
        assert file["x"][0:0, [0, 1, 2, 3]].shape == file["x"].h5py[0:0, [0, 1, 2, 3]].shape
        with pytest.raises(IndexError):
            file["x"][0:1, [0, 1, 2, 3]]


@pytest.mark.parametrize("index", [([0], []), ([], [7]), ([-9], [], 1)])
def test_lists_that_are_broadcast_to_nothing_are_not_looked_at(tmp_path, index) -> None:
    with ps.File(tmp_path / "f.h5", "w") as file:
        for shape in ((3, 4), (0, 4), (3, 0), (2, 3, 4)):
            if len(index) > len(shape):
                continue
            file[str(shape)] = np.zeros(shape)
            assert file[str(shape)][index].shape == np.zeros(shape)[index].shape


@pytest.mark.parametrize("size", [1000, 100_000])
@pytest.mark.parametrize("index", [np.array([-66, -50], "i1"), np.array([-50, 3, -66], "i2")])
def test_negative_indices_of_short_types_are_read_at_every_size(tmp_path, size, index) -> None:
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file["x"] = np.arange(size)
    with ps.File(tmp_path / "f.h5") as file:
        expected = np.arange(size)[index]
        assert file["x"][index].tolist() == expected.tolist()
        assert file["x"].read(index).tolist() == expected.tolist()
    with ps.File(tmp_path / "f.h5", "r+") as file:
        file["x"][index] = 7
        assert (file["x"][index] == 7).all()


def test_an_empty_slice_may_have_any_step(tmp_path) -> None:
    with ps.File(tmp_path / "f.h5", "w") as file:
        file["x"] = np.arange(1000)
        for part in (np.s_[923 : 222 : 10**20], np.s_[5 : 5 : 10**20]):
            assert file["x"].read_async(part).wait().tolist() == []


RECORD = np.dtype([("a", "i4"), ("b", "S3")])


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("S5", b"x"),
        ("S5", "x"),
        ("S5", [b"x", b"yz"]),
        (RECORD, (3, b"x")),
        (RECORD, [(3, b"x"), (4, b"y")]),
        ("V3", np.void(b"abc")),
    ],
    ids=str,
)
@pytest.mark.parametrize("index", [([1, 2], [3, 3]), ([3, 1], 2), np.ix_([1, 0], [4, 2])], ids=str)
def test_one_value_goes_to_the_elements_of_several_lists(tmp_path, kind, value, index) -> None:
    wanted = np.zeros((4, 5), kind)
    wanted[index] = value
    with ps.File(tmp_path / "x.h5", "w") as file:
        made = file.create("x", data=np.zeros((4, 5), kind))
        made[index] = value
        np.testing.assert_array_equal(made[...], wanted)


@pytest.mark.parametrize("count", [17, 100, 1024])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_rows_far_from_each_other_are_read_one_by_one_and_copied_at_once(tmp_path, device, count):
    rows = np.random.default_rng(count).permutation(4000)[:count]
    numbers = np.arange(4000 * 256, dtype="f4").reshape(4000, 256)
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file["x"] = numbers
    with ps.File(tmp_path / "f.h5") as file:
        found = file["x"].read(rows, device=device)
    report = ps.last_report()
    assert report is not None
    assert report.threads == 1
    assert report.copies == (device == "cuda")
    host = found if device == "cpu" else found.numpy()
    assert np.array_equal(host, numbers[rows])
