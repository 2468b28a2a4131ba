"""The ways into the library, all with the same few calls."""

from __future__ import annotations

from importlib import import_module

from .base import Door

_CLASSES = {
    "h5py": ("h5py_alone", "H5pyAlone"),
    "python": ("python", "Python"),
    "c": ("c", "C"),
    "connector": ("connector", "Connector"),
    "driver": ("driver", "Driver"),
    "two": ("two", "Two"),
}
NAMES = (*_CLASSES, "hdf5", "mpi")
"""The last two are no doors: their programs are in C, and HDF5 alone is their model."""


def door(name: str) -> type[Door]:
    module, found = _CLASSES[name]
    made: type[Door] = getattr(import_module(f".{module}", __package__), found)
    return made
