"""xarray's tests of its engines, with Penstock for reading what others write.

A process of its own runs a copy of this file, without the configuration of this repository, which
does not know the marks of xarray's tests.
"""

from __future__ import annotations

import contextlib
import functools
import os

import h5py
import xarray as xr
from xarray.backends import api
from xarray.tests import test_backends as backends
from xarray.tests import test_backends_datatree as trees
from xarray.tests.conftest import *  # noqa: F403

OTHERS = ("netcdf4", "h5netcdf")
OF_OTHERS = ("format", "invalid_netcdf", "lock", "autoclose", "decode_vlen_strings")
"""Arguments of the other engines."""
OPENERS = (
    "open_dataset",
    "load_dataset",
    "open_dataarray",
    "load_dataarray",
    "open_mfdataset",
    "open_datatree",
    "load_datatree",
    "open_groups",
)


def is_hdf5(path):
    """Whether xarray would choose one of the others for a path."""
    return isinstance(path, (str, os.PathLike)) and h5py.is_hdf5(path)


def by_penstock(opener):
    """Return a function that opens by Penstock what it would open by another engine."""

    @functools.wraps(opener)
    def opened(path, *arguments, **keys):
        if keys.get("engine") in OTHERS or ("engine" not in keys and is_hdf5(path)):
            keys["engine"] = "penstock"
            for name in OF_OTHERS:
                keys.pop(name, None)
        return opener(path, *arguments, **keys)

    return opened


# The tests call functions of the package as well as names that they have imported, and functions of
# the package call each other.
for _name in OPENERS:
    _opener = by_penstock(getattr(api, _name))
    for _module in (api, xr.backends, xr, backends, trees):
        if hasattr(_module, _name):
            setattr(_module, _name, _opener)


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
