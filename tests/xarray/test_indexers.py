"""Indexers of xarray over variables of all kinds, against its netCDF4 engine."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

xr = pytest.importorskip("xarray", reason="xarray is not installed: pip install penstock[xarray]")
pytest.importorskip("netCDF4", reason="netCDF4 is not installed")

pytestmark = pytest.mark.filterwarnings("ignore")

SHAPE = {"time": 7, "lat": 6, "lon": 5}
PACKED = {
    "plain": {},
    "packed": {"scale_factor": 0.5, "add_offset": 10.0, "_FillValue": 3},
    "narrow": {"scale_factor": np.float32(0.1)},
    "masked": {"_FillValue": 2},
    "missing": {"missing_value": 4},
    "unsigned": {"_Unsigned": "true", "_FillValue": -1},
}
TYPES = ("i1", "u1", ">i2", "i2", "i4", "i8", "f4", ">f4", "f8")
NAMES = [f"{kind}_{dtype}" for kind in PACKED for dtype in TYPES]
CASES = settings(
    max_examples=40 if os.environ.get("PENSTOCK_TEST_CASES") == "each" else 300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    import netCDF4

    path = tmp_path_factory.mktemp("xarray") / "all.nc"
    values = np.arange(210).reshape(7, 6, 5) % 13
    with netCDF4.Dataset(path, "w") as file:
        for name, size in SHAPE.items():
            file.createDimension(name, size)
        for kind, attributes in PACKED.items():
            for dtype in TYPES:
                attributes = dict(attributes)
                stored = np.dtype(dtype)
                fill = attributes.pop("_FillValue", None)
                if fill is not None:
                    fill = np.array(fill).astype(stored.newbyteorder("="))[()]
                chunked = {"zlib": True, "shuffle": True, "chunksizes": (2, 6, 5)}
                variable = file.createVariable(
                    f"{kind}_{dtype}",
                    stored.newbyteorder("="),
                    tuple(SHAPE),
                    fill_value=fill,
                    endian="big" if dtype[0] == ">" else "native",
                    **(chunked if stored.itemsize < 8 else {"contiguous": True}),
                )
                variable.set_auto_maskandscale(False)
                if "missing_value" in attributes:
                    attributes["missing_value"] = stored.newbyteorder("=").type(4)
                variable.setncatts(attributes)
                variable[:] = values.astype(stored.newbyteorder("="))
    return path


@pytest.fixture(scope="module")
def expected(path):
    with xr.open_dataset(path, engine="netcdf4") as found:
        return found.load()


@pytest.fixture(scope="module")
def lazy(path):
    with xr.open_dataset(path, engine="penstock", cache=False) as found:
        yield found


@st.composite
def indices(draw, size, *, vector=True):
    """Draw an integer, a slice or an array of integers."""
    kinds = ["integer", "slice", "all"] + ["array"] * vector
    kind = draw(st.sampled_from(kinds))
    if kind == "all":
        return slice(None)
    one = st.integers(-size, size - 1)
    if kind == "integer":
        return draw(one)
    if kind == "slice":
        step = draw(st.sampled_from([1, 1, 2, 3, -1, -2]))
        bounds = st.none() | st.integers(-size, size + 1)  # xarray mistakes longer negative ones
        return slice(draw(bounds), draw(bounds), step)
    return np.array(draw(st.lists(one, max_size=6)), np.int64)


def assert_same(found, wanted):
    np.testing.assert_array_equal(found.values, wanted.values)
    assert found.dtype == wanted.dtype
    assert found.dims == wanted.dims


def test_variables_have_the_same_attributes_types_and_elements(lazy, expected):
    for name in NAMES:
        assert_same(lazy[name], expected[name])
        assert lazy[name].attrs == expected[name].attrs
        for key in ("_FillValue", "missing_value", "scale_factor", "add_offset", "_Unsigned"):
            assert lazy[name].encoding.get(key) == expected[name].encoding.get(key)


@CASES
@given(st.data())
def test_the_product_of_indices_is_that_of_numpy(lazy, expected, data):
    name = data.draw(st.sampled_from(NAMES))
    key = {axis: data.draw(indices(size)) for axis, size in SHAPE.items()}
    assert_same(lazy[name].isel(key), expected[name].isel(key))


@CASES
@given(st.data())
def test_a_selection_of_a_selection_is_read_at_once(lazy, expected, data):
    name = data.draw(st.sampled_from(NAMES))
    found, wanted = lazy[name], expected[name]
    for _ in range(2):
        key = {axis: data.draw(indices(size)) for axis, size in found.sizes.items() if size}
        found, wanted = found.isel(key), wanted.isel(key)
    order = data.draw(st.permutations(found.dims))
    found, wanted = found.transpose(*order), wanted.transpose(*order)
    assert_same(found, wanted)


@CASES
@given(st.data())
def test_points_are_those_of_numpy(lazy, expected, data):
    name = data.draw(st.sampled_from(NAMES))
    shape = data.draw(st.sampled_from([(), (3,), (2, 2), (0,)]))
    axes = data.draw(st.lists(st.sampled_from(list(SHAPE)), min_size=1, unique=True))
    key = {}
    for axis, size in SHAPE.items():
        if axis in axes:
            count = int(np.prod(shape))
            one = st.integers(-size, size - 1)
            flat = data.draw(st.lists(one, min_size=count, max_size=count))
            array = np.array(flat, np.int64).reshape(shape)
            key[axis] = xr.DataArray(array, dims=("p", "q")[: len(shape)])
        else:
            key[axis] = data.draw(indices(size, vector=False))
    assert_same(lazy[name].isel(key), expected[name].isel(key))


@pytest.mark.gpu
@pytest.mark.usefixtures("duck_arrays")
def test_arrays_of_the_gpu_have_the_same_elements(path, expected):
    key = {"time": slice(None, None, -2), "lat": [4, 0, 0], "lon": [1, 3]}
    with xr.open_dataset(path, engine="penstock", device="cuda", cache=False) as found:
        for name in NAMES:
            for part in ({}, {"time": 3}, {"lat": 2, "lon": 1}, key):
                array = found[name].isel(part).data
                assert type(array).__name__ == "DeviceArray", name
                wanted = expected[name].isel(part).values
                np.testing.assert_array_equal(array.numpy(), wanted, err_msg=name)
                assert array.dtype == wanted.dtype
