"""Files, groups and datasets do what h5py's do: h5py is the oracle."""

from __future__ import annotations

import operator

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.hdf5 import dataset as datasets
from penstock.hdf5 import small
from penstock.hdf5.selection import split

POINT = np.dtype([("x", "<f4"), ("y", "<i2"), ("name", "S3")])
COLOURS = h5py.enum_dtype({"RED": 0, "GREEN": 1}, "i1")
CONTENTS = {
    "integers": np.arange(60, dtype="i4").reshape(5, 4, 3),
    "big_endian": np.linspace(0, 1, 24, dtype=">f8").reshape(6, 4),
    "booleans": np.arange(9) % 2 == 0,
    "bytes": np.array([b"a", b"bc", b"", b"def"], "S3"),
    "points": np.array([(1.5, 2, b"a"), (-1, 3, b"bc"), (0, -4, b"")], POINT),
    "arrays": np.arange(12).reshape(4, 3).astype("i2"),
    "column": np.arange(7, dtype="u1").reshape(7, 1),
    "nothing": np.empty((0, 3), "f4"),
    "number": np.float64(2.5),
    "point": np.array((1, 2, b"z"), POINT)[()],
}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("habits") / "f.h5"
    with h5py.File(path, "w") as file:
        for name, contents in CONTENTS.items():
            file[f"contiguous/{name}"] = contents
            if contents.ndim and contents.size:
                file.create_dataset(f"chunked/{name}", data=contents, chunks=True, compression=1)
        plain = file["contiguous"]
        plain["texts"] = ["a", "", "äöü", "x" * 300]
        plain["text"] = "one"
        plain["null"] = h5py.Empty("f4")
        plain.create_dataset("colours", data=[0, 1, 1], dtype=COLOURS)
        plain.create_dataset("vectors", 4, np.dtype(("i2", 3)))[...] = CONTENTS["arrays"]
        ragged = plain.create_dataset("ragged", 3, h5py.vlen_dtype("i4"))
        ragged[0], ragged[2] = [1, 2, 3], [4]
        references = plain.create_dataset("references", 2, h5py.ref_dtype)
        references[0] = plain["integers"].ref
        regions = plain.create_dataset("regions", 2, h5py.regionref_dtype)
        regions[0] = plain["big_endian"].regionref[1:3, ::2]
        grown = file.create_dataset("grown", (3, 2), maxshape=(None, 2), fillvalue=7, dtype="i8")
        grown.attrs["unit"] = "m"
        grown.dims[0].label = "time"
        file["time"] = np.arange(3.0)
        file["time"].make_scale("t")
        grown.dims[0].attach_scale(file["time"])
        file["soft"] = h5py.SoftLink("/grown")
        file["broken"] = h5py.SoftLink("/absent")
        file["kind"] = np.dtype("i2")
    return path


@pytest.fixture(scope="module")
def both(path):
    """The file, opened by h5py and by Penstock."""
    with h5py.File(path) as theirs, ps.File(path) as ours:
        yield theirs, ours


def outcome(function):
    """What a function returns, or the exception that it raises."""
    try:
        return function(), None
    except Exception as error:
        return None, error


def assert_same(ours, theirs):
    assert type(ours) is type(theirs)
    if isinstance(theirs, h5py.Empty):
        assert ours.dtype == theirs.dtype
    elif isinstance(theirs, (np.ndarray, np.generic)):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        assert ours.dtype.metadata == theirs.dtype.metadata
        if theirs.dtype.hasobject:
            for a, b in zip(np.ravel(ours), np.ravel(theirs), strict=True):
                assert_same(a, b)
        else:
            np.testing.assert_array_equal(ours, theirs)
    elif isinstance(theirs, (h5py.Reference, h5py.RegionReference)):
        assert bool(ours) == bool(theirs)
    else:
        assert ours == theirs


def assert_same_outcome(ours, theirs, by_numpy=None):
    """Both return the same, or both raise. Where h5py refuses an index, NumPy may answer."""
    (value, error), (expected, their_error) = outcome(ours), outcome(theirs)
    if their_error is None:
        assert error is None, error
        assert_same(value, expected)
    elif error is None:
        assert by_numpy is not None, f"h5py raises {their_error!r}"
        wanted = by_numpy()
        if wanted.dtype.hasobject and wanted.dtype.names is None:
            assert_same(value, wanted)
        else:
            np.testing.assert_array_equal(value, wanted)
    else:
        # h5py leaves some indices that are out of range to HDF5, which fails as for a bad file.
        late = (IndexError, ValueError, OSError)
        kinds = late if type(their_error) is OSError else (type(their_error),)
        _, numpy_error = outcome(by_numpy) if by_numpy else (None, None)
        assert isinstance(error, (*kinds, type(numpy_error))), (error, their_error)


@st.composite
def selections(draw, shape, names):
    """An argument of ``dataset[...]``, which need not fit."""
    parts = []
    for length in shape:
        index = st.integers(-length - 1, length)
        kinds = [
            st.slices(length + 1),
            st.sampled_from([slice(None), slice(1, None), slice(None, None, 2), slice(2, 1)]),
            index,
            index.map(np.int64),
            st.lists(st.integers(0, max(length - 1, 0)), max_size=4, unique=True).map(sorted),
            st.lists(st.booleans(), min_size=length, max_size=length).map(np.array),
        ]
        parts.append(draw(st.one_of(kinds)))
    parts = parts[: draw(st.integers(0, len(parts)))]
    if draw(st.booleans()):
        parts.insert(draw(st.integers(0, len(parts))), Ellipsis)
    if names and draw(st.booleans()):
        parts += draw(st.lists(st.sampled_from([*names, "absent"]), max_size=2, unique=True))
    if len(parts) == 1 and draw(st.booleans()):
        return parts[0]
    return tuple(parts)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), small_too=st.booleans())
def test_an_index_gives_what_it_gives_by_h5py(both, data, small_too):
    theirs, ours = both
    group = data.draw(st.sampled_from(["contiguous", "chunked"]))
    name = data.draw(st.sampled_from(sorted(theirs[group])))
    expected, found = theirs[group][name], ours[group][name]
    chosen = data.draw(selections(expected.shape or (), expected.dtype.names))
    with pytest.MonkeyPatch.context() as patch:
        if not small_too:
            patch.setattr(small, "LIMIT", 0)
        indices, names = split(chosen)
        fields = names[0] if len(names) == 1 else list(names)
        assert_same_outcome(
            lambda: found[chosen],
            lambda: expected[chosen],
            lambda: by_numpy(expected, indices, fields),
        )


def by_numpy(dataset, indices, fields):
    """Elements, which may be arrays themselves, by the numbers that NumPy finds for them."""
    numbers = np.arange(dataset.size).reshape(dataset.shape)[indices]
    whole = dataset[()]
    found = whole.reshape(dataset.size, *whole.shape[dataset.ndim :])[numbers]
    return found[fields] if fields else found


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_mask_of_the_whole_gives_what_it_gives_by_h5py(both, data):
    theirs, ours = both
    expected = theirs["contiguous/big_endian"]
    bits = data.draw(st.lists(st.booleans(), min_size=24, max_size=24))
    mask = np.array(bits).reshape(6, 4)
    found = ours["contiguous/big_endian"]
    assert_same_outcome(lambda: found[mask], lambda: expected[mask])


def test_a_reference_opens_an_object_and_selects_elements(both):
    theirs, ours = both
    plain = ours["contiguous"]
    assert ours[plain["references"][0]] == plain["integers"]
    region = plain["regions"][0]
    expected = theirs["contiguous/big_endian"][region]
    np.testing.assert_array_equal(plain["big_endian"][region], expected)
    assert isinstance(ours[region], ps.Dataset)


METADATA = [
    "chunks",
    "compression",
    "compression_opts",
    "dtype",
    "external",
    "fillvalue",
    "fletcher32",
    "is_scale",
    "is_virtual",
    "maxshape",
    "name",
    "nbytes",
    "ndim",
    "scaleoffset",
    "shape",
    "shuffle",
    "size",
]


@pytest.mark.parametrize("attribute", METADATA)
def test_an_attribute_is_that_of_h5py(both, path, attribute):
    theirs, ours = both
    read = operator.attrgetter(attribute)
    names = ["grown", "time", *(f"contiguous/{n}" for n in theirs["contiguous"])]
    for name in [*names, *(f"chunked/{n}" for n in theirs["chunked"])]:
        assert_same_outcome(lambda n=name: read(ours[n]), lambda n=name: read(theirs[n]))


FUNCTIONS = [
    len,
    bool,
    list,
    np.asarray,
    lambda dataset: np.array(dataset, dtype="f8"),
    lambda dataset: dataset.len(),
    lambda dataset: dataset.asstr()[()],
    lambda dataset: dataset.asstr("latin1")[0],
    lambda dataset: dataset.astype("f4")[()],
    lambda dataset: dataset.astype(">i2")[1:],
    lambda dataset: np.asarray(dataset.astype("f8")),
    lambda dataset: dataset.astype("f8").shape,
    lambda dataset: dataset.fields("x")[()],
    lambda dataset: dataset.fields(["y", "x"])[1:],
    lambda dataset: dataset.fields(["name"])[:],
    lambda dataset: dataset.fields(["absent"])[:],
    lambda dataset: list(dataset.iter_chunks()),
    lambda dataset: dataset.virtual_sources(),
    lambda dataset: list(dataset.attrs),
    lambda dataset: [d.label for d in dataset.dims],
    lambda dataset: [len(d) for d in dataset.dims],
    lambda dataset: dataset.parent.name,
    lambda dataset: dataset.file.filename,
    lambda dataset: hash(dataset) == hash(dataset.file[dataset.name]),
    lambda dataset: dataset.regionref.shape(dataset.regionref[...]),
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=range(len(FUNCTIONS)))
def test_a_function_of_a_dataset_returns_what_it_returns_by_h5py(both, function):
    theirs, ours = both
    names = ["grown", "time", *(f"contiguous/{n}" for n in theirs["contiguous"])]
    for name in [*names, *(f"chunked/{n}" for n in theirs["chunked"])]:
        (found, error), (expected, their_error) = (
            outcome(lambda n=name: function(ours[n])),
            outcome(lambda n=name: function(theirs[n])),
        )
        if name.endswith("vectors") and error is None and their_error is not None:
            continue  # h5py converts no elements that are arrays
        assert (error is None) == (their_error is None), (name, error, their_error)
        if error is not None:
            assert isinstance(error, type(their_error)), (name, error, their_error)
        elif isinstance(expected, list):
            for a, b in zip(found, expected, strict=True):
                assert_same(a, b)
        else:
            assert_same(found, expected)


GROUP_FUNCTIONS = [
    len,
    list,
    lambda group: list(reversed(group)),
    lambda group: list(group.keys()),
    lambda group: [v is None or v.name for v in group.values()],
    lambda group: [(k, v is None or v.name) for k, v in group.items()],
    lambda group: ("grown" in group, "absent" in group, "/contiguous/text" in group),
    lambda group: group.get("absent", 3),
    lambda group: group.get("soft").name,
    lambda group: group.get("soft", getlink=True).path,
    lambda group: group.get("soft", getclass=True, getlink=True),
    lambda group: group.get("grown", getclass=True).__name__,
    lambda group: group.get("broken"),
    lambda group: group["absent"],
    lambda group: group["broken"],
    lambda group: group[3],
    lambda group: group["kind"].dtype,
    lambda group: group.visit(lambda name: name if "text" in name else None),
    lambda group: group.visititems(lambda name, item: item.name if "text" in name else None),
    lambda group: group["contiguous"]["/grown"].name,
    lambda group: group["contiguous"].parent.name,
    lambda group: (group.mode, group.filename, group.driver, group.swmr_mode, group.libver),
    lambda group: (group.userblock_size, group.name, bool(group)),
]


@pytest.mark.parametrize("function", GROUP_FUNCTIONS, ids=range(len(GROUP_FUNCTIONS)))
def test_a_function_of_a_group_returns_what_it_returns_by_h5py(both, function):
    theirs, ours = both
    (found, error), (expected, their_error) = (
        outcome(lambda: function(ours)),
        outcome(lambda: function(theirs)),
    )
    assert type(error) is type(their_error)
    assert found == expected


def test_objects_are_equal_to_themselves_and_to_those_of_h5py(both):
    _, ours = both
    same = h5py.Dataset(ours["grown"].id)
    assert ours["grown"] == ours["soft"] == same
    assert same == ours["grown"]
    assert ours["grown"] != ours["time"]
    assert len({ours["grown"], ours["soft"], same}) == 1
    assert ours["grown"].file is ours
    assert (ours["grown"] == np.int64(7)).all()  # no object, so elements are compared


def test_items_of_a_group_are_those_of_penstock(both):
    _, ours = both
    seen = []
    ours.visititems(lambda _, item: seen.append(type(item)))
    assert set(seen) == {ps.Dataset, ps.Group, h5py.Datatype}
    assert type(ours.get("grown")) is ours.get("grown", getclass=True) is ps.Dataset
    assert {type(item) for item in ours["contiguous"].values()} == {ps.Dataset}


@pytest.fixture
def twins(tmp_path):
    """Two new files, of h5py and of Penstock, that end with the same contents."""
    with h5py.File(tmp_path / "a.h5", "w") as theirs, ps.File(tmp_path / "b.h5", "w") as ours:
        yield theirs, ours
        ours.flush()

        def compare(name, item):
            twin = ours.h5py[name]
            assert dict(twin.attrs) == dict(item.attrs)
            if isinstance(item, h5py.Dataset):
                assert twin.maxshape == item.maxshape
                assert twin.chunks == item.chunks
                assert_same(twin[()], item[()])

        theirs.visititems(compare)
        assert [*ours.h5py.keys()] == [*theirs.keys()]


def make_groups(file):
    file.create_group("a/b").attrs["x"] = 1
    file.require_group("a").create_group("c", track_order=True)
    with pytest.raises(ValueError, match="name already exists"):
        file.create_group("a")
    file["d"] = 1
    with pytest.raises(TypeError):
        file.require_group("d")


def make_datasets(file):
    file.create_dataset("x", (4, 3), "f4", chunks=(2, 3), maxshape=(None, 3), fillvalue=2)
    assert file.require_dataset("x", (4, 3), "f4") == file["x"]
    file.require_dataset("y", (2,), "i4", exact=True)[...] = [1, 2]
    for shape, kind in [((4, 4), "f4"), ((4, 3), "f8")]:
        with pytest.raises(TypeError):
            file.require_dataset("x", shape, kind)
    file.create_dataset_like("z", file["x"])
    file.create_dataset(None, data=[1, 2])
    with pytest.raises(TypeError):
        file.create_dataset("w")
    with pytest.raises(ValueError, match="name already exists"):
        file.create_dataset("x", data=[1])


def name_things(file):
    file["numbers"] = np.arange(5)
    file["list"] = [1.5, 2]
    file["text"] = "text"
    file["again"] = file["numbers"]
    file["soft"] = h5py.SoftLink("/numbers")
    file["away"] = h5py.ExternalLink("absent.h5", "/x")
    file["kind"] = np.dtype("i4")
    with pytest.raises(OSError, match="name already exists"):
        file["numbers"] = 3
    file.update({"one": 1, "two": 2})
    assert file.pop("one")
    file.setdefault("three", 3)
    file.copy("numbers", "copy")
    file.copy(file["numbers"], file.create_group("g"), name="inside")
    file.move("text", "words/text")
    del file["list"]
    with pytest.raises(KeyError):
        del file["list"]


def write_elements(file):
    x = file.create_dataset("x", (4, 3), "f4", chunks=(2, 3), maxshape=(None, 3))
    x[...] = 1
    x[1] = [1, 2, 3]
    x[:, 1] = np.arange(4)
    x[[0, 2], 0] = 9
    x[np.array(x[...]) == 9] = 8
    x.resize((6, 3))
    x.resize(5, axis=0)
    x.shape = (7, 3)
    x[-1] = np.int8(5)
    p = file.create_dataset("p", data=CONTENTS["points"])
    p["y"] = [7, 8, 9]
    p[0] = (1, 2, b"new")
    t = file.create_dataset("t", 2, h5py.string_dtype())
    t[0], t[1] = "a", b"b"
    s = file.create_dataset("s", data=3)
    s[()] = 4
    for index, value in [(9, 1), ((0, 0, 0), 1), (slice(None), [1, 2]), ("absent", 1)]:
        with pytest.raises((IndexError, ValueError, TypeError)):
            x[index] = value


def write_directly(file):
    x = file.create_dataset("x", (4, 3), "f4")
    source = np.arange(12, dtype="f8").reshape(4, 3)
    x.write_direct(source)
    x.write_direct(source, np.s_[0], np.s_[3])
    x.write_direct(source, np.s_[0:1], np.s_[1:3])
    found = np.zeros((4, 3))
    x.read_direct(found, np.s_[1:3], np.s_[0:2])
    x.read_direct(found, np.s_[0], np.s_[2:])  # broadcast
    file["found"] = found
    x.read_direct(found)
    file["whole"] = found
    with pytest.raises(TypeError):
        x.read_direct(np.zeros((4, 3))[:, 0], np.s_[0:2])


@pytest.mark.parametrize(
    "change", [make_groups, make_datasets, name_things, write_elements, write_directly]
)
@pytest.mark.parametrize("limit", [0, small.LIMIT])
def test_a_file_is_changed_as_by_h5py(twins, change, limit, monkeypatch):
    monkeypatch.setattr(small, "LIMIT", limit)
    theirs, ours = twins
    change(theirs)
    change(ours)


def test_an_open_file_of_h5py_is_used_and_not_closed(path):
    with h5py.File(path) as theirs:
        with ps.File(theirs) as ours:
            assert ours == theirs
            assert ours["grown"][0, 0] == 7
        assert theirs
        with pytest.raises(ps.InvalidError, match="open already"):
            ps.File(theirs, "r+")
        with ps.File(ps.File(theirs)) as ours:
            assert ours["grown"].file is ours
        assert theirs


def test_a_file_is_true_until_it_is_closed(path):
    file = ps.File(path)
    dataset = file["grown"]
    assert file
    assert dataset
    file.close()
    file.close()
    assert not file
    assert not dataset
    with pytest.raises(ps.InvalidError, match="closed"):
        dataset[0]


def test_a_file_in_memory_is_made_and_closed():
    if not hasattr(h5py.File, "in_memory"):
        pytest.skip("this h5py has no File.in_memory")
    with ps.File.in_memory() as file:
        file["x"] = np.arange(1000.0)
        assert file["x"][999] == 999
    assert not file


@pytest.mark.parametrize("give", [lambda d: d, lambda d: d.h5py], ids=["ours", "h5py"])
def test_functions_take_a_dataset_of_either(tmp_path, give):
    with ps.File(tmp_path / "f.h5", "w") as file:
        x = file.create_dataset("x", (100,), "f8")
        ps.write(give(x), np.arange(100))
        ps.write_async(give(x), np.arange(50.0), np.s_[:50]).wait()
        assert ps.read(give(x), np.s_[10]) == 10
        assert ps.read_async(give(x)).wait()[99] == 99


def test_functions_take_the_name_of_a_dataset(tmp_path, nothing_is_small):
    name = tmp_path / "with:colon.h5"
    with h5py.File(name, "w") as file:
        file["group/x:y"] = np.arange(1000.0)
    dataset = f"{name}:group/x:y"
    ps.write(dataset, np.full(10, -1), np.s_[5:15])
    assert ps.read(dataset, np.s_[15]) == 15
    pending = ps.read_async(dataset)
    assert pending.wait()[14] == -1
    with h5py.File(name, "r+"):  # which others may open again
        pass
    for wrong, error in [
        (f"{name}:absent", KeyError),
        (f"{name}:group", ps.InvalidError),
        (str(name), ps.InvalidError),
        (str(tmp_path / "absent.h5:x"), FileNotFoundError),
    ]:
        with pytest.raises(error):
            ps.read(wrong)
    with pytest.raises(ps.IncompatibleError):
        ps.write_async(dataset, np.zeros(1000))


@pytest.mark.parametrize("text", ["absent.h5", "absent.h5:x", "absent.h5:group/x"])
def test_a_missing_file_that_is_named_with_a_dataset_is_named_alone(tmp_path, text):
    with pytest.raises(ps.NotFoundError) as caught:
        ps.read(str(tmp_path / text))
    assert caught.value.path == str(tmp_path / "absent.h5")


def test_a_dataset_is_data_for_another_one(tmp_path):
    with ps.File(tmp_path / "f.h5", "w") as file:
        file["x"] = np.arange(1000.0)
        file.create_dataset("copy", data=file["x"], chunks=(100,))
        file["half"] = np.zeros(500)
        file["half"][...] = file["x"][500:]
        assert (file["copy"][()] == file["x"][()]).all()
        assert file["half"][0] == 500


def test_pending_writes_precede_what_h5py_does_itself(tmp_path, nothing_is_small):
    with ps.File(tmp_path / "f.h5", "w") as file:
        x = file.create_dataset("x", (100_000,), "S8", chunks=(1000,), compression="gzip")
        words = np.arange(100_000).astype("S8")
        request = ps.write_async(x, words)
        assert x.asstr()[99_999] == "99999"
        request.wait()
        request = ps.write_async(x, words[::-1].copy())
        file.copy("x", "y")
        assert file["y"][0] == b"99999"
        request.wait()


@pytest.mark.parametrize("chunks", [None, (1, 50), (64, 10), (1000, 50)])
def test_an_iteration_yields_each_row_once(tmp_path, chunks, monkeypatch):
    monkeypatch.setattr(datasets, "READ_BYTES", 10_000)
    numbers = np.arange(50_000.0).reshape(1000, 50)
    with ps.File(tmp_path / "f.h5", "w") as file:
        file.create_dataset("x", data=numbers, chunks=chunks)
    with ps.File(tmp_path / "f.h5") as file:
        assert datasets.rows_at_a_time(file["x"].h5py) > 1
        np.testing.assert_array_equal(list(file["x"]), numbers)
        first = next(iter(file["x"]))
        assert first.base is None  # it keeps no other rows in memory
        assert first.flags.writeable


def test_an_iteration_yields_the_rows_before_one_that_cannot_be_read(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        x = file.create_dataset("x", data=np.ones((9, 4)), chunks=(2, 4), compression="gzip")
        x.id.write_direct_chunk((6, 0), b"this is not a deflate stream")
    with ps.File(tmp_path / "f.h5") as file:
        rows_ = iter(file["x"])
        np.testing.assert_array_equal([next(rows_) for _ in range(6)], np.ones((6, 4)))
        with pytest.raises(ps.Error, match="chunk at"):
            next(rows_)


def test_an_iteration_sees_what_is_written_before_it_comes_there(tmp_path):
    with ps.File(tmp_path / "f.h5", "w") as file:
        x = file.create_dataset("x", data=np.zeros((10, 3)))
        for index, row in enumerate(x):
            assert (row == index).all()
            x[index + 1 :] = index + 1


def test_rows_of_large_chunks_do_not_take_more_memory_than_requested(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file.create_dataset("x", (10_000, 1_000_000), "f8", chunks=(1000, 1000))
    with h5py.File(tmp_path / "f.h5") as file:
        assert datasets.rows_at_a_time(file["x"]) == 1


def test_a_single_string_fills_an_array_without_dimensions(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file["names"] = np.array([b"abcde", b"fg"])
    out = np.zeros((), "S5")
    with ps.File(tmp_path / "f.h5") as file:
        assert file["names"].read(1, out=out) is out
    assert out[()] == b"fg"


def test_objects_are_those_of_h5py(tmp_path):
    with ps.File(tmp_path / "f.h5", "w") as file:
        file["group/x"] = np.arange(3)
        for found, kind in (
            (file, h5py.File),
            (file["group"], h5py.Group),
            (file["group/x"], h5py.Dataset),
            (file["group/x"].parent, h5py.Group),
            (file["group"].create_dataset("y", (3,), "f4"), h5py.Dataset),
        ):
            assert isinstance(found, kind)
            assert type(found).__module__.startswith("penstock.")
            assert type(found.h5py) is kind
            assert found.h5py == found
            assert hash(found.h5py) == hash(found)
        assert h5py.File(file.id) == file
        assert h5py.Dataset(file["group/x"].id)[:].tolist() == [0, 1, 2]
    assert not file.h5py


def test_a_group_opens_what_its_file_opens(tmp_path):
    path, other = tmp_path / "f.h5", tmp_path / "other.h5"
    with h5py.File(other, "w") as file:
        file["g/x"] = np.arange(3)
    with h5py.File(path, "w") as file:
        file["g/x"], file["g/h/ä"] = np.arange(5), np.arange(7)
        file["g/type"] = np.dtype("f4")
        file["g/soft"], file["g/lost"] = h5py.SoftLink("/g/x"), h5py.SoftLink("/nothing")
        file["g/other"] = h5py.ExternalLink(other.name, "/g")
    with ps.File(path) as file:
        group = file["g"]
        for name in ("x", "h", "h/ä", "type", "soft", "other", "other/x", "/g/x"):
            found, same = group[name], file[f"/g/{name}" if name[0] != "/" else name]
            assert (type(found), found.name, found == same) == (type(same), same.name, True)
        for dataset in (group["x"], group["h"]["ä"], group["other"]["x"]):
            with h5py.File(dataset.file.filename) as theirs:
                np.testing.assert_array_equal(dataset[...], theirs[dataset.name][...])
        assert group["x"].file is file
        assert group["other"]["x"].file.filename == str(other)
        for name in ("none", "lost", "x/none"):
            with pytest.raises(KeyError):
                group[name]
        with pytest.raises(TypeError):
            group[3]
        unused = file["g"]
    for closed in (group, unused):
        with pytest.raises(KeyError, match="invalid identifier"):
            closed["x"]
    with ps.File(path, "r+") as file:
        file["g"]["x"][1] = 9
        assert file["g"]["x"][...].tolist() == [0, 9, 2, 3, 4]


def test_read_direct_fills_all_of_an_array_without_dimensions(tmp_path):
    with ps.File(tmp_path / "f.h5", "w") as file:
        file["x"] = 3.5
        out = np.zeros(())
        file["x"].read_direct(out, (), ())
    assert out == 3.5
