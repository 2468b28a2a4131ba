"""DeviceArray: GPU memory with the exchange protocols."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.extra import numpy as hnp

import penstock as ps
from penstock import dlpack
from penstock.dtypes import element_type

pytestmark = pytest.mark.gpu


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    hnp.arrays(
        dtype=hnp.scalar_dtypes(),
        shape=hnp.array_shapes(min_dims=0, min_side=0, max_dims=3),
    )
)
def test_a_copy_to_the_gpu_and_back_is_the_same(array):
    there = ps.DeviceArray.from_numpy(array)
    back = there.numpy()
    assert (back.shape, back.dtype) == (array.shape, array.dtype)
    assert back.tobytes() == array.tobytes()
    assert (there.nbytes, there.ndim, there.size) == (array.nbytes, array.ndim, array.size)


def test_its_attributes_are_those_of_a_c_contiguous_array():
    a = ps.DeviceArray((2, 3, 4), "f4")
    assert (a.shape, a.strides, a.dtype) == ((2, 3, 4), (48, 16, 4), np.float32)
    assert (a.nbytes, len(a), a.device) == (96, 2, 0)
    assert a.data_ptr
    assert "float32" in repr(a)


def test_an_array_of_no_elements_has_no_memory(tmp_path):
    a = ps.DeviceArray((3, 0), "f8")
    assert (a.data_ptr, a.nbytes, a.numpy().shape) == (0, 0, (3, 0))
    ps.save(tmp_path / "f", a)
    assert (tmp_path / "f").read_bytes() == b""


def test_a_negative_length_is_refused():
    with pytest.raises(ValueError, match="negative"):
        ps.DeviceArray((2, -1))


def test_it_is_not_copied_to_the_host_implicitly():
    with pytest.raises(TypeError, match="numpy"):
        np.asarray(ps.DeviceArray(3))


def test_the_cuda_array_interface_is_version_3():
    a = ps.DeviceArray((2, 3), "i2")
    interface = a.__cuda_array_interface__
    assert interface["version"] == 3
    assert (interface["shape"], interface["typestr"]) == ((2, 3), "<i2")
    assert interface["data"] == (a.data_ptr, False)


@pytest.mark.parametrize("max_version", [None, (1, 0), (0, 8)])
def test_a_capsule_describes_the_array(max_version):
    a = ps.DeviceArray((2, 3), "f8")
    imported = dlpack.import_array(_Producer(a, max_version), 0)
    assert (imported.pointer, imported.shape) == (a.data_ptr, (2, 3))
    assert (imported.device_type, imported.device_id) == (dlpack.CUDA, 0)
    assert imported.strides == (3, 1)
    assert imported.dtype.numpy == np.float64


class _Producer:
    """Asks for one version of capsule, whatever the consumer asks for."""

    def __init__(self, array, max_version):
        self._array, self._max_version = array, max_version

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()

    def __dlpack__(self, *, stream=None, max_version=None):
        return self._array.__dlpack__(stream=stream, max_version=self._max_version)


@pytest.mark.parametrize("max_version", [None, (1, 0)])
def test_a_capsule_keeps_the_memory_until_it_is_dropped(max_version):
    a = ps.DeviceArray(10)
    alive = weakref.ref(a)
    capsule = a.__dlpack__(max_version=max_version)
    del a
    gc.collect()
    assert alive() is not None
    del capsule
    gc.collect()
    assert alive() is None


class _Exported:
    """Memory of NumPy that says that it is on a device."""

    def __init__(self, device, max_version):
        self.device = device
        self.versioned = max_version is not None
        self.owner: Any = None

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **_):
        memory = np.arange(6.0).reshape(2, 3)
        self.owner = weakref.ref(memory)
        element = element_type("f8")
        address = memory.ctypes.data
        return dlpack.export_array(
            address, (2, 3), element, self.device, memory, versioned=self.versioned
        )


@pytest.mark.parametrize("max_version", [None, (1, 0)])
def test_a_consumer_keeps_the_memory_until_it_deletes(max_version):
    """NumPy consumes a capsule, renames it, and calls the deleter when its array goes."""
    exported = _Exported((dlpack.CPU, 0), max_version)
    array = np.from_dlpack(exported)
    assert exported.owner() is not None
    np.testing.assert_array_equal(array, np.arange(6.0).reshape(2, 3))
    del array
    assert exported.owner() is None


@pytest.mark.parametrize("max_version", [None, (1, 0)])
def test_memory_that_a_consumer_refuses_is_freed(max_version):
    """The capsule dies while the consumer's exception is on its way."""
    exported = _Exported((dlpack.CUDA, 0), max_version)
    with pytest.raises((RuntimeError, BufferError), match=r"device|DLPack|dlpack") as caught:
        np.from_dlpack(exported)
    assert caught.type is not SystemError
    assert exported.owner() is None


def test_a_copy_is_other_memory_with_the_same_contents():
    a = ps.DeviceArray.from_numpy(np.arange(5))
    imported = dlpack.import_array(_Copying(a), 0)
    assert imported.pointer != a.data_ptr


class _Copying:
    def __init__(self, array):
        self._array = array

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()

    def __dlpack__(self, **arguments):
        return self._array.__dlpack__(copy=True, **arguments)


def test_a_place_that_would_need_a_forbidden_copy_is_a_buffer_error():
    a = ps.DeviceArray(4)
    with pytest.raises(BufferError):
        a.__dlpack__(dl_device=(dlpack.CPU, 0), copy=False)
    with pytest.raises(BufferError):
        a.__dlpack__(dl_device=(dlpack.CUDA, 99))


def test_a_type_that_dlpack_lacks_is_a_buffer_error():
    with pytest.raises(BufferError):
        ps.DeviceArray(4, "S3").__dlpack__()


def test_an_export_that_outlives_the_interpreter_does_no_harm():
    code = """
import numpy as np, penstock as ps
a = ps.DeviceArray.from_numpy(np.arange(5.0))
class OnHost:
    def __dlpack_device__(self): return 1, 0
    def __dlpack__(self, **_): return a.__dlpack__(dl_device=(1, 0))
import builtins
builtins.kept = np.from_dlpack(OnHost())
builtins.capsule = a.__dlpack__()
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_memory_is_given_back():
    for _ in range(200):
        ps.DeviceArray(64 << 20)  # 12.5 GiB in all: more than the stand-in has


def test_torch_shares_the_memory(torch_kernels):
    a = ps.DeviceArray.from_numpy(np.arange(6, dtype="f4").reshape(2, 3))
    t = torch_kernels.from_dlpack(a)
    assert t.data_ptr() == a.data_ptr
    t += 1
    torch_kernels.cuda.synchronize()
    np.testing.assert_array_equal(a.numpy(), np.arange(6).reshape(2, 3) + 1)


def test_cupy_shares_the_memory(cupy):
    a = ps.DeviceArray.from_numpy(np.arange(6, dtype="f4").reshape(2, 3))
    with cupy.cuda.Device(0):  # CuPy copies an array of a GPU that is not current
        assert cupy.asarray(a).data.ptr == a.data_ptr
        assert cupy.from_dlpack(a).data.ptr == a.data_ptr
