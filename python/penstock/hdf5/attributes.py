"""The attributes of an object of HDF5, as h5py reads them, with the numbers of the file."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np

from penstock.hdf5 import memory_types
from penstock.hdf5.library import lock


class Attributes(h5py.AttributeManager):  # type: ignore[misc]
    """h5py's attributes, except that lists of variable length have the numbers of the file.

    Args:
        item: An object of h5py.
    """

    def __getitem__(self, name: str) -> Any:
        """Read the value of an attribute."""
        with lock():
            found = super().__getitem__(name)
            if isinstance(found, (np.ndarray, np.void)):
                attribute = self.get_id(name)
                if memory_types.has_lists(attribute.get_type()):
                    memory_types.correct_lists(found, attribute.dtype)
        return found
