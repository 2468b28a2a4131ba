"""The attributes of an object of HDF5, as h5py reads them, with the numbers of the file."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np

from penstock.hdf5 import varying
from penstock.hdf5.library import lock


class Attributes(h5py.AttributeManager):  # type: ignore[misc]
    """h5py's attributes, except that lists have the numbers of the file: see ``varying``.

    Args:
        item: An object of h5py.
    """

    def __getitem__(self, name: str) -> Any:
        """Read the value of an attribute."""
        with lock():
            found = super().__getitem__(name)
            if isinstance(found, (np.ndarray, np.void)):
                attribute = self.get_id(name)
                if varying.has_lists(attribute.get_type()):
                    varying.correct(found, attribute.dtype)
        return found
