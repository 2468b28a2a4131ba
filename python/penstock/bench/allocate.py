"""Allocates memory in each of the ways that programs use."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock._native import ffi, lib
from penstock.errors import check
from penstock.memory import copy_bytes

_libc = ctypes.CDLL(None, use_errno=True)
_libc.malloc.restype = ctypes.c_void_p
_libc.malloc.argtypes = [ctypes.c_size_t]
_libc.free.argtypes = [ctypes.c_void_p]
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.posix_memalign.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_size_t]
_MAP_FAILED = ctypes.c_void_p(-1).value
_MAP_HUGETLB = 0x40000
_HUGE_PAGE = 2 << 20
_ATTACH_GLOBAL = 1  # CU_MEM_ATTACH_GLOBAL
_REFUSALS = {2: errno.ENOMEM, 801: errno.ENOTSUP}
"""CUDA's errors for memory that this machine lacks, as errno. Any other error is a failure."""

Freed = Callable[[], None]


class Memory:
    """Allocated bytes, until :attr:`free` is called."""

    def __init__(self, kind: str, nbytes: int) -> None:
        self.address, self.free = _MAKERS[kind](nbytes)

    def put(self, values: np.ndarray[Any, Any]) -> None:
        copy_bytes(self.address, values.ctypes.data, values.nbytes)

    def get(self, nbytes: int) -> np.ndarray[Any, Any]:
        made = np.empty(nbytes, np.uint8)
        copy_bytes(made.ctypes.data, self.address, nbytes)
        return made


def _malloc(nbytes: int) -> tuple[int, Freed]:
    """Align to 16 bytes and no more, as malloc guarantees.

    With a larger alignment by chance, direct I/O would work in one run and not in the next.
    """
    made = _libc.malloc(nbytes + 16)
    if not made:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
    return made + (16 if made % 32 == 0 else 0), lambda: _libc.free(made)


def _aligned(nbytes: int) -> tuple[int, Freed]:
    found = ctypes.c_void_p()
    if status := _libc.posix_memalign(ctypes.byref(found), mmap.PAGESIZE, nbytes):
        raise OSError(status, os.strerror(status))
    assert found.value is not None
    return found.value, lambda: _libc.free(found)


def _mapped(nbytes: int, flags: int = 0) -> tuple[int, Freed]:
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    sharing = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | flags
    address = _libc.mmap(None, nbytes, protection, sharing, -1, 0)
    if address == _MAP_FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return address, lambda: _libc.munmap(address, nbytes)


def _huge(nbytes: int) -> tuple[int, Freed]:
    """Allocate from the pool of huge pages (/proc/sys/vm/nr_hugepages), or fail with ENOMEM."""
    return _mapped(-(-nbytes // _HUGE_PAGE) * _HUGE_PAGE, _MAP_HUGETLB)


def _pinned(nbytes: int) -> tuple[int, Freed]:
    return _native(lib.penstock_host_alloc, lib.penstock_host_free, nbytes)


def _device(nbytes: int) -> tuple[int, Freed]:
    from . import gpu

    def allocate(count: int, place: Any) -> int:
        return int(lib.penstock_device_alloc(gpu.device(), count, place))

    return _native(allocate, lib.penstock_device_free, nbytes)


def _native(allocate: Any, free: Any, nbytes: int) -> tuple[int, Freed]:
    place = ffi.new("void **")
    check(allocate(nbytes, place))
    address = int(ffi.cast("uintptr_t", place[0]))
    return address, lambda: free(place[0])


def _registered(nbytes: int) -> tuple[int, Freed]:
    address, free = _aligned(nbytes)
    cuda = _cuda()
    try:
        _cuda_check(cuda.cuMemHostRegister_v2(ctypes.c_void_p(address), ctypes.c_size_t(nbytes), 0))
    except BaseException:
        free()
        raise

    def release() -> None:
        cuda.cuMemHostUnregister(ctypes.c_void_p(address))
        free()

    return address, release


def _managed(nbytes: int) -> tuple[int, Freed]:
    cuda, found = _cuda(), ctypes.c_uint64()
    _cuda_check(
        cuda.cuMemAllocManaged(ctypes.byref(found), ctypes.c_size_t(nbytes), _ATTACH_GLOBAL)
    )
    return found.value, lambda: cuda.cuMemFree_v2(found)


def _cuda() -> Any:
    from . import gpu

    gpu.make_current()
    return ctypes.CDLL(os.environ.get("PENSTOCK_CUDA_LIBRARY", "libcuda.so.1"))


def _cuda_check(status: int) -> None:
    if number := _REFUSALS.get(status):
        raise OSError(number, f"CUDA error {status}")
    if status:
        raise RuntimeError(f"CUDA error {status}")


_MAKERS: dict[str, Callable[[int], tuple[int, Freed]]] = {
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
