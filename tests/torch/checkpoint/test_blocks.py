"""Random blocks of stored tensors, into tensors of random strides."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.files import READ, NativeFile

from .conftest import torch

blocks = pytest.importorskip("penstock.torch.checkpoint.blocks")
archive = pytest.importorskip("penstock.torch.checkpoint.archive")


def random_layout(made: random.Random, shape: list[int], dtype: Any) -> Any:
    """Return a tensor of zeros with the dimensions in random order, some with gaps."""
    order = made.sample(range(len(shape)), len(shape))
    steps = [made.choice([1, 1, 1, 2]) for _ in shape]
    whole = torch.zeros([shape[axis] * steps[axis] for axis in order], dtype=dtype)
    tensor = whole.permute([order.index(axis) for axis in range(len(shape))])
    return tensor[tuple(slice(None, None, step) for step in steps)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("between", [1 << 26, 3000])
def test_random_blocks_have_the_elements_of_the_tensor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, between: int
) -> None:
    monkeypatch.setattr(blocks, "_MOST_BETWEEN", between)
    made = random.Random(seed)
    for _ in range(25):
        shape = [made.choice([1, 2, 5, 40, 300]) for _ in range(made.randrange(4))]
        if len(shape) == 3:
            shape[made.randrange(3)] = 7
        dtype = made.choice([torch.uint8, torch.bfloat16, torch.float32, torch.complex128])
        stored = random_layout(made, shape, dtype)
        stored.copy_(torch.randint(0, 200, shape))
        begin = made.randrange(100)
        path = tmp_path / "tensor.bin"
        data = bytes(archive.bytes_of(stored.untyped_storage()).numpy())
        path.write_bytes(bytes(begin) + data)
        size = stored.element_size()
        first = begin + stored.storage_offset() * size
        steps = tuple(step * size for step in stored.stride())
        described = archive.StoredTensor(dtype, first, tuple(shape), steps)
        with NativeFile(path, READ) as file:
            reading = blocks.Blocks(file, at_once=made.choice([1, 1 << 20]))
            wanted = []
            for _ in range(4):
                offsets = [made.randrange(n) for n in shape]
                lengths = [made.randrange(n - o + 1) for n, o in zip(shape, offsets, strict=True)]
                other = torch.float64 if dtype == torch.float32 else dtype
                target = random_layout(made, lengths, made.choice([dtype, other]))
                reading.add(described, offsets, target)
                source = stored
                for axis, (o, n) in enumerate(zip(offsets, lengths, strict=True)):
                    source = source.narrow(axis, o, n)
                wanted.append((target, source))
            reading.start()
            reading.finish()
        for target, source in wanted:
            assert torch.equal(target, source.to(target.dtype)), (shape, stored.stride())


@pytest.mark.parametrize(
    ("offsets", "shape"), [((0, 4), (2, 2)), ((-1, 0), (1, 1)), ((0, 0), (3, 5))]
)
def test_a_block_outside_the_tensor_is_refused(
    tmp_path: Path, offsets: tuple[int, int], shape: tuple[int, int]
) -> None:
    path = tmp_path / "tensor.bin"
    path.write_bytes(bytes(10))
    described = archive.StoredTensor(torch.uint8, 0, (2, 5), (5, 1))
    with NativeFile(path, READ) as file, pytest.raises(ValueError, match="tensor of shape"):
        blocks.Blocks(file, 1 << 20).add(described, offsets, torch.zeros(shape, dtype=torch.uint8))


def test_a_tensor_whose_memory_is_freed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tensor.bin"
    path.write_bytes(bytes(100))
    target = torch.zeros(20)
    target.untyped_storage().resize_(0)
    described = archive.StoredTensor(torch.float32, 0, (20,), (4,))
    with NativeFile(path, READ) as file, pytest.raises(ps.InvalidError, match=r"0 bytes|no memory"):
        blocks.Blocks(file, 1 << 20).add(described, (0,), target)


def test_autograd_notices_that_a_tensor_was_read_into(tmp_path: Path) -> None:
    (tmp_path / "tensor.bin").write_bytes(bytes(4096))
    described = archive.StoredTensor(torch.float32, 0, (1024,), (4,))
    weights = torch.ones(1024, requires_grad=True)
    loss = (weights * weights).sum()
    with NativeFile(tmp_path / "tensor.bin", READ) as file:
        reading = blocks.Blocks(file, at_once=1)
        reading.add(described, [0], weights.detach())
        reading.finish()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
