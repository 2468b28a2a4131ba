"""Lists of variable length of numbers in either byte order."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

import penstock as ps

TYPES = (">i2", "<i2", ">u4", ">f8", "<f8", ">c8")


def lists(dtype, *all_values):
    made = np.empty(len(all_values), object)
    made[:] = [np.array(values, dtype) for values in all_values]
    return made


def plain(found):
    if isinstance(found, (list, tuple)):
        return [plain(one) for one in found]
    if not isinstance(found, (np.ndarray, np.void)):
        return found
    return plain(found.tolist())


def is_stored(path, dtype, *all_values):
    """Whether the bytes of lists are in the file, without h5py."""
    stored = path.read_bytes()
    return all(np.array(values, dtype).tobytes() in stored for values in all_values)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "lists.h5"


@pytest.mark.parametrize("dtype", TYPES)
def test_lists_have_the_numbers_of_the_file(dtype, path):
    with ps.File(path, "w") as file:
        made = file.create_dataset("v", (4,), h5py.vlen_dtype(np.dtype(dtype)))
        made[:3] = lists(dtype, [1], [2, 3], [])
    assert is_stored(path, dtype, [2, 3])
    wanted = [[1], [2, 3], [], []]
    assert plain(ps.read(f"{path}:v")) == wanted
    assert plain(ps.read_async(f"{path}:v").wait()) == wanted
    with ps.File(path) as file:
        assert plain(file["v"][...]) == wanted
        assert plain(file["v"][1]) == [2, 3]
        assert plain(file["v"][[2, 1, 1]]) == [[], [2, 3], [2, 3]]


@pytest.mark.parametrize("dtype", TYPES)
def test_lists_in_lists_fields_and_scalars_have_the_numbers_of_the_file(dtype, path):
    one = h5py.vlen_dtype(np.dtype(dtype))
    with ps.File(path, "w") as file:
        file.create_dataset("nested", (2,), h5py.vlen_dtype(one))[0] = lists(dtype, [1, 2], [3])
        fields = file.create_dataset("fields", (1,), np.dtype([("a", dtype), ("v", one)]))
        fields[0] = (7, np.array([1, 2], dtype))
        file.create_dataset("scalar", (), one)[()] = np.array([4, 5], dtype)
    assert is_stored(path, dtype, [1, 2], [3], [7], [4, 5])
    with ps.File(path) as file:
        assert plain(file["nested"][...]) == [[[1, 2], [3]], []]
        assert plain(file["nested"][0]) == [[1, 2], [3]]
        assert plain(file["fields"][...]["v"]) == [[1, 2]]
        assert plain(file["fields"]["v"]) == [[1, 2]]
        assert plain(file["fields"].fields("v")[:]) == [[1, 2]]
        assert plain(file["fields"].fields(["v"])[:]) == [[[1, 2]]]
        assert file["fields"][0]["v"].tolist() == [1, 2]
        assert file["fields"][0]["a"] == 7
        assert file["scalar"][()].tolist() == [4, 5]


@pytest.mark.parametrize("dtype", TYPES[:-1])
@pytest.mark.parametrize("wanted", [">i4", "<f8"])
def test_lists_are_converted_to_lists_of_another_type(dtype, wanted, path):
    with h5py.File(path, "w") as file:
        made = file.create_dataset("v", (2,), h5py.vlen_dtype(np.dtype(dtype)))
        made[:] = lists(dtype, [258, 772], [1286])
    assert is_stored(path, dtype, [258, 772], [1286])
    with ps.File(path) as file:
        view = file["v"].astype(h5py.vlen_dtype(np.dtype(wanted)))
        assert plain(view[:]) == [[258, 772], [1286]]
        assert plain(view[0]) == [258, 772]


@pytest.mark.parametrize("dtype", TYPES)
def test_lists_of_the_machine_are_stored_in_the_order_of_the_file(dtype, path):
    with ps.File(path, "w") as file:
        made = file.create_dataset("v", (1,), h5py.vlen_dtype(np.dtype(dtype)))
        made[0] = np.array([258, 772], np.dtype(dtype).newbyteorder("="))
    assert is_stored(path, dtype, [258, 772])


@pytest.mark.parametrize("dtype", TYPES)
def test_lists_of_records_with_lists_have_the_numbers_of_the_file(dtype, path):
    one = h5py.vlen_dtype(np.dtype(dtype))
    record = np.dtype([("a", dtype), ("v", one)])
    values = np.zeros(2, record)
    values["a"] = 258, 772
    values["v"] = lists(dtype, [3340, 3854, 4368], [4882])
    with ps.File(path, "w") as file:
        file.create_dataset("v", (1,), h5py.vlen_dtype(record))[0] = values
    assert is_stored(path, dtype, [3340, 3854, 4368], [4882], [258], [772])
    wanted = [[258, [3340, 3854, 4368]], [772, [4882]]]
    with ps.File(path) as file:
        assert plain(file["v"][0]) == wanted
        assert plain(file["v"][...]) == [wanted]


@pytest.mark.parametrize("kind", ["file", "group", "dataset"])
@pytest.mark.parametrize("dtype", TYPES)
def test_lists_of_attributes_have_the_numbers_of_the_file(dtype, kind, path):
    one = h5py.vlen_dtype(np.dtype(dtype))
    with h5py.File(path, "w") as file:
        file.create_group("group")
        file["dataset"] = 0
        attributes = (file if kind == "file" else file[kind]).attrs
        attributes.create("lists", lists(dtype, [258, 772], [1286, 1800, 2314]), dtype=one)
        attributes.create("list", lists(dtype, [2828, 3342])[0:1].reshape(()), dtype=one)
    assert is_stored(path, dtype, [258, 772], [1286, 1800, 2314], [2828, 3342])
    with ps.File(path) as file:
        attributes = (file if kind == "file" else file[kind]).attrs
        wanted = {"list": [2828, 3342], "lists": [[258, 772], [1286, 1800, 2314]]}
        assert {name: plain(attributes[name]) for name in attributes} == wanted
        assert {name: plain(value) for name, value in attributes.items()} == wanted
        assert plain(list(attributes.values())) == list(wanted.values())
        assert plain(attributes.get("list")) == [2828, 3342]


@pytest.mark.parametrize("dtype", TYPES)
def test_lists_in_lists_arrays_and_fields_of_attributes_have_the_numbers_of_the_file(dtype, path):
    one = h5py.vlen_dtype(np.dtype(dtype))
    record = np.dtype([("a", dtype), ("v", one)])
    nested = np.empty(1, object)
    nested[0] = lists(dtype, [258, 772], [1286])
    arrays = lists(dtype, [1800], [2314, 2828], [3342], [3856]).reshape(2, 2)
    fields = np.zeros(1, record)
    fields["a"], fields["v"][0] = 4370, np.array([4884, 5398], dtype)
    with h5py.File(path, "w") as file:
        file.attrs.create("nested", nested, dtype=h5py.vlen_dtype(one))
        file.attrs.create("arrays", arrays, dtype=np.dtype((one, (2,))))
        file.attrs.create("fields", fields, dtype=record)
        file.attrs.create("record", fields.reshape(()), dtype=record)
    assert is_stored(path, dtype, [258, 772], [1286], [2314, 2828], [4370], [4884, 5398])
    with ps.File(path) as file:
        assert plain(file.attrs["nested"]) == [[[258, 772], [1286]]]
        assert plain(file.attrs["arrays"]) == [[[1800], [2314, 2828]], [[3342], [3856]]]
        assert plain(file.attrs["fields"]) == [[4370, [4884, 5398]]]
        assert plain(file.attrs["record"]) == [4370, [4884, 5398]]


def test_attributes_without_lists_are_those_of_h5py(path):
    values = {
        "text": "a",
        "texts": ["a", "bb"],
        "bytes": np.bytes_("a"),
        "number": 1,
        "numbers": np.arange(3, dtype=">i2"),
        "record": np.array((1, 2.0), [("a", ">i2"), ("b", ">f4")]),
        "empty": h5py.Empty("f4"),
    }
    with ps.File(path, "w") as file:
        file.attrs.update(values)
        assert isinstance(file.attrs, h5py.AttributeManager)
        for name in values:
            ours, theirs = file.attrs[name], file.h5py.attrs[name]
            assert type(ours) is type(theirs)
            assert np.array_equal(ours, theirs)
        del file.attrs["text"]
        file.attrs.modify("number", 2)
        assert "text" not in file.attrs
        assert file.attrs["number"] == 2
        assert len(file.attrs) == len(values) - 1


@pytest.mark.parametrize("index", [1, np.s_[1:3], [0, 2], [2, 0], [1, 1], [], np.s_[:]], ids=str)
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "text"])
def test_few_lists_and_strings_are_those_of_h5py(dtype, index, path):
    with h5py.File(path, "w") as file:
        if dtype == "text":
            file["v"] = ["a", "bc", "", "d"]
        else:
            file.create_dataset("v", (4,), h5py.vlen_dtype(np.dtype(dtype)))
            file["v"][:3] = lists(dtype, [1], [2, 3], [])
    with ps.File(path) as file, h5py.File(path) as theirs:
        every = theirs["v"][...]
        if dtype == ">f4":
            every = np.array([one.byteswap() for one in every], object)
        for _ in range(2):
            assert plain(file["v"][index]) == plain(every[index])
    with ps.File(path) as file:
        closed = file["v"]
        closed[0]
    for _ in range(2):
        with pytest.raises(ps.InvalidError, match="closed"):
            closed[index]
