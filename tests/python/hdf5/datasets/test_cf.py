"""Packed and missing values by the CF conventions: as xarray decodes them, on all ways to read."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

import penstock as ps
from penstock._native import ffi, lib
from penstock.errors import check
from penstock.hdf5 import small
from penstock.hdf5.cf import Decoding, attributes_of, decoding, decoding_of
from penstock.hdf5.memory_types import special_type

CASES = 600 if os.environ.get("PENSTOCK_TEST_CASES") == "all" else 120
SHAPE = (23, 17)
PACKED = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", ">i2", ">u4", ">i8", ">f4"]
RARE = ["f2", "<f8", ">f8", "c8"]

pytestmark = [
    pytest.mark.usefixtures("penstock_arrays"),
    pytest.mark.filterwarnings("ignore:variable:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning"),
]

WHERE = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
SIZES = pytest.mark.parametrize("limit", [0, small.LIMIT], ids=["", "small"])


def elements(dtype: Any, shape: tuple[int, ...] = SHAPE) -> np.ndarray[Any, Any]:
    """Small numbers, which occur among the fill values, and the extreme ones of a type."""
    kind = np.dtype(dtype)
    random = np.random.default_rng(kind.itemsize)
    made = random.integers(0 if kind.kind == "u" else -9, 120, shape).astype(kind)
    if kind.kind == "f":
        special: list[Any] = [np.nan, np.inf, -np.inf, -0.0, np.finfo(kind).max]
    elif kind.kind == "c":
        special = [complex(np.nan, 1)]
    else:
        special = [np.iinfo(kind).min, np.iinfo(kind).max, np.iinfo(kind).max - 1]
    made.reshape(-1)[5 : 5 + len(special)] = special
    return made


def numbers(*others: Any) -> st.SearchStrategy[Any]:
    """Attributes as files have them: of the types of NumPy."""
    wide = st.sampled_from([0.1, 1e-3, 2.0, -273.15, 1e30, 1e300, 0.0])
    return st.one_of(
        wide.map(np.float64),
        wide.filter(lambda value: abs(value) < 1e31).map(np.float32),
        st.sampled_from([1, 3]).map(np.int16),
        *map(st.just, others),
    )


@st.composite
def described(draw: Any, types: list[str]) -> tuple[str, dict[str, Any]]:
    """A type, and attributes for elements of it."""
    dtype = draw(st.sampled_from(types))
    kind = np.dtype(dtype)
    own = st.sampled_from([3, 5, 7] if kind.kind == "u" else [3, -5, 7])
    fill = own.map(lambda value: kind.newbyteorder("=").type(value))
    limit = (np.finfo if kind.kind in "fc" else np.iinfo)(kind).max
    values = {
        "scale_factor": numbers(),
        "add_offset": numbers(),
        "_FillValue": st.one_of(fill, st.just(kind.newbyteorder("=").type(limit)), numbers()),
        "missing_value": st.one_of(
            fill,
            numbers(),
            st.just(np.array([3, 5], kind.newbyteorder("="))),
            st.just(np.array([1, 2, 3, 5, 7, 9], "f8")),
            st.just(np.float64(np.nan)),
            st.just("missing"),
        ),
        "_Unsigned": st.sampled_from(["true", "false", "maybe"]),
    }
    chosen = draw(st.sets(st.sampled_from(sorted(values)), max_size=4))
    return dtype, {name: draw(values[name]) for name in sorted(chosen)}


def outcome(call: Callable[[], Any]) -> tuple[Any, type[BaseException] | None]:
    """Return the result, or the class of the exception."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return call(), None
        except Exception as error:
            return None, type(error)


def same(one: Any, other: Any) -> bool:
    one, other = np.asarray(one), np.asarray(other)
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return one.dtype.hasobject or one.tobytes() == other.tobytes()


@settings(max_examples=4 * CASES, deadline=None, derandomize=True)
@given(case=described(PACKED + RARE))
def test_the_rules_are_those_of_xarray(case: tuple[str, dict[str, Any]]) -> None:
    xarray = pytest.importorskip("xarray", reason="gives the expected elements")
    dtype, attributes = case
    stored = elements(dtype)
    note(f"{dtype} {attributes}")

    def by_xarray() -> Any:
        variable = xarray.Variable(("y", "x"), stored, attributes)
        decoded = xarray.conventions.decode_cf_variable(
            "v", variable, decode_times=False, decode_timedelta=False
        )
        return decoded.values

    def by_us() -> Any:
        how = decoding(attributes, stored.dtype, name="v")
        return stored if how is None else how.apply(stored)

    expected, error = outcome(by_xarray)
    found, ours = outcome(by_us)
    assert ours is error
    assert error is not None or same(found, expected)


def layouts(file: h5py.File, values: np.ndarray[Any, Any]) -> Iterator[h5py.Dataset]:
    """Datasets of the same elements, stored in every way."""
    yield file.create_dataset("contiguous", data=values)
    yield file.create_dataset("chunked", data=values, chunks=(5, 7))
    yield file.create_dataset("gzip", data=values, chunks=(8, 17), compression="gzip", shuffle=True)
    yield file.create_dataset("one", data=values, chunks=SHAPE, compression="gzip")
    yield file.create_dataset("lzf", data=values, chunks=(4, 17), compression="lzf")
    part = file.create_dataset(
        "part", values.shape, values.dtype, chunks=(6, 6), fillvalue=values.dtype.type(5)
    )
    part[2:9] = values[2:9]
    yield part
    external = [(f"{file.filename}.raw", 3, values.nbytes)]
    yield file.create_dataset("external", data=values, external=external)
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_layout(h5py.h5d.COMPACT)
    kind, space = h5py.h5t.py_create(values.dtype), h5py.h5s.create_simple(values.shape)
    compact = h5py.Dataset(h5py.h5d.create(file.id, b"compact", kind, space, plist))
    compact[...] = values
    yield compact
    file.create_dataset("swapped", data=values.astype(values.dtype.newbyteorder()))
    layout = h5py.VirtualLayout(values.shape, values.dtype)
    layout[:9] = h5py.VirtualSource(file["gzip"])[:9]
    layout[9:20] = h5py.VirtualSource(file["swapped"])[9:20]
    yield file.create_virtual_dataset("virtual", layout, fillvalue=values.dtype.type(3))
    layout = h5py.VirtualLayout(values.shape, values.dtype)
    file.create_dataset("wide", data=values.astype("c16" if values.dtype.kind == "c" else "f8"))
    layout[:9] = h5py.VirtualSource(file["gzip"])[:9]
    layout[9:20] = h5py.VirtualSource(file["wide"])[9:20]
    yield file.create_virtual_dataset("mixed", layout)


SELECTIONS: list[Any] = [
    (),
    np.s_[3:15],
    np.s_[..., 2:9],
    np.s_[1:22:3, ..., ::2],
    np.s_[[1, 4, 5], 3:7],
    np.s_[0, 5],
]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of packed numbers, one for each type."""
    folder = tmp_path_factory.mktemp("packed")
    for dtype in PACKED + RARE:
        with h5py.File(folder / f"{dtype.replace('>', 'big-').strip('<')}.h5", "w") as file:
            list(layouts(file, elements(dtype)))
    return folder


@pytest.mark.parametrize("mode", ["r", "r+"])
@SIZES
@WHERE
@settings(
    max_examples=CASES,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_reads_of_any_layout_equal_the_reference(
    packed: Path,
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    limit: int,
    mode: str,
    data: st.DataObject,
) -> None:
    monkeypatch.setattr(small, "LIMIT", limit)
    dtype, attributes = data.draw(described(PACKED + RARE[:3]))
    how, error = outcome(lambda: decoding(attributes, np.dtype(dtype), name="v"))
    if error is not None or (how is not None and how.dtype.kind not in "iuf"):
        return
    with ps.File(packed / f"{dtype.replace('>', 'big-').strip('<')}.h5", mode) as file:
        name = data.draw(st.sampled_from(sorted(set(file) - {"swapped", "wide"})))
        dataset = file[name]
        selection = data.draw(st.sampled_from(SELECTIONS))
        note(f"{name} {dtype} {selection} {attributes}")
        raw = dataset.h5py[selection]
        expected = raw if how is None else how.apply(raw)
        found = read(data, dataset, selection, device, how)
        if how is None:
            assert np.array_equal(found, expected, equal_nan=True)
        else:
            assert same(found, expected)


def read(
    data: st.DataObject, dataset: ps.Dataset, selection: Any, device: str, how: Decoding | None
) -> Any:
    """Read in one of the possible ways, and return the elements in host memory."""
    way = data.draw(st.sampled_from(["new", "out", "strided", "async", "async-out", "blocks"]))
    note(way)
    cf = how or False
    native = np.dtype(dataset.dtype if how is None else how.dtype).newbyteorder("=")
    if way == "new" or (way == "blocks" and selection):
        return on_host(dataset.read(selection, device=device, cf=cf))
    if way == "async":
        return on_host(dataset.read_async(selection, device=device, cf=cf).wait())
    if way == "blocks":
        parts = [part for _, part in dataset.blocks(4, device=device, cf=cf)]
        return np.concatenate([on_host(part) for part in parts])
    shape = np.empty(dataset.shape, bool)[selection].shape
    if way == "strided" and device == "cpu":
        wide = np.empty((*shape, 2), native)
        dataset.read(selection, out=wide[..., 0], cf=cf)
        return wide[..., 0].copy()
    out = np.empty(shape, native) if device == "cpu" else ps.DeviceArray(shape, native)
    if way == "async-out":
        dataset.read_async(selection, out=out, cf=cf).wait()
    else:
        dataset.read(selection, out=out, cf=cf)
    return on_host(out)


def on_host(array: Any) -> np.ndarray[Any, Any]:
    return array.numpy() if isinstance(array, ps.DeviceArray) else np.asarray(array)


@pytest.fixture
def temperatures(tmp_path: Path) -> Path:
    """A file with one packed dataset of a few hundred KiB."""
    path = tmp_path / "t.h5"
    with h5py.File(path, "w") as file:
        values = np.arange(-90000, 90000, dtype="i4").reshape(300, 600).astype("i2")
        made = file.create_dataset("t", data=values, chunks=(40, 600), compression="gzip")
        made.attrs["scale_factor"] = np.array([0.25], "f4")  # as netCDF's library writes it
        made.attrs["add_offset"] = np.float32(100)
        made.attrs["_FillValue"] = np.array([-7], "i2")
        file.create_dataset("plain", data=values)
    return path


@WHERE
def test_attributes_of_one_element_are_numbers(temperatures: Path, device: str) -> None:
    raw = h5py.File(temperatures)["t"][()]
    expected = np.where(raw == -7, np.float32(np.nan), raw * np.float32(0.25) + np.float32(100))
    found = on_host(ps.read(f"{temperatures}:t", cf=True, device=device))
    assert found.dtype == np.float32
    assert np.array_equal(found, expected, equal_nan=True)


@WHERE
@pytest.mark.parametrize("given", [False, True], ids=["new", "out"])
def test_many_datasets_are_decoded_each_by_its_own_attributes(
    temperatures: Path, device: str, given: bool
) -> None:
    with h5py.File(temperatures, "r+") as file:
        doubled = file.create_dataset("doubled", data=file["plain"][()], compression="gzip")
        doubled.attrs["scale_factor"] = 2.0
        rare = file.create_dataset("rare", data=np.arange(9, dtype="f2"))
        rare.attrs["_FillValue"] = np.float16(3)
    names: list[Any] = ["t", "plain", ("doubled", np.s_[3:90]), "rare", ("t", np.s_[:, 2:5])]
    with ps.File(temperatures) as file:
        expected = [file[name].read(cf=True) for name in ("t", "plain", "doubled", "rare")]
        expected[2] = expected[2][3:90]
        expected.append(expected[0][:, 2:5])
        if given:
            make = np.empty if device == "cpu" else ps.DeviceArray
            out = [make(array.shape, array.dtype) for array in expected]
            found = file.read_many(names, out=out, cf=True)
        else:
            found = file.read_many(names, device=device, cf=True)
        for one, other in zip(found, expected, strict=True):
            assert same(on_host(one), other)
        with pytest.raises(ps.InvalidError, match="not both"):
            file.read_many(names, dtype="f4", cf=True)


def test_elements_without_attributes_are_read_as_they_are(temperatures: Path) -> None:
    with ps.File(temperatures) as file:
        assert np.array_equal(file["plain"].read(cf=True), file["plain"][()])


def test_one_element_is_a_scalar(temperatures: Path) -> None:
    with ps.File(temperatures) as file:
        found = file["t"].read((0, 0), cf=True)
        assert type(found) is np.float32
        assert found == file["t"][0, 0] * np.float32(0.25) + np.float32(100)


@WHERE
def test_elements_are_decoded_while_they_are_moved(
    temperatures: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Decoding, "apply", None)
    with ps.File(temperatures) as file:
        how = Decoding(np.float32(2), None, (), None, np.dtype("f4"))
        file["t"].read(cf=how, device=device)
        assert ps.last_report().route != "hdf5"
        file["t"].read((3, slice(5)), cf=how, device=device)
        assert ps.last_report().route != "hdf5"


def test_a_changed_attribute_is_seen_in_a_writable_file(temperatures: Path) -> None:
    with ps.File(temperatures, "r+") as file:
        file["t"].read(cf=True)
        file["t"].attrs["add_offset"] = np.float32(0)
        assert file["t"].read((0, 0), cf=True) == file["t"][0, 0] * np.float32(0.25)


def test_out_must_have_the_type_that_is_decoded_to(temperatures: Path) -> None:
    for limit in (0, 1 << 30):
        with ps.File(temperatures) as file, pytest.MonkeyPatch.context() as patch:
            patch.setattr(small, "LIMIT", limit)
            with pytest.raises(ps.InvalidError, match=r"float64.*/t are decoded to float32"):
                file["t"].read(out=np.empty((300, 600)), cf=True)
            swapped = np.empty((300, 600), np.dtype("f4").newbyteorder())
            with pytest.raises(ps.InvalidError, match="float32 in the other byte order, and"):
                file["t"].read(out=swapped, cf=True)


def test_cf_and_dtype_exclude_each_other(temperatures: Path) -> None:
    with ps.File(temperatures) as file:
        with pytest.raises(ps.InvalidError, match="not both"):
            file["t"].read(dtype="f8", cf=True)
        assert file["plain"].read(dtype="f8", cf=True).dtype == np.float64


BAD: dict[str, dict[str, Any]] = {
    "a scale of two": {"scale_factor": np.array([1.0, 2.0])},
    "an offset of two": {"add_offset": np.array([1.0, 2.0])},
    "a text as scale": {"scale_factor": "0.5"},
    "a scale of no element": {"scale_factor": h5py.Empty("f8")},
    "an unsigned list": {"_Unsigned": "true", "_FillValue": np.array([1, 2], "i2")},
    "an unsigned fill value beyond the type": {"_Unsigned": "true", "_FillValue": "big"},
}


@pytest.mark.parametrize("attributes", BAD.values(), ids=BAD)
def test_attributes_that_allow_no_decoding_name_file_and_dataset(
    temperatures: Path, attributes: dict[str, Any]
) -> None:
    with h5py.File(temperatures, "r+") as file:
        file["plain"].attrs.update(attributes)
    with ps.File(temperatures) as file:
        with pytest.raises(ps.InvalidError, match="/plain cannot be applied") as caught:
            file["plain"].read(cf=True)
        assert caught.value.path == str(temperatures)
        assert caught.value.__cause__ is not None
        assert file["plain"][0, 0] == file["plain"].read()[0, 0]


def test_a_fill_value_that_the_type_cannot_hold_masks_nothing(temperatures: Path) -> None:
    with h5py.File(temperatures, "r+") as file:
        file["plain"].attrs["_FillValue"] = np.float64(1e20)
    with ps.File(temperatures) as file:
        found = file["plain"].read(cf=True)
        assert found.dtype == np.float32
        assert np.array_equal(found, file["plain"][()])


def test_several_fill_values_are_a_warning() -> None:
    attributes = {"_FillValue": np.int16(1), "missing_value": np.int16(2)}
    with pytest.warns(RuntimeWarning, match="multiple fill values"):
        how = decoding(attributes, np.dtype("i2"), name="v")
    assert how is not None
    assert np.isnan(how.apply(np.array([1, 2, 3], "i2"))).tolist() == [True, True, False]


WRONG: dict[str, tuple[Any, ...]] = {
    "sign": (3, 1, 1.0, 0.0, 0, 0, []),
    "arithmetic": (0, 7, 1.0, 0.0, 0, 0, []),
    "scale or the offset": (0, 1, float("inf"), 0.0, 0, 0, []),
    "number of fill values": (0, 1, 1.0, 0.0, 0, 5, []),
}


@pytest.mark.parametrize("what", WRONG)
def test_the_library_refuses_rules_that_are_wrong(temperatures: Path, what: str) -> None:
    rules = ffi.new("penstock_decoding *")
    rules[0] = (ffi.sizeof("penstock_decoding"), *WRONG[what])
    with ps.File(temperatures) as file:
        dataset, place = file["t"], ffi.new("penstock_reader **")
        with pytest.raises(ps.InvalidError, match=f"the {what}.* of a decoding is wrong"):
            check(
                lib.penstock_reader_open_decoded(
                    dataset.id.id, dataset.id.get_type().id, rules, place
                )
            )


def test_only_numbers_that_can_be_decoded_have_rules() -> None:
    def has_rules(stored: str, dtype: str, *fills: Any, scale: Any = None) -> bool:
        how = Decoding(scale, None, fills, None, np.dtype(dtype))
        return how.rules(h5py.h5t.py_create(np.dtype(stored))) is not None

    assert has_rules("i2", "f4", np.int16(3))
    assert has_rules(">f8", "f8", np.float64(3), scale=0.1)
    assert has_rules("i4", "f4", scale=np.float64(0.1))
    assert not has_rules("i2", "f2", np.int16(3))
    assert not has_rules("f2", "f4", np.float16(3))
    assert not has_rules("i2", "f4", *np.arange(5, dtype="i2"))
    assert not has_rules("i2", "f4", scale=np.longdouble(0.1))
    assert not has_rules("i2", "f4", scale=np.inf)
    assert not has_rules("f4", "f4", scale=0.0)


def offset_integer() -> Any:
    """12 bits in the middle of 4 bytes."""
    kind = h5py.h5t.STD_I32LE.copy()
    kind.set_precision(12)
    kind.set_offset(4)
    return kind


WAYS: dict[str, Callable[..., Any]] = {
    "read": lambda dataset, **how: ps.read(dataset, **how),
    "part": lambda dataset, **how: ps.read(dataset, np.s_[:], **how),
    "many": lambda dataset, **how: ps.read_many([dataset], **how)[0],
    "async": lambda dataset, **how: ps.read_async(dataset, **how).wait(),
    "blocks": lambda dataset, **how: next(iter(dataset.blocks(10_000, **how)))[1],
}


@WHERE
@SIZES
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [special_type("bfloat16"), offset_integer()], ids=["bf16", "i12"])
def test_types_that_numpy_lacks_are_decoded_as_h5py_reads_them(
    tmp_path: Path, kind: Any, way: str, limit: int, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small, "LIMIT", limit)
    numbers = np.arange(10_000) % 100
    with h5py.File(tmp_path / "x.h5", "w") as file:
        made = h5py.h5d.create(file.id, b"x", kind, h5py.h5s.create_simple(numbers.shape))
        h5py.Dataset(made)[...] = numbers
        file["x"].attrs["_FillValue"] = kind.dtype.type(3)
    with ps.File(tmp_path / "x.h5") as file:
        found = np.array(on_host(WAYS[way](file["x"], device=device, cf=True)))
    np.testing.assert_array_equal(found, np.where(numbers == 3, np.nan, numbers))


def test_null_dataspaces_stay_as_they_are(tmp_path: Path) -> None:
    with ps.File(tmp_path / "empty.h5", "w") as file:
        file.h5py.create_dataset("x", data=h5py.Empty("i2")).attrs["scale_factor"] = 2.0
        assert file["x"].read(cf=True) == h5py.Empty("i2")


def test_files_of_netcdf_are_read_as_by_xarray(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray", reason="gives the expected elements")
    netcdf = pytest.importorskip("netCDF4", reason="writes the file")
    path = tmp_path / "x.nc"
    random = np.random.default_rng(0)
    with netcdf.Dataset(path, "w") as file:
        file.createDimension("y", 40)
        file.createDimension("x", 30)
        for number, (dtype, order) in enumerate(
            [("i2", "native"), ("u1", "native"), (">i4", "big"), (">f4", "big"), ("i1", "native")]
        ):
            for packing in range(4):
                made = file.createVariable(
                    f"v{number}{packing}",
                    dtype,
                    ("y", "x"),
                    endian=order,
                    fill_value=3 if packing % 2 else None,
                    zlib=packing > 1,
                )
                made.set_auto_maskandscale(False)
                if packing > 1:
                    made.scale_factor = np.float32(0.1) if number % 2 else 0.1
                    made.add_offset = np.float32(7.3) if number % 2 else 7.3
                if dtype == "i1":
                    made._Unsigned = "true"
                made[:] = random.integers(0, 9, (40, 30)).astype(dtype)
    with xarray.open_dataset(path, engine="netcdf4") as expected, ps.File(path) as file:
        for name in expected.data_vars:
            assert same(file[name].read(cf=True), expected[name].values), name


def test_text_and_long_attributes_do_not_change_the_number(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        made = file.create_dataset("x", data=np.arange(5, dtype="i1"))
        made.attrs["_Unsigned"] = np.bytes_("true")
        made.attrs["units"] = "K"
        assert attributes_of(made) == {"_Unsigned": "true"}
        assert decoding_of(made) == Decoding(None, None, (), True, np.dtype("u1"))
