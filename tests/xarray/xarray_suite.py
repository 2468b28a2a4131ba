"""xarray's tests of its engines, with Penstock for reading what others write.

A process of its own runs a copy of this file, without the configuration of this repository, which
does not know the marks of xarray's tests.
"""

from __future__ import annotations

import contextlib
import functools

import xarray as xr
from xarray.tests import test_backends as backends
from xarray.tests import test_backends_datatree as trees
from xarray.tests.conftest import *  # noqa: F403

OTHERS = ("netcdf4", "h5netcdf")
OF_OTHERS = ("format", "invalid_netcdf", "lock", "autoclose", "decode_vlen_strings")
"""Arguments of the other engines."""


def by_penstock(opener):
    """Return a function that opens by Penstock what it would open by another engine."""

    @functools.wraps(opener)
    def opened(path, *arguments, **keys):
        if keys.get("engine") in OTHERS:
            keys["engine"] = "penstock"
            for name in OF_OTHERS:
                keys.pop(name, None)
        return opener(path, *arguments, **keys)

    return opened


class _Module:
    """xarray, opening by Penstock."""

    def __getattr__(self, name):
        found = getattr(xr, name)
        return by_penstock(found) if name.startswith("open_") else found


for _module in (backends, trees):
    for _name in ("open_dataset", "load_dataset", "open_mfdataset", "open_datatree", "open_groups"):
        if hasattr(_module, _name):
            setattr(_module, _name, by_penstock(getattr(_module, _name)))
trees.xr = _Module()


class _Reading:
    @contextlib.contextmanager
    def open(self, path, **arguments):
        with backends.open_dataset(path, engine="netcdf4", **arguments) as found:
            yield found


class TestFilesOfNetCDF4(_Reading, backends.TestNetCDF4Data):
    pass


class TestFilesOfH5netcdf(_Reading, backends.TestH5NetCDFData):
    pass


class TestClassicModel(_Reading, backends.TestNetCDF4ClassicViaNetCDF4Data):
    pass


class TestBlocksOfDask(_Reading, backends.TestNetCDF4ViaDaskData):
    pass


class TestTreesOfNetCDF4(trees.TestNetCDF4DatatreeIO):
    pass


class TestTreesOfH5netcdf(trees.TestH5NetCDFDatatreeIO):
    pass


class TestDataOfTrees(trees.TestNetCDF4DataTree):
    pass
