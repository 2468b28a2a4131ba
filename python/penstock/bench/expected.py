"""Checks that all values of an array that was read are right."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import gpu
from .measure import WrongBytesError


class Expected:
    """The expected values of a dataset or selection."""

    def __init__(self, values: np.ndarray[Any, Any]) -> None:
        self.values = values
        self._on_gpu: Any = None

    def part(self, count: int) -> Expected:
        """Return the values of the first elements of a one-dimensional dataset."""
        return Expected(self.values[:count])

    def poison(self, array: Any) -> None:
        """Overwrite a destination with values that the dataset does not have."""
        if isinstance(array, np.ndarray):
            array.view(np.uint8).fill(0xA5)
        elif gpu.torch:
            array.view(gpu.torch.int32).fill_(-1)
            gpu.synchronize()
        else:
            gpu.put(gpu.address_of(array), np.full(self.values.nbytes, 0xA5, np.uint8))

    def check(self, array: Any) -> None:
        """Raise unless all values of an array, on the host or a GPU, are right."""
        if isinstance(array, np.ndarray):
            equal = np.array_equal(array, self.values)
        elif gpu.torch:
            if self._on_gpu is None:
                self._on_gpu = gpu.torch.from_numpy(self.values).cuda()
            equal = gpu.torch.equal(array, self._on_gpu)
        else:
            equal = np.array_equal(array.numpy(), self.values)
        if not equal:
            raise WrongBytesError("wrong values")
