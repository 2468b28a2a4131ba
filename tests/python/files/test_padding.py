"""What is between the fields of a structure: files have the array's own bytes, or zeros."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import penstock as ps
from penstock.deepnvme import AsyncIOBuilder, FastFileWriter, FastFileWriterConfig
from penstock.records import converted

OWN, FREED = 0xAA, 0x5E
TYPES = {
    "aligned": np.dtype([("a", "u1"), ("b", "f8")], align=True),
    "at the end": np.dtype({"names": ["a"], "formats": ["i4"], "offsets": [4], "itemsize": 24}),
    "nested": np.dtype([("a", [("b", "u2"), ("c", "u8")], (3,)), ("d", "u1")], align=True),
}
COUNT = 2000


def leave_freed_memory(nbytes: int) -> None:
    for length in (nbytes, nbytes // 2, 2 * nbytes):
        made = [np.full(length, FREED, "u1") for _ in range(10)]
        del made


def filled(dtype: np.dtype[Any], count: int = 2 * COUNT) -> np.ndarray[Any, Any]:
    """An array whose bytes are all its own."""
    made = np.zeros(count, dtype)
    made.view("u1")[:] = OWN
    return made


def freed_bytes(found: bytes) -> int:
    return int((np.frombuffer(found, "u1") == FREED).sum())


def _save(path: Path, array: Any) -> None:
    ps.save(path, array)


def _save_async(path: Path, array: Any) -> None:
    ps.save_async(path, array).wait()


def _pwrite(path: Path, array: Any) -> None:
    AsyncIOBuilder().load().aio_handle().sync_pwrite(array, path)


def _async_pwrite(path: Path, array: Any) -> None:
    handle = AsyncIOBuilder().load().aio_handle()
    handle.async_pwrite(array, path)
    handle.wait()


def _writer(path: Path, array: Any) -> None:
    handle = AsyncIOBuilder().load().aio_handle()
    memory = np.empty(1 << 20, "u1")
    config = FastFileWriterConfig(dnvme_handle=handle, pinned_tensor=memory)
    with FastFileWriter(str(path), config) as writer:
        writer.write(array)


PLAIN = (_save, _save_async, _pwrite, _async_pwrite, _writer)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("write", PLAIN, ids=lambda write: write.__name__.strip("_"))
def test_files_have_the_bytes_of_a_strided_array(tmp_path, write, dtype):
    array = filled(TYPES[dtype])[::2]
    leave_freed_memory(array.nbytes)
    write(tmp_path / "f", array)
    assert (tmp_path / "f").read_bytes() == bytes([OWN]) * array.nbytes


def stored(path: Path, name: str = "x") -> bytes:
    """The bytes of a dataset without filters in its file."""
    with h5py.File(path) as file:
        dataset = file[name].id
        if dataset.get_create_plist().get_layout() == h5py.h5d.CONTIGUOUS:
            places = [(dataset.get_offset(), dataset.get_storage_size())]
        else:
            infos = [dataset.get_chunk_info(n) for n in range(dataset.get_num_chunks())]
            places = [(info.byte_offset, info.size) for info in infos]
    data = path.read_bytes()
    return b"".join(data[start : start + length] for start, length in places)


def _whole(file: ps.File, array: Any, **layout: Any) -> None:
    file.create_dataset("x", array.shape, array.dtype, **layout).write(array[:])


def _broadcast(file: ps.File, array: Any, **layout: Any) -> None:
    file.create_dataset("x", array.shape, array.dtype, **layout).write(array[:1])


def _with_data(file: ps.File, array: Any, **layout: Any) -> None:
    file.create_dataset("x", data=array, **layout)


def _reshaped(file: ps.File, array: Any, **layout: Any) -> None:
    layout = {"chunks": (1, 25)} if layout else {}
    file.create_dataset("x", (2, len(array) // 2), data=array, **layout)


def _rows(file: ps.File, array: Any, **layout: Any) -> None:
    made = file.create_dataset("x", array.shape, array.dtype, **layout)
    made[[*range(len(array) - 1, -1, -1)]] = array


def _strided(file: ps.File, array: Any, **layout: Any) -> None:
    made = file.create_dataset("x", array.shape, array.dtype, **layout)
    made.write(array[::2], np.s_[::2])
    made.write(array[1::2], np.s_[1::2])


WRITES = (_whole, _broadcast, _with_data, _reshaped, _rows, _strided)


@pytest.mark.parametrize("size", [64, COUNT])
@pytest.mark.parametrize("layout", [{}, {"chunks": (50,)}], ids=["contiguous", "chunks"])
@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__.strip("_"))
def test_datasets_have_the_bytes_of_a_strided_array(tmp_path, write, layout, size):
    array = filled(TYPES["aligned"], 2 * size)[::2]
    leave_freed_memory(array.nbytes)
    with ps.File(tmp_path / "f.h5", "w") as file:
        write(file, array, **layout)
    found = stored(tmp_path / "f.h5")
    assert not freed_bytes(found)
    assert found.count(OWN) >= array.nbytes


def test_what_is_converted_has_zeros_between_its_fields():
    array = filled(TYPES["aligned"])
    leave_freed_memory(array.nbytes)
    found = converted(array, array.dtype.newbyteorder(">"))
    np.testing.assert_array_equal(found["a"], array["a"])
    assert not found.view("u1").reshape(-1, 16)[:, 1:8].any()


NESTED = np.dtype([("k", "u1"), ("n", TYPES["nested"])], align=True)
ONE: dict[str, Any] = {"all": (1, ([(2, 3)] * 3, 4)), "n": ([(2, 3)] * 3, 4)}


def own(value: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An array of a value, whose other bytes are zero."""
    made = np.zeros((), dtype)
    made[()] = value
    return made


VALUES: dict[str, Any] = {
    "a tuple": lambda value, dtype, count: value,
    "a list of tuples": lambda value, dtype, count: [value] * count,
    "a record": lambda value, dtype, count: own(value, dtype)[()],
    "an array without dimensions": lambda value, dtype, count: own(value, dtype),
}


@pytest.mark.parametrize("size", [64, COUNT])
@pytest.mark.parametrize("layout", [{}, {"chunks": (50,)}], ids=["contiguous", "chunks"])
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("place", [np.s_[:], np.s_[::2], [5, 3, 4], "n"], ids=str)
def test_values_leave_no_freed_bytes_between_their_fields(tmp_path, place, value, layout, size):
    field = "n" if place == "n" else "all"
    expected = np.zeros(size, NESTED)
    one = own(ONE[field], NESTED["n"] if place == "n" else NESTED)
    expected[place] = one
    given = VALUES[value](ONE[field], one.dtype, len(expected[place]))
    with ps.File(tmp_path / "f.h5", "w") as file:
        made = file.create_dataset("x", size, NESTED, **layout)
        leave_freed_memory(expected.nbytes)
        made[place] = given
    assert not freed_bytes(stored(tmp_path / "f.h5"))
    with h5py.File(tmp_path / "f.h5") as file:
        np.testing.assert_array_equal(file["x"][:], expected)


@pytest.mark.parametrize("value", ["a tuple", "a record", "an array without dimensions"])
def test_an_element_that_is_assigned_has_no_freed_bytes_between_its_fields(tmp_path, value):
    given = VALUES[value](ONE["all"], NESTED, 1)
    with ps.File(tmp_path / "f.h5", "w") as file:
        made = file.create_dataset("x", COUNT, NESTED)
        leave_freed_memory(NESTED.itemsize)
        made[3] = given
        assert made[3] == own(ONE["all"], NESTED)
    assert not freed_bytes(stored(tmp_path / "f.h5"))


@pytest.mark.parametrize("value", ["a tuple", "a list of tuples", "a record"])
def test_a_new_dataset_of_values_has_no_freed_bytes_between_their_fields(tmp_path, value):
    given = VALUES[value](ONE["all"], NESTED, COUNT)
    leave_freed_memory(NESTED.itemsize * COUNT)
    with ps.File(tmp_path / "f.h5", "w") as file:
        file.create_dataset("x", data=given, dtype=NESTED)
    assert not freed_bytes(stored(tmp_path / "f.h5"))


FIELDS = {"packed": np.dtype("f8, f8, f8"), "padded": np.dtype("i1, f8, f8", align=True)}


@pytest.mark.parametrize("dtype", FIELDS)
@pytest.mark.parametrize("names", [("f2", "f0"), ("f0", "f1"), ("f2", "f1", "f0")], ids=str)
@pytest.mark.parametrize("value", ["a tuple", "a list of tuples", "a record"])
def test_values_for_some_fields_are_those_that_h5py_writes(tmp_path, value, names, dtype):
    given = VALUES[value]((1, 2, 3), FIELDS[dtype], 4)
    found = []
    for module in (h5py, ps):
        with module.File(tmp_path / "f.h5", "w") as file:
            made = file.create_dataset("x", 4, FIELDS[dtype])
            made[names] = given
            found.append(made[:].tolist())
    assert found[0] == found[1]


def test_values_of_other_fields_are_no_values_of_a_field(tmp_path):
    with ps.File(tmp_path / "f.h5", "w") as file:
        made = file.create_dataset("x", 4, NESTED)
        with pytest.raises(ValueError, match="Size must be positive"):
            made["n"] = np.ones(4, [("p", "i1"), ("q", "f8")])
