"""The C API of libpenstock.so, loaded by cffi from the declarations in its headers."""

from __future__ import annotations

import os
import re
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock, RLock
from typing import IO, Any, TypeAlias

from cffi import FFI

from penstock import paths

CData: TypeAlias = Any
"""A cffi object: a pointer or a struct of the C API."""


def declarations(header: str) -> str:
    """Return what cffi can parse of a Penstock header: declarations and integer constants."""
    text = re.sub(r"/\*.*?\*/", " ", header.replace("\\\n", " "), flags=re.DOTALL)
    text = re.sub(r"^#ifdef __cplusplus$.*?^#endif$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^#(?!define PENSTOCK_\w+ \d+\s*$).*$", "", text, flags=re.MULTILINE)
    return text.replace("PENSTOCK_API ", "")


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
    header = paths.include_dir() / "penstock.h"
    for part in (header, header.with_name("penstock_hdf5.h")):
        ffi.cdef(declarations(part.read_text(encoding="utf-8")))
    path = paths.library()
    try:
        native = ffi.dlopen(str(path))
    except OSError as error:
        raise ImportError(
            f"penstock cannot open its native library {path}: {error}. Reinstall the package, or "
            "set PENSTOCK_LIBRARY to the path of libpenstock.so"
        ) from error
    version = native.penstock_api_version()
    if version != native.PENSTOCK_API_VERSION:
        raise ImportError(
            f"{path} has API version {version}, but {header} declares "
            f"{native.PENSTOCK_API_VERSION}: they belong to different releases of penstock"
        )
    # cffi builds a C type that is given as text at its first use, and holds a lock meanwhile, for
    # which a signal handler that reads as well would wait for ever.
    for kind in _C_TYPES:
        ffi.typeof(kind)
    return native, _fill(Library(), native)


def _fill(library: Library, native: Any) -> Library:
    # cffi builds a function and its structs at first access. If a signal handler raised in the
    # middle of that, a struct would stay without a size for good.
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
    # Its own path tells the copy nothing of where the wheels are that NVIDIA's libraries come in.
    copy.penstock_search_folder(os.fsencode(Path(__file__).parents[1]))
    return copy


def _file_in_memory() -> IO[bytes]:
    if hasattr(os, "memfd_create"):  # Pythons that are built for old systems lack it
        return open(os.memfd_create("libpenstock.so"), "wb")
    return TemporaryFile(prefix="libpenstock-")


def _in_child() -> None:
    global _loading
    # A thread of the parent may hold these locks, which nobody here would release.
    ffi._lock = Lock()
    _loading = RLock()
    if _loaded.penstock_is_forked():
        vars(lib).clear()


_loading = RLock()
_C_TYPES = (
    *("void *", "void **", "char *", "char **", "const char *const *", "int *"),
    "const void *[]",
    *("uintptr_t", "uintptr_t *", "uint64_t *", "uint64_t[]", "int64_t[]", "int64_t *"),
    *("penstock_array *", "penstock_axis[]", "penstock_selection *", "penstock_piece[]"),
    *("penstock_range *", "penstock_range[]", "penstock_range[1]"),
    *("penstock_error *", "penstock_options *", "penstock_report *"),
    *("penstock_datasets **", "penstock_file **", "penstock_reader **", "penstock_request **"),
    *("penstock_stored **", "penstock_stored_array *", "penstock_filter[]", "penstock_encoded **"),
    *("uint32_t *", "uint32_t[]", "penstock_axis *"),
)
"""All C types that the package names."""


ffi: Any = FFI()
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
