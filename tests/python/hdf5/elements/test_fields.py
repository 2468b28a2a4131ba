"""Fields of records that also have members of another size in the file than in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import h5py
import numpy as np
import pytest

import penstock as ps
from penstock.cli.comparison import difference

TEXT, WORDS, OBJECT = h5py.string_dtype(), h5py.vlen_dtype("f4"), h5py.ref_dtype
REGION = h5py.regionref_dtype
RECORDS: dict[str, Any] = {
    "text": [("k", "i4"), ("name", TEXT), ("z", "f8")],
    "sequence": [("k", "i4"), ("w", WORDS), ("z", "f8")],
    "object reference": [("k", "i4"), ("r", OBJECT), ("z", "f8")],
    "region reference": [("k", "i4"), ("r", REGION), ("z", "f8")],
    "several": [("a", TEXT), ("k", "i4"), ("b", WORDS), ("c", TEXT), ("z", ">f8"), ("d", TEXT)],
    "nested": [("a", [("x", "u1"), ("t", TEXT), ("y", "i2")]), ("k", "i4"), ("z", "f8")],
    "array": [("k", "i4"), ("t", TEXT, (3,)), ("z", "f8", (2,))],
    "aligned": np.dtype(
        {"names": ["k", "t", "z"], "formats": ["u1", TEXT, "f8"], "offsets": [3, 8, 40]}
    ),
}
LAYOUTS: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "chunked": {"chunks": (1000,)},
    "gzip": {"chunks": (1000,), "compression": "gzip"},
    "partly": {"chunks": (1000,)},
}
COUNT = 9000


def records(file: h5py.File, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    made = np.zeros(COUNT, dtype)
    made["k"] = np.arange(COUNT)
    made["z"] = (np.arange(COUNT) / 2).reshape(-1, *(1,) * (made["z"].ndim - 1))
    for name in dtype.names or ():
        base = dtype[name].base
        if base.names:
            made[name]["t"] = "nested"
        elif h5py.check_string_dtype(base):
            texts = np.array([f"text {i}" for i in range(COUNT)], object)
            made[name] = texts.reshape(-1, *(1,) * (made[name].ndim - 1))
        elif h5py.check_vlen_dtype(base):
            for i in range(COUNT):
                made[name][i] = np.full(i % 3, i, "f4")
        elif h5py.check_ref_dtype(base) is h5py.Reference:
            made[name] = file.ref
        elif h5py.check_ref_dtype(base):
            made[name] = file["target"].regionref[1:3]
    return made


class Stored(NamedTuple):
    ours: ps.File
    theirs: h5py.File
    names: tuple[str, ...]


@pytest.fixture(scope="module", params=[8, 4], ids="addresses of {} bytes".format)
def path(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("fields") / "fields.h5"
    creation = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    creation.set_sizes(request.param, 8)
    made = h5py.h5f.create(str(path).encode(), fcpl=creation)
    with h5py.File(made) as file:
        file["target"] = np.arange(9)
        for name, dtype in RECORDS.items():
            kind = np.dtype(dtype)
            for layout, keys in LAYOUTS.items():
                stored = file.create_dataset(f"{name}/{layout}", (COUNT,), kind, **keys)
                count = COUNT // 2 if layout == "partly" else COUNT
                stored[:count] = records(file, kind)[:count]
    return path


@pytest.fixture(params=RECORDS)
def stored(request: Any, path: Any) -> Iterator[Stored]:
    with ps.File(path) as ours, h5py.File(path) as theirs:
        yield Stored(ours[request.param], theirs[request.param], tuple(LAYOUTS))


def check(stored: Stored, ways: Callable[[str, Any, str], dict[str, Any]]) -> None:
    for layout in stored.names:
        for part in ((), np.s_[5:7000], np.s_[5:9], np.s_[8:8500:7]):
            for field in ("k", "z"):
                selected = (field,) if part == () else (part, field)
                wanted = stored.theirs[layout][selected]
                for way, read in ways(layout, selected, field).items():
                    found = difference(read(), wanted)
                    assert not found, f"{layout}[{selected}] by {way}: {found}"


def test_one_field_is_read_whatever_the_others_are(stored):
    def ways(layout: str, selected: Any, field: str) -> dict[str, Any]:
        dataset = stored.ours[layout]
        return {
            "[]": lambda: dataset[selected],
            "read_async": lambda: dataset.read_async(selected).wait(),
            "read_many": lambda: stored.ours.read_many([(layout, selected)])[0],
        }

    check(stored, ways)


@pytest.mark.gpu
def test_one_field_is_read_to_a_gpu_whatever_the_others_are(stored, penstock_arrays):
    def ways(layout: str, selected: Any, field: str) -> dict[str, Any]:
        def read() -> Any:
            wanted = stored.theirs[layout].dtype[field].base
            found = stored.ours[layout].read(selected, device="cuda").numpy()
            return found.astype(wanted)

        return {"cuda": read}

    check(stored, ways)


def test_several_fields_are_read_whatever_the_others_are(stored):
    for layout in stored.names:
        found = stored.ours[layout].read(("k", "z"))
        assert not difference(found, stored.theirs[layout]["k", "z"])


def test_a_field_of_a_virtual_dataset_is_read_whatever_the_others_are(path, tmp_path):
    for name, dtype in RECORDS.items():
        layout = h5py.VirtualLayout((COUNT + 10,), np.dtype(dtype))
        layout[5 : COUNT + 5] = h5py.VirtualSource(str(path), f"{name}/chunked", (COUNT,))
        whole = tmp_path / f"{name}.h5"
        with h5py.File(whole, "w") as file:
            file.create_virtual_dataset("v", layout)
        with ps.File(whole) as ours, h5py.File(whole) as theirs:
            for field in ("k", "z"):
                assert not difference(ours["v"][field], theirs["v"][field])


def test_many_files_of_other_addresses_are_read_together(tmp_path):
    for size in (4, 8):
        creation = h5py.h5p.create(h5py.h5p.FILE_CREATE)
        creation.set_sizes(size, 8)
        path = tmp_path / f"{size}.h5"
        with h5py.File(h5py.h5f.create(str(path).encode(), fcpl=creation)) as file:
            kind = np.dtype(RECORDS["text"])
            file.create_dataset("x", data=records(file, kind), dtype=kind)
    with h5py.File(tmp_path / "links.h5", "w") as file:
        for size in (4, 8):
            file[f"of{size}"] = h5py.ExternalLink(str(tmp_path / f"{size}.h5"), "x")
    with ps.File(tmp_path / "links.h5") as file:
        for found in file.read_many([("of4", "k"), ("of8", "k")]):
            np.testing.assert_array_equal(found, np.arange(COUNT))


@pytest.mark.parametrize("index", [(), 3, np.s_[2:7], np.s_[:, 1], [1, 4]], ids=str)
def test_a_list_of_one_field_gives_structures_of_it(tmp_path, index):
    dtype = np.dtype([("a", "<i4"), ("b", ">f8", (2,)), ("c", "i2")])
    values = np.zeros((9, 4), dtype)
    values["a"] = np.arange(36).reshape(9, 4)
    values["b"] = values["a"][..., np.newaxis] / 2
    with h5py.File(tmp_path / "f", "w") as file:
        file["x"] = values
    with ps.File(tmp_path / "f") as file:
        for name in "ab":
            found = file["x"].fields([name])[index]
            expected = file["x"].h5py.fields([name])[index]
            assert type(found) is type(expected)
            assert found.dtype == expected.dtype
            assert not difference(found, expected)


def test_a_list_of_one_field_takes_the_lists_that_other_reads_take(tmp_path):
    values = np.zeros((36, 8), [("a", "<i4"), ("b", "<f8")])
    values["a"] = np.arange(36 * 8).reshape(36, 8)
    lists = np.ix_([30, 2, 2], [5, 1])
    with ps.File(tmp_path / "f", "w") as file:
        file["x"] = values
        assert np.array_equal(file["x"].fields(["a"])[lists], values[lists][["a"]])


def test_views_that_h5py_reads_take_lists_in_any_order(tmp_path):
    dtype = np.dtype([("k", "i4"), ("name", h5py.string_dtype())])
    values = np.array([(i, f"name {i}") for i in range(6)], dtype)
    lists = [4, 1, 1, 3]
    with ps.File(tmp_path / "f.h5", "w") as file:
        x = file.create_dataset("x", data=values)
        names = file.create_dataset("names", data=[f"name {i}" for i in range(6)])
        wanted = [f"name {i}" for i in lists]
        assert [name.decode() for name in x.fields(["name"])[lists]["name"]] == wanted
        assert list(names.asstr()[lists]) == wanted
        assert names.astype("S8")[lists].tolist() == [name.encode() for name in wanted]
