"""torch's tensors through DeepNVMe's handles, and torch.save into FastPersist's file object."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest

from penstock.deepnvme import FastFileWriter, FastFileWriterConfig, MockFileWriter, aio_handle
from penstock.deepnvme import gds_handle as gds
from penstock.deepnvme.storages import part_of

DTYPES = ["uint8", "bool", "float16", "bfloat16", "float32", "int64", "complex64"]


@pytest.fixture
def tensors(torch):
    """Tensors of several types and shapes, two of which share a storage."""
    made = {
        name: (torch.arange(1001) % 2).to(getattr(torch, name)).reshape(7, -1) for name in DTYPES
    }
    return {**made, "part": made["float32"][1:3], "empty": torch.empty(0)}


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tensor_of_any_type_comes_back(tmp_path, torch, tensors, dtype):
    handle = aio_handle()
    tensor = tensors[dtype]
    handle.async_pwrite(tensor, tmp_path / "f")
    assert handle.wait() == 1
    out = torch.empty_like(tensor)
    assert handle.pread(out, tmp_path / "f", True, False) == 1
    assert torch.equal(out, tensor)


def test_a_part_of_a_tensor_and_a_transposed_one_are_read(tmp_path, torch):
    handle = aio_handle()
    tensor = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    handle.sync_pwrite(tensor, str(tmp_path / "f"))
    whole = torch.zeros(8, 6)
    handle.async_pread(torch.narrow(whole, 0, 2, 4), str(tmp_path / "f"))
    turned = torch.zeros(6, 4)
    handle.async_pread(turned.T, str(tmp_path / "f"))
    assert handle.wait() == 2
    assert torch.equal(whole[2:6], tensor)
    assert not whole[:2].any()
    assert torch.equal(turned.T, tensor)


def test_autograd_notices_that_a_tensor_was_read_into(tmp_path, torch):
    np.ones(3, "f4").tofile(tmp_path / "f")
    weight = torch.zeros(3, requires_grad=True)
    square = (weight * weight).sum()
    handle = aio_handle()
    handle.async_pread(weight.data, tmp_path / "f")
    handle.async_pread(weight, tmp_path / "f")
    assert handle.wait() == 2
    with pytest.raises(RuntimeError, match="modified"):
        square.backward()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_locked_tensor_is_like_its_example(torch, dtype):
    handle = aio_handle()
    tensor = handle.new_cpu_locked_tensor(100, torch.empty(0, dtype=getattr(torch, dtype)))
    assert (tensor.dtype, tuple(tensor.shape)) == (getattr(torch, dtype), (100,))
    assert tensor.device.type == "cpu"
    tensor.zero_()
    assert handle.is_pinned(tensor)
    assert handle.is_pinned(tensor.narrow(0, 10, 20))
    assert not handle.is_pinned(torch.empty(100))
    assert handle.free_cpu_locked_tensor(tensor)
    assert not tensor.any()


def writer_on(path, buffer, **more):
    return FastFileWriter(path, FastFileWriterConfig(aio_handle(), buffer, **more))


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("archive", [False, True])
def test_torch_save_gives_the_bytes_that_it_gives_a_plain_file(
    tmp_path, torch, tensors, archive, double
):
    plain = io.BytesIO()
    torch.save(tensors, plain, _use_new_zipfile_serialization=archive)
    writer = writer_on(tmp_path / "f", torch.empty(1000, dtype=torch.uint8), double_buffer=double)
    torch.save(tensors, writer, _use_new_zipfile_serialization=archive)
    writer.close()
    assert (tmp_path / "f").read_bytes() == plain.getvalue()
    back = torch.load(tmp_path / "f", weights_only=True)
    assert all(torch.equal(back[name], tensor) for name, tensor in tensors.items())


def storages_of(tensors):
    return [(tensor.untyped_storage(), tensor.dtype) for tensor in tensors]


def as_torch_writes(tensors, with_lengths):
    """What torch.save without an archive writes of storages."""
    words = []
    for untyped, dtype in storages_of(tensors):
        size = tensors[0].new_empty(0, dtype=dtype).element_size()
        if with_lengths:
            words.append(struct.pack("<q", untyped.nbytes() // size))
        words.append(bytes(untyped.tolist()))
    return b"".join(words)


@pytest.mark.parametrize("with_lengths", [False, True])
@pytest.mark.parametrize("writers", [1, 2, 3, 7])
def test_parallel_writers_share_the_bytes_of_storages(
    tmp_path, torch, tensors, with_lengths, writers
):
    expected = as_torch_writes(list(tensors.values()), with_lengths)
    parts = []
    for rank in range(writers):
        config = {"num_parallel_writers": writers, "writer_rank": rank}
        path = tmp_path / str(rank)
        with writer_on(path, torch.empty(512, dtype=torch.uint8), **config) as writer:
            count = writer.save_torch_storage_object_list(
                storages_of(tensors.values()), with_lengths
            )
        parts.append(path.read_bytes())
        assert count == len(parts[-1])
        assert writer.statistics()["save_storage_bytes"] == count
    assert b"".join(parts) == expected
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_part_that_does_not_exist_is_a_value_error():
    with pytest.raises(ValueError, match="part 3 of 3"):
        list(part_of([], 3, 3))


def test_the_mock_writer_counts_storages(tmp_path, torch, tensors):
    writer = MockFileWriter(tmp_path / "f")
    expected = len(as_torch_writes(list(tensors.values()), True))
    assert writer.save_torch_storage_object_list(storages_of(tensors.values()), True) == expected
    assert writer.statistics()["save_storage"] == len(tensors)


def test_gpu_tensors_are_written_after_the_work_that_makes_them(tmp_path, torch_kernels):
    torch = torch_kernels
    for handle in (aio_handle(), gds()):
        x = torch.zeros(8 << 20, device="cuda")
        for _ in range(50):
            x += 1
        handle.async_pwrite(x, tmp_path / "f")
        assert handle.wait() == 1
        assert (np.fromfile(tmp_path / "f", "f4") == 50).all()
        out = torch.empty_like(x)
        handle.async_pread(out, tmp_path / "f")
        assert handle.wait() == 1
        assert bool((out == 50).all())


def test_a_pinned_device_tensor_is_torchs(torch_cuda):
    torch = torch_cuda
    handle = gds()
    made = handle.new_pinned_device_tensor(100, torch.empty(0, dtype=torch.bfloat16, device="cuda"))
    assert (made.dtype, made.device.type, made.numel()) == (torch.bfloat16, "cuda", 100)
    assert handle.free_pinned_device_tensor(made)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_torch_save_of_gpu_tensors_gives_the_same_bytes(tmp_path, torch_kernels, device):
    torch = torch_kernels
    state = {"a": torch.arange(100_000, device="cuda"), "b": torch.ones(7, device="cuda")}
    plain = io.BytesIO()
    torch.save(state, plain)
    handle = gds() if device == "cuda" else aio_handle()
    buffer = torch.empty(64 << 10, dtype=torch.uint8, device=device)
    with FastFileWriter(tmp_path / "f", FastFileWriterConfig(handle, buffer)) as writer:
        torch.save(state, writer)
    assert (tmp_path / "f").read_bytes() == plain.getvalue()
