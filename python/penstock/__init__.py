"""Moves arrays between files and GPU or host memory: HDF5 datasets and raw tensors.

>>> import penstock as ps
>>> t = ps.load("w.bin", dtype="float32", shape=(4096, 4096), device="cuda")
>>> ps.save("w.bin", t, durable=True)
>>> with ps.File("run.h5") as f:
...     x = f["group/rho"].read(device="cuda")
"""

from typing import TYPE_CHECKING, Any

from penstock._native import lib as _lib
from penstock._native import text as _text
from penstock._options import OptionKeys, options
from penstock.device_array import DeviceArray
from penstock.errors import (
    CancelledError,
    EndOfFileError,
    Error,
    ForkedError,
    GpuError,
    IncompatibleError,
    InternalError,
    InvalidError,
    IOFailure,
    NoSpaceError,
    NotFoundError,
    OutOfMemoryError,
    PermissionDeniedError,
    UnavailableError,
    WaitTimeout,
)
from penstock.gpu import init
from penstock.hdf5.many import read_many
from penstock.hdf5.reading import read, read_async
from penstock.hdf5.registration import register_with_others as _register_with_others
from penstock.hdf5.writing import write, write_async
from penstock.machine import describe, devices, drain, memory_kind, trace
from penstock.paths import cmake_dir, include_dir, library, plugin_dir
from penstock.pieces import load_many, load_many_async
from penstock.report import Report, last_report
from penstock.request import Request
from penstock.tables.columns import read_columns
from penstock.transfer import load, load_async, save, save_async

if TYPE_CHECKING:
    from penstock.hdf5.dataset import Dataset
    from penstock.hdf5.file import File
    from penstock.hdf5.group import Group

__version__: str = _text(_lib.penstock_version())

_register_with_others()


def __getattr__(name: str) -> Any:
    """Import the classes that derive from h5py's, and h5py, when they are first used."""
    if name not in ("Dataset", "File", "Group"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from penstock.hdf5 import dataset, file, group

    globals().update(Dataset=dataset.Dataset, File=file.File, Group=group.Group)
    return globals()[name]


__all__ = [
    "CancelledError",
    "Dataset",
    "DeviceArray",
    "EndOfFileError",
    "Error",
    "File",
    "ForkedError",
    "GpuError",
    "Group",
    "IOFailure",
    "IncompatibleError",
    "InternalError",
    "InvalidError",
    "NoSpaceError",
    "NotFoundError",
    "OptionKeys",
    "OutOfMemoryError",
    "PermissionDeniedError",
    "Report",
    "Request",
    "UnavailableError",
    "WaitTimeout",
    "__version__",
    "cmake_dir",
    "describe",
    "devices",
    "drain",
    "include_dir",
    "init",
    "last_report",
    "library",
    "load",
    "load_async",
    "load_many",
    "load_many_async",
    "memory_kind",
    "options",
    "plugin_dir",
    "read",
    "read_async",
    "read_columns",
    "read_many",
    "save",
    "save_async",
    "trace",
    "write",
    "write_async",
]
