"""Penstock as a driver of HDF5's: ``h5py.File(name, driver="penstock", threads=8)``.

The connector comes to h5py the same way.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from penstock._native import lib
from penstock.errors import InvalidError, check
from penstock.hdf5 import connector as hdf5_connector

NAME = "penstock"
"""The driver's name, to HDF5 and to h5py."""


def configuration(options: Mapping[str, Any]) -> str:
    """Options as HDF5_DRIVER_CONFIG has them; an unknown key or a bad value raises
    :class:`InvalidError`, naming it."""
    text = ";".join(f"{key}={_text(key, value)}" for key, value in options.items())
    check(lib.penstock_hdf5_check_options(text.encode()))
    return text


def _text(key: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = str(value)
    if ";" in text or "\0" in text:
        raise InvalidError(f"option {key} has a bad value {text!r}")
    return text


def register_with_h5py() -> None:
    """Make h5py know driver and connector: at once, or when the program imports h5py.

    h5py is not imported for it. That takes a while, starts MPI where h5py is built with it, and has
    HDF5 read its environment (HDF5_DRIVER, HDF5_PLUGIN_PATH) before the program may have set it.
    """
    if "h5py" in sys.modules:
        _register()
    elif not any(isinstance(finder, _WhenImported) for finder in sys.meta_path):
        sys.meta_path.insert(0, _WhenImported())


class _WhenImported(MetaPathFinder):
    """Finds nothing itself: lets the other finders find h5py, and registers once it is loaded. It
    stays until then, because a program may look for h5py, and not import what it found."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "h5py":
            return None
        others = [f for f in sys.meta_path if f is not self and hasattr(f, "find_spec")]
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next(filter(None, found), None)
        loader: Any = spec and spec.loader
        if loader is not None:
            load = loader.exec_module

            def load_and_register(module: ModuleType) -> None:
                load(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                _register()

            loader.exec_module = load_and_register
        return spec


def _register() -> None:
    from h5py._hl.files import register_driver

    register_driver(NAME, _set_fapl)
    register_driver(hdf5_connector.NAME, hdf5_connector.set_fapl)


def _set_fapl(fapl: Any, **options: Any) -> None:
    """What h5py calls with the keyword arguments of h5py.File that it does not know itself.

    The driver's mode is ``driver_mode`` here: ``mode`` is h5py's own, how the file is opened.
    """
    from penstock.hdf5 import library as hdf5_library

    if "driver_mode" in options:
        options["mode"] = options.pop("driver_mode")
    text = configuration({key: value for key, value in options.items() if value is not None})
    with hdf5_library.lock():
        check(lib.penstock_fapl_set(fapl.id, text.encode()))
