"""Allocates memory in each of the ways that programs use."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Callable
from ctypes import byref, c_size_t, c_uint64, c_void_p
from typing import Any

import numpy as np

from penstock._native import ffi, lib
from penstock.errors import check

from . import gpu

_libc = ctypes.CDLL(None, use_errno=True)
_libc.malloc.restype = _libc.mmap.restype = c_void_p
_libc.mmap.argtypes = [c_void_p, c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_MAP_HUGETLB = 0x40000
_HUGE_PAGE = 2 << 20
_ATTACH_GLOBAL = 1  # CU_MEM_ATTACH_GLOBAL
_REFUSALS = {2: errno.ENOMEM, 801: errno.ENOTSUP}
"""CUDA's errors for memory that this machine lacks, as errno. Any other error is a failure."""

Made = tuple[int, Callable[[], object]]
"""An address, and the function that frees the memory."""


class Memory:
    """Allocated bytes, until :attr:`free` is called."""

    def __init__(self, kind: str, nbytes: int) -> None:
        self.address, self.free = _MAKERS[kind](nbytes)

    def put(self, values: np.ndarray[Any, Any]) -> None:
        gpu.put(self.address, values)

    def get(self, nbytes: int) -> np.ndarray[Any, Any]:
        return gpu.get(self.address, nbytes)


def _malloc(nbytes: int) -> Made:
    """Align to 16 bytes and no more, as malloc guarantees.

    With a larger alignment by chance, direct I/O would work in one run and not in the next.
    """
    made = _libc.malloc(c_size_t(nbytes + 16))
    _require(errno.ENOMEM if not made else 0)
    return made + (16 if made % 32 == 0 else 0), lambda: _libc.free(c_void_p(made))


def _aligned(nbytes: int) -> Made:
    found = c_void_p()
    _require(_libc.posix_memalign(byref(found), c_size_t(mmap.PAGESIZE), c_size_t(nbytes)))
    assert found.value is not None
    return found.value, lambda: _libc.free(found)


def _mapped(nbytes: int, flags: int = 0) -> Made:
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    sharing = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | flags
    address = _libc.mmap(None, nbytes, protection, sharing, -1, 0)
    _require(ctypes.get_errno() if address == c_void_p(-1).value else 0)
    return address, lambda: _libc.munmap(c_void_p(address), c_size_t(nbytes))


def _huge(nbytes: int) -> Made:
    """Allocate from the pool of huge pages (/proc/sys/vm/nr_hugepages), or fail with ENOMEM."""
    return _mapped(-(-nbytes // _HUGE_PAGE) * _HUGE_PAGE, _MAP_HUGETLB)


def _pinned(nbytes: int) -> Made:
    place = ffi.new("void **")
    check(lib.penstock_host_alloc(nbytes, place))
    return int(ffi.cast("uintptr_t", place[0])), lambda: lib.penstock_host_free(place[0])


def _device(nbytes: int) -> Made:
    place = ffi.new("void **")
    check(lib.penstock_device_alloc(gpu.device(), nbytes, place))
    return int(ffi.cast("uintptr_t", place[0])), lambda: lib.penstock_device_free(place[0])


def _registered(nbytes: int) -> Made:
    address, free = _aligned(nbytes)
    cuda = _cuda()
    try:
        _cuda_check(cuda.cuMemHostRegister_v2(c_void_p(address), c_size_t(nbytes), 0))
    except BaseException:
        free()
        raise
    return address, lambda: (cuda.cuMemHostUnregister(c_void_p(address)), free())


def _managed(nbytes: int) -> Made:
    cuda, found = _cuda(), c_uint64()
    _cuda_check(cuda.cuMemAllocManaged(byref(found), c_size_t(nbytes), _ATTACH_GLOBAL))
    return found.value, lambda: cuda.cuMemFree_v2(found)


def _cuda() -> Any:
    gpu.make_current()
    return ctypes.CDLL(os.environ.get("PENSTOCK_CUDA_LIBRARY", "libcuda.so.1"))


def _cuda_check(status: int) -> None:
    _require(_REFUSALS.get(status, 0))
    if status:
        raise RuntimeError(f"CUDA error {status}")


def _require(number: int) -> None:
    """Raise an ``OSError`` for an error number other than 0."""
    if number:
        raise OSError(number, os.strerror(number))


_MAKERS: dict[str, Callable[[int], Made]] = {
    "malloc": _malloc,
    "posix_memalign": _aligned,
    "hugepage": _huge,
    "mmap": _mapped,
    "cudaMallocHost": _pinned,
    "cudaHostRegister": _registered,
    "cudaMallocManaged": _managed,
    "cudaMalloc": _device,
}
KINDS = tuple(_MAKERS)
ON_HOST = KINDS[:4]
"""The kinds that need no GPU."""
