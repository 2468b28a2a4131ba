"""The C API of libpenstock.so, called through cffi.

``hatch_build.py`` has made ``penstock._declarations`` of the headers.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryFile
from threading import RLock
from typing import IO, Any, TypeAlias

from penstock import paths
from penstock._declarations import ffi as ffi

CData: TypeAlias = Any
"""A cffi object: a pointer or a struct of the C API."""


class Library:
    """The functions and constants of the library, as attributes.

    The library's threads and locks do not survive a fork. So a forked child of a process that has
    used the library loads a copy for itself when it first needs it.
    """

    def __getattr__(self, name: str) -> Any:
        if not self.__dict__:  # only in a child
            _load_copy(self)
        try:
            return self.__dict__[name]  # another thread may have filled it meanwhile
        except KeyError:
            raise AttributeError(f"the native library has no {name}") from None


def _open() -> tuple[Any, Library]:
    path = paths.library()
    try:
        native = ffi.dlopen(str(path))
    except OSError as error:
        remedy = "Reinstall the package, or set PENSTOCK_LIBRARY to the path of libpenstock.so.1"
        if any(folder.is_file() for folder in path.parents):
            remedy = "The package cannot be used from an archive: install the wheel by pip"
        raise ImportError(
            f"penstock cannot open its native library {path}: {error}. {remedy}"
        ) from error
    try:
        version = native.penstock_api_version()
        if version != native.PENSTOCK_API_VERSION:
            raise ImportError(
                f"{path} has API version {version}, but the package was made for "
                f"{native.PENSTOCK_API_VERSION}: they belong to different releases of penstock"
            )
        return native, _fill(Library(), native)
    except (AttributeError, ffi.error) as error:
        raise ImportError(
            f"{path} has version {_version(native)}, and the package needs "
            f"{native.PENSTOCK_VERSION_MAJOR}.{native.PENSTOCK_VERSION_MINOR}."
            f"{native.PENSTOCK_VERSION_PATCH}: {error}. Unset PENSTOCK_LIBRARY, or reinstall the "
            "package"
        ) from error


def _version(native: Any) -> str:
    try:
        return str(ffi.string(native.penstock_version()), "utf-8")
    except (AttributeError, ffi.error):
        return "unknown"


def _fill(library: Library, native: Any) -> Library:
    vars(library).update({name: getattr(native, name) for name in dir(native)})
    return library


def is_loaded() -> bool:
    """Whether this process has used the library: false in a forked child that has not yet."""
    return bool(vars(lib))


def _load_copy(library: Library) -> None:
    """Fill an empty ``Library`` with a copy of the loaded one.

    All threads must have the same copy, since handles of one mean nothing to another. Where no copy
    can be loaded, the loaded library stays, whose functions refuse to work.
    """
    global _loaded
    with _loading:
        if library.__dict__:
            return
        copy = _copy()
        # A signal handler of this thread may have loaded one meanwhile.
        if not library.__dict__:
            _loaded = copy or _loaded
            _fill(library, _loaded)


def _copy() -> Any | None:
    """Load the library from a file in memory, which the loader takes for another library."""
    path = Path(paths.library())
    try:
        with _file_in_memory() as file:
            file.write(path.read_bytes())
            file.flush()
            # The loader compares names as well, and that of a descriptor may come again.
            copy = ffi.dlopen(f"/proc/{os.getpid()}/fd/{file.fileno()}")
    except OSError:
        return None
    # The copy cannot derive the folder of NVIDIA's wheels from its own path.
    copy.penstock_search_folder(os.fsencode(Path(__file__).parents[1]))
    return copy


def _file_in_memory() -> IO[bytes]:
    if hasattr(os, "memfd_create"):  # Pythons that are built for old systems lack it
        return open(os.memfd_create("libpenstock.so"), "wb")
    return TemporaryFile(prefix="libpenstock-")


def _in_child() -> None:
    global _loading
    # A thread of the parent may hold the lock, and no thread of the child would release it.
    _loading = RLock()
    if _loaded.penstock_is_forked():
        vars(lib).clear()


_loading = RLock()
_loaded, lib = _open()
os.register_at_fork(after_in_child=_in_child)
NULL: CData = ffi.NULL

_REPORT = ffi.typeof("penstock_report *")
_REPORT_SIZE = ffi.sizeof("penstock_report")
_OPTIONS_SIZE = ffi.sizeof("penstock_options")
_ERROR_SIZE = ffi.sizeof("penstock_error")


def new_report() -> CData:
    """Return an empty ``penstock_report`` for a call to fill."""
    report = ffi.new(_REPORT)
    report.struct_size = _REPORT_SIZE
    return report


def new_options() -> CData:
    """Return a ``penstock_options`` that sets nothing."""
    options = ffi.new("penstock_options *")
    options.struct_size = _OPTIONS_SIZE
    return options


def last_error() -> CData:
    """Return the failure of this thread's last call; its strings are valid until the next call."""
    error = ffi.new("penstock_error *")
    error.struct_size = _ERROR_SIZE
    lib.penstock_last_error(error)
    return error


def text(string: CData) -> str:
    """Return a ``const char *`` as str; like ``os.fsdecode``, keep bytes that are not UTF-8."""
    return "" if string == NULL else str(ffi.string(string).decode("utf-8", "surrogateescape"))


def pointer(address: int) -> CData:
    """Return an address as ``void *``."""
    return ffi.cast("void *", address)


def address(value: CData) -> int:
    """Return the address of a function, or the one that a pointer has."""
    return int(ffi.cast("uintptr_t", value))
