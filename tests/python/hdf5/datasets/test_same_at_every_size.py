"""A call takes, refuses and does the same whether h5py serves it or the library does."""

from __future__ import annotations

import decimal
from collections.abc import Iterator
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pytest

import penstock as ps

SIZES = {"small": 64, "large": 40_000}
BAD_OPTIONS = ({"thread": 4}, {"threads": "many"}, {"route": "nope"}, {"block": "1"})


@pytest.fixture(params=SIZES)
def length(request) -> int:
    return SIZES[request.param]


@pytest.fixture
def file(tmp_path) -> Iterator[Any]:
    with ps.File(tmp_path / "f.h5", "w") as file:
        yield file


def dataset(file: Any, values: Any) -> Any:
    file.h5py.create_dataset("x", data=values, chunks=(16,), compression="gzip")
    return file["x"]


@pytest.mark.parametrize("options", BAD_OPTIONS, ids=str)
def test_bad_options_are_refused(file, length, options):
    made = dataset(file, np.zeros(length))
    for call in (
        lambda: made.read(**options),
        lambda: made.read(out=np.zeros(length), **options),
        lambda: made.read_async(**options),
        lambda: made.write(np.zeros(length), **options),
        lambda: made.write_async(np.zeros(length), **options),
        lambda: made.blocks(8, **options),
    ):
        with pytest.raises(ps.InvalidError):
            call()


def test_what_is_no_stream_is_refused(file, length):
    made = dataset(file, np.zeros(length))
    for call in (
        lambda: made.read(stream="x"),
        lambda: made.read(out=np.zeros(length), stream="x"),
        lambda: made.read_async(stream="x"),
        lambda: made.write(np.zeros(length), stream="x"),
        lambda: made.write(list(range(length)), stream="x"),
        lambda: made.write_async(np.zeros(length), stream="x"),
        lambda: file.create("new", data=[1, 2], stream="x"),
        lambda: file.create("new", data=np.zeros(length), stream="x"),
        lambda: file.create("new", (3,), "f4", stream="x"),
    ):
        with pytest.raises(ps.IncompatibleError, match="not a CUDA stream"):
            call()


@pytest.mark.parametrize("handle", [-1, 2**64, 2**64 + 4096])
def test_a_number_that_is_no_address_is_no_stream(file, length, handle):
    made = dataset(file, np.zeros(length))
    for call in (
        lambda: made.read(stream=handle),
        lambda: made.read_async(stream=handle),
        lambda: made.write(np.zeros(length), stream=handle),
    ):
        with pytest.raises(ps.InvalidError):
            call()


def test_blocks_refuse_what_they_cannot_do_before_the_first_one(file):
    made = dataset(file, np.zeros(64))
    with pytest.raises(ps.InvalidError):
        made.blocks(4, device="nope")
    with pytest.raises(TypeError):
        made.blocks(4, dtype="float33")


def test_an_out_whose_elements_share_memory_is_refused(tmp_path, file, length):
    made = dataset(file, np.arange(float(length)))
    made.h5py[...].tofile(tmp_path / "raw")
    shared = np.lib.stride_tricks.as_strided(np.zeros(1), (length,), (0,))
    for call in (
        lambda: made.read(out=shared),
        lambda: made.read_async(out=shared),
        lambda: ps.load(tmp_path / "raw", out=shared),
        lambda: ps.load_async(tmp_path / "raw", out=shared),
    ):
        with pytest.raises(ps.InvalidError, match="share memory"):
            call()


def test_bfloat16_tensors_are_read_and_written(file, length, torch):
    values = np.arange(length, dtype="f4") % 128
    made = dataset(file, values)
    out = torch.empty(length, dtype=torch.bfloat16)
    made.read(out=out)
    np.testing.assert_array_equal(out.to(torch.float32).numpy(), values)
    made.write(out + 1)
    np.testing.assert_array_equal(made.h5py[...], values + 1)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_numbers_become_floats_that_numpy_lacks(file, length, name):
    values = np.arange(length, dtype="f4") % 4 - 2
    found = dataset(file, values).read(dtype=name)
    assert found.dtype == getattr(ml_dtypes, name)
    np.testing.assert_array_equal(found.astype("f4"), values)


CONVERSIONS = [
    ("f8", "c16"),
    ("f4", "c8"),
    ("i4", "c16"),
    ("f8", "?"),
    ("u1", "?"),
    ("c16", "?"),
    ("?", "f8"),
    ("?", "i4"),
    ("?", "c8"),
    ("c16", "f4"),
]


def values_of(kind: str, length: int) -> Any:
    return (np.arange(length) % 3 * 2).astype(kind)


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize(("source", "target"), CONVERSIONS)
def test_numpy_converts_where_hdf5_cannot(file, length, memory, source, target):
    values = values_of(source, length)
    expected = values.astype(target)
    made = dataset(file, values)
    out = memory.empty(length, target)
    made.read(out=out)
    for found in (memory.numpy(out), made.read(dtype=target)):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found.view("u1"), expected.view("u1"))

    written = file.create("written", (length,), target)
    written.write(memory.array(values))
    np.testing.assert_array_equal(written.h5py[...].view("u1"), expected.view("u1"))


def test_numpy_converts_the_values_of_one_field(file, length):
    values = np.zeros(length, [("a", "f8"), ("b", "i4")])
    values["a"] = np.arange(length) % 2
    made = dataset(file, values)
    np.testing.assert_array_equal(made.read("a", dtype=bool), values["a"].astype(bool))
    made.write(values["a"] == 0, "b")
    np.testing.assert_array_equal(made.h5py["b"], values["a"] == 0)


class Table:
    """What pandas and xarray have: a way to make an array."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.values, dtype)


def test_write_takes_what_makes_an_array(file, length):
    made = dataset(file, np.zeros(length))
    other = file.h5py.create_dataset("other", data=np.arange(length) + 2.0)
    for values, expected in (
        (range(length), np.arange(length)),
        (Table(np.arange(length, dtype="i4") + 1), np.arange(length) + 1),
        (other, np.arange(length) + 2),
        (decimal.Decimal("0.5"), np.full(length, 0.5)),
        (np.array([decimal.Decimal(3)] * length), np.full(length, 3)),
    ):
        for wait in (lambda v: made.write(v), lambda v: made.write_async(v).wait()):
            made.h5py[...] = -1
            wait(values)
            np.testing.assert_array_equal(made.h5py[...], expected)


def test_write_refuses_what_makes_no_number(file, length):
    made = dataset(file, np.zeros(length))
    for value in (object(), {"a": 1}):
        with pytest.raises((TypeError, ValueError)):
            made.write(value)
    assert not made.h5py[...].any()


def of_strings(words):
    """An array of NumPy's strings of any length."""
    if not hasattr(np.dtypes, "StringDType"):
        pytest.skip("NumPy 2 has this type")
    return np.array(words, np.dtypes.StringDType())


@pytest.mark.parametrize(
    "of",
    [np.array, lambda words: np.array(words, object), of_strings],
    ids=["characters", "objects", "strings"],
)
def test_text_is_not_written_as_its_truth_value(file, length, of):
    made = dataset(file, np.zeros(length, bool))
    words = of((["False", "no", ""] * length)[:length])
    for write in (made.write, lambda v: made.write_async(v).wait()):
        with pytest.raises(TypeError):
            write(words)
    assert not made.h5py[...].any()


def test_truth_values_that_are_objects_are_written(file, length):
    made = dataset(file, np.zeros(length, bool))
    values = [True, False, True] * length
    made.write(np.array(values[:length], object))
    assert made.h5py[...].tolist() == values[:length]


STORED = np.dtype([("a", "i4"), ("b", "f8")])
TURNED = np.dtype([("b", "f8"), ("a", "i4")])


@pytest.mark.parametrize("selection", [np.s_[:], 3, [1, 5]], ids=["all", "one", "list"])
def test_structures_are_converted_by_the_names_of_their_fields(file, length, selection):
    made = dataset(file, np.array([(1, 2.0)] * length, STORED))
    values = made.read(selection, dtype=TURNED)
    assert (values["a"] == 1).all()
    assert (values["b"] == 2).all()
    out = np.zeros(np.shape(values), TURNED)
    made.read(selection, out=out)
    assert np.array_equal(out, values)
    assert (made.read(selection, dtype=[("b", "f4")])["b"] == 2).all()


def test_a_scalar_structure_is_converted_by_the_names_of_its_fields(file):
    file.h5py["x"] = np.array((1, 2.0), STORED)
    assert file["x"].read(dtype=TURNED).item() == (2.0, 1)
    out = np.array((7, 7, 7), [("b", "f8"), ("a", "i4"), ("c", "i4")])
    with pytest.raises(ps.InvalidError, match="fields that the dataset lacks"):
        file["x"].read(out=out)
    assert out.item() == (7, 7, 7)


@pytest.mark.parametrize("step", [1, 2])
def test_fields_that_a_dataset_lacks_are_kept_or_the_read_is_refused(file, length, step):
    made = dataset(file, np.ones(length, [("a", "i4")]))
    out = np.full(length * step, 7, [("a", "i4"), ("b", "i4")])[::step]
    if step == 1:
        made.read(out=out)
        assert (out["a"] == 1).all()
    else:
        with pytest.raises(ps.InvalidError, match="fields that the dataset lacks"):
            made.read(out=out)
    assert (out["b"] == 7).all()


NESTED = np.dtype([("x", "f8"), ("inner", TURNED), ("pair", "f8", (2,))])


@pytest.mark.parametrize("field", ["x", "pair"])
@pytest.mark.parametrize("selection", [np.s_[:], 3, [1, 5]], ids=["all", "one", "list"])
def test_hdf5_converts_the_numbers_of_a_field(file, length, field, selection):
    values = np.zeros(length, NESTED)
    values[field] = 1e10
    made = dataset(file, values)
    read = made.read((field, selection), dtype="i4")
    assert read.dtype == "i4"
    assert (read == np.iinfo("i4").max).all()
    out = np.zeros(np.shape(read), "i4")
    made.read((field, selection), out=out)
    assert np.array_equal(out, read)


def test_hdf5_converts_the_numbers_of_arrays_in_elements(file, length):
    made = file.create("x", (length,), np.dtype(("f8", (2,))))
    made.h5py[...] = np.tile([300.0, -1.0], (length, 1))
    expected = np.tile([255, 0], (length, 1))
    assert np.array_equal(made.read(dtype="u1"), expected)
    assert np.array_equal(made.read(dtype=np.dtype(("u1", (2,)))), expected)
    assert np.array_equal(made.read(dtype=made.dtype), made.h5py[()])
    with pytest.raises(ps.InvalidError, match="cannot become"):
        made.read(dtype=np.dtype(("u1", (3,))))


def test_a_field_that_is_a_structure_fills_an_array(file, length):
    values = np.zeros(length, NESTED)
    values["inner"]["a"] = 7
    made = dataset(file, values)
    out = np.zeros(length, TURNED)
    made.read("inner", out=out)
    assert np.array_equal(out, values["inner"])
    assert (made.read("inner", dtype=[("a", "f4")])["a"] == 7).all()


def test_fields_of_a_complex_number_that_it_lacks_are_zero(file, length):
    made = dataset(file, np.ones(length, "c8"))
    assert np.array_equal(
        made.read(dtype=[("i", "f4"), ("z", "f8")]), np.zeros(length, [("i", "f4"), ("z", "f8")])
    )


@pytest.mark.parametrize("blocking", [True, False])
def test_fields_that_are_not_written_are_kept(tmp_path, length, blocking):
    fields = [("a", "f4"), ("b", "f4")]
    with h5py.File(tmp_path / "f.h5", "w") as made:
        made.create_dataset("x", data=np.full(length, 7, fields), chunks=(16,))
    values = np.full(length, 2, fields)
    with ps.File(tmp_path / "f.h5", "r+") as file:
        if blocking:
            file["x"].write(values, "b")
        else:
            file["x"].write_async(values, "b").wait()
    with h5py.File(tmp_path / "f.h5") as found:
        assert (found["x"]["b"] == 2).all()
        assert (found["x"]["a"] == 7).all()


@pytest.mark.parametrize("step", [1, 2])
def test_what_lies_between_the_fields_of_an_out_is_kept(file, length, step):
    made = dataset(file, np.full(length, 5, [("a", "i4")]))
    whole = np.full(length * step, 7, STORED)
    made.read(out=whole[["a"]][::step])
    assert (whole["a"][::step] == 5).all()
    assert (whole["b"] == 7).all()
    part = whole[["a"]][::step]
    if step == 1:
        made.read_async(out=part).wait()
    else:
        with pytest.raises(ps.IncompatibleError, match="not C-contiguous"):
            made.read_async(out=part)
    assert (whole["b"] == 7).all()


@pytest.mark.parametrize("layout", ["contiguous", "chunked", "virtual"])
def test_a_list_of_truth_values_is_a_mask(file, length, layout):
    values = np.arange(length)
    made = dataset(file, values) if layout == "chunked" else file.create("base", data=values)
    if layout == "virtual":
        made = virtual(file, "base")
    mask = [number % 3 == 0 for number in range(length)]
    np.testing.assert_array_equal(made[mask], values[mask])
    np.testing.assert_array_equal(made.read((mask,)), values[mask])
    made[mask] = -1
    values[mask] = -1
    np.testing.assert_array_equal(file[made.name][...], values)


@pytest.mark.parametrize("value", ["scalar", "one", "row", "list"])
@pytest.mark.parametrize(
    "selection", [np.s_[2:5, 3:9], np.s_[:], np.s_[1::3, 2:9:2], np.s_[3]], ids=str
)
def test_a_write_of_a_virtual_dataset_repeats_values(file, length, selection, value):
    expected = np.arange(8 * length).reshape(8, length)
    file["base"] = expected
    made = virtual(file, "base")
    row = 1000 + np.arange(expected[selection].shape[-1])
    given = {"scalar": 7, "one": row[:1], "row": row, "list": row.tolist()}[value]
    expected[selection] = given
    made[selection] = given
    np.testing.assert_array_equal(file["base"][...], expected)


def test_a_direct_read_of_a_virtual_dataset_repeats_elements(file, length):
    values = np.arange(8 * length).reshape(8, length)
    file["base"] = values
    made, out = virtual(file, "base"), np.zeros((3, length), int)
    made.read_direct(out, np.s_[2])
    np.testing.assert_array_equal(out, np.broadcast_to(values[2], out.shape))
    made.read_direct(out, np.s_[5, 1:4], np.s_[:, 2:5])
    np.testing.assert_array_equal(out[:, 2:5], np.broadcast_to(values[5, 1:4], (3, 3)))


@pytest.mark.parametrize(
    ("stored", "dtype"),
    [("i4", "i2"), ([("a", "i4"), ("b", "f4")], [("b", "f4"), ("a", "i2")])],
    ids=["numbers", "records"],
)
def test_a_direct_read_of_a_virtual_dataset_converts_as_of_any_other(file, length, stored, dtype):
    values = np.ones(length, stored)
    values["a" if values.dtype.names else ...] = np.arange(length) * 70000
    file["base"] = values
    found = []
    for dataset in (file["base"], virtual(file, "base")):
        out = np.zeros(2 * length, dtype)
        dataset.read_direct(out, None, [2 * at for at in range(length)])
        found.append(out)
    np.testing.assert_array_equal(*found)


def virtual(file: Any, name: str) -> Any:
    """Make a virtual dataset of the whole of another one in the same file."""
    source = file[name]
    layout = h5py.VirtualLayout(source.shape, source.dtype)
    layout[...] = h5py.VirtualSource(".", name, source.shape)
    return file.create_virtual_dataset("virtual", layout)
