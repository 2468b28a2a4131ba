"""Registration of Penstock's driver and connector with h5py, and of its objects with anndata."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from penstock.hdf5 import plugins


def register_with_others() -> None:
    """Register with h5py and anndata: now, or when the program imports them.

    This does not import h5py. An import takes time, starts MPI where h5py is built with it, and
    makes HDF5 read its environment (HDF5_DRIVER, HDF5_PLUGIN_PATH), which the program may set
    later.
    """
    for name, register in (("h5py", _register_with_h5py), ("anndata", _register_with_anndata)):
        if name in sys.modules:
            register()
        elif not any(isinstance(f, _WhenImported) and f.name == name for f in sys.meta_path):
            sys.meta_path.insert(0, _WhenImported(name, register))


class _WhenImported(MetaPathFinder):
    """Registers once a package is loaded; the other finders find the package itself.

    It stays in ``sys.meta_path`` until then: a program may look for the package without importing
    it.
    """

    def __init__(self, name: str, register: Callable[[], None]) -> None:
        self.name = name
        self._register = register

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != self.name:
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
                self._register()

            loader.exec_module = load_and_register
        return spec


def _register_with_h5py() -> None:
    """Register both as drivers, the only plugins that ``h5py.File`` can select by name."""
    from h5py._hl.files import register_driver

    register_driver(plugins.DRIVER, plugins.set_driver)
    register_driver(plugins.CONNECTOR, plugins.set_connector)


def _register_with_anndata() -> None:
    """Have ``anndata.io`` take objects of Penstock as the objects of h5py that they are.

    Its registry is keyed by exact types. It is not public: with another one, anndata says that no
    method is registered, as for all types that it does not know.
    """
    import h5py

    from penstock.hdf5.dataset import Dataset
    from penstock.hdf5.file import File
    from penstock.hdf5.group import Group

    registry = getattr(sys.modules.get("anndata._io.specs.registry"), "_REGISTRY", None)
    ours: dict[type, tuple[type, ...]] = {
        h5py.File: (File,),
        h5py.Group: (Group,),
        h5py.Dataset: (Dataset,),
    }
    _register_as(getattr(registry, "read", None), 0, ours)
    # anndata itself writes to a file as to a group.
    _register_as(getattr(registry, "write", None), 0, {h5py.Group: (Group, File)})
    _register_as(getattr(registry, "write", None), 1, ours)


def _register_as(methods: Any, at: int, types: dict[type, tuple[type, ...]]) -> None:
    """Register the methods for some types, which are at a place of the keys, for others, too."""
    for key, method in list(methods.items()) if isinstance(methods, dict) else ():
        own = types.get(key[at], ()) if isinstance(key[at], type) else ()
        for kind in own:
            methods.setdefault((*key[:at], kind, *key[at + 1 :]), method)
