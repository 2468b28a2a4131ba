"""Page-locked host memory, as NumPy arrays."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
from typing import Any

import numpy as np

from penstock._native import ffi, lib
from penstock.errors import OutOfMemoryError, check
from penstock.machine import devices


class Pinned:
    """Page-locked memory, allocated by CUDA if there is a GPU, else locked by the system.

    NumPy shares it by ``__array_interface__``, as bytes. It is freed with this object.

    Raises:
        OutOfMemoryError: There is not as much memory, or the process may not lock as much.
    """

    def __init__(self, nbytes: int) -> None:
        self._mapping: mmap.mmap | None = None
        # The native call stores the address where its native destructor finds it, whatever
        # interrupts the rest. In a forked child, that frees nothing of its parent.
        self._allocated = ffi.gc(ffi.new("void **"), lib.penstock_host_release)
        self.length = max(nbytes, 1)
        if devices():
            check(lib.penstock_host_alloc(self.length, self._allocated))
            self.address = int(ffi.cast("uintptr_t", self._allocated[0]))
        else:
            try:
                self._mapping = mmap.mmap(-1, self.length, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            except OSError as error:
                raise OutOfMemoryError(
                    f"cannot allocate {self.length} bytes of memory: {error.strerror}",
                    errno=error.errno,
                ) from None
            self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._mapping))
            _lock_pages(self.address, self.length)
        self.__array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (self.address, False),
            "version": 3,
        }


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, np.dtype[Any]]:
    """Return an array in page-locked memory, not initialised."""
    memory = np.asarray(Pinned(math.prod(shape) * dtype.itemsize))
    return memory.view(dtype).reshape(shape) if memory.size else np.empty(shape, dtype)


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
