"""Registration of Penstock's driver and connector with h5py."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from penstock.hdf5 import connector, driver


def register_with_h5py() -> None:
    """Register driver and connector with h5py: now, or when the program imports h5py.

    This does not import h5py. An import takes time, starts MPI where h5py is built with it, and
    makes HDF5 read its environment (HDF5_DRIVER, HDF5_PLUGIN_PATH), which the program may set
    later.
    """
    if "h5py" in sys.modules:
        _register()
    elif not any(isinstance(finder, _WhenImported) for finder in sys.meta_path):
        sys.meta_path.insert(0, _WhenImported())


class _WhenImported(MetaPathFinder):
    """Registers once h5py is loaded; the other finders find h5py itself.

    It stays in ``sys.meta_path`` until then: a program may look for h5py without importing it.
    """

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
    """Register both as drivers, the only plugins that ``h5py.File`` can select by name."""
    from h5py._hl.files import register_driver

    register_driver(driver.NAME, driver.set_fapl)
    register_driver(connector.NAME, connector.set_fapl)
