"""The C API of libpenstock.so, loaded by cffi from the declarations in its headers."""

from __future__ import annotations

import re
from typing import Any, TypeAlias

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


def _open() -> tuple[Any, Any]:
    ffi: Any = FFI()
    header = paths.include_dir() / "penstock.h"
    for part in (header, header.with_name("penstock_hdf5.h")):
        ffi.cdef(declarations(part.read_text(encoding="utf-8")))
    path = paths.library()
    try:
        library: Any = ffi.dlopen(str(path))
    except OSError as error:
        raise ImportError(
            f"penstock cannot open its native library {path}: {error}. Reinstall the package, or "
            "set PENSTOCK_LIBRARY to the path of libpenstock.so"
        ) from error
    version = library.penstock_api_version()
    if version != library.PENSTOCK_API_VERSION:
        raise ImportError(
            f"{path} has API version {version}, but {header} declares "
            f"{library.PENSTOCK_API_VERSION}: they belong to different releases of penstock"
        )
    # cffi builds a function and its structs at first access. If a signal handler raised in the
    # middle of that, a struct would stay without a size for good.
    for name in dir(library):
        getattr(library, name)
    # So it does with a C type that is given as text, and holds a lock meanwhile, for which a signal
    # handler that reads as well would wait for ever.
    for kind in _C_TYPES:
        ffi.typeof(kind)
    return ffi, library


_C_TYPES = (
    *("void *", "void **", "char *", "char **", "const char *const *", "int *"),
    *("uintptr_t", "uintptr_t *", "uint64_t *", "uint64_t[]", "int64_t[]"),
    *("penstock_array *", "penstock_axis[]", "penstock_selection *", "penstock_piece[]"),
    *("penstock_range *", "penstock_range[]", "penstock_range[1]"),
    *("penstock_error *", "penstock_options *", "penstock_report *"),
    *("penstock_datasets **", "penstock_file **", "penstock_reader **", "penstock_request **"),
)
"""All C types that the package names."""


ffi, lib = _open()
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
