"""The interfaces of the library, behind the same few calls."""

from __future__ import annotations

from importlib import import_module

from .base import Interface

_CLASSES = {
    "h5py": ("h5py_alone", "H5pyAlone"),
    "python": ("python", "Python"),
    "c": ("c", "C"),
    "connector": ("connector", "Connector"),
    "driver": ("driver", "Driver"),
    "two": ("two", "Two"),
}
NAMES = (*_CLASSES, "hdf5", "mpi")
"""``hdf5`` and ``mpi`` have no class here: their programs are in C, their model is HDF5."""


def interface(name: str) -> type[Interface]:
    module, found = _CLASSES[name]
    made: type[Interface] = getattr(import_module(f".{module}", __package__), found)
    return made
