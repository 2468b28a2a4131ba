"""Batches in the memory of a GPU, of which torch needs one of its own."""

from __future__ import annotations

import ctypes
import gc
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch

from penstock.torch import Batches, HDF5Dataset

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU"),
]

STANDIN = "PENSTOCK_CUDA_LIBRARY" in os.environ
# On the stand-in GPU, the CPU computes and decodes.
SIDE = 64 if STANDIN else 2048
IMAGE = 32 if STANDIN else 128

NAMES = {"image": "image", "state": "group/state", "label": "label"}


def dataset_of(files: Any, **arguments: Any) -> HDF5Dataset:
    return HDF5Dataset(files.paths, NAMES, **{"device": "cuda"} | arguments)


class Large:
    """A file of images whose values are their numbers."""

    def __init__(self, folder: Path, count: int = 512, side: int = IMAGE) -> None:
        self.path = folder / "large.h5"
        self.count = count
        with h5py.File(self.path, "w") as file:
            image = file.create_dataset(
                "image", (count, side, side), "i4", chunks=(1, side, side), compression="gzip"
            )
            for number in range(count):
                image[number] = number
            file["label"] = np.arange(count)


@pytest.fixture
def large(tmp_path: Path) -> Large:
    return Large(tmp_path)


def large_of(large: Large, **arguments: Any) -> HDF5Dataset:
    return HDF5Dataset(large.path, ["image", "label"], **{"device": "cuda"} | arguments)


@pytest.mark.parametrize("indices", [[3], [38, 0, 12, 12, -1], list(range(39))])
def test_a_batch_is_on_the_gpu(files: Any, indices: list[int]) -> None:
    batch = dataset_of(files).__getitems__(indices).batch
    for name, array in files.arrays.items():
        assert batch[name].device == torch.device("cuda", torch.cuda.current_device())
        assert np.array_equal(batch[name].cpu().numpy(), array[np.array(indices)])


@pytest.mark.parametrize("prefetch", [0, 1, 3, 8])
@pytest.mark.parametrize("decode", ["auto", "cpu", "gpu"])
def test_batches_have_the_samples_while_the_stream_is_busy(
    large: Large, prefetch: int, decode: Any
) -> None:
    matrix = torch.randn(SIDE, SIDE, device="cuda")
    seen = []
    stream = torch.cuda.Stream()
    batches = Batches(large_of(large, decode=decode), 32, prefetch=prefetch)
    for current in (torch.cuda.current_stream(), stream):
        with torch.cuda.stream(current):
            for batch in batches:
                for _ in range(10):
                    matrix = torch.tanh(matrix @ matrix)
                same = (batch["image"] == batch["label"][:, None, None]).all()
                seen.append((same, batch["label"].clone()))
        current.synchronize()
    assert all(same.item() for same, _ in seen)
    labels = torch.cat([label for _, label in seen]).cpu().numpy()
    assert np.array_equal(np.bincount(labels, minlength=large.count), np.full(large.count, 2))


def test_a_batch_that_is_dropped_is_not_overwritten_before_the_work_on_it(large: Large) -> None:
    sums, labels = [], []
    for batch in Batches(large_of(large), 16, prefetch=4):
        torch.cuda._sleep(5_000_000)
        sums.append(batch["image"].double().mean(dim=(1, 2)))
        labels.append(batch["label"].clone())
    assert torch.equal(torch.cat(sums), torch.cat(labels).double())


def test_a_transform_runs_on_the_gpu_beside_the_model(large: Large) -> None:
    def transform(batch: Any) -> Any:
        torch.cuda._sleep(2_000_000)
        return batch["image"].float() * 2, batch["label"]

    for images, labels in Batches(large_of(large, transform=transform), 32):
        assert images.is_cuda
        assert torch.equal(images[:, 5, 7], labels.float() * 2)


def test_files_in_random_order_are_put_into_the_order_of_the_batch(files: Any) -> None:
    order = {label: at for at, label in enumerate(files.arrays["label"].tolist())}
    for batch in Batches(dataset_of(files, dtype={"image": torch.bfloat16}), 8, seed=4):
        rows = [order[label] for label in batch["label"].tolist()]
        assert np.array_equal(batch["state"].cpu(), files.arrays["state"][rows])
        assert np.array_equal(batch["image"].float().cpu(), files.arrays["image"][rows])


def test_memory_of_the_gpu_is_flat_over_a_thousand_batches(files: Any) -> None:
    dataset = dataset_of(files)
    torch.cuda.empty_cache()  # in which the tests before left memory for each stream
    seen = []
    for epoch in range(1000 // 13 + 1):
        for _ in Batches(dataset, 3, seed=epoch):
            pass
        if epoch % 19 == 5:
            gc.collect()
            torch.cuda.synchronize()
            seen.append((torch.cuda.memory_allocated(), torch.cuda.memory_reserved()))
    (allocated, reserved), (last_allocated, last_reserved) = seen[0], seen[-1]
    assert last_allocated == allocated
    assert last_reserved <= reserved + (4 << 20)


def test_leaving_early_frees_the_memory(large: Large) -> None:
    dataset = large_of(large)
    next(iter(Batches(dataset, 32)))
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for number in range(20):
        for _ in Batches(dataset, 32, seed=number):
            break

    # pytest.raises would keep the frame, and so the batch.
    with suppress(RuntimeError):
        for _ in Batches(dataset, 32):
            raise RuntimeError("the model failed")
    del _
    gc.collect()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= before


@pytest.mark.skipif(STANDIN, reason="the stand-in GPU has no CUDA graphs")
@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_a_graph_is_captured_while_batches_are_read(large: Large, mode: str) -> None:
    model = torch.nn.Linear(128, 8, device="cuda")
    static = torch.zeros(32, 128, 128, device="cuda")
    warm = torch.cuda.Stream()
    with torch.cuda.stream(warm):
        model(static)
    torch.cuda.current_stream().wait_stream(warm)
    batches = iter(Batches(large_of(large), 32, prefetch=6))
    next(batches)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode=mode):  # while six batches are read
        result = model(static).sum(dim=(1, 2))
    for batch in batches:
        static.copy_(batch["image"])
        graph.replay()
        expected = model(batch["image"].float()).sum(dim=(1, 2))
        torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("context", ["spawn", "fork"])
def test_workers_give_host_tensors_that_the_loader_pins(files: Any, context: str) -> None:
    dataset = dataset_of(files)
    dataset[0]
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=6, num_workers=2, multiprocessing_context=context, pin_memory=True
    )
    found = []
    for batch in loader:
        assert batch["image"].device.type == "cpu"
        assert batch["image"].is_pinned()
        found += batch["label"].tolist()
    assert found == files.arrays["label"].tolist()


def test_the_loader_of_torch_gives_batches_on_the_gpu(files: Any) -> None:
    dataset = dataset_of(files)
    found = []
    for batch in torch.utils.data.DataLoader(dataset, batch_size=6):
        assert batch["image"].is_cuda
        found += batch["label"].tolist()
    assert found == files.arrays["label"].tolist()


def test_a_gpu_that_is_not_there_is_refused(files: Any) -> None:
    with pytest.raises(RuntimeError, match=r"cuda:99 is not there.*cuda:"):
        dataset_of(files, device="cuda:99")


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_batches_go_to_a_gpu_that_is_not_the_current_one(large: Large) -> None:
    for batch in Batches(large_of(large, device="cuda:1"), 32):
        assert batch["image"].device == torch.device("cuda:1")
        assert (batch["image"] == batch["label"][:, None, None]).all()


@dataclass
class Pair:
    image: Any


class Slotted:
    __slots__ = ("__image",)

    def __init__(self, image: Any) -> None:
        self.__image = image

    @property
    def image(self) -> Any:
        return self.__image


class Hidden:
    """Gives its tensor from a function, in which it is not found."""

    def __init__(self, image: Any) -> None:
        self._take = lambda: image

    @property
    def image(self) -> Any:
        return self._take()


@pytest.mark.torch  # needs no kernels
@pytest.mark.parametrize("is_copy", [False, True])
@pytest.mark.parametrize("kind", [Pair, Slotted, Hidden])
def test_a_batch_of_any_type_is_not_overwritten_before_the_work_on_it(
    tmp_path: Path, kind: Any, is_copy: bool
) -> None:
    path = tmp_path / "numbers.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.repeat(np.arange(64, dtype="f4")[:, None], 1 << 14, 1)

    def transform(batch: Any) -> Any:
        image = batch["x"]
        return kind(torch.empty_like(image).copy_(image) if is_copy else image)

    cuda = ctypes.CDLL(os.environ.get("PENSTOCK_CUDA_LIBRARY", "libcuda.so.1"))
    usleep = ctypes.CDLL(None).usleep
    stream = torch.cuda.Stream()
    seen = []
    with torch.cuda.stream(stream):
        dataset = HDF5Dataset(path, "x", device="cuda", transform=transform)
        for batch in Batches(dataset, 4, shuffle=False):
            handle, late = ctypes.c_void_p(stream.cuda_stream), ctypes.c_void_p(20_000)
            assert cuda.cuLaunchHostFunc(handle, usleep, late) == 0
            image = batch.image
            seen.append(torch.empty(image.shape, pin_memory=True).copy_(image, non_blocking=True))
            del batch, image
    torch.cuda.synchronize()
    assert torch.equal(torch.cat(seen)[:, 0], torch.arange(64.0))
    assert all((one == one[:, :1]).all() for one in seen)
