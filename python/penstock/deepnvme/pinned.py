"""Page-locked host memory, shared by all handles of the process."""

from __future__ import annotations

import ctypes
import mmap
import operator
import os
from typing import Any

import numpy as np

from penstock import arrays, frameworks
from penstock._native import NULL, ffi, lib
from penstock.dtypes import ElementType, numpy_dtype
from penstock.errors import InvalidError, OutOfMemoryError, check
from penstock.machine import devices
from penstock.memory import KINDS, kind_of

_managed: dict[int, int] = {}
"""Address and bytes of each allocation made here and not yet freed.

It has no lock, because garbage collection may free an array in the middle of any function here.
Each step on it is atomic instead.
"""

_MOST = (1 << 63) - 1
"""The most bytes that can be asked for."""


class pin_handle:  # noqa: N801 - DeepSpeed's name
    """Allocates page-locked arrays, as every handle does."""

    def new_cpu_locked_tensor(self, num_elem: int, example_tensor: Any) -> Any:
        """Same as the handles' method of this name."""
        return new_cpu_locked_tensor(num_elem, example_tensor)

    def free_cpu_locked_tensor(self, tensor: Any) -> bool:
        """Same as the handles' method of this name."""
        return free_cpu_locked_tensor(tensor)

    def is_pinned(self, buffer: Any) -> bool:
        """Same as the handles' method of this name."""
        return is_pinned(buffer)


def new_cpu_locked_tensor(num_elem: int, example_tensor: Any) -> Any:
    """Return a page-locked array in host memory, with the data type and library of an example."""
    element = arrays.view(example_tensor).dtype
    count = length_of(num_elem, element)
    memory = np.asarray(_Locked(count * element.itemsize))
    if frameworks.is_torch(example_tensor):
        torch = frameworks.loaded("torch")
        assert torch is not None
        return torch.from_numpy(memory).view(example_tensor.dtype)
    return memory.view(numpy_dtype(element))


def length_of(num_elem: int, element: ElementType) -> int:
    """Return the number of elements, or raise an error if no memory could hold that many."""
    count = operator.index(num_elem)
    if count < 0:
        raise InvalidError(f"an array cannot have {count} elements")
    if count * element.itemsize > _MOST:
        raise OutOfMemoryError(f"no memory holds {count} elements of {element.name}")
    return count


def free_cpu_locked_tensor(tensor: Any) -> bool:
    """Release an array; its memory is freed with the last array that uses it."""
    return _managed.pop(arrays.view(tensor).pointer, None) is not None


def is_pinned(buffer: Any) -> bool:
    """Whether an array is in page-locked host memory, made here or known to CUDA."""
    found = arrays.view(buffer)
    if found.device >= 0 or not found.pointer:
        return False
    for address, nbytes in _managed.copy().items():
        if address <= found.pointer and found.pointer + found.nbytes <= address + nbytes:
            return True
    return KINDS[kind_of(found.pointer)[0]] == "pinned"


class _Locked:
    """Page-locked memory, allocated by CUDA if there is a GPU. It is freed with this object."""

    def __init__(self, nbytes: int) -> None:
        self._mapping: mmap.mmap | None = None
        # The native call stores the address where __del__ finds it, whatever interrupts the rest.
        self._allocated = ffi.new("void **")
        length = max(nbytes, 1)
        if devices():
            check(lib.penstock_host_alloc(length, self._allocated))
            self._address = int(ffi.cast("uintptr_t", self._allocated[0]))
        else:
            try:
                self._mapping = mmap.mmap(-1, length, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            except OSError as error:
                raise OutOfMemoryError(
                    f"cannot allocate {length} bytes of memory: {error.strerror}",
                    errno=error.errno,
                ) from None
            self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._mapping))
            _lock_pages(self._address, length)
        self.__array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (self._address, False),
            "version": 3,
        }
        _managed[self._address] = length

    def __del__(self) -> None:
        if hasattr(self, "__array_interface__"):
            _managed.pop(self._address, None)
        if getattr(self, "_allocated", NULL) and self._allocated[0] != NULL:
            lib.penstock_host_free(self._allocated[0])


def _lock_pages(address: int, length: int) -> None:
    """Lock pages in memory. Unmapping them unlocks them."""
    system = ctypes.CDLL(None, use_errno=True)
    if system.mlock(ctypes.c_void_p(address), ctypes.c_size_t(length)):
        code = ctypes.get_errno()
        raise OutOfMemoryError(
            f"cannot lock {length} bytes of memory: {os.strerror(code)}",
            errno=code,
            remedy="raise the limit on locked memory (ulimit -l)",
        )
