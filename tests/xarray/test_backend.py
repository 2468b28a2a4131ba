"""Files of netCDF-4 and of HDF5 as data sets of xarray."""

from __future__ import annotations

import asyncio
import gc
import io
import os
import pickle
import threading
import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest

import penstock as ps
from penstock.hdf5.memory_types import special_type

xr = pytest.importorskip("xarray", reason="xarray is not installed: pip install penstock[xarray]")
netcdf4 = pytest.importorskip("netCDF4", reason="netCDF4 is not installed")

pytestmark = pytest.mark.filterwarnings("ignore")


def opened(path, **arguments):
    return xr.open_dataset(path, engine="penstock", **arguments)


def by_netcdf4(path, **arguments):
    with xr.open_dataset(path, engine="netcdf4", **arguments) as found:
        return found.load()


@pytest.fixture
def weather():
    """A data set as users have them: packed, with times, strings and several coordinates."""
    random = np.random.default_rng(0)
    return xr.Dataset(
        {
            "t2m": (("time", "lat", "lon"), random.uniform(250, 310, (6, 4, 5)), {"units": "K"}),
            "station": (("lat",), np.array(["a", "bb", "", "öst"], object)),
            "code": (("lat",), np.array([b"ab", b"cde", b"", b"f"])),
            "wet": (("lat",), [True, False, True, False]),
            "duration": (("time",), np.arange(6).astype("timedelta64[h]").astype("m8[ns]")),
        },
        coords={
            "time": np.arange("2000-01", "2000-07", dtype="M8[M]").astype("M8[ns]"),
            "lat": np.linspace(-60.0, 60, 4),
            "lon": np.arange(5.0),
            "height": (("lat", "lon"), np.ones((4, 5))),
        },
        attrs={"title": "weather", "levels": [1, 2, 3]},
    )


PACKED = {
    "dtype": "i2",
    "scale_factor": 0.01,
    "add_offset": 280.0,
    "_FillValue": -32768,
    "zlib": True,
    "complevel": 4,
    "shuffle": True,
    "chunksizes": (1, 4, 5),
}


@pytest.fixture
def path(weather, tmp_path):
    path = tmp_path / "weather.nc"
    weather.to_netcdf(path, engine="netcdf4", encoding={"t2m": PACKED}, unlimited_dims=["time"])
    return path


@pytest.mark.parametrize("writer", ["netcdf4", "h5netcdf"])
def test_a_data_set_is_that_of_the_netcdf4_engine(weather, tmp_path, writer):
    pytest.importorskip(writer if writer == "h5netcdf" else "netCDF4")
    path = tmp_path / "x.nc"
    weather.to_netcdf(path, engine=writer, encoding={"t2m": PACKED}, unlimited_dims=["time"])
    with opened(path) as found:
        wanted = by_netcdf4(path)
        xr.testing.assert_identical(found.load(), wanted)
        assert found.encoding["unlimited_dims"] == {"time"}
        for name, variable in wanted.variables.items():
            common = variable.encoding.keys() & found[name].encoding.keys()
            if name != "station":  # xarray itself forgets the encoding of such strings
                assert {"dtype", "chunksizes", "zlib", "source", "original_shape"} <= common
            for key in common - {"dtype"}:
                ours, theirs = found[name].encoding[key], variable.encoding[key]
                assert ours == theirs or np.isnan(ours), (name, key)


@pytest.mark.parametrize(
    "arguments",
    [
        {"mask_and_scale": False},
        {"mask_and_scale": {"t2m": False}},
        {"decode_times": False},
        {"decode_cf": False},
        {"concat_characters": False},
        {"decode_coords": False},
        {"decode_coords": "all"},
        {"drop_variables": ["t2m", "height"]},
        {"decode_timedelta": True},
    ],
    ids=str,
)
def test_the_arguments_of_xarray_mean_the_same(path, arguments):
    with opened(path, **arguments) as found:
        xr.testing.assert_identical(found.load(), by_netcdf4(path, **arguments))


@pytest.fixture
def related(tmp_path):
    """Variables that others need for their decoding."""
    path = tmp_path / "related.nc"
    with netcdf4.Dataset(path, "w") as file:
        for name, length in {"time": 3, "nv": 2, "x": 4}.items():
            file.createDimension(name, length)
        time = file.createVariable("time", "f8", ["time"])
        time.setncatts({"units": "days since 2000-01-01", "bounds": "time_bnds"})
        time[:] = [0, 1, 2]
        file.createVariable("time_bnds", "f8", ["time", "nv"])[:] = [[0, 1], [1, 2], [2, 3]]
        file.createVariable("flag", "S1", ["time", "x"])[:] = np.array([list("abcd")] * 3, "S1")
        file.createVariable("x", "f4", ["x"])[:] = [1, 2, 3, 4]
        v = file.createVariable("v", "i2", ["time", "x"], fill_value=1)
        v.setncatts({"coordinates": "lon", "grid_mapping": "crs", "missing_value": np.int16(2)})
        v[:] = 3
        file.createVariable("lon", "f4", ["x"])[:] = 2
        file.createVariable("crs", "i4", [])[...] = 1
    return path


@pytest.mark.parametrize(
    "names", ["x", ["time"], ["x", "v", "lon"], ["crs"], ["time_bnds"], ["absent"]], ids=str
)
@pytest.mark.parametrize("decode_coords", [True, "all"], ids=str)
def test_variables_are_dropped_after_others_are_decoded_by_them(related, names, decode_coords):
    arguments = {"drop_variables": names, "decode_coords": decode_coords}
    with opened(related, **arguments) as found:
        xr.testing.assert_identical(found.load(), by_netcdf4(related, **arguments))


def test_a_variable_that_is_dropped_is_no_cause_of_a_warning(related, recwarn):
    opened(related, drop_variables=(name for name in ["v"])).close()
    assert not recwarn.list
    with pytest.warns(xr.SerializationWarning, match="multiple fill values"):
        opened(related).close()


ATTRIBUTES = {
    "number": np.int32(3),
    "one": np.array([3], "i2"),
    "several": np.array([3, 4], ">i8"),
    "big": np.array([3.5], ">f4"),
    "text": "hé",
    "one text": np.array(["a"], object),
    "texts": np.array(["a", "bb"], object),
    "characters": np.bytes_("abc"),
    "one character": np.bytes_("q"),
    "fixed": np.array([b"ab", b"c"]),
    "letters": np.array([b"a", b"b"]),
    "latin": np.bytes_("café".encode("latin1")),
    "empty text": "",
    "no text": h5py.Empty("S5"),
    "no texts": h5py.Empty(h5py.string_dtype()),
    "no number": h5py.Empty("f4"),
    "none": np.zeros(0, "f4"),
    "cut off": np.array(b"ab\0cd", "S8"),
    "_FillValue": np.float64(-1),
    "least_significant_digit": np.int32(2),
}


def test_attributes_are_those_of_the_netcdf4_engine(tmp_path):
    path = tmp_path / "attributes.nc"
    with h5py.File(path, "w", track_order=True) as file:
        scale = file.create_dataset("time", data=np.arange(3.0))
        scale.make_scale("time")
        dataset = file.create_dataset("x", data=np.arange(3.0), track_order=True)
        dataset.dims[0].attach_scale(scale)
        dataset.attrs["reference"] = scale.ref
        for name, value in ATTRIBUTES.items():
            dataset.attrs[name] = value
            if name != "_FillValue":
                file.attrs[name] = value
    with opened(path, decode_cf=False) as found:
        wanted = by_netcdf4(path, decode_cf=False)
        for ours, theirs in ((found.attrs, wanted.attrs), (found.x.attrs, wanted.x.attrs)):
            assert list(ours) == list(theirs)
            for name, value in theirs.items():
                assert type(ours[name]) is type(value), name
                np.testing.assert_array_equal(ours[name], value)
        assert found.x.encoding["least_significant_digit"] == 2


def test_types_that_netcdf_lacks_are_read_and_their_attributes_kept(tmp_path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["half"] = np.arange(3, dtype="f2")
        file["complex"] = np.arange(3) * 1j
        file["flags"] = [True, False, True]
        file["fixed"] = np.array([b"abc", b"d"])
        file["half"].attrs["is_good"] = True
        file["half"].attrs["matrix"] = np.eye(2)
    with opened(path) as found:
        assert found.half.dtype == "f2"
        assert found.complex.values.tolist() == [0, 1j, 2j]
        assert found.flags.values.tolist() == [True, False, True]
        assert found.fixed.values.tolist() == [b"abc", b"d"]
        assert found.half.attrs["is_good"]
        assert found.half.attrs["matrix"].shape == (2, 2)


def test_attributes_of_types_that_numpy_lacks_have_the_values_that_h5py_reads(tmp_path):
    def narrow(kind, precision, offset=0):
        kind.set_precision(precision)
        kind.set_offset(offset)
        return kind

    bfloat16 = special_type("bfloat16")
    long = h5py.h5t.IEEE_F64LE.copy()
    long.set_size(16)
    biased = h5py.h5t.IEEE_F32LE.copy()
    biased.set_ebias(126)
    opaque = h5py.h5t.create(h5py.h5t.OPAQUE, 3)
    opaque.set_tag(b"tag")
    kinds = {
        "bfloat16": bfloat16,
        "list": h5py.h5t.array_create(bfloat16, (2,)),
        "long": long,
        "biased": biased,
        "12 bits": narrow(h5py.h5t.STD_I32LE.copy(), 12, 4),
        "12 bits, big": narrow(h5py.h5t.STD_I16BE.copy(), 12),
        "bits": h5py.h5t.STD_B16LE,
    }
    with h5py.File(tmp_path / "x.nc", "w") as file:
        file["v"] = np.arange(3)
        for name, kind in kinds.items():
            made = h5py.h5a.create(file["v"].id, name.encode(), kind, h5py.h5s.create_simple((2,)))
            values = np.array([[1, 2], [3, 4]] if name == "list" else [1, 2], kind.dtype.base)
            made.write(values, mtype=h5py.h5t.py_create(kind.dtype))
        made = h5py.h5a.create(file["v"].id, b"opaque", opaque, h5py.h5s.create_simple((2,)))
        made.write(np.array([b"abc", b"def"], "V3"), mtype=opaque)
        wanted = {name: file["v"].attrs[name].tolist() for name in kinds}
    wanted["opaque"] = [b"abc", b"def"]
    with opened(tmp_path / "x.nc") as found:
        assert {name: value.tolist() for name, value in found.v.attrs.items()} == wanted


@pytest.mark.parametrize("phony_dims", ["access", "sort"])
def test_dimensions_without_a_name_are_numbered_as_by_h5netcdf(tmp_path, phony_dims):
    pytest.importorskip("h5netcdf")
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["a"] = np.zeros((3, 4))
        file["b"] = np.zeros((4, 4))
        file["g/c"] = np.zeros((5, 3, 3))
        file["x"] = np.zeros(3)
        file["x"].make_scale("x")
        file["detached"] = np.zeros((3, 7))
        file["detached"].dims[0].attach_scale(file["x"])
        file["detached"].dims[0].detach_scale(file["x"])
    for group in (None, "g"):
        arguments = {"group": group, "phony_dims": phony_dims}
        with (
            opened(path, **arguments) as found,
            xr.open_dataset(path, engine="h5netcdf", **arguments) as wanted,
        ):
            xr.testing.assert_identical(found.load(), wanted.load())


def test_an_enumeration_keeps_its_meanings(tmp_path):
    pytest.importorskip("h5netcdf")
    path = tmp_path / "clouds.nc"
    with netcdf4.Dataset(path, "w") as file:
        kind = file.createEnumType("u1", "cloud", {"clear": 0, "cumulus": 1, "missing": 255})
        file.createDimension("time", 3)
        group = file.createGroup("g")
        for place in (file, group):
            place.createVariable("clouds", kind, "time", fill_value=255)[:] = [0, 1, 255]
    for group in (None, "g"):
        with (
            opened(path, group=group) as found,
            xr.open_dataset(path, engine="h5netcdf", group=group) as wanted,
        ):
            xr.testing.assert_identical(found.load(), wanted.load())
            ours, theirs = (one.clouds.encoding["dtype"].metadata for one in (found, wanted))
            assert ours == theirs


def test_a_variable_that_is_shorter_than_its_unlimited_dimension_is_filled(tmp_path):
    path = tmp_path / "x.nc"
    with netcdf4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        file.createDimension("x", 3)
        file.createVariable("long", "f4", ("time", "x"))[:] = np.ones((5, 3))
        short = file.createVariable("short", "i2", ("time", "x"), fill_value=-9)
        short[:2] = np.arange(6).reshape(2, 3)
        file.createVariable("never", "f8", ("time",))
        file.createVariable("text", str, ("time",))[:2] = np.array(["a", "bb"], object)
    wanted = by_netcdf4(path)
    with opened(path) as found:
        for key in ({}, {"time": slice(1, 5, 2)}, {"time": [4, 0]}, {"time": 1}, {"time": -1}):
            for name in wanted:
                xr.testing.assert_identical(found[name].isel(key).load(), wanted[name].isel(key))


@pytest.mark.parametrize("is_padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("part", [slice(None), slice(0, 2), 0, -1, [2, 0]], ids=str)
def test_lists_of_numbers_are_those_of_the_netcdf4_engine(tmp_path, is_padded, part):
    path = tmp_path / "x.nc"
    with netcdf4.Dataset(path, "w") as file:
        file.createDimension("t", None)
        made = file.createVariable("v", file.createVLType("i4", "lists"), ["t"])
        for number in range(1 if is_padded else 3):
            made[number] = np.arange(number + 2, dtype="i4")
        file.createVariable("w", "f4", ["t"])[:3] = [1, 2, 3]

    def lists(engine):
        with xr.open_dataset(path, engine=engine) as found:
            picked = pickle.loads(pickle.dumps(found)).v[part].values
            return [one.tolist() for one in picked] if picked.dtype == object else picked.tolist()

    assert lists("penstock") == lists("netcdf4")


@pytest.mark.parametrize("dtype", [">i2", ">f8"])
def test_lists_in_the_other_byte_order_are_those_of_the_netcdf4_engine(tmp_path, dtype):
    path = tmp_path / "x.nc"
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(3.0)
        file["x"].make_scale("x")
        lists = file.create_dataset("v", (3,), h5py.vlen_dtype(np.dtype(dtype)))
        lists.dims[0].attach_scale(file["x"])
        for number in range(3):
            lists[number] = np.arange(number + 1)
    with opened(path) as found:
        assert [one.tolist() for one in found.v.values] == [[0], [0, 1], [0, 1, 2]]
        wanted = by_netcdf4(path).v.values
        assert [one.tolist() for one in found.v.values] == [one.tolist() for one in wanted]


@pytest.mark.parametrize("dtype", [">i2", "<i2", ">f8"])
def test_lists_of_attributes_have_the_numbers_of_the_file(tmp_path, dtype):
    path = tmp_path / "x.nc"
    lists = np.empty(2, object)
    lists[:] = np.array([258, 772], dtype), np.array([1286], dtype)
    one = h5py.vlen_dtype(np.dtype(dtype))
    with h5py.File(path, "w") as file:
        file["v"] = 0
        for attributes in (file.attrs, file["v"].attrs):
            attributes.create("lists", lists, dtype=one)
            attributes.create("list", lists[:1].reshape(()), dtype=one)
    stored = path.read_bytes()
    assert np.array([258, 772], dtype).tobytes() in stored
    with opened(path) as found:
        for attributes in (found.attrs, found.v.attrs):
            assert [one.tolist() for one in attributes["lists"]] == [[258, 772], [1286]]
            assert attributes["list"].tolist() == [258, 772]


def test_strings_in_ascii_are_texts_too(tmp_path):
    with h5py.File(tmp_path / "x.nc", "w") as file:
        file.create_dataset("v", data=["a", "bb", ""], dtype=h5py.string_dtype("ascii"))
    with opened(tmp_path / "x.nc") as found:
        assert found.v.values.tolist() == by_netcdf4(tmp_path / "x.nc").v.values.tolist()


def test_a_filled_variable_keeps_the_order_of_its_dimensions(tmp_path):
    path = tmp_path / "x.nc"
    with netcdf4.Dataset(path, "w") as file:
        for name, length in (("time", None), ("x", 3), ("y", 3)):
            file.createDimension(name, length)
        file.createVariable("long", "f4", ("time", "x", "y"))[:] = np.zeros((6, 3, 3))
        short = file.createVariable("short", "i4", ("time", "x", "y"))
        short[:4] = np.arange(36).reshape(4, 3, 3)
    wanted = by_netcdf4(path).short
    with opened(path, cache=False) as found:
        for key in ({"time": 2, "y": [2, 0]}, {"time": [5, 1], "y": 1}, {"time": 2, "y": []}):
            xr.testing.assert_identical(found.short.isel(key).load(), wanted.isel(key))


def test_numbers_that_xarray_cannot_decode_are_an_error(tmp_path):
    path = tmp_path / "x.nc"
    with h5py.File(path, "w") as file:
        file["x"] = np.array([1, 2, -999], "i2")
        file["x"].attrs.update({"scale_factor": np.int16(10), "_FillValue": np.int16(-999)})
    with opened(path) as found, pytest.raises(ValueError, match="NaN to integer"):
        found.x.load()


def test_dimensions_may_share_names_with_variables_that_are_no_coordinates(tmp_path):
    path = tmp_path / "x.nc"
    with netcdf4.Dataset(path, "w") as file:
        file.createDimension("x", 3)
        file.createDimension("y", 3)
        file.createVariable("y", "i4", ("x", "y"))[:] = np.arange(9).reshape(3, 3)
        file.createVariable("x", "i4", ("y",))[:] = np.arange(3)
        file.createVariable("z", "i4", ("y", "x"))[:] = 1
    with netcdf4.Dataset(path) as file:
        names = {name: one.dimensions for name, one in file.variables.items()}
    from penstock.xarray.files import OpenFile

    file = OpenFile(path, phony_dims="access")
    assert {one.name: one.dimensions for one in file.group("/").variables()} == names
    file.close()


def test_groups_inherit_the_dimensions_of_their_parents(tmp_path):
    path = tmp_path / "tree.nc"
    data = xr.Dataset({"a": ("x", np.arange(3.0))}, coords={"x": [10, 20, 30]})
    tree = xr.DataTree.from_dict(
        {"/": data, "/g": xr.Dataset({"b": ("x", [1, 2, 3])}), "/g/h": data.isel(x=[0, 1, 2])}
    )
    tree.to_netcdf(path, engine="netcdf4")
    with xr.open_datatree(path, engine="penstock") as found:
        xr.testing.assert_identical(found.load(), tree)
    groups = xr.open_groups(path, engine="penstock")
    assert list(groups) == ["/", "/g", "/g/h"]
    assert groups["/g"]["b"].dims == ("x",)
    with xr.open_datatree(path, engine="penstock", group="g") as found:
        assert set(found.groups) == {"/", "/h"}
    with pytest.raises(OSError, match="group not found: nothing"):
        opened(path, group="g/nothing")
    with pytest.raises(ValueError, match="string or None"):
        opened(path, group=3)


def test_links_that_lead_upwards_or_nowhere_are_left_out(tmp_path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["g/a"] = np.arange(3)
        file["g/up"] = file["/"]
        file["g/h/up"] = file["g"]
        file["nowhere"] = h5py.SoftLink("/nothing")
        file["outside"] = h5py.ExternalLink("none.h5", "x")
        file["g/b"] = h5py.Empty("f4")
    with xr.open_datatree(path, engine="penstock") as found:
        assert found.groups == ("/", "/g", "/g/h")
        assert list(found["g"].data_vars) == ["a"]


def test_a_classic_file_is_refused_with_the_engine_that_reads_it(tmp_path):
    path = tmp_path / "classic.nc"
    with netcdf4.Dataset(path, "w", format="NETCDF3_CLASSIC") as file:
        file.createDimension("x", 3)
    for source in (path, io.BytesIO(path.read_bytes())):
        with pytest.raises(ps.IncompatibleError, match=r"netCDF-3.*engine=\"scipy\""):
            opened(source)


def test_what_is_no_file_of_hdf5_is_an_error_that_names_it(tmp_path):
    path = tmp_path / "x.nc"
    path.write_bytes(b"no HDF5 at all")
    with pytest.raises(OSError, match="signature"):
        opened(path)
    with pytest.raises(FileNotFoundError):
        opened(tmp_path / "missing.nc")
    with pytest.raises(ps.InvalidError, match="https://"):
        opened("https://example.org/x.nc")
    with pytest.raises(ps.InvalidError, match="phony_dims"):
        opened(path, phony_dims="never")


@pytest.mark.parametrize(
    ("shape", "axis", "others"),
    [((4, 5), 1, {}), ((7, 5), 1, {}), ((7, 4, 5), 2, {"w": (7,)}), ((7, 5, 7), 1, {"w": (9, 7)})],
)
def test_without_a_scale_of_the_first_dimension_sizes_name_all(tmp_path, shape, axis, others):
    path = tmp_path / "scales.nc"
    with h5py.File(path, "w") as file:
        for name, length in (("x", 4), ("y", 5)):
            file[name] = np.arange(float(length))
            file[name].make_scale(name)
        file["v"] = np.arange(np.prod(shape)).reshape(shape)
        file["v"].dims[axis].attach_scale(file["y"])
        for name, extent in others.items():
            file[name] = np.zeros(extent)
    xr.testing.assert_identical(opened(path, phony_dims="sort").load(), by_netcdf4(path))


@pytest.mark.parametrize("damage", ["missing", "mixed", "number", "short"])
def test_damaged_dimension_scales_name_the_dataset(path, tmp_path, damage):
    with h5py.File(path, "r+") as file:
        dataset = file["t2m"]
        lists = dataset.attrs["DIMENSION_LIST"]
        del dataset.attrs["_Netcdf4Coordinates"]
        del dataset.attrs["DIMENSION_LIST"]
        if damage == "missing":
            del file["lat"]
        elif damage == "number":
            dataset.attrs["DIMENSION_LIST"] = np.arange(3)
        elif damage == "short":
            dataset.attrs.create("DIMENSION_LIST", lists[:2], dtype=lists.dtype)
        else:
            dataset.dims[0].attach_scale(file["time"])
        if damage == "missing":
            dataset.attrs.create("DIMENSION_LIST", lists, dtype=lists.dtype)
    with pytest.raises(ps.InvalidError, match=r"weather.nc: /t2m is not a netCDF-4 variable"):
        opened(path)
    with opened(path, drop_variables=["t2m", "height", "station", "code", "wet"]) as found:
        assert "t2m" not in found


@pytest.mark.parametrize(
    "attributes",
    [
        {"scale_factor": [0.1, 0.2]},
        {"scale_factor": "0.1"},
        {"add_offset": [1.0]},
        {"_FillValue": "none"},
        {"_FillValue": np.float64(1e9)},
        {"_FillValue": np.float32(np.nan)},
        {"missing_value": np.array([3, 4], "i2")},
        {"missing_value": "x"},
        {"_Unsigned": np.int32(1)},
        {"_Unsigned": "true"},
        {"_Unsigned": "true", "_FillValue": np.int32(70000)},
    ],
    ids=str,
)
def test_bad_attributes_have_the_outcome_of_the_netcdf4_engine(tmp_path, attributes):
    path = tmp_path / "bad.nc"
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(-3, 9, dtype="i2")
        file["x"].make_scale("x")
        file["x"].attrs.update(attributes)
        file["other"] = 1

    def outcome(engine):
        try:
            found = xr.open_dataset(path, engine=engine, create_default_indexes=False)
        except Exception as error:
            return "not opened", type(error)
        with found:
            assert found.other == 1
            try:
                return found.x.dtype, found.x.values.tolist(), list(found.x.attrs)
            except Exception as error:
                return "not read", type(error)

    ours, theirs = outcome("penstock"), outcome("netcdf4")
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("scale", [2.0, np.int16(2)], ids=["float", "integer"])
def test_a_variable_that_xarray_decodes_has_each_warning_once(tmp_path, scale):
    with netcdf4.Dataset(tmp_path / "x.nc", "w") as file:
        file.createDimension("x", 3)
        made = file.createVariable("v", "i2", ["x"], fill_value=1)
        made.setncatts({"missing_value": np.int16(2), "scale_factor": scale})

    def warned(engine):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            xr.open_dataset(tmp_path / "x.nc", engine=engine).close()
        return [str(one.message) for one in found]

    assert len(warned("netcdf4")) == 1
    assert warned("penstock") == warned("netcdf4")


def test_a_file_that_was_replaced_is_read_anew_beside_the_old_data_set(tmp_path):
    path, other = tmp_path / "x.nc", tmp_path / "y.nc"
    for name, value in ((path, 1.0), (other, 2.0)):
        with h5py.File(name, "w") as file:
            file["x"] = np.full(5, value)
    with opened(path, cache=False) as old:
        assert old.x.values.tolist() == [1.0] * 5
        path.write_bytes(other.read_bytes())
        with opened(path) as new:
            assert new.x.values.tolist() == [2.0] * 5


def test_parts_of_a_small_variable_are_the_callers_own(path):
    with opened(path, cache=False) as found:
        height = found.height
        wanted = np.ones((4, 5))
        for part in (np.s_[0], np.s_[1:3], np.s_[:, [4, 0]], np.s_[3, 4], np.s_[::-1]):
            values = height[part].values
            np.testing.assert_array_equal(values, wanted[part])
            values[...] = 7
        np.testing.assert_array_equal(height.values, wanted)
        np.testing.assert_array_equal(height[1:].values, wanted[1:])


def test_an_integer_beside_a_list_selects_of_a_small_variable_what_other_engines_select(tmp_path):
    path = tmp_path / "x.nc"
    whole = np.arange(3 * 4 * 4.0).reshape(3, 4, 4)
    xr.Dataset({"v": (("a", "b", "c"), whole)}).to_netcdf(path, engine="h5netcdf")
    for part in (
        {"a": 1, "c": [0, 1, 2, 3]},
        {"a": -1, "c": [2, 0, 2]},
        {"a": 1, "c": []},
        {"a": [2, 0], "b": 1},
        {"a": 1, "b": slice(1, 3), "c": [3]},
        {"a": [1, 2], "b": [0, 3]},
    ):
        with opened(path, cache=False) as found, xr.open_dataset(path, engine="h5netcdf") as peer:
            xr.testing.assert_identical(found.v.isel(part).load(), peer.v.isel(part).load())


@pytest.mark.parametrize("now", ["group", "type", "nothing", "time"])
@pytest.mark.parametrize("part", [slice(None), slice(2, 9)], ids=["all", "part"])
def test_an_object_that_is_no_variable_any_more_is_an_error_that_names_the_file(
    tmp_path, now, part
):
    path = tmp_path / "x.nc"
    one_variable(path, np.arange(10.0))
    with opened(path) as found:
        blob = pickle.dumps(found)
    with h5py.File(path, "w") as file:
        if now == "group":
            file.create_group("v")
        elif now == "type":
            file["v"] = np.dtype("f8")
        elif now == "time":
            space = h5py.h5s.create_simple((10,))
            h5py.h5d.create(file.id, b"v", h5py.h5t.UNIX_D64LE, space)
    with (
        pickle.loads(blob) as found,
        pytest.raises(ps.InvalidError, match=r"v of .*x.nc was float64"),
    ):
        found.v[part].load()


def one_variable(path, values):
    with netcdf4.Dataset(path, "w") as file:
        file.createDimension("x", None)
        file.createVariable("v", values.dtype, ["x"])[:] = values


def test_a_coordinate_of_a_file_that_grew_is_read_as_far_as_it_was(tmp_path):
    path = tmp_path / "x.nc"
    one_variable(path, np.arange(10.0))
    with opened(path) as found:
        blob = pickle.dumps(found)
    one_variable(path, np.arange(100_000.0))
    with pickle.loads(blob) as found:
        np.testing.assert_array_equal(found.v.values, np.arange(10.0))


@pytest.mark.parametrize("now", [np.arange(5.0), np.arange(10, dtype="i4")], ids=["short", "i4"])
@pytest.mark.parametrize("part", [slice(None), slice(2, 9)], ids=["all", "part"])
def test_a_variable_that_is_no_longer_what_it_was_is_an_error_that_names_it(tmp_path, now, part):
    path = tmp_path / "x.nc"
    one_variable(path, np.arange(10.0))
    with opened(path) as found:
        blob = pickle.dumps(found)
    one_variable(path, now)
    with pickle.loads(blob) as found, pytest.raises(ps.InvalidError, match=r"/v of .*x\.nc was"):
        found.v[part].load()


def test_a_file_that_is_cut_while_it_is_open_is_an_error_that_names_the_variable(tmp_path):
    path = tmp_path / "x.nc"
    with netcdf4.Dataset(path, "w") as file:
        file.createDimension("x", 2000)
        made = file.createVariable("v", "i2", ["x"], zlib=True, chunksizes=[35])
        made[:] = np.arange(2000)
    with opened(path) as found:
        os.truncate(path, path.stat().st_size - 600)
        with pytest.raises(ps.EndOfFileError, match=r"x\.nc .*dataset /v"):
            found.v.load()


def test_an_array_can_be_pickled(path):
    with opened(path) as found:
        wanted = found.t2m.values
        copy = pickle.loads(pickle.dumps(opened(path)))
        np.testing.assert_array_equal(copy.t2m.values, wanted)
        copy.close()


def test_a_data_set_that_is_closed_or_freed_closes_its_file(path):
    def is_open():
        links = Path("/proc/self/fd").iterdir()
        return path in [Path(os.path.realpath(link)) for link in links]

    found = opened(path)
    assert is_open()
    found.close()
    found.close()
    assert not is_open()
    assert found.t2m[0, 0, 0].values > 0  # as with the other engines, a read opens it again
    found.close()
    lazy = opened(path).t2m
    assert is_open()
    del lazy, found
    gc.collect()
    assert not is_open()


def test_variables_are_loaded_asynchronously(path, weather):
    # xarray cannot wait for characters and truth values, of any engine.
    names = ["code", "wet"]

    async def load():
        with opened(path, drop_variables=names) as found:
            return await found.load_async()

    found = asyncio.run(load())
    xr.testing.assert_allclose(found, weather.drop_vars(names), atol=0.01)


def test_an_array_is_read_as_another_type(path):
    with opened(path, cache=False) as found:
        array = found.t2m.variable._data
        while not hasattr(array, "async_getitem"):
            array = array.array
        assert array.get_duck_array(dtype="f4").dtype == "f4"
        assert asyncio.run(array.async_get_duck_array(dtype="f4")).dtype == "f4"


def test_a_file_may_be_a_python_object(path, weather):
    for source in (io.BytesIO(path.read_bytes()), path.read_bytes()):
        with opened(source) as found:
            assert found.t2m.shape == (6, 4, 5)
            assert found.station.values.tolist() == weather.station.values.tolist()


def test_blocks_of_dask_are_read_by_several_threads(path):
    dask = pytest.importorskip("dask")
    with opened(path, chunks={}) as found, dask.config.set(scheduler="threads", num_workers=4):
        assert found.t2m.data.numblocks == (6, 1, 1)
        np.testing.assert_array_equal(found.t2m.values, by_netcdf4(path).t2m.values)


@pytest.mark.parametrize("dtype", ["f4", "i2"])
def test_few_elements_of_many_chunks_are_not_left_to_hdf5(tmp_path, dtype):
    path = tmp_path / "x.nc"
    values = np.arange(40 * 300 * 200, dtype=dtype).reshape(40, 300, 200)
    packing = {"scale_factor": 0.5} if dtype == "i2" else {}
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=values, chunks=(1, 300, 200), compression=1)
        file["x"].attrs.update(packing)
    with opened(path, cache=False) as found:
        series = found.x[:, 7, 9].values
    np.testing.assert_array_equal(series, values[:, 7, 9] * packing.get("scale_factor", 1))
    assert ps.last_report().route != "hdf5"


def test_several_files_are_one_data_set(path, weather, tmp_path):
    pytest.importorskip("dask")
    names = []
    for part in range(3):
        names.append(tmp_path / f"part{part}.nc")
        weather.isel(time=slice(2 * part, 2 * part + 2)).to_netcdf(names[-1], engine="netcdf4")
    with xr.open_mfdataset(names, engine="penstock") as found:
        xr.testing.assert_identical(found.t2m.load(), weather.t2m)


def test_more_files_than_xarray_keeps_open_are_read_by_threads(path, weather, tmp_path):
    names = []
    for part in range(6):
        names.append(tmp_path / f"part{part}.nc")
        weather[["t2m"]].isel(time=[part]).to_netcdf(names[-1], engine="netcdf4")
    failures = []

    def read(found):
        try:
            for _ in range(20):
                for part, one in enumerate(found):
                    np.testing.assert_array_equal(one.t2m.values[0], weather.t2m.values[part])
        except Exception as error:
            failures.append(error)

    with xr.set_options(file_cache_maxsize=2):
        found = [opened(name, cache=False) for name in names]
        threads = [threading.Thread(target=read, args=(found,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for one in found:
            one.close()
    assert not failures


@pytest.mark.either
def test_a_gpu_without_cupy_is_an_error_that_names_it(path):
    try:
        import cupy
    except ImportError:
        pass
    else:
        if cupy.cuda.is_available():
            pytest.skip("CuPy is installed")
    with pytest.raises(ps.UnavailableError, match="CuPy"):
        opened(path, device="cuda")


@pytest.mark.gpu
@pytest.mark.usefixtures("duck_arrays")
def test_data_go_to_the_gpu_and_coordinates_times_and_strings_stay(path):
    with opened(path, device="cuda") as found, opened(path) as wanted:
        found.load()
        kinds = {name: type(one.data).__name__ for name, one in found.variables.items()}
        assert kinds.pop("t2m") == kinds.pop("wet") == "DeviceArray"
        assert set(kinds.values()) == {"ndarray"}
        np.testing.assert_array_equal(found.t2m.data.numpy(), wanted.t2m.values)


@pytest.mark.gpu
@pytest.mark.usefixtures("duck_arrays")
@pytest.mark.parametrize("names", [None, ["time"]], ids=str)
def test_the_bounds_of_times_stay_on_the_host(related, names):
    with opened(related, device="cuda", drop_variables=names) as found:
        bounds = found.time_bnds.load().data
        assert type(found.v.load().data).__name__ == "DeviceArray"
    wanted = by_netcdf4(related, drop_variables=names).time_bnds.values
    np.testing.assert_array_equal(bounds, wanted)


@pytest.mark.gpu
def test_arrays_of_the_gpu_are_those_of_cupy(path):
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    if not cupy.cuda.is_available():
        pytest.skip("CuPy has no GPU")
    with opened(path, device="cuda") as found, opened(path) as wanted:
        assert isinstance(found.t2m.data, cupy.ndarray)
        np.testing.assert_array_equal(found.t2m.data.get(), wanted.t2m.values)
        part = {"time": slice(None, None, -2), "lat": [3, 0], "lon": [1, 4]}
        with opened(path, device="cuda") as lazy:
            np.testing.assert_array_equal(
                lazy.t2m.isel(part).data.get(), wanted.t2m.isel(part).values
            )
