"""Views of a dataset that convert what they read: ``astype``, ``asstr`` and ``fields``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from penstock.hdf5.dataset import Dataset


def structure_of(name: str, dtype: np.dtype[Any], values: Any) -> Any:
    """Return structures of one field of that type, which has the values."""
    shape = np.shape(values)
    made = np.empty(shape[: len(shape) - dtype.ndim], np.dtype([(name, dtype)]))
    made[name] = values
    return made[()]


class View:
    """A dataset whose elements are converted when they are read, as h5py's views are.

    Args:
        dataset: The dataset.
        dtype: The type of the converted elements.
        read: Reads and converts the elements of a selection.
    """

    def __init__(self, dataset: Dataset, dtype: Any, read: Callable[[Any], Any]) -> None:
        self._dataset = dataset
        self._dtype: np.dtype[Any] = np.dtype(dtype)
        self._read = read

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the converted elements."""
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Lengths of the dimensions; ``None`` for a null dataspace."""
        return self._dataset.shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self._dataset.ndim

    @property
    def size(self) -> int | None:
        """The number of elements; ``None`` for a null dataspace."""
        return self._dataset.size

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, selection: Any) -> Any:
        return self._read(selection)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        refuse_no_copy(self, copy)
        return np.asarray(self._read(()), self._dtype if dtype is None else dtype)

    def __repr__(self) -> str:
        return f"<penstock view of {self._dataset!r} as {self._dtype}>"


def refuse_no_copy(array: object, copy: bool | None) -> None:
    """Raise the error that NumPy expects where a copy is refused and cannot be avoided."""
    if copy is False:
        raise ValueError(
            f"a {type(array).__name__} is read from a file: memory allocation cannot be avoided"
        )
