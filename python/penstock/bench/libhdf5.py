"""HDF5's C library by ctypes. Buffers are addresses of any memory, as in a C program.

``PENSTOCK_BENCH_HDF5`` names the library; by default, it is h5py's own.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import (
    POINTER,
    byref,
    c_bool,
    c_char_p,
    c_int,
    c_int64,
    c_size_t,
    c_uint,
    c_uint64,
    c_void_p,
)
from functools import cache
from pathlib import Path
from typing import Any

import h5py  # noqa: F401, which loads its HDF5

from penstock import paths

READ_ONLY, TRUNCATE = 0, 2
_ALL = _DEFAULT = 0
_WALK_DOWNWARD = 1


class _Entry(ctypes.Structure):
    """``H5E_error2_t``."""

    _fields_ = [
        ("cls_id", c_int64),
        ("maj_num", c_int64),
        ("min_num", c_int64),
        ("line", c_uint),
        ("func_name", c_char_p),
        ("file_name", c_char_p),
        ("desc", c_char_p),
    ]


_WALK = ctypes.CFUNCTYPE(c_int, c_uint, POINTER(_Entry), c_void_p)
_IDENTIFIER = c_int64
_PLACES = POINTER(c_uint64)
# The call site, which is the first argument of functions that take an event set.
_PLACE = [c_char_p, c_char_p, c_uint]
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "H5open": (c_int, []),
    "H5get_libversion": (c_int, [POINTER(c_uint)] * 3),
    "H5Eset_auto2": (c_int, [_IDENTIFIER, c_void_p, c_void_p]),
    "H5Ewalk2": (c_int, [_IDENTIFIER, c_int, _WALK, c_void_p]),
    "H5PLprepend": (c_int, [c_char_p]),
    "H5VLregister_connector_by_name": (_IDENTIFIER, [c_char_p, _IDENTIFIER]),
    "H5VLconnector_str_to_info": (c_int, [c_char_p, _IDENTIFIER, POINTER(c_void_p)]),
    "H5VLfree_connector_info": (c_int, [_IDENTIFIER, c_void_p]),
    "H5EScreate": (_IDENTIFIER, []),
    "H5ESwait": (c_int, [_IDENTIFIER, c_uint64, POINTER(c_size_t), POINTER(c_bool)]),
    "H5Pcreate": (_IDENTIFIER, [_IDENTIFIER]),
    "H5Pset_alignment": (c_int, [_IDENTIFIER, c_uint64, c_uint64]),
    "H5Pset_chunk": (c_int, [_IDENTIFIER, c_int, _PLACES]),
    "H5Pset_fill_time": (c_int, [_IDENTIFIER, c_int]),
    "H5Pset_driver_by_name": (c_int, [_IDENTIFIER, c_char_p, c_char_p]),
    "H5Pset_vol": (c_int, [_IDENTIFIER, _IDENTIFIER, c_void_p]),
    "H5Fopen": (_IDENTIFIER, [c_char_p, c_uint, _IDENTIFIER]),
    "H5Fcreate": (_IDENTIFIER, [c_char_p, c_uint, _IDENTIFIER, _IDENTIFIER]),
    "H5Fflush": (c_int, [_IDENTIFIER, c_int]),
    "H5Screate_simple": (_IDENTIFIER, [c_int, _PLACES, _PLACES]),
    "H5Sselect_hyperslab": (c_int, [_IDENTIFIER, c_int, *[_PLACES] * 4]),
    "H5Gcreate2": (_IDENTIFIER, [_IDENTIFIER, c_char_p, *[_IDENTIFIER] * 3]),
    "H5Gopen2": (_IDENTIFIER, [_IDENTIFIER, c_char_p, _IDENTIFIER]),
    "H5Acreate2": (_IDENTIFIER, [_IDENTIFIER, c_char_p, *[_IDENTIFIER] * 4]),
    "H5Aopen": (_IDENTIFIER, [_IDENTIFIER, c_char_p, _IDENTIFIER]),
    "H5Awrite": (c_int, [_IDENTIFIER, _IDENTIFIER, c_void_p]),
    "H5Aread": (c_int, [_IDENTIFIER, _IDENTIFIER, c_void_p]),
    "H5Dcreate2": (_IDENTIFIER, [_IDENTIFIER, c_char_p, *[_IDENTIFIER] * 5]),
    "H5Dopen2": (_IDENTIFIER, [_IDENTIFIER, c_char_p, _IDENTIFIER]),
    "H5Dread": (c_int, [*[_IDENTIFIER] * 5, c_void_p]),
    "H5Dwrite": (c_int, [*[_IDENTIFIER] * 5, c_void_p]),
    "H5Dget_offset": (c_uint64, [_IDENTIFIER]),
    "H5Fcreate_async": (_IDENTIFIER, [*_PLACE, c_char_p, c_uint, *[_IDENTIFIER] * 3]),
    "H5Fclose_async": (c_int, [*_PLACE, *[_IDENTIFIER] * 2]),
    "H5Gcreate_async": (_IDENTIFIER, [*_PLACE, _IDENTIFIER, c_char_p, *[_IDENTIFIER] * 4]),
    "H5Gclose_async": (c_int, [*_PLACE, *[_IDENTIFIER] * 2]),
    "H5Dcreate_async": (_IDENTIFIER, [*_PLACE, _IDENTIFIER, c_char_p, *[_IDENTIFIER] * 6]),
    "H5Dwrite_async": (c_int, [*_PLACE, *[_IDENTIFIER] * 5, c_void_p, _IDENTIFIER]),
    "H5Dclose_async": (c_int, [*_PLACE, *[_IDENTIFIER] * 2]),
}
_FUNCTIONS |= {f"H5{kind}close": (c_int, [_IDENTIFIER]) for kind in ("ES", *"ADFGPS")}
# Of an HDF5 that is built with MPI. Handles of MPI are integers or pointers.
_PARALLEL_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "H5Pset_fapl_mpio": (c_int, [_IDENTIFIER, c_void_p, c_void_p]),
    "H5Pset_dxpl_mpio": (c_int, [_IDENTIFIER, c_int]),
    "H5Pset_all_coll_metadata_ops": (c_int, [_IDENTIFIER, c_bool]),
    "H5Pset_coll_metadata_write": (c_int, [_IDENTIFIER, c_bool]),
}


def is_parallel(library: ctypes.CDLL) -> bool:
    return hasattr(library, "H5Pset_fapl_mpio")


class Library:
    """HDF5's functions as methods. A failed call raises the message of HDF5's error stack."""

    def __init__(self, path: Path) -> None:
        library = self._library = ctypes.CDLL(str(path))
        functions = _FUNCTIONS | (_PARALLEL_FUNCTIONS if is_parallel(library) else {})
        for name, (result, arguments) in functions.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, self._checked(name, function))
        self._walk = library.H5Ewalk2
        if is_parallel(library):
            # A rank that ends early would close shared files, which waits for the other ranks.
            library.H5dont_atexit()
        self.H5open()
        self.H5Eset_auto2(_DEFAULT, None, None)
        for name, symbol in (
            ("file_access", "H5P_CLS_FILE_ACCESS_ID_g"),
            ("dataset_create", "H5P_CLS_DATASET_CREATE_ID_g"),
            ("transfer", "H5P_CLS_DATASET_XFER_ID_g"),
            ("bytes", "H5T_NATIVE_UCHAR_g"),
            ("doubles", "H5T_NATIVE_DOUBLE_g"),
            ("floats", "H5T_NATIVE_FLOAT_g"),
            ("integers", "H5T_NATIVE_INT_g"),
        ):
            setattr(self, name, _IDENTIFIER.in_dll(library, symbol).value)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def idle(self, name: str) -> Any:
        """Return a function that is called like this one, and does nothing."""
        function = ctypes.CDLL(None)["labs"]
        function.restype, function.argtypes = c_int, _FUNCTIONS[name][1]
        return self._checked(name, function)

    def pointer(self, name: str) -> c_void_p:
        """Return a function for a program in C to call."""
        return ctypes.cast(getattr(self._library, name), c_void_p)

    def _checked(self, name: str, function: Any) -> Any:
        def call(*arguments: Any) -> int:
            status: int = function(*arguments)
            if status < 0:
                raise RuntimeError(f"{name}: {self._innermost()}")
            return status

        return call

    def _innermost(self) -> str:
        """Return the message of the innermost function, which may be a driver."""
        found = ["no message"]

        def note(_: int, entry: Any, __: Any) -> int:
            found.append((entry.contents.desc or b"").decode(errors="replace"))
            return 0

        self._walk(_DEFAULT, _WALK_DOWNWARD, _WALK(note), None)
        return found[-1]

    @property
    def version(self) -> str:
        numbers = [c_uint(), c_uint(), c_uint()]
        self.H5get_libversion(*map(byref, numbers))
        return ".".join(str(number.value) for number in numbers)

    @contextmanager
    def access(self, driver: tuple[str, str] | None, alignment: int = 1) -> Iterator[int]:
        """Make a file access property list with a driver, by name and configuration."""
        made = self.H5Pcreate(self.file_access)
        try:
            if driver:
                name, configuration = driver
                self.H5Pset_driver_by_name(made, name.encode(), configuration.encode())
            self.H5Pset_alignment(made, 1, alignment)
            yield made
        finally:
            self.H5Pclose(made)


def numbers(*values: int) -> Any:
    """Return an array of ``hsize_t``."""
    return (c_uint64 * len(values))(*values)


@cache
def library() -> Library:
    return Library(Path(os.environ.get("PENSTOCK_BENCH_HDF5") or _of_h5py()))


def find_plugins(variable: str) -> None:
    """Add the folder of Penstock's plugins to HDF5's search, and the one that a variable names."""
    for folder in filter(None, [str(paths.plugin_dir()), os.environ.get(variable)]):
        library().H5PLprepend(folder.encode())


def _of_h5py() -> str:
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.partition("/")[2]
        if path.rpartition("/")[2].startswith(("libhdf5.so", "libhdf5-")):
            return f"/{path}"
    raise RuntimeError("h5py's HDF5 library was not found: set PENSTOCK_BENCH_HDF5")


class OpenFile:
    """A file with one dataset of bytes, opened with a driver. Opening the next one closes it."""

    _open: OpenFile | None = None

    def __init__(
        self, path: Path, driver: tuple[str, str] | None, *, new_bytes: int | None = None
    ) -> None:
        # If a file were still open, HDF5 would share it and its driver.
        if OpenFile._open:
            OpenFile._open.close()
        self._hdf5 = library()
        self.dataset = -1
        self.path = path
        name = os.fsencode(path)
        hdf5 = self._hdf5
        with hdf5.access(driver, 1 << 20) as access:
            if new_bytes is None:
                self.file = hdf5.H5Fopen(name, READ_ONLY, access)
            else:
                self.file = hdf5.H5Fcreate(name, TRUNCATE, _DEFAULT, access)
        OpenFile._open = self
        if new_bytes is None:
            self.dataset = hdf5.H5Dopen2(self.file, b"x", _DEFAULT)
        else:
            space = hdf5.H5Screate_simple(1, numbers(new_bytes), None)
            self.dataset = hdf5.H5Dcreate2(self.file, b"x", hdf5.bytes, space, *[_DEFAULT] * 3)
            hdf5.H5Sclose(space)

    def read(self, address: int, nbytes: int, whole: int, start: int = 0) -> None:
        """Read ``nbytes`` bytes from ``start`` of a dataset of ``whole`` bytes."""
        hdf5 = self._hdf5
        memory, part = (hdf5.H5Screate_simple(1, numbers(n), None) for n in (nbytes, whole))
        try:
            hdf5.H5Sselect_hyperslab(part, 0, numbers(start), None, numbers(nbytes), None)
            hdf5.H5Dread(self.dataset, hdf5.bytes, memory, part, _DEFAULT, address)
        finally:
            hdf5.H5Sclose(part)
            hdf5.H5Sclose(memory)

    def write(self, address: int) -> None:
        self._hdf5.H5Dwrite(self.dataset, self._hdf5.bytes, _ALL, _ALL, _DEFAULT, address)

    @property
    def offset(self) -> int:
        """The offset of the dataset's bytes in the file."""
        return int(self._hdf5.H5Dget_offset(self.dataset))

    def flush(self) -> None:
        self._hdf5.H5Fflush(self.file, 1)

    def close(self) -> None:
        OpenFile._open = None
        if self.dataset >= 0:
            self._hdf5.H5Dclose(self.dataset)
        self._hdf5.H5Fclose(self.file)
