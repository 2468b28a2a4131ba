"""GPU and pinned memory, from torch if it can use the GPU, else from Penstock."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import numpy as np

import penstock as ps
from penstock._native import ffi, lib
from penstock.errors import check
from penstock.frameworks import with_gpu
from penstock.memory import copy_bytes

torch: Any = with_gpu("torch")

_device = 0


def use(ordinal: int) -> None:
    """Use this GPU from now on."""
    global _device
    _device = ordinal
    if torch:
        torch.cuda.set_device(ordinal)


def device() -> int:
    """Return the ordinal of the GPU in use."""
    return _device


class Slice:
    """A part of a buffer for peers that take the CUDA array interface."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": 3,
        }


class Buffer:
    """GPU memory: that of an array of bytes, or new."""

    def __init__(self, nbytes: int, array: Any = None) -> None:
        self.nbytes = nbytes
        self.array: Any = empty((nbytes,), "uint8") if array is None else array
        self.address = address_of(self.array)
        synchronize()

    def part(self, nbytes: int, offset: int = 0) -> Slice:
        assert offset + nbytes <= self.nbytes
        return Slice(self.address + offset, nbytes)

    def view(self, nbytes: int) -> Any:
        """Return the first bytes as an array that Penstock accepts as ``out``."""
        return self.array[:nbytes] if torch else self.part(nbytes)

    def fill_with_noise(self) -> None:
        step = min(self.nbytes, 64 << 20)
        noise = np.random.default_rng(2).integers(0, 256, step, np.uint8)
        for number, start in enumerate(range(0, self.nbytes, step)):
            # Rolled, so that bytes from a wrong place differ.
            put(self.address + start, np.roll(noise, number)[: min(step, self.nbytes - start)])


def empty(shape: tuple[int, ...], dtype: str) -> Any:
    """Return an array in GPU memory that Penstock accepts as ``out``."""
    if torch:
        made = torch.empty(shape, dtype=getattr(torch, dtype), device="cuda")
        synchronize()
        return made
    return ps.DeviceArray(shape, dtype, device=_device)


def make_current() -> None:
    """Make the GPU's primary context current on this thread, for peers that call CUDA."""
    if torch:
        synchronize()
        return
    cuda = ctypes.CDLL(os.environ.get("PENSTOCK_CUDA_LIBRARY", "libcuda.so.1"))
    context = ctypes.c_void_p()
    if cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), _device) or cuda.cuCtxSetCurrent(
        context
    ):
        raise RuntimeError("the GPU's primary context cannot be made current")


class Pinned:
    """Page-locked host memory."""

    def __init__(self, nbytes: int) -> None:
        self.tensor: Any = None
        if torch:
            self.tensor = torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
            self.array: np.ndarray[Any, Any] = self.tensor.numpy()
        else:
            allocated = ffi.new("void **")
            check(lib.penstock_host_alloc(nbytes, allocated))
            self._owner = ffi.gc(allocated[0], lib.penstock_host_free)
            self.array = np.frombuffer(ffi.buffer(self._owner, nbytes), np.uint8)
        self.address = int(self.array.ctypes.data)

    def send(self, start: int, stop: int, array: Any) -> None:
        """Queue a copy of a range of bytes to the same place of a GPU array."""
        if torch:
            target = array.view(-1).view(torch.uint8)
            target[start:stop].copy_(self.tensor[start:stop], non_blocking=True)
        else:
            copy_bytes(address_of(array) + start, self.address + start, stop - start)


def unshuffle(shuffled: Any, array: Any, chunk: int) -> None:
    """Undo HDF5's shuffle filter for consecutive chunks of ``chunk`` elements."""
    size = array.dtype.itemsize
    if torch:
        planes = shuffled.view(-1, size, chunk)
        array.view(torch.uint8).view(-1, chunk, size).copy_(planes.transpose(1, 2))
    else:
        planes = get(address_of(shuffled), array.nbytes).reshape(-1, size, chunk)
        put(address_of(array), np.ascontiguousarray(planes.transpose(0, 2, 1)))


def address_of(array: Any) -> int:
    """Return the device address of a torch tensor or a DeviceArray."""
    return int(array.data_ptr() if callable(array.data_ptr) else array.data_ptr)


def put(address: int, host: np.ndarray[Any, Any]) -> None:
    copy_bytes(address, host.__array_interface__["data"][0], host.nbytes)


def get(address: int, nbytes: int) -> np.ndarray[Any, Any]:
    host = np.empty(nbytes, np.uint8)
    copy_bytes(host.__array_interface__["data"][0], address, nbytes)
    return host


def synchronize() -> None:
    if torch:
        torch.cuda.synchronize()


def to_gpu(host: np.ndarray[Any, Any]) -> Any:
    """Copy an array to the GPU as programs do, by torch's ``.cuda()``; complete on return."""
    if torch:
        copied = torch.from_numpy(host).cuda()
        synchronize()
        return copied
    return ps.DeviceArray.from_numpy(host, device=_device)


def to_host(array: Any) -> np.ndarray[Any, Any]:
    copied: np.ndarray[Any, Any] = array.cpu().numpy() if torch else array.numpy()
    return copied


COPIED_BY = "torch" if torch else "one copy"
