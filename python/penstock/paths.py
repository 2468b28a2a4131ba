"""Paths of the installed library, headers and plugins, for build systems and the loader.

A wheel has them beside these modules. An editable install has them in the checkout, where these
functions look second.
"""

from __future__ import annotations

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parent.parent

PLUGIN = "libhdf5_vfd_penstock.so"
"""The file name of the HDF5 driver."""

CONNECTOR = "libhdf5_vol_penstock_async.so"
"""The file name of the HDF5 connector, which lies in the same folder."""


def library() -> Path:
    """Return the path of the library; the environment variable PENSTOCK_LIBRARY overrides it."""
    override = os.environ.get("PENSTOCK_LIBRARY")
    if override:
        return Path(override)
    return _first("lib/libpenstock.so.1", "target/release/libpenstock.so")


def include_dir() -> Path:
    """Return the folder of penstock.h."""
    return _first("include/penstock.h", "crates/capi/include/penstock.h").parent


def cmake_dir() -> Path:
    """Return the folder for CMake's ``penstock_DIR``."""
    return _PACKAGE / "lib" / "cmake" / "penstock"


def pkg_config_dir() -> Path:
    """Return the folder for ``PKG_CONFIG_PATH``."""
    return _PACKAGE / "lib" / "pkgconfig"


def plugin_dir() -> Path:
    """Return the folder for ``HDF5_PLUGIN_PATH``."""
    return _first(f"lib/plugins/{PLUGIN}", f"target/release/{PLUGIN}").parent


def legate_library() -> Path:
    """Return the library that ``penstock run --legate`` preloads to replace Legate's own driver."""
    return _first("lib/libpenstock_legate.so", "target/release/libpenstock_legate.so")


def _first(installed: str, built: str) -> Path:
    path = _PACKAGE / installed
    if not path.exists() and (_CHECKOUT / "Cargo.toml").exists():
        return _CHECKOUT / built
    return path
