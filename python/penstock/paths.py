"""Where the parts of the installed package lie, for build systems and for the loader.

A wheel holds the library and the header beside these modules. An editable install of a checkout
has them where cargo and the sources put them, so those places are looked at second.
"""

from __future__ import annotations

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parent.parent

PLUGIN = "libhdf5_vfd_penstock.so"
"""The driver, as HDF5 looks for it."""

CONNECTOR = "libhdf5_vol_penstock_async.so"
"""The connector, which lies beside it."""


def library() -> Path:
    """The path of libpenstock.so; the environment variable PENSTOCK_LIBRARY overrides it."""
    override = os.environ.get("PENSTOCK_LIBRARY")
    if override:
        return Path(override)
    return _first("lib/libpenstock.so", "target/release/libpenstock.so")


def include_dir() -> Path:
    """The folder that holds penstock.h."""
    return _first("include/penstock.h", "crates/capi/include/penstock.h").parent


def cmake_dir() -> Path:
    """The folder for CMake's ``penstock_DIR``."""
    return _PACKAGE / "lib" / "cmake" / "penstock"


def plugin_dir() -> Path:
    """The folder for ``HDF5_PLUGIN_PATH``."""
    return _first(f"lib/plugins/{PLUGIN}", f"target/release/{PLUGIN}").parent


def legate_library() -> Path:
    """What ``penstock run --legate`` preloads in place of the driver that Legate brings."""
    return _first("lib/libpenstock_legate.so", "target/release/libpenstock_legate.so")


def _first(installed: str, built: str) -> Path:
    path = _PACKAGE / installed
    if not path.exists() and (_CHECKOUT / "Cargo.toml").exists():
        return _CHECKOUT / built
    return path
