"""Integers with fewer bits than their bytes, in either byte order."""

from __future__ import annotations

from itertools import product

import h5py
import numpy as np
import pytest

import penstock as ps
from penstock.hdf5 import small

LE, BE = h5py.h5t.ORDER_LE, h5py.h5t.ORDER_BE
ALL = h5py.h5s.ALL
COUNT = 700

KINDS = [
    (size, bits, offset, order, signed)
    for (size, bits, offset), order, signed in product(
        [
            (1, 5, 0),
            (2, 12, 0),
            (2, 12, 4),
            (4, 16, 0),
            (4, 17, 3),
            (4, 24, 0),
            (8, 40, 0),
            (8, 63, 1),
        ],
        [LE, BE],
        [0, 1],
    )
]


@pytest.fixture(params=["small", "any size"])
def path(request, tmp_path, monkeypatch):
    if request.param == "any size":
        monkeypatch.setattr(small, "LIMIT", 0)
    return tmp_path / "f.h5"


def integer(size: int, bits: int, offset: int, order: int, signed: int):
    kind = h5py.h5t.STD_I8LE.copy()
    kind.set_size(size)
    kind.set_precision(bits)
    kind.set_offset(offset)
    kind.set_order(order)
    kind.set_sign(signed)
    return kind


def numbers(bits: int, signed: int) -> np.ndarray:
    least, most = (
        (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2 ** min(bits, 62) - 1)
    )
    found = np.random.default_rng(bits).integers(least, most, COUNT, dtype="i8", endpoint=True)
    found[:2] = least, most
    return found


def create(file, kind, chunks=None, shape=(COUNT,)):
    creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    if chunks is not None:
        creation.set_chunk(chunks)
    space = h5py.h5s.create_simple(shape)
    return h5py.Dataset(h5py.h5d.create(file.id, b"x", kind, space, creation))


def native(size: int, signed: int) -> np.dtype:
    return np.dtype(f"{'i' if signed else 'u'}{size}")


def read_in_all_ways(dataset, kind: np.dtype) -> dict[str, np.ndarray]:
    own = {"own type": dataset[()], "asynchronously": dataset.read_async().wait()}
    swapped = kind.newbyteorder(">")
    for name, dtype in {"native": kind, "swapped": swapped}.items():
        out = np.zeros(dataset.shape, dtype)
        dataset.read(out=out)
        own[f"{name}, given array"] = out
        own[f"{name}, new array"] = dataset.read(dtype=dtype)
        strided = np.zeros((*dataset.shape, 2), dtype)[..., 1]
        dataset.read(out=strided)
        own[f"{name}, strided array"] = strided
        many = np.zeros(dataset.shape, dtype)
        ps.File(dataset.h5py.file).read_many([dataset.name], out=[many])
        own[f"{name}, many"] = many
    if ps.devices():
        own["pinned"] = dataset.read(pin=True)
        own["GPU"] = dataset.read(device="cuda", like="device").numpy()
        own["GPU, many"] = (
            ps.File(dataset.h5py.file)
            .read_many([dataset.name], device="cuda", like="device")[0]
            .numpy()
        )
    return own


@pytest.mark.parametrize("chunks", [None, (100,)])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_way_of_reading_gives_the_value(path, kind, chunks):
    size, bits, _, _, signed = kind
    values = numbers(bits, signed)
    with h5py.File(path, "w") as file:
        create(file, integer(*kind), chunks).id.write(ALL, ALL, values)
    for mode in ("r", "r+"):
        with ps.File(path, mode) as file:
            for way, found in read_in_all_ways(file["x"], native(size, signed)).items():
                np.testing.assert_array_equal(found, values, err_msg=way)


@pytest.mark.parametrize("order", [LE, BE])
def test_padding_bits_are_not_read(path, order):
    kind = integer(2, 12, 0, order, 1)
    kind.set_pad(h5py.h5t.PAD_ONE, h5py.h5t.PAD_ONE)
    values = numbers(12, 1)
    stored = (values.astype("u2") | 0xF000).astype(">u2" if order == BE else "<u2")
    with h5py.File(path, "w") as file:
        dataset = create(file, kind)
        dataset.id.write(ALL, ALL, stored, mtype=kind)
    with ps.File(path) as file:
        for way, found in read_in_all_ways(file["x"], np.dtype("i2")).items():
            np.testing.assert_array_equal(found, values, err_msg=way)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind[1] < 63], ids=str)
def test_every_way_of_writing_clips_to_the_range(path, kind):
    size, bits, _, _, signed = kind
    memory = native(size, signed)
    least, most = numbers(bits, signed)[:2]
    info = np.iinfo(memory)
    values = np.resize(np.array([info.max, info.min, 0, most, least, 1], memory), COUNT)
    wanted = [min(max(int(value), int(least)), int(most)) for value in values]
    for order, way in product("<>", ("assign", "write", "async", "strided", "GPU")):
        given = values.astype(memory.newbyteorder(order))
        with ps.File(path, "w") as file:
            create(file.h5py, integer(*kind))
            dataset = file["x"]
            if way == "assign":
                dataset[...] = given
            elif way == "write":
                dataset.write(given)
            elif way == "async":
                dataset.write_async(given).wait()
            elif way == "strided":
                dataset.write(np.repeat(given, 2)[::2])
            elif order == "<" and ps.devices():
                dataset.write(ps.DeviceArray.from_numpy(given))
            else:
                continue
        with h5py.File(path) as file:
            # HDF5 converts correctly to another size and in the same byte order.
            wide = np.zeros(COUNT, "i8" if size < 8 else file["x"].dtype)
            file["x"].id.read(ALL, ALL, wide)
            np.testing.assert_array_equal(wide, wanted, err_msg=f"{way} {order}")


@pytest.mark.parametrize("order", [LE, BE])
def test_fields_and_arrays_are_read(path, order):
    kind = integer(4, 20, 0, order, 1)
    record = h5py.h5t.create(h5py.h5t.COMPOUND, 24)
    record.insert(b"a", 0, kind)
    record.insert(b"b", 4, h5py.h5t.IEEE_F64BE)
    record.insert(b"c", 12, h5py.h5t.array_create(kind, (3,)))
    memory = np.dtype([("a", "<i4"), ("b", "<f8"), ("c", "<i4", (3,))])
    values = np.zeros(COUNT, memory)
    values["a"] = numbers(20, 1)
    values["b"] = np.arange(COUNT)
    values["c"] = numbers(20, 1)[:, None] // [1, 2, 3]
    wide = values.astype([("a", "<i8"), ("b", "<f8"), ("c", "<i8", (3,))])
    with h5py.File(path, "w") as file:
        create(file, record).id.write(ALL, ALL, wide)
    with ps.File(path) as file:
        for way, found in read_in_all_ways(file["x"], memory).items():
            for name in memory.names:
                np.testing.assert_array_equal(found[name], values[name], err_msg=f"{way} {name}")
        for name in memory.names:
            out = np.zeros(values[name].shape, memory[name].base)
            file["x"].read(name, out=out)
            np.testing.assert_array_equal(out, values[name])
            if ps.devices():
                found = file["x"].read(name, device="cuda", like="device").numpy()
                np.testing.assert_array_equal(found, values[name])


@pytest.mark.parametrize("order", [LE, BE])
def test_enumerations_are_read(path, order):
    kind = h5py.h5t.enum_create(integer(2, 12, 0, order, 1))
    for name, value in (("A", -1), ("B", 5)):
        kind.enum_insert(name.encode(), value)
    stored = np.resize([0x0FFF, 5], COUNT).astype(">u2" if order == BE else "<u2")
    values = np.resize([-1, 5], COUNT)
    with h5py.File(path, "w") as file:
        create(file, kind).id.write(ALL, ALL, stored, mtype=kind)
    with ps.File(path) as file:
        for way, found in read_in_all_ways(file["x"], np.dtype("i2")).items():
            np.testing.assert_array_equal(found, values, err_msg=way)


def test_a_dataset_without_dimensions_is_read_and_written(path):
    with h5py.File(path, "w") as file:
        space = h5py.h5s.create(h5py.h5s.SCALAR)
        h5py.h5d.create(file.id, b"x", integer(2, 12, 0, BE, 1), space)
        ps.Dataset(file["x"]).write(np.array(-5, "<i2"))
        assert file["x"][()] == -5
        assert ps.Dataset(file["x"]).read(dtype="<i2") == -5
        for dtype in ("<i2", "<u2"):
            ps.Dataset(file["x"]).write(np.array(0, dtype))
            ps.Dataset(file["x"]).write(np.array(5000, dtype))
            assert file["x"][()] == 2047


DESTINATIONS = {
    "a list": [2 * at for at in range(COUNT)],
    "a mask": np.arange(2 * COUNT) % 2 == 0,
    "a slice for which elements are repeated": np.s_[0::2],
}


@pytest.mark.parametrize("order", [LE, BE])
@pytest.mark.parametrize("name", DESTINATIONS)
def test_parts_of_an_array_are_filled_directly(path, order, name):
    values = numbers(12, 1)
    with h5py.File(path, "w") as file:
        create(file, integer(2, 12, 0, order, 1)).id.write(ALL, ALL, values)
    source = np.s_[0:1] if "repeated" in name else None
    for dtype in ("<i2", ">i2", "<u2", "<i4", "<f4"):
        out = np.zeros(2 * COUNT, dtype)
        with ps.File(path) as file:
            file["x"].read_direct(out, source, DESTINATIONS[name])
        wanted = values if source is None else np.repeat(values[:1], COUNT)
        least = 0 if "u" in dtype else None
        np.testing.assert_array_equal(out[::2], np.clip(wanted, least, None), err_msg=dtype)
        assert not out[1::2].any()


def test_parts_of_an_array_of_records_are_filled_directly(path):
    record = h5py.h5t.create(h5py.h5t.COMPOUND, 6)
    record.insert(b"a", 0, integer(2, 12, 0, BE, 1))
    record.insert(b"b", 2, h5py.h5t.IEEE_F32LE)
    values = np.zeros(COUNT, [("a", "<i4"), ("b", "<f4")])
    values["a"], values["b"] = numbers(12, 1), np.arange(COUNT)
    with h5py.File(path, "w") as file:
        create(file, record).id.write(ALL, ALL, values)
    with ps.File(path) as file:
        out = np.zeros(4, [("b", "<f4"), ("a", "<i2")])
        file["x"].read_direct(out, np.s_[0:2], [1, 3])
        np.testing.assert_array_equal(out["a"], [0, values["a"][0], 0, values["a"][1]])
        np.testing.assert_array_equal(out["b"], [0, 0, 0, 1])
        with pytest.raises(ps.InvalidError, match="fields that the dataset lacks"):
            file["x"].read_direct(np.zeros(4, [("a", "<i2"), ("c", "<i2")]), np.s_[0:2], [1, 3])


@pytest.mark.parametrize("order", [LE, BE])
def test_a_record_without_dimensions_is_read_and_written(path, order):
    kind = integer(2, 12, 0, order, 1)
    record = h5py.h5t.create(h5py.h5t.COMPOUND, 10)
    record.insert(b"a", 0, kind)
    record.insert(b"b", 2, h5py.h5t.IEEE_F32LE)
    record.insert(b"c", 6, h5py.h5t.array_create(kind, (2,)))
    memory = np.dtype([("c", "<i2", (2,)), ("b", "<f4"), ("a", "<u2")])
    wide = np.dtype([("a", "<i4"), ("b", "<f4"), ("c", "<i4", (2,))])
    with h5py.File(path, "w") as file:
        h5py.h5d.create(file.id, b"x", record, h5py.h5s.create(h5py.h5s.SCALAR))
        dataset = ps.File(file)["x"]
        dataset.write(np.array((-5, 1.5, (-7, 9)), wide))
        out = np.zeros((), memory)
        dataset.read(out=out)
        for found in (out, dataset.read(dtype=memory), dataset.astype(memory)[()]):
            assert (found["a"], found["b"], *found["c"]) == (0, 1.5, -7, 9)
        dataset.write(np.array(((-5000, 5000), 2.5, 60000), memory))
        found = dataset.read(dtype=wide)
        assert (found["a"], found["b"], *found["c"]) == (2047, 2.5, -2048, 2047)


@pytest.mark.parametrize("order", [LE, BE])
def test_the_library_reads_no_virtual_dataset_of_another_type_wrongly(tmp_path, monkeypatch, order):
    monkeypatch.setattr(small, "LIMIT", 0)
    path = tmp_path / "f.h5"
    values = numbers(12, 1)
    with h5py.File(path, "w") as file:
        create(file, integer(2, 12, 0, order, 1)).id.write(ALL, ALL, values)
        layout = h5py.VirtualLayout((COUNT,), "<i2")
        layout[:] = h5py.VirtualSource(file["x"])
        file.create_virtual_dataset("all", layout)
    with ps.File(path) as file:
        if order == LE:
            np.testing.assert_array_equal(file["all"][()], values)
        else:
            with pytest.raises(ps.Error, match="fewer bits than their bytes"):
                file["all"][()]
