"""What a read finds where nothing was written.

The datasets have every layout, fill time, allocation time and fill value. All memory holds a
pattern before the read. New arrays have h5py's values. An array that is given keeps the bytes that
HDF5 leaves.
"""

from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import h5py
import numpy as np
import pytest

import penstock as ps
from penstock.memory import copy_bytes

HDF5 = ctypes.CDLL(h5py.h5.__file__)
HDF5.H5Pset_fill_value.argtypes = [ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]

PATTERN = 0xA5
SIZES = {"small": 600, "large": 1 << 16}
LAYOUTS = ("contiguous", "chunked", "gzip", "compact")
FILL_TIMES = {
    "alloc": h5py.h5d.FILL_TIME_ALLOC,
    "never": h5py.h5d.FILL_TIME_NEVER,
    "ifset": h5py.h5d.FILL_TIME_IFSET,
}
ALLOC_TIMES = {
    "early": h5py.h5d.ALLOC_TIME_EARLY,
    "late": h5py.h5d.ALLOC_TIME_LATE,
    "incr": h5py.h5d.ALLOC_TIME_INCR,
}
FILLS = ("defined", "default", "undefined")


def creation(layout: str, size: int, fill_time: str, alloc_time: str, fill: str) -> Any:
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    if layout == "compact":
        plist.set_layout(h5py.h5d.COMPACT)
    elif layout != "contiguous":
        plist.set_chunk((size // 8,))
        if layout == "gzip":
            plist.set_deflate(1)
    plist.set_fill_time(FILL_TIMES[fill_time])
    plist.set_alloc_time(ALLOC_TIMES[alloc_time])
    if fill == "defined":
        plist.set_fill_value(np.array(7, "i4"))
    elif fill == "undefined":
        assert HDF5.H5Pset_fill_value(plist.id, -1, None) >= 0
    return plist


def make_all(file: h5py.File, size: int) -> None:
    """Datasets of every kind that HDF5 makes, and a virtual one over each."""
    kinds = itertools.product(LAYOUTS, FILL_TIMES, ALLOC_TIMES, FILLS, ("none", "part"))
    # A prime step meets every value of every property, and most pairs.
    step = 1 if "PENSTOCK_CASES" in os.environ else 5
    for layout, fill_time, alloc_time, fill, written in itertools.islice(kinds, 0, None, step):
        name = "-".join((layout, fill_time, alloc_time, fill, written))
        plist = creation(layout, size, fill_time, alloc_time, fill)
        space = h5py.h5s.create_simple((size,))
        try:
            made = h5py.h5d.create(file.id, name.encode(), h5py.h5t.STD_I32LE, space, plist)
        except (ValueError, OSError, RuntimeError):
            continue  # HDF5 refuses what contradicts itself
        if written == "part":
            h5py.Dataset(made)[size // 4 : size // 3] = np.arange(size // 3 - size // 4)
        virtual = h5py.VirtualLayout((size + 50,), "i4")
        virtual[20 : size + 20] = h5py.VirtualSource(".", name, (size,))
        file.create_virtual_dataset(f"virtual-{name}", virtual, fillvalue=-1)


class Stored(NamedTuple):
    ours: ps.File
    theirs: h5py.File


@pytest.fixture(scope="module", params=SIZES)
def stored(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stored]:
    path = tmp_path_factory.mktemp("holes") / "holes.h5"
    with h5py.File(path, "w", libver="latest") as file:
        make_all(file, SIZES[request.param])
    with ps.File(path) as ours, h5py.File(path) as theirs:
        yield Stored(ours, theirs)


@pytest.fixture
def dirty_heap() -> Iterator[None]:
    """New memory of the C library holds a pattern, also where it would be mapped."""
    libc = ctypes.CDLL(None)
    perturb, mmap_threshold = -6, -3
    if not libc.mallopt(perturb, PATTERN):
        pytest.skip("the C library has no M_PERTURB")
    libc.mallopt(mmap_threshold, 32 << 20)
    yield
    libc.mallopt(perturb, 0)


@pytest.fixture
def dirty_gpu(monkeypatch: pytest.MonkeyPatch, penstock_arrays: None) -> None:
    """New memory of the GPU holds a pattern."""
    make = ps.DeviceArray.__init__

    def dirty(self: Any, *arguments: Any, **keys: Any) -> None:
        make(self, *arguments, **keys)
        junk = np.full(self.nbytes, PATTERN, np.uint8)
        copy_bytes(self.data_ptr, junk.ctypes.data, self.nbytes)

    monkeypatch.setattr(ps.DeviceArray, "__init__", dirty)


def parts(size: int) -> list[Any]:
    return [(), np.s_[5:90], np.s_[3 : size - 3 : 7], [1, size // 4, size // 3, size - 1]]


def outcome(read: Callable[[], Any]) -> Any:
    try:
        return np.asarray(read())
    except OSError as error:
        return OSError(str(error))


def differ(ours: Any, theirs: Any) -> str:
    if isinstance(ours, OSError) or isinstance(theirs, OSError):
        same = isinstance(ours, OSError) and isinstance(theirs, OSError)
        return "" if same else f"{ours!r} instead of {theirs!r}"
    count = np.count_nonzero(ours != theirs)
    return f"{count} of {ours.size} differ, {ours[ours != theirs][:3]}" if count else ""


def check(stored: Stored, ways: Callable[[Any, Any, str], dict[str, Any]], expected: Any) -> None:
    found = []
    for name in stored.theirs:
        theirs = stored.theirs[name]
        for part in parts(theirs.shape[0]):
            wanted = outcome(lambda theirs=theirs, part=part: expected(theirs, part))
            for way, read in ways(stored.ours[name], part, name).items():
                difference = differ(outcome(read), wanted)
                if difference:
                    found.append(f"{name}[{part}] by {way}: {difference}")
    assert not found, "\n".join(found[:20]) + f"\n{len(found)} in all"


def of_h5py(dataset: h5py.Dataset, part: Any) -> Any:
    return dataset[part]


def test_new_arrays_have_the_values_of_h5py(stored, dirty_heap):
    def ways(dataset: Any, part: Any, name: str) -> dict[str, Any]:
        return {
            "[]": lambda: dataset[part],
            "read": lambda: dataset.read(part),
            "read, converted": lambda: dataset.read(part, dtype="f8"),
            "read_async": lambda: dataset.read_async(part).wait(),
            "read_many": lambda: stored.ours.read_many([(name, part)])[0],
            "pin": lambda: dataset.read(part, pin=True, like="numpy"),
        }

    check(stored, ways, of_h5py)


def test_new_arrays_of_datasets_that_are_never_small_have_the_values_of_h5py(
    stored, dirty_heap, nothing_is_small
):
    def ways(dataset: Any, part: Any, name: str) -> dict[str, Any]:
        return {
            "[]": lambda: dataset[part],
            "read": lambda: dataset.read(part),
            "read_async": lambda: dataset.read_async(part).wait(),
        }

    check(stored, ways, of_h5py)


@pytest.mark.gpu
def test_new_arrays_on_a_gpu_have_the_values_of_h5py(stored, dirty_gpu):
    def ways(dataset: Any, part: Any, name: str) -> dict[str, Any]:
        cuda = {"device": "cuda"}
        return {
            "read": lambda: dataset.read(part, **cuda).numpy(),
            "read, converted": lambda: dataset.read(part, dtype="f8", **cuda).numpy(),
            "decode": lambda: dataset.read(part, decode="gpu", **cuda).numpy(),
            "read_async": lambda: dataset.read_async(part, **cuda).wait().numpy(),
            "read_many": lambda: stored.ours.read_many([(name, part)], **cuda)[0].numpy(),
        }

    check(stored, ways, of_h5py)


def given(dataset: Any, part: Any) -> np.ndarray[Any, Any]:
    count = np.arange(dataset.shape[0])[part].size
    return np.full(4 * count, PATTERN, np.uint8).view("i4")


def left_by_h5py(dataset: h5py.Dataset, part: Any) -> Any:
    out = given(dataset, part)
    dataset.read_direct(out, part if isinstance(part, list) else np.s_[part])
    return out


def test_arrays_that_are_given_keep_what_hdf5_leaves(stored):
    def ways(dataset: Any, part: Any, name: str) -> dict[str, Any]:
        def strided() -> Any:
            out = np.full((given(dataset, part).size, 2), given(dataset, part)[0])[:, 1]
            return dataset.read(part, out=out)

        return {
            "read": lambda: dataset.read(part, out=given(dataset, part)),
            "read_async": lambda: dataset.read_async(part, out=given(dataset, part)).wait(),
            "read_many": lambda: stored.ours.read_many([(name, part)], out=[given(dataset, part)])[
                0
            ],
            "a column": strided,
        }

    check(stored, ways, left_by_h5py)


def test_slabs_that_are_reused_show_nothing_of_those_before(stored, dirty_heap):
    for name in stored.theirs:
        wanted = outcome(lambda name=name: stored.theirs[name][()])
        if isinstance(wanted, OSError):
            continue
        slabs = stored.ours[name].blocks(stored.theirs[name].shape[0] // 7, reuse=True)
        for (index,), slab in slabs:
            assert not differ(slab, wanted[index]), f"{name}[{index}]"


@pytest.mark.gpu
def test_arrays_that_are_given_on_a_gpu_keep_what_hdf5_leaves(stored):
    def ways(dataset: Any, part: Any, name: str) -> dict[str, Any]:
        def out() -> Any:
            return ps.DeviceArray.from_numpy(given(dataset, part))

        return {
            "read": lambda: dataset.read(part, out=out()).numpy(),
            "read_async": lambda: dataset.read_async(part, out=out()).wait().numpy(),
            "read_many": lambda: stored.ours.read_many([(name, part)], out=[out()])[0].numpy(),
        }

    check(stored, ways, left_by_h5py)


RECORD = np.dtype([("k", "i4"), ("reference", h5py.ref_dtype), ("z", "f8")])


@pytest.fixture(params=SIZES)
def records(request: Any, tmp_path: Any) -> Iterator[ps.File]:
    """Records with references. Of those whose name says so, the first quarter was written: 7."""
    path, size = tmp_path / "records.h5", SIZES[request.param]
    with h5py.File(path, "w") as file:
        kind, space = h5py.h5t.py_create(RECORD, logical=True), h5py.h5s.create_simple((size,))
        for layout, written in itertools.product(("contiguous", "chunked"), (False, True)):
            if (layout, written) == ("contiguous", True):
                continue  # memory that no file system returns
            plist = creation(layout, size, "never", "incr" if layout == "chunked" else "late", "")
            name = f"{layout}-{written}"
            made = h5py.Dataset(h5py.h5d.create(file.id, name.encode(), kind, space, plist))
            if written:
                made[: size // 4] = np.array([(7, file.ref, 7)] * (size // 4), RECORD)
    with ps.File(path) as ours:
        yield ours


def test_fields_beside_references_are_zeros_where_nothing_was_written(records, dirty_heap):
    for name, dataset in records.items():
        size = dataset.shape[0]
        wanted = np.zeros(size)
        wanted[: size // 4] = 7 * name.endswith("True")
        for part in (np.s_[:], np.s_[5:90], np.s_[size // 2 : size - 2]):
            ways = {
                "[]": dataset[part, "k"],
                "read": dataset.read((part, "z")),
                "read, converted": dataset.read((part, "k"), dtype="i8"),
                "read_async": dataset.read_async((part, "k")).wait(),
                "read_many": records.read_many([(name, (part, "k"))])[0],
                "two fields": dataset[part, "k", "z"]["z"],
            }
            for way, found in ways.items():
                assert np.array_equal(found, wanted[part]), f"{name}[{part}] by {way}: {found[:3]}"
        assert np.array_equal(dataset["k"], wanted), name


def test_records_with_references_are_zeros_where_nothing_was_written(records, dirty_heap):
    for name, dataset in records.items():
        size = dataset.shape[0]
        wanted = np.zeros(size)
        wanted[: size // 4] = 7 * name.endswith("True")
        for part in ((), np.s_[5:90], np.s_[size // 2 : size - 2], [1, size // 4, size - 1], 3):
            ways = {
                "[]": dataset[part],
                "read": dataset.read(part),
                "read_async": dataset.read_async(part).wait(),
                "read_many": records.read_many([(name, part)])[0],
            }
            expected = wanted[part]
            for way, found in ways.items():
                case = f"{name}[{part}] by {way}"
                assert np.array_equal(found["k"], expected), case
                assert np.array_equal(found["z"], expected), case
                assert [bool(at) for at in np.ravel(found["reference"])] == [
                    bool(value) for value in np.ravel(expected)
                ], case


REFERENCES = {
    "object": h5py.ref_dtype,
    "region": h5py.regionref_dtype,
    "nested": np.dtype([("k", "i4"), ("inner", [("two", h5py.ref_dtype, (2,)), ("x", "f4")])]),
}


@pytest.mark.parametrize("kind", REFERENCES)
@pytest.mark.parametrize("shape", [(), (40,), (6, 5)])
def test_references_that_were_never_written_are_null(kind, shape, tmp_path, dirty_heap):
    dtype = REFERENCES[kind]
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    if shape:
        plist.set_chunk((2,) * len(shape))
    with ps.File(tmp_path / "references.h5", "w") as file:
        stored = h5py.h5t.py_create(dtype, logical=True)
        space = h5py.h5s.create_simple(shape) if shape else h5py.h5s.create(h5py.h5s.SCALAR)
        h5py.h5d.create(file.id, b"never", stored, space, plist)
        dataset = file["never"]
        for found in (dataset[()], dataset.read(), dataset.read_async().wait(), dataset[...]):
            assert np.shape(found) == shape
            assert np.asarray(found).dtype == dtype or not shape
            assert not any(map(bool, references_in(found)))
        if shape:
            written = np.zeros((2,) * len(shape), dtype)
            some = file.h5py["never"].regionref[:2] if kind == "region" else file.ref
            for view in reference_views(written):
                view[...] = some
            dataset[(slice(2),) * len(shape)] = written
            count = sum(map(bool, references_in(dataset[()])))
            assert count == len(references_in(written))


def test_a_scalar_dataset_that_was_never_written_takes_the_arguments_that_h5py_takes(tmp_path):
    dtype = np.dtype([("k", "i4"), ("one", h5py.ref_dtype), ("two", h5py.ref_dtype, (2,))])
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    with ps.File(tmp_path / "scalars.h5", "w") as file:
        for name, kind in {"records": dtype, "references": h5py.ref_dtype}.items():
            stored = h5py.h5t.py_create(kind, logical=True)
            space = h5py.h5s.create(h5py.h5s.SCALAR)
            h5py.h5d.create(file.id, name.encode(), stored, space, plist)
            assert type(file[name][...]) is np.ndarray
            assert not any(map(bool, references_in(file[name][()])))
            for argument in (0, np.s_[:], np.s_[3:5], [0], np.s_[..., 0]):
                with pytest.raises(ValueError, match="scalar"):
                    file[name][argument]
        records = file["records"]
        assert not records["one"]
        assert records[..., "one"].shape == ()
        for found in (records["two"], records[..., "two"]):
            assert found.shape == (2,)
            assert not any(map(bool, found))


def reference_views(array: Any) -> list[Any]:
    """The members of an array of references or of records that are references."""
    if array.dtype.names is None:
        return [array] if array.dtype.hasobject else []
    return [view for name in array.dtype.names for view in reference_views(array[name])]


def references_in(found: Any) -> list[Any]:
    array = found if isinstance(found, (np.ndarray, np.void)) else np.array(found, object)
    return [each for view in reference_views(np.asarray(array)) for each in view.ravel()]
