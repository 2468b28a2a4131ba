"""What other tests use of torch works on its GPU: a real one, or `scripts/standin-gpu --torch`."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import penstock as ps

pytestmark = pytest.mark.gpu

SIZES = (1, 1000, 1 << 20)


@pytest.fixture
def standin(torch_cuda: Any) -> Any:
    if "stand-in" not in torch_cuda.cuda.get_device_name():
        pytest.skip("for the stand-in GPU alone")
    return torch_cuda


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("pinned", [False, True])
def test_a_tensor_is_the_same_after_a_copy_to_the_gpu_and_back(torch_cuda, size, pinned):
    host = torch_cuda.arange(size, pin_memory=pinned)
    assert host.is_pinned() == pinned
    on_gpu = host.to("cuda", non_blocking=True)
    assert on_gpu.device.type == "cuda"
    assert torch_cuda.equal(on_gpu.cpu(), host)


def test_a_tensor_is_copied_and_cleared_on_the_gpu(torch_cuda):
    tensor = torch_cuda.arange(1000).cuda()
    copied = tensor.clone()
    tensor.zero_()
    assert not tensor.cpu().any()
    assert torch_cuda.equal(copied.cpu(), torch_cuda.arange(1000))


def test_a_view_has_its_part_of_the_tensor(torch_cuda):
    host = torch_cuda.arange(1000)
    rows = host.cuda().reshape(10, 100)
    assert torch_cuda.equal(rows[3:5].cpu(), host[300:500].reshape(2, 100))
    assert rows[7, 8].item() == 708


def test_dlpack_shares_the_memory_of_a_device_array_and_of_a_tensor(torch_cuda):
    array = ps.DeviceArray.from_numpy(np.arange(6, dtype="f4"))
    tensor = torch_cuda.from_dlpack(array)
    assert tensor.data_ptr() == array.data_ptr
    assert tensor.tolist() == list(range(6))
    assert torch_cuda.from_dlpack(tensor).data_ptr() == tensor.data_ptr()


def test_an_event_is_reached_after_the_work_before_it(torch_cuda):
    torch = torch_cuda
    stream = torch.cuda.Stream()
    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    host = torch.empty(32 << 20, dtype=torch.uint8, pin_memory=True)
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream() == stream
        begun.record()
        tensor = host.to("cuda", non_blocking=True)
        ended.record()
    torch.cuda.current_stream().wait_event(ended)
    tensor.record_stream(torch.cuda.current_stream())
    torch.cuda.synchronize()
    assert ended.query()
    assert stream.query()
    assert begun.elapsed_time(ended) > 0


def test_memory_that_is_not_used_is_returned_to_the_driver(torch_cuda):
    cuda = torch_cuda.cuda
    cuda.empty_cache()
    free, _ = cuda.mem_get_info()
    tensor = torch_cuda.empty(64 << 20, dtype=torch_cuda.uint8, device="cuda")
    assert cuda.memory_allocated() >= tensor.nbytes
    assert cuda.mem_get_info()[0] <= free - tensor.nbytes
    del tensor
    cuda.empty_cache()
    assert cuda.mem_get_info()[0] > free - (64 << 20)


def test_memory_that_is_not_there_is_an_error_of_torch(torch_cuda):
    with pytest.raises(torch_cuda.cuda.OutOfMemoryError, match="out of memory"):
        torch_cuda.empty(1 << 50, dtype=torch_cuda.uint8, device="cuda")
    assert torch_cuda.zeros(3, device="cuda").tolist() == [0, 0, 0]


def test_a_kernel_of_torch_fails_on_the_standin_and_later_calls_succeed(standin):
    tensor = standin.zeros(3, device="cuda")
    for launch in (lambda: tensor.fill_(1), lambda: tensor + 1, lambda: tensor[::2].contiguous()):
        with pytest.raises(standin.AcceleratorError, match="no kernel image is available"):
            launch()
    assert tensor.tolist() == [0, 0, 0]


TWO_DEVICES = """
import torch
assert torch.cuda.device_count() == 2
torch.cuda.set_device(1)
tensor = torch.arange(1000).cuda()
assert tensor.get_device() == torch.cuda.current_device() == 1
with torch.cuda.device(0):
    assert torch.empty(1, device="cuda").get_device() == 0
other = tensor.to("cuda:0")
assert other.get_device() == 0
assert torch.equal(other.cpu(), torch.arange(1000))
"""


def test_torch_uses_both_of_two_devices(standin):
    environment = os.environ | {"CUDASIM_DEVICES": "2"}
    subprocess.run([sys.executable, "-c", TWO_DEVICES], env=environment, timeout=240, check=True)


def test_memory_of_the_stream_ordered_allocator_works(torch_cuda):
    program = """
import torch
tensor = torch.arange(1000).cuda()
assert torch.cuda.get_allocator_backend() == "cudaMallocAsync"
assert torch.equal(tensor.clone().cpu(), torch.arange(1000))
"""
    environment = os.environ | {"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"}
    subprocess.run([sys.executable, "-c", program], env=environment, timeout=240, check=True)
