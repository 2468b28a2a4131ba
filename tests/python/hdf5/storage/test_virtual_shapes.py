"""A source of a virtual dataset may have another shape than its mapping says.

An element is read at its coordinates in the source; if the source has none there, the read fails
with both shapes. Calls and sizes do not matter. The expected values are worked out by NumPy here,
because HDF5 returns other elements, fails or crashes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest

import penstock as ps

SMALL, LARGE = (12, 20), (200, 400)
STORED = {
    "contiguous": {},
    "chunked": {"chunks": (5, 7)},
    "resizable": {"chunks": (5, 7), "maxshape": (None, None)},
    "gzip": {"chunks": (6, 8), "compression": "gzip"},
    "compact": {"compact": True},
}
NAMES = r"v\.h5: dataset /v: its source /group/d in .*s\.h5 "


def numbers(shape, dtype="i4"):
    return np.arange(1, np.prod(shape, dtype=int) + 1).reshape(shape).astype(dtype)


def save(path, array, compact=False, **stored):
    with h5py.File(path, "w") as file:
        if compact:
            stored["dcpl"] = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            stored["dcpl"].set_layout(h5py.h5d.COMPACT)
        file.require_group("group").create_dataset("d", data=array, **stored)


def map_all(path, shape, pick=np.s_[...], dtype="i4", fill=None):
    """Make a virtual dataset of what ``pick`` selects of a source that is said to have a shape."""
    source = h5py.VirtualSource("s.h5", "group/d", shape, dtype)
    source = source if pick is np.s_[...] else source[pick]
    layout = h5py.VirtualLayout(source.shape, dtype)
    layout[...] = source
    with h5py.File(path, "w", libver="latest") as file:
        file.create_virtual_dataset("v", layout, fill)


def by_every_call(dataset, at):
    """Yield what each call returns for a part, or its error."""
    calls = {
        "index": lambda: dataset[at],
        "read": lambda: dataset.read(at),
        "dtype": lambda: dataset.read(at, dtype="f8"),
        "async": lambda: dataset.read_async(at).wait(),
        "many": lambda: ps.read_many([(dataset, at)])[0],
        "out": lambda: dataset.read(at, out=np.empty(np.empty(dataset.shape, "?")[at].shape, "i4")),
        "astype": lambda: dataset.astype("i8")[at],
    }
    if ps.devices():
        calls["gpu"] = lambda: dataset.read(at, device="cuda", like="device").numpy()
    for name, call in calls.items():
        try:
            yield name, np.asarray(call())
        except ps.Error as error:
            yield name, error


def check(path, expected, parts, mode="r"):
    """Compare parts with the expected elements, of which -1 are those that the source lacks."""
    for at in parts:
        with ps.File(path, mode) as file:
            for name, found in by_every_call(file["v"], at):
                if (expected[at] == -1).any():
                    assert isinstance(found, ps.IOFailure), (at, name, found)
                    yield str(found)
                else:
                    np.testing.assert_array_equal(found, expected[at], err_msg=f"{at} {name}")


def at_coordinates(source, said, pick=np.s_[...]):
    """Return what a mapping of a source of shape ``said`` finds in another one; -1 for nothing."""
    found = np.full(said, -1, source.dtype)
    inside = tuple(slice(min(one, two)) for one, two in zip(said, source.shape, strict=True))
    found[inside] = source[inside]
    return found[pick]


PARTS = [np.s_[...], np.s_[0], np.s_[-1], np.s_[:2, :3]]
FEW = [np.s_[...], np.s_[1], np.s_[2:150, :9]]
"""Parts of a large dataset."""


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("pick", [np.s_[...], np.s_[:, ::3], np.s_[4:10]], ids=str)
def test_elements_that_a_smaller_source_lacks_are_an_error(tmp_path, stored, pick):
    for change in ((1, 0.5), (0.5, 1)):
        now = tuple(int(n * by) for n, by in zip(SMALL, change, strict=True))
        save(tmp_path / "s.h5", numbers(now), **STORED[stored])
        map_all(tmp_path / "v.h5", SMALL, pick)
        for error in check(tmp_path / "v.h5", at_coordinates(numbers(now), SMALL, pick), PARTS):
            assert "/v: its source /group/d in " in error
            assert str(list(now)) in error


@pytest.mark.parametrize("stored", STORED)
def test_a_source_that_grew_is_read_at_the_old_coordinates(tmp_path, stored):
    for change in ((2, 1), (1, 2)):
        source = numbers(tuple(n * by for n, by in zip(SMALL, change, strict=True)))
        save(tmp_path / "s.h5", source, **STORED[stored])
        map_all(tmp_path / "v.h5", SMALL)
        assert not list(check(tmp_path / "v.h5", source[: SMALL[0], : SMALL[1]], PARTS))


@pytest.mark.parametrize("stored", ["contiguous", "gzip"])
def test_large_reads_follow_the_rule_of_small_ones(tmp_path, stored):
    for now in ((200, 200), (100, 400), (400, 500)):
        save(tmp_path / "s.h5", numbers(now), **STORED[stored])
        for pick in (np.s_[...], np.s_[:, ::2]):
            map_all(tmp_path / "v.h5", LARGE, pick)
            errors = list(check(tmp_path / "v.h5", at_coordinates(numbers(now), LARGE, pick), FEW))
            assert bool(errors) == (now != (400, 500))


def test_the_error_names_both_datasets_and_both_shapes(tmp_path):
    save(tmp_path / "s.h5", numbers((6, 20)))
    map_all(tmp_path / "v.h5", (12, 20), np.s_[:, 5:])
    said = NAMES + r"has shape \[6, 20\], and its mapping is for shape \[12, 20\]"
    with ps.File(tmp_path / "v.h5") as file, pytest.raises(ps.IOFailure, match=said):
        file["v"][...]


def test_three_dimensions_and_a_row_of_another_rank(tmp_path):
    source = numbers((6, 4, 9))
    save(tmp_path / "s.h5", source)
    for said in ((6, 4, 8), (3, 4, 9), (6, 2, 9)):
        map_all(tmp_path / "v.h5", said)
        whole = source[tuple(slice(n) for n in said)]
        assert not list(check(tmp_path / "v.h5", whole, [np.s_[...], np.s_[1], np.s_[:, 1, 2:]]))
    layout = h5py.VirtualLayout((2, 3, 5), "i4")
    save(tmp_path / "s.h5", numbers((4, 7)))
    layout[1] = h5py.VirtualSource("s.h5", "group/d", (3, 5))
    with h5py.File(tmp_path / "v.h5", "w", libver="latest") as file:
        file.create_virtual_dataset("v", layout, fillvalue=7)
    expected = np.full((2, 3, 5), 7)
    expected[1] = numbers((4, 7))[:3, :5]
    assert not list(check(tmp_path / "v.h5", expected, [np.s_[...], np.s_[0], np.s_[1]]))


def test_a_source_with_as_many_elements_is_read_in_order(tmp_path):
    save(tmp_path / "s.h5", numbers((24, 10)))
    map_all(tmp_path / "v.h5", (12, 20))
    assert not list(check(tmp_path / "v.h5", numbers((12, 20)), PARTS))


def test_a_source_of_another_rank_is_an_error(tmp_path):
    save(tmp_path / "s.h5", numbers(300))
    for pick in (np.s_[...], np.s_[1:3]):
        map_all(tmp_path / "v.h5", (12, 20), pick)
        with ps.File(tmp_path / "v.h5") as file:
            for _, found in by_every_call(file["v"], 0):
                assert isinstance(found, ps.IOFailure)
                assert "[300]" in str(found)


@pytest.mark.parametrize(
    "dtype", ["u1", ">i2", "f8", np.dtype([("a", "i4"), ("b", "f4")])], ids=str
)
def test_the_element_type_does_not_matter(tmp_path, dtype):
    source = numbers((12, 20)).astype(dtype)
    save(tmp_path / "s.h5", source[:, :10])
    map_all(tmp_path / "v.h5", (12, 20), np.s_[:, ::2], dtype)
    with ps.File(tmp_path / "v.h5") as file:
        np.testing.assert_array_equal(file["v"][:, :5], source[:, :10:2])
        for at in (0, np.s_[...]):
            with pytest.raises(ps.IOFailure, match=NAMES):
                file["v"][at]


def test_strings_and_other_types_that_only_h5py_reads_follow_the_rule(tmp_path):
    strings = h5py.string_dtype()
    source = np.array([[f"{i},{j}" for j in range(4)] for i in range(6)], object)
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file.require_group("group").create_dataset("d", data=source, dtype=strings)
    map_all(tmp_path / "v.h5", (6, 9), np.s_[:, 1:], strings)
    with ps.File(tmp_path / "v.h5") as file:
        assert file["v"].asstr()[:, :3].tolist() == source[:, 1:].tolist()
        for read in (file["v"], file["v"].asstr()):
            with pytest.raises(ps.IOFailure, match=NAMES):
                read[0]
        with pytest.raises(ps.IOFailure, match=NAMES):
            file["v"].read_async().wait()


def test_only_wanted_mappings_are_compared(tmp_path):
    layout = h5py.VirtualLayout((3, 20), "i4")
    for row, length in enumerate((20, 10, None)):
        if length:
            save(tmp_path / f"{row}.h5", numbers(length))
        layout[row, :20] = h5py.VirtualSource(f"{row}.h5", "group/d", (20,))[:20]
    with h5py.File(tmp_path / "v.h5", "w", libver="latest") as file:
        file.create_virtual_dataset("v", layout, fillvalue=5)
    expected = np.full((3, 20), 5)
    expected[0] = numbers(20)
    expected[1] = at_coordinates(numbers(10), (20,))
    parts = [np.s_[0], np.s_[1], np.s_[2], np.s_[::2], np.s_[1, :10], np.s_[:, :10], np.s_[...]]
    assert len(list(check(tmp_path / "v.h5", expected, parts))) > 0


@pytest.mark.parametrize("nested", ["s.h5", "."])
def test_a_source_that_is_virtual_itself_follows_the_rule(tmp_path, nested):
    save(tmp_path / "s.h5", numbers((12, 10)))
    map_all(tmp_path / "v.h5", (12, 20), np.s_[:, 4:])
    with h5py.File(tmp_path / "v.h5", "r+", libver="latest") as file:
        file.move("v", "inner")
        layout = h5py.VirtualLayout((6, 16), "i4")
        layout[...] = h5py.VirtualSource("v.h5" if nested != "." else ".", "inner", (12, 16))[::2]
        file.create_virtual_dataset("v", layout)
    expected = at_coordinates(numbers((12, 10)), (12, 20), np.s_[::2, 4:])
    parts = [np.s_[...], np.s_[0], np.s_[:, :6], np.s_[2, 5]]
    for error in check(tmp_path / "v.h5", expected, parts):
        assert "its source /group/d" in error


def unlimited(path, names, block, source_block, extent):
    """Make a virtual dataset that grows along its first dimension with its source or sources."""
    endless = h5py.h5s.UNLIMITED
    target = h5py.h5s.create_simple((1, extent), (endless, extent))
    stride = (block[1][0] if block[0][0] == endless else 1, 1)
    target.select_hyperslab((0, 0), block[0], stride, block[1])
    source = h5py.h5s.create_simple((1, extent), (endless, extent))
    source.select_hyperslab((0, 0), source_block[0], (1, 1), source_block[1])
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_virtual(target, names[0].encode(), names[1].encode(), source)
    space = h5py.h5s.create_simple((1, extent), (endless, extent))
    with h5py.File(path, "w", libver="latest") as file:
        h5py.h5d.create(file.id, b"v", h5py.h5t.NATIVE_INT32, space, properties)


def test_an_unlimited_mapping_grows_with_its_source(tmp_path):
    endless = h5py.h5s.UNLIMITED
    form = ((1, 1), (endless, 20))
    unlimited(tmp_path / "v.h5", ("s.h5", "group/d"), form, form, 20)
    for rows in (3, 8):
        save(tmp_path / "s.h5", numbers((rows, 20)), chunks=(2, 5), maxshape=(None, 20))
        assert not list(check(tmp_path / "v.h5", numbers((rows, 20)), [np.s_[...], 0, np.s_[-1]]))
    save(tmp_path / "s.h5", numbers((8, 10)), chunks=(2, 5), maxshape=(None, 20))
    with ps.File(tmp_path / "v.h5") as file:
        for _, found in by_every_call(file["v"], 0):
            assert isinstance(found, ps.IOFailure)
            assert "has shape [8, 10]" in str(found)


def test_a_series_of_sources_grows_and_each_is_compared(tmp_path):
    form, one = ((h5py.h5s.UNLIMITED, 1), (2, 20)), ((1, 1), (2, 20))
    unlimited(tmp_path / "v.h5", ("s%b.h5", "group/d"), form, one, 20)
    for number in range(3):
        save(tmp_path / f"s{number}.h5", numbers((2, 20)) + number)
        expected = np.concatenate([numbers((2, 20)) + n for n in range(number + 1)])
        assert not list(check(tmp_path / "v.h5", expected, [np.s_[...], 0, np.s_[-1]]))
    save(tmp_path / "s2.h5", numbers((2, 10)))
    expected[4:] = -1
    assert list(check(tmp_path / "v.h5", expected, [np.s_[...], 0, np.s_[:4], np.s_[-1]]))


SHRINK = """
import sys, h5py
with h5py.File(sys.argv[1], "r+", locking=False) as file:
    file["group/d"].resize(eval(sys.argv[2]))
"""


# HDF5 keeps the source open after it has read a small part, and then no other program resizes it.
@pytest.mark.parametrize(
    ("way", "first"), [("replaced", "index"), ("replaced", "async"), ("resized", "async")]
)
def test_a_source_that_changes_while_the_dataset_is_open_is_seen(tmp_path, way, first):
    source = numbers((12, 20))
    save(tmp_path / "s.h5", source, chunks=(5, 7), maxshape=(None, None))
    map_all(tmp_path / "v.h5", (12, 20), np.s_[:, ::2])
    time.sleep(0.1)  # the times of a file tell of every change after that
    with ps.File(tmp_path / "v.h5", locking=False) as file:
        dataset = file["v"]
        read = {"index": lambda: dataset[0], "async": lambda: dataset.read_async(0).wait()}[first]
        np.testing.assert_array_equal(read(), source[0, ::2])
        if way == "replaced":
            save(tmp_path / "new.h5", numbers((12, 10)))
            os.replace(tmp_path / "new.h5", tmp_path / "s.h5")
        else:
            subprocess.run(
                [sys.executable, "-c", SHRINK, tmp_path / "s.h5", "(12, 10)"], check=True
            )
        for name, found in by_every_call(dataset, 0):
            assert isinstance(found, ps.IOFailure), (name, found)


@pytest.mark.parametrize("now", [(15, 26), (9, 14)])
def test_a_source_that_could_not_be_looked_at_is_compared_as_soon_as_it_can(tmp_path, now):
    map_all(tmp_path / "v.h5", (12, 20), fill=-1)
    path = tmp_path / "s.h5"
    path.symlink_to(path)
    with ps.File(tmp_path / "v.h5", locking=False) as file:
        dataset = file["v"]
        np.testing.assert_array_equal(dataset[1, :16], -1)
        path.unlink()
        save(path, numbers(now))
        for name, found in by_every_call(dataset, np.s_[1, :16]):
            if now == (9, 14):
                assert isinstance(found, ps.IOFailure), (name, found)
            else:
                np.testing.assert_array_equal(found, numbers(now)[1, :16], err_msg=name)


def test_a_source_that_this_process_resizes_is_seen(tmp_path):
    save(tmp_path / "s.h5", numbers((12, 20)), chunks=(5, 7), maxshape=(None, None))
    map_all(tmp_path / "v.h5", (12, 20), np.s_[:, ::2])
    with h5py.File(tmp_path / "s.h5", "r+") as written, ps.File(tmp_path / "v.h5") as file:
        np.testing.assert_array_equal(file["v"][0], numbers((12, 20))[0, ::2])
        written["group/d"].resize((12, 10))
        for name, found in by_every_call(file["v"], 0):
            assert isinstance(found, ps.IOFailure), (name, found)
        np.testing.assert_array_equal(file["v"][0, :5], numbers((12, 20))[0, :10:2])


def test_an_irregular_selection_of_a_source_that_shrank_is_read_where_it_is(tmp_path):
    source = numbers((12, 20))
    space = h5py.h5s.create_simple((12, 20))
    space.select_hyperslab((1, 2), (2, 6))
    space.select_hyperslab((5, 0), (1, 20), op=h5py.h5s.SELECT_OR)
    mask = np.zeros((12, 20), bool)
    mask[1:3, 2:8], mask[5] = True, True
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    line = h5py.h5s.create_simple((int(mask.sum()),))
    properties.set_virtual(line, b"s.h5", b"group/d", space)
    with h5py.File(tmp_path / "v.h5", "w", libver="latest") as file:
        h5py.h5d.create(file.id, b"v", h5py.h5t.NATIVE_INT32, line, properties)
    for width in (20, 10):
        save(tmp_path / "s.h5", source[:, :width])
        expected = at_coordinates(source[:, :width], (12, 20))[mask]
        parts = [np.s_[...], np.s_[:12], np.s_[3], np.s_[-1], np.s_[10:15]]
        assert bool(list(check(tmp_path / "v.h5", expected, parts))) == (width == 10)


@pytest.mark.parametrize("now", [(15, 26), (9, 26), (9, 14)])
@pytest.mark.parametrize("name", STORED)
def test_a_file_that_is_open_for_writing_follows_the_rule(tmp_path, monkeypatch, name, now):
    monkeypatch.chdir(tmp_path)
    map_all("v.h5", SMALL)
    source = numbers(now)
    save("s.h5", source, **STORED[name])
    parts = [np.s_[...], np.s_[1, :5], np.s_[2:6, :3]]
    list(check("v.h5", at_coordinates(source, SMALL), parts, "r+"))
