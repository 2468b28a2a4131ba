"""Fixtures: memory of each kind, and the frameworks where they are installed."""

from __future__ import annotations

import ctypes
import math
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock import placement
from penstock._native import ffi, lib
from penstock.errors import check
from penstock.hdf5 import small

MEMORY_KINDS = ("host", "pinned", "device")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes ``memory`` runs once for each kind of memory."""
    if "memory" in metafunc.fixturenames:
        kinds = [
            pytest.param(kind, marks=[] if kind == "host" else pytest.mark.gpu)
            for kind in MEMORY_KINDS
        ]
        metafunc.parametrize("memory", kinds, indirect=True)


class CudaInterface:
    """An array that supports only ``__cuda_array_interface__``."""

    def __init__(self, array: Any, **changes: Any) -> None:
        self._array = array
        self.__cuda_array_interface__ = {**array.__cuda_array_interface__, **changes}


class Memory:
    """Makes arrays of one kind of memory, and returns their contents."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def empty(self, shape: int | tuple[int, ...], dtype: Any = "uint8") -> Any:
        if self.kind == "device":
            return ps.DeviceArray(shape, dtype)
        if self.kind == "pinned":
            return np.asarray(_Pinned(shape, dtype))
        return np.empty(shape, dtype)

    def array(self, contents: np.ndarray[Any, Any]) -> Any:
        if self.kind == "device":
            return ps.DeviceArray.from_numpy(contents)
        made = self.empty(contents.shape, contents.dtype)
        made[...] = contents
        return made

    def misaligned(self, length: int, by: int) -> tuple[Any, Callable[[], np.ndarray[Any, Any]]]:
        """Return bytes at an address that is ``by`` off, and a function for their values."""
        whole = self.empty(length + by)
        if self.kind != "device":
            return whole[by:], lambda: whole[by:]
        address = whole.data_ptr + by if whole.data_ptr else 0
        part = CudaInterface(whole, shape=(length,), data=(address, False))
        return part, lambda: whole.numpy()[by:]

    def numpy(self, array: Any) -> np.ndarray[Any, Any]:
        return array.numpy() if self.kind == "device" else array


class _Pinned:
    """Page-locked memory, freed when the last array that shares it is gone."""

    def __init__(self, shape: int | tuple[int, ...], dtype: Any) -> None:
        lengths = (shape,) if isinstance(shape, int) else tuple(shape)
        kind = np.dtype(dtype)
        address = ffi.new("void **")
        check(lib.penstock_host_alloc(max(math.prod(lengths) * kind.itemsize, 1), address))
        self._owned = ffi.gc(address[0], lib.penstock_host_free)
        self.__array_interface__ = {
            "shape": lengths,
            "typestr": kind.str,
            "data": (int(ffi.cast("uintptr_t", self._owned)), False),
            "version": 3,
        }


class DLPackOnly:
    """An array that supports only DLPack, with or without versions."""

    def __init__(self, array: Any, *, versioned: bool) -> None:
        self._array = array
        self._versioned = versioned

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()

    def __dlpack__(self, **arguments: Any) -> object:
        if not self._versioned and "max_version" in arguments:
            raise TypeError("unexpected keyword argument 'max_version'")
        return self._array.__dlpack__(**arguments)


@pytest.fixture
def memory(request: pytest.FixtureRequest) -> Memory:
    return Memory(request.param)


@pytest.fixture
def cuda_interface() -> type[CudaInterface]:
    return CudaInterface


@pytest.fixture
def dlpack_only() -> type[DLPackOnly]:
    return DLPackOnly


@pytest.fixture
def nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """No dataset is so small that HDF5 itself reads and writes it."""
    monkeypatch.setattr(small, "LIMIT", 0)


@pytest.fixture
def penstock_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """New GPU arrays are DeviceArrays, whatever is installed."""
    monkeypatch.setattr(placement, "_asked_for", lambda: "device")


@pytest.fixture(scope="session")
def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture(scope="session")
def torch_cuda(torch: Any) -> Any:
    if not torch.cuda.is_available():
        pytest.skip("torch has no GPU: run on one, or under scripts/standin-gpu --torch")
    return torch


@pytest.fixture
def torch_kernels(torch_cuda: Any) -> Iterator[Any]:
    """torch for tests that need its kernels, which the CPU computes on the stand-in GPU."""
    from tests.torch_kernels import kernels_on_cpu

    with kernels_on_cpu():
        yield torch_cuda


@pytest.fixture(scope="session")
def cupy() -> Any:
    module = pytest.importorskip("cupy", reason="CuPy is not installed")
    if not module.cuda.is_available():
        pytest.skip("CuPy has no GPU")
    return module


@pytest.fixture
def noise() -> Callable[[int], np.ndarray[Any, Any]]:
    """Bytes without a pattern, the same for the same length."""
    return lambda count: np.random.default_rng(count).integers(0, 256, count, np.uint8)


@pytest.fixture(scope="session")
def slow_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library whose ``slow_ms`` delays the reads and writes of a process that preloads it."""
    library = tmp_path_factory.mktemp("slow") / "slow.so"
    source = Path(__file__).parent / "requests" / "slow.c"
    flags = ["-shared", "-fPIC", "-o", library, source, "-ldl"]
    subprocess.run([os.environ.get("CC", "cc"), *flags], check=True)
    return library


@pytest.fixture
def slow_file(tmp_path: Any) -> Iterator[Any]:
    """A file whose read, with one thread and small blocks, takes a while."""
    path = tmp_path / "slow.bin"
    with open(path, "wb") as file:
        file.truncate(128 << 20)
    with ps.options(threads=1, block="4KiB", io="threads", direct="no"):
        yield path


class Driver:
    """The CUDA driver, with the primary context of device 0 current on this thread."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL(os.environ.get("PENSTOCK_CUDA_LIBRARY", "libcuda.so.1"))
        self.call("cuInit", 0)
        self.context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 0)
        self.enter()

    def enter(self) -> None:
        self.call("cuCtxSetCurrent", self.context)

    def call(self, name: str, *arguments: Any) -> None:
        code = getattr(self.cuda, name)(*arguments)
        assert code == 0, f"{name}: {code}"

    def stream(self) -> ctypes.c_void_p:
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), 1)
        return stream

    def hold(self, stream: ctypes.c_void_p) -> ctypes.c_uint32:
        """Return a word; later work on the stream waits until it is 1."""
        word = ctypes.c_void_p()
        self.call("cuMemHostAlloc", ctypes.byref(word), ctypes.c_size_t(4096), 3)
        assert word.value is not None
        gate = ctypes.c_uint32.from_address(word.value)
        gate.value = 0
        at_least = 0
        self.call("cuStreamWaitValue32_v2", stream, ctypes.c_uint64(word.value), 1, at_least)
        return gate


@pytest.fixture
def driver() -> Driver:
    try:
        return Driver()
    except (OSError, AssertionError) as error:
        pytest.skip(f"no CUDA driver: {error}")
