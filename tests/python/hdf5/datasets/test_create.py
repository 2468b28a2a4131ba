"""New datasets with data from any memory."""

from __future__ import annotations

import h5py
import ml_dtypes
import numpy as np
import pytest

import penstock as ps

NUMBERS = np.random.default_rng(6).integers(0, 100, (60, 50), "i4").cumsum(axis=1)

pytestmark = pytest.mark.usefixtures("nothing_is_small", "penstock_arrays")


@pytest.fixture
def file(tmp_path):
    with ps.File(tmp_path / "f.h5", "w") as file:
        yield file


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"chunks": (7, 50)},
        {"chunks": True, "compression": "gzip", "compression_opts": 9, "shuffle": True},
        {"chunks": (16, 16), "fletcher32": True, "maxshape": (None, 50)},
        {"chunks": (16, 16), "scaleoffset": 0},
        {"chunks": (16, 16), "compression": "lzf"},
        {"chunks": (16, 16), "fillvalue": 7, "track_times": True},
    ],
)
def test_a_dataset_is_that_of_create_dataset(file, memory, keys):
    made = file.create("group/ours", data=memory.array(NUMBERS), **keys)
    assert isinstance(made, ps.Dataset)
    twin = file.h5py.create_dataset("group/theirs", data=NUMBERS, **keys)
    for name in ("shape", "dtype", "chunks", "compression", "compression_opts", "shuffle"):
        assert getattr(made.h5py, name) == getattr(twin, name), name
    for name in ("fletcher32", "scaleoffset", "maxshape", "fillvalue"):
        assert getattr(made.h5py, name) == getattr(twin, name), name
    np.testing.assert_array_equal(made.h5py[...], NUMBERS)
    np.testing.assert_array_equal(made.read(), NUMBERS)


def test_what_is_written_is_read_by_h5py_from_the_file(tmp_path, memory):
    with ps.File(tmp_path / "f.h5", "w") as file:
        keys = {"chunks": (16, 16), "compression": "gzip", "shuffle": True, "fletcher32": True}
        file.create("x", data=memory.array(NUMBERS), **keys)
    with h5py.File(tmp_path / "f.h5") as file:
        np.testing.assert_array_equal(file["x"][...], NUMBERS)


def test_a_shape_and_a_type_alone_make_an_empty_dataset(file):
    made = file.create("x", (3, 4), "f2", fillvalue=1.5)
    assert (made.shape, made.dtype) == ((3, 4), np.float16)
    assert (made.read() == 1.5).all()
    assert file.create("one", 5, "i1").shape == (5,)


def test_data_take_another_shape_and_type(file):
    made = file.create("x", (3000,), ">f8", NUMBERS, chunks=(100,))
    assert (made.shape, made.dtype) == ((3000,), np.dtype(">f8"))
    np.testing.assert_array_equal(made.h5py[...], NUMBERS.reshape(-1))


def test_data_that_do_not_fill_the_shape_are_refused_before_anything_is_made(file):
    with pytest.raises(ValueError, match=r"\(60, 50\).*\(60, 51\)"):
        file.create("x", (60, 51), data=NUMBERS)
    assert "x" not in file


def test_what_h5py_refuses_is_refused(file):
    with pytest.raises(ValueError, match="Chunk shape"):
        file.create("x", data=NUMBERS, chunks=(100, 100))
    with pytest.raises(TypeError):
        file.create("x", data=NUMBERS, no_such_argument=1)


def test_a_single_element_in_any_memory_is_data(file, memory):
    value = memory.array(np.array(3.5))
    file.create("created", data=value)
    file["named"] = value
    file.require_dataset("required", (), "f4", data=value)
    for name, kind in (("created", "f8"), ("named", "f8"), ("required", "f4")):
        assert (file[name].shape, file[name].dtype, file[name][()]) == ((), np.dtype(kind), 3.5)


def test_a_single_element_of_an_object_with_only_dlpack_is_data(file, dlpack_only):
    file.create("x", data=dlpack_only(np.array(3.5), versioned=True))
    assert (file["x"].shape, file["x"].dtype, file["x"][()]) == ((), np.dtype("f8"), 3.5)


def test_a_single_element_of_a_type_that_numpy_lacks_is_data(file):
    value = np.array(1.5, ml_dtypes.bfloat16)
    assert file.create("x", data=value)[()] == 1.5


def test_strings_scalars_and_lists_are_left_to_h5py(file):
    file.create("text", data=["a", "bcd"])
    file.create("scalar", data=2.5)
    file.create("list", data=[1, 2, 3], dtype="u1")
    file.create("null", data=h5py.Empty("f4"))
    assert list(file["text"].read()) == [b"a", b"bcd"]
    assert file["scalar"].read() == 2.5
    assert file["list"].dtype == np.uint8
    assert file["null"].shape is None


def test_enumerations_and_structures_keep_their_types(file):
    colours = h5py.enum_dtype({"red": 0, "blue": 3}, "u1")
    made = file.create("enum", data=np.array([0, 3, 3], colours))
    assert h5py.check_enum_dtype(made.dtype) == {"red": 0, "blue": 3}
    records = np.array([(1, 2.5), (3, 4.5)], [("a", "i2"), ("b", "f8")])
    np.testing.assert_array_equal(file.create("records", data=records).h5py[...], records)


@pytest.mark.parametrize("on_gpu", [False, pytest.param(True, marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_short_floats_are_stored_as_such(file, on_gpu, name):
    kind = np.dtype(getattr(ml_dtypes, name))
    values = np.linspace(-3, 3, 100).astype(kind)
    data = ps.DeviceArray.from_numpy(values) if on_gpu else values
    made = file.create("x", data=data, chunks=(30,), compression="gzip")
    assert made.h5py.id.get_type().get_size() == kind.itemsize
    np.testing.assert_array_equal(made.h5py[...], values.astype("f4"))
    np.testing.assert_array_equal(made.read(dtype=name).astype("f4"), values.astype("f4"))
    assert file.create("y", (3,), name).h5py.id.get_type().equal(made.h5py.id.get_type())


def test_a_type_that_hdf5_has_not_is_refused(file):
    with pytest.raises(TypeError, match="e8m0"):
        file.create("x", (3,), "float8_e8m0fnu")


def test_a_group_makes_datasets_below_itself(file):
    file.create("a/x", data=NUMBERS)
    made = file["a"].create("b/y", data=NUMBERS)
    assert made.name == "/a/b/y"
    assert file["a"].create(None, data=NUMBERS).h5py.name is None


@pytest.mark.parametrize("length", [3, 200_000])
def test_an_array_of_a_plain_type_makes_no_enumeration_of_another_dataset(file, length):
    colours = h5py.enum_dtype({"red": 1, "blue": 2}, "i1")
    file.create("colours", data=np.ones(length, colours))
    file["colours"].read(out=np.zeros(length, colours))
    file.create("numbers", data=np.ones(length, "i4"))
    read = file["numbers"].read(dtype=np.dtype("i1"))
    assert h5py.check_enum_dtype(file.create("copy", data=read).dtype) is None
