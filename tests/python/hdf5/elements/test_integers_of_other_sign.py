"""Integers of the same length of another sign, in the same or the other byte order.

HDF5 clips to the limits of the other sign. Where the order differs, too, it only swaps bytes.
"""

from __future__ import annotations

import math
from itertools import permutations, product

import h5py
import numpy as np
import pytest

import penstock as ps
from penstock.hdf5 import small

COUNT = 600
KINDS = [
    (one, other)
    for size in (2, 4, 8)
    for one, other in permutations([f"{o}{s}{size}" for o, s in product("<>", "iu")], 2)
    if one[1] != other[1]
]
LAYOUTS = {
    "contiguous": {},
    "chunked": {"chunks": (90,)},
    "gzip": {"chunks": (200,), "compression": "gzip", "shuffle": True},
    "three dimensions": {"shape": (3, 5, 40), "chunks": (2, 5, 17)},
}


@pytest.fixture(params=["small", "any size"])
def folder(request, tmp_path, monkeypatch):
    if request.param == "any size":
        monkeypatch.setattr(small, "LIMIT", 0)
    return tmp_path


def integers(dtype, shape=(COUNT,)):
    info, kind = np.iinfo(dtype), np.dtype(dtype)
    count = math.prod(shape)
    values = np.frombuffer(np.random.default_rng(1).bytes(count * kind.itemsize), kind).copy()
    values[:4] = info.min, info.max, 0, max(info.min, -1)
    return values.reshape(shape)


def converted(values, dtype, tmp_path):
    """What HDF5 makes of integers, by h5py."""
    with h5py.File(tmp_path / "peer.h5", "w") as file:
        return file.create_dataset("x", data=values).astype(dtype)[...]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("stored", "other"), KINDS)
def test_every_way_of_reading_gives_what_hdf5_gives(folder, layout, stored, other):
    keys = {"shape": (COUNT,), **LAYOUTS[layout]}
    values = integers(stored, keys["shape"])
    with h5py.File(folder / "f.h5", "w") as file:
        file.create_dataset("x", data=values, **keys)
    with ps.File(folder / "f.h5") as file:
        dataset = file["x"]
        outs = {way: np.zeros(values.shape, other) for way in ("out", "direct", "many")}
        outs["strided"] = np.zeros((*values.shape, 2), other)[..., 1]
        dataset.read(out=outs["out"])
        dataset.read(out=outs["strided"])
        dataset.read_direct(outs["direct"])
        file.read_many(["x"], out=[outs["many"]])
        outs["new"] = dataset.read(dtype=other)
        outs["async"] = dataset.read_async(dtype=other).wait()
        outs["astype"] = dataset.astype(other)[...]
        if ps.devices():
            outs["GPU"] = dataset.read(dtype=other, device="cuda", like="device").numpy()
    expected = converted(values, other, folder)
    for way, found in outs.items():
        np.testing.assert_array_equal(found, expected, err_msg=way)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("other", "stored"), KINDS)
def test_every_way_of_writing_stores_what_hdf5_stores(folder, layout, other, stored):
    keys = {"shape": (COUNT,), **LAYOUTS[layout]}
    values = integers(other, keys["shape"])
    ways = ["write", "assign", "async", "strided", "direct"]
    if ps.devices() and values.dtype.isnative:
        ways.append("GPU")
    with ps.File(folder / "f.h5", "w") as file:
        for way in ways:
            dataset = ps.Dataset(file.h5py.create_dataset(way, dtype=stored, **keys))
            if way == "write":
                dataset.write(values)
            elif way == "assign":
                dataset[...] = values
            elif way == "async":
                dataset.write_async(values).wait()
            elif way == "strided":
                dataset.write(np.repeat(values, 2, axis=-1)[..., ::2])
            elif way == "direct":
                dataset.write_direct(values)
            else:
                dataset.write(ps.DeviceArray.from_numpy(values))
    with h5py.File(folder / "peer.h5", "w") as file:
        file.create_dataset("x", dtype=stored, **keys)[...] = values
        expected = file["x"][...]
    with h5py.File(folder / "f.h5") as file:
        for way in ways:
            np.testing.assert_array_equal(file[way][...], expected, err_msg=way)


def test_a_narrow_field_leaves_the_conversion_of_the_others_as_it_is(folder):
    narrow = h5py.h5t.STD_I16BE.copy()
    narrow.set_precision(12)
    record = h5py.h5t.create(h5py.h5t.COMPOUND, 8)
    record.insert(b"narrow", 0, narrow)
    record.insert(b"whole", 2, h5py.h5t.STD_I16BE)
    record.insert(b"list", 4, h5py.h5t.array_create(h5py.h5t.STD_U16BE, (2,)))
    memory = np.dtype([("narrow", "<i2"), ("whole", "<u2"), ("list", "<i2", (2,))])
    values = np.zeros(COUNT, memory)
    values["narrow"] = np.arange(COUNT) - 300
    values["whole"], values["list"] = integers("<u2"), integers("<i2", (COUNT, 2))
    with ps.File(folder / "f.h5", "w") as file:
        space = h5py.h5s.create_simple((COUNT,))
        dataset = ps.Dataset(h5py.Dataset(h5py.h5d.create(file.id, b"x", record, space)))
        dataset.write(values)
        for found in (dataset.read(dtype=memory), dataset.read_async(dtype=memory).wait()):
            np.testing.assert_array_equal(found, values)
        stored = dataset[...]
    np.testing.assert_array_equal(stored["narrow"], values["narrow"])
    np.testing.assert_array_equal(stored["whole"], converted(values["whole"], ">i2", folder))
    np.testing.assert_array_equal(stored["list"], converted(values["list"], ">u2", folder))
    with ps.File(folder / "f.h5", "r+") as file:
        dataset = file["x"]
        for name in memory.names:
            dataset.write(values[name], name)
            np.testing.assert_array_equal(dataset[name], stored[name])
            base = np.dtype((memory[name].base, ()))
            np.testing.assert_array_equal(dataset.read(name, dtype=base), values[name])


@pytest.mark.parametrize(("stored", "other"), [(">i2", "<u2"), ("<u4", ">i4")])
def test_a_dataset_without_dimensions_is_converted_as_any_other(folder, stored, other):
    value = integers(other)[1:2]
    with ps.File(folder / "f.h5", "w") as file:
        dataset = ps.Dataset(file.h5py.create_dataset("x", (), stored))
        dataset.write(value[0])
        dataset.write(np.array(value[0], other))
        assert dataset.read() == converted(value, stored, folder)[0]
        assert dataset.read(dtype=other) == value[0]
