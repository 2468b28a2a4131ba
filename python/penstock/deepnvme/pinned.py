"""Page-locked host memory, shared by all handles of the process."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from penstock import arrays, frameworks
from penstock.dtypes import ElementType, numpy_dtype
from penstock.errors import InvalidError, OutOfMemoryError
from penstock.memory import KINDS, kind_of
from penstock.pinned import Pinned

_managed: dict[int, int] = {}
"""Address and bytes of each allocation made here and not yet freed.

It has no lock, because garbage collection may free an array in the middle of any function here.
Each step on it is atomic instead.
"""

_MOST = (1 << 63) - 1
"""The largest length of an allocation, in bytes."""


class pin_handle:  # noqa: N801 - DeepSpeed's name
    """Allocates page-locked arrays, as every handle does."""

    def new_cpu_locked_tensor(self, num_elem: int, example_tensor: Any) -> Any:
        """Return a page-locked array in host memory, with the data type of an example.

        It is a torch tensor if the example is one, else a NumPy array.

        Raises:
            OutOfMemoryError: There is not enough memory, or the process may not lock it.
        """
        element = arrays.view(example_tensor).dtype
        count = length_of(num_elem, element)
        memory = np.asarray(_Locked(count * element.itemsize))
        if frameworks.is_torch(example_tensor):
            torch = frameworks.loaded("torch")
            assert torch is not None
            return torch.from_numpy(memory).view(example_tensor.dtype)
        return memory.view(numpy_dtype(element))

    def free_cpu_locked_tensor(self, tensor: Any) -> bool:
        """Release an array of :meth:`new_cpu_locked_tensor`; return whether it was one.

        Its memory is freed with the last array that uses it.
        """
        return _managed.pop(arrays.view(tensor).pointer, None) is not None

    def is_pinned(self, buffer: Any) -> bool:
        """Whether an array is in page-locked host memory, made here or known to CUDA."""
        found = arrays.view(buffer)
        if found.device >= 0 or not found.pointer:
            return False
        for address, nbytes in _managed.copy().items():
            if address <= found.pointer and found.pointer + found.nbytes <= address + nbytes:
                return True
        return KINDS[kind_of(found.pointer)[0]] == "pinned"


def length_of(num_elem: int, element: ElementType) -> int:
    """Return the number of elements, or raise an error if no memory could hold that many."""
    count = operator.index(num_elem)
    if count < 0:
        raise InvalidError(f"an array cannot have {count} elements")
    if count * element.itemsize > _MOST:
        raise OutOfMemoryError(f"no memory holds {count} elements of {element.name}")
    return count


class _Locked(Pinned):
    """Page-locked memory that :meth:`pin_handle.is_pinned` knows. It is freed with this object."""

    def __init__(self, nbytes: int) -> None:
        super().__init__(nbytes)
        _managed[self.address] = self.length

    def __del__(self) -> None:
        if hasattr(self, "__array_interface__"):
            _managed.pop(self.address, None)
