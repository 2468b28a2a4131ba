"""Page-locked arrays of DeepNVMe's handles."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import subprocess
import sys

import numpy as np
import pytest

import penstock as ps
from penstock import deepnvme
from penstock.deepnvme import pinned


def locked_kib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmLck:"))


@pytest.mark.parametrize("kind", [deepnvme.aio_handle, deepnvme.gds_handle, deepnvme.pin_handle])
def test_a_locked_array_has_the_type_and_length_that_were_requested(kind):
    handle = kind()
    array = handle.new_cpu_locked_tensor(1001, np.empty(0, "f4"))
    assert (array.shape, array.dtype) == ((1001,), np.dtype("f4"))
    array[:] = np.arange(1001)
    assert handle.is_pinned(array)
    assert handle.free_cpu_locked_tensor(array)
    assert not handle.free_cpu_locked_tensor(array)
    np.testing.assert_array_equal(array, np.arange(1001))  # as long as it is referenced


def test_parts_of_a_locked_array_are_pinned_and_others_are_not():
    handle, other = deepnvme.aio_handle(), deepnvme.gds_handle()
    array = handle.new_cpu_locked_tensor(4096, np.empty(0, "u1"))
    assert other.is_pinned(array)
    assert other.is_pinned(array[1000:])
    assert not other.is_pinned(np.empty(4096))
    assert other.free_cpu_locked_tensor(array)


@pytest.mark.skipif(
    bool(ps.devices()), reason="CUDA, not the system, locks memory on a GPU machine"
)
def test_without_a_gpu_the_system_locks_the_memory_as_long_as_an_array_uses_it():
    handle = deepnvme.aio_handle()
    before = locked_kib()
    array = handle.new_cpu_locked_tensor(1 << 20, np.empty(0, "u1"))
    part = array[5:]
    assert locked_kib() == before + 1024
    handle.free_cpu_locked_tensor(array)
    del array
    assert locked_kib() == before + 1024
    del part
    gc.collect()
    assert locked_kib() == before


@pytest.mark.gpu
def test_with_a_gpu_the_memory_is_cudas():
    array = deepnvme.aio_handle().new_cpu_locked_tensor(1000, np.empty(0, "u1"))
    assert ps.memory_kind(array) == "pinned"


def test_an_array_that_is_dropped_is_forgotten():
    array = deepnvme.aio_handle().new_cpu_locked_tensor(1000, np.empty(0, "u1"))
    address = array.__array_interface__["data"][0]
    assert address in pinned._managed
    del array
    gc.collect()
    assert address not in pinned._managed


def test_an_empty_array_can_be_had():
    handle = deepnvme.aio_handle()
    array = handle.new_cpu_locked_tensor(0, np.empty(0, "f8"))
    assert array.shape == (0,)
    assert handle.free_cpu_locked_tensor(array)
    with pytest.raises(ValueError, match="-1"):
        handle.new_cpu_locked_tensor(-1, np.empty(0, "f8"))


@pytest.mark.parametrize("count", [1 << 60, 1 << 63, 1 << 64, 1 << 90])
def test_an_array_that_no_memory_could_hold_is_a_memory_error(count):
    with pytest.raises(MemoryError):
        deepnvme.aio_handle().new_cpu_locked_tensor(count, np.empty(0, "f8"))


@pytest.mark.gpu
@pytest.mark.parametrize("count", [1 << 60, 1 << 64, 1 << 90])
def test_an_array_that_no_gpu_could_hold_is_a_memory_error(count):
    with pytest.raises(MemoryError):
        deepnvme.gds_handle().new_pinned_device_tensor(count, np.empty(0, "f8"))


def test_an_array_may_go_while_another_is_looked_for():
    # Python collects garbage when it makes an object: at any point of any function.
    program = """
import gc
import numpy as np
from penstock.deepnvme import pin_handle
handle, example, other = pin_handle(), np.empty(0, "u1"), np.empty(10, "u1")
for threshold in range(1, 60):
    gc.disable()
    array = handle.new_cpu_locked_tensor(1, example)
    circle = [array]
    circle.append(circle)
    del array, circle
    gc.set_threshold(threshold)
    gc.enable()
    handle.is_pinned(other)
    handle.free_cpu_locked_tensor(other)
print("done")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("done\n", "")


@pytest.mark.skipif(
    bool(ps.devices()), reason="CUDA, not the system, locks memory on a GPU machine"
)
def test_memory_that_may_not_be_locked_is_a_memory_error_with_a_remedy():
    program = """
import ctypes, resource
import numpy as np
from penstock.deepnvme import aio_handle
resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
# Root may lock memory whatever the limit; another user may not.
import os
os.setresuid(65534, 65534, 65534) if os.getuid() == 0 else None
try:
    aio_handle().new_cpu_locked_tensor(1 << 20, np.empty(0, "u1"))
except MemoryError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "1048576 bytes" in done.stdout
    assert "ulimit -l" in done.stdout
    assert resource.getrlimit(resource.RLIMIT_MEMLOCK)  # of this process, unchanged


def test_a_locked_array_is_read_and_written(tmp_path, noise):
    handle = deepnvme.aio_handle()
    contents = noise(100_001)
    array = handle.new_cpu_locked_tensor(contents.size, contents)
    array[:] = contents
    handle.async_pwrite(array, tmp_path / "f")
    handle.free_cpu_locked_tensor(array)
    del array
    assert handle.wait() == 1
    np.testing.assert_array_equal(np.fromfile(tmp_path / "f", "u1"), contents)


@pytest.mark.gpu
@pytest.mark.usefixtures("penstock_arrays")
def test_a_pinned_device_array_is_like_its_example():
    handle = deepnvme.gds_handle()
    array = handle.new_pinned_device_tensor(1001, np.empty(0, "f4"))
    assert (array.shape, array.dtype, array.device) == ((1001,), np.dtype("f4"), 0)
    assert handle.free_pinned_device_tensor(array) is True
    with pytest.raises(ValueError, match="-1"):
        handle.new_pinned_device_tensor(-1, np.empty(0, "f4"))


@pytest.mark.gpu
def test_only_contiguous_arrays_in_gpu_memory_can_be_pinned(cuda_interface):
    handle = deepnvme.gds_handle()
    array = ps.DeviceArray((10, 10))
    assert handle.pin_device_tensor(array) is True
    assert handle.pin_device_tensor(array) is True
    assert handle.unpin_device_tensor(array) is True
    assert handle.unpin_device_tensor(array) is True
    for wrong in (np.zeros(10), "text", cuda_interface(array, shape=(5, 5), strides=(20, 2))):
        with pytest.raises(TypeError):
            handle.pin_device_tensor(wrong)


def registered():
    """How many buffers cuFile has registered, as the stand-in counts them."""
    library = os.environ.get("PENSTOCK_CUFILE_LIBRARY", "")
    if "standin" not in library:
        pytest.skip("only the stand-in reports registered memory")
    if not ps.describe()["cufile"]["starts"]:
        pytest.skip("cuFile does not start")
    return ctypes.CDLL(library).cudasim_live_cufile_buffers()


@pytest.mark.gpu
@pytest.mark.usefixtures("penstock_arrays")
def test_a_pinned_array_is_registered_with_cufile_until_it_is_unpinned_or_the_handle_is_gone():
    before = registered()
    handle, other = deepnvme.gds_handle(), deepnvme.gds_handle()
    array = handle.new_pinned_device_tensor(1000, np.empty(0, "f4"))
    other.pin_device_tensor(array)
    assert registered() == before + 1
    handle.free_pinned_device_tensor(array)
    assert registered() == before + 1
    other.unpin_device_tensor(array)
    assert registered() == before
    other.pin_device_tensor(array)
    assert registered() == before + 1
    del other
    gc.collect()
    assert registered() == before


@pytest.mark.gpu
def test_parts_of_a_pinned_array_are_read_and_written(tmp_path, noise, cuda_interface):
    contents = noise(100_000)
    handle = deepnvme.gds_handle()
    array = ps.DeviceArray.from_numpy(contents)
    part = cuda_interface(array, shape=(5000,), data=(array.data_ptr + 77, False))
    handle.pin_device_tensor(array)
    handle.async_pwrite(part, tmp_path / "f")
    assert handle.wait() == 1
    assert (tmp_path / "f").read_bytes() == contents[77:5077].tobytes()
    handle.async_pwrite(np.zeros(5000, "u1"), tmp_path / "f")
    handle.async_pread(part, tmp_path / "f")
    handle.unpin_device_tensor(array)  # when both are over
    assert handle.wait() == 2
    expected = contents.copy()
    expected[77:5077] = 0
    np.testing.assert_array_equal(array.numpy(), expected)
