"""Copies that an array needs are ordered with the stream that makes or uses it."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest

import penstock as ps
from penstock import arrays, frameworks, streams

# On the stand-in GPU, the CPU computes the products.
SIDE = 512 if "PENSTOCK_CUDA_LIBRARY" in os.environ else 4096


class FakeTorch:
    """torch's streams, as far as the choice of one goes: external stream 0 is one of its pool."""

    def __init__(self) -> None:
        self.entered: list[Any] = []
        self.cuda = SimpleNamespace(
            device=self._enter,
            stream=self._enter,
            default_stream=lambda ordinal: ("default", ordinal),
            ExternalStream=lambda handle, device: (
                "external" if handle else "pool",
                handle,
                device,
            ),
        )

    @contextmanager
    def _enter(self, what):
        self.entered.append(what)
        yield


class FakeCupy(FakeTorch):
    """CuPy's streams likewise."""

    def __init__(self) -> None:
        super().__init__()
        self.cuda.Device = self._enter
        self.cuda.Stream = SimpleNamespace(
            null=self._enter("null"),
            from_external=lambda given: self._enter(given.__cuda_stream__()[1]),
        )


@pytest.mark.parametrize(
    ("handle", "entered"),
    [
        (None, [1, None]),
        (0, [1, ("default", 1)]),
        (2, [1, ("external", 2, 1)]),
        (77, [1, ("external", 77, 1)]),
    ],
)
def test_torch_copies_on_the_stream_that_was_meant(monkeypatch, handle, entered):
    fake = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", fake)
    with frameworks.on_stream("torch", handle, 1):
        assert fake.entered == entered


@pytest.mark.parametrize(
    ("handle", "entered"), [(None, [1]), (0, ["null", 1]), (2, [1, 2]), (77, [1, 77])]
)
def test_cupy_copies_on_the_stream_that_was_meant(monkeypatch, handle, entered):
    fake = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", fake)
    with frameworks.on_stream("cupy", handle, 1):
        assert sorted(map(str, fake.entered)) == sorted(map(str, entered))


@pytest.fixture
def pending(monkeypatch):
    """Work on stream 5, which is done once a call has waited for it."""
    work: list[Any] = []

    def wait(device: int, stream: Any) -> int:
        assert stream == streams.pointer(5)
        while work:
            work.pop()()
        return 0

    monkeypatch.setattr(streams, "lib", SimpleNamespace(penstock_stream_wait=wait))
    return work


def test_a_strided_host_array_is_copied_when_the_work_on_its_stream_is_done(pending):
    array = np.zeros((4, 6), "f4")
    pending.append(lambda: array.fill(7))
    copied = arrays.source(array[:, ::2], 5).array
    np.testing.assert_array_equal(copied, np.full((4, 3), 7, "f4"))


def test_a_strided_host_array_is_filled_when_the_work_on_its_stream_is_done(pending):
    array = np.zeros((4, 6), "f4")
    view, copy_back = arrays.destination(array[:, ::2], 5)
    view.array.fill(1)
    pending.append(lambda: array.fill(7))
    assert copy_back is not None
    copy_back()
    assert array[:, ::2].tolist() == [[1] * 3] * 4


SIZES = {
    "small": (100, "f4"),
    "left to h5py by rows": (1 << 20, "f4"),
    "moved by the library": (1 << 20, "f8"),
}


@pytest.mark.parametrize(("count", "stored"), SIZES.values(), ids=SIZES)
def test_a_host_array_is_written_when_the_work_on_its_stream_is_done(
    tmp_path, pending, count, stored
):
    array = np.zeros(count, "f4")
    with ps.File(tmp_path / "f.h5", "w") as file:
        dataset = file.create("x", array.shape, stored)
        pending.append(lambda: array.fill(7))
        dataset.write(array, stream=5)
        assert (dataset.read() == 7).all()


@pytest.mark.parametrize(("count", "stored"), SIZES.values(), ids=SIZES)
def test_a_host_array_is_filled_when_the_work_on_its_stream_is_done(
    tmp_path, pending, count, stored
):
    array = np.zeros(count, "f4")
    with ps.File(tmp_path / "f.h5", "w") as file:
        dataset = file.create("x", data=np.ones(count, stored))
        pending.append(lambda: array.fill(7))
        dataset.read(out=array, stream=5)
    assert not pending
    assert (array == 1).all()


@pytest.mark.gpu
@pytest.mark.parametrize("layout", [h5py.h5d.COMPACT, h5py.h5d.CONTIGUOUS])
def test_host_memory_that_hdf5_is_to_fill_is_filled_after_the_work_on_its_stream(
    tmp_path, driver, nothing_is_small, layout
):
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_layout(layout)
    array = np.zeros(1000, "i4")
    stream = driver.stream()
    with h5py.File(tmp_path / "f.h5", "w") as file:
        space = h5py.h5s.create_simple(array.shape)
        made = h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_INT32, space, properties)
        dataset = h5py.Dataset(made)
        dataset[...] = 1
        gate = driver.hold(stream)
        request = ps.read_async(dataset, out=array, stream=stream.value)
        before = array.copy()
        gate.value = 1
        request.wait()
    assert (before == 0).all()
    assert (array == 1).all()


SHAPE = (300, 200)


@pytest.fixture
def held(tmp_path, driver, nothing_is_small) -> Iterator[Any]:
    """A stream that waits for a write of chunks, this write, and a dataset for other transfers."""
    stream = driver.stream().value
    array = ps.DeviceArray.from_numpy(np.ones(SHAPE))
    with ps.File(tmp_path / "f.h5", "w") as file:
        chunked = {"chunks": (20, 20), "compression": "gzip"}
        request = file.create("x", SHAPE, "f8", **chunked).write_async(array, stream=stream)
        yield stream, request, file.create("y", SHAPE, "f8", **chunked)
        request.wait()
        assert (file["x"].h5py[()] == 1).all()


def _waited(request: Any) -> None:
    request.wait(30)


def _polled(request: Any) -> None:
    end = monotonic() + 30
    while not request.done():
        assert monotonic() < end


def _awaited(request: Any) -> None:
    async def wait() -> None:
        await asyncio.wait_for(_outcome(request), 30)

    asyncio.run(wait())


async def _outcome(request: Any) -> Any:
    return await request


@pytest.mark.gpu
@pytest.mark.parametrize("ended", [_waited, _polled, _awaited])
@pytest.mark.parametrize("writes", [True, False])
def test_a_request_ends_whose_stream_waits_for_another_one(held, ended, writes):
    stream, _, dataset = held
    if writes:
        array = ps.DeviceArray.from_numpy(np.full(SHAPE, 2.0))
        ended(dataset.write_async(array, stream=stream))
        assert (dataset.h5py[()] == 2).all()
    else:
        ended(dataset.read_async(device="cuda", stream=stream))


@pytest.mark.gpu
def test_a_wait_for_a_stream_ends_that_waits_for_a_request(held):
    stream, request, _ = held
    rescue = threading.Timer(30, request.wait)
    rescue.start()
    streams.wait_for(stream, 0)
    assert rescue.is_alive()
    rescue.cancel()
    rescue.join()


def _busy(torch: Any, a: Any, b: Any) -> Any:
    """Takes the GPU a while."""
    for _ in range(6):
        a = (a @ b) / SIDE**0.5
    return a


@pytest.fixture
def square(torch_kernels) -> Any:
    torch = torch_kernels
    made = torch.randn(SIDE, SIDE, device="cuda"), torch.randn(SIDE, SIDE, device="cuda")
    torch.cuda.synchronize()
    return made


@pytest.mark.gpu
@pytest.mark.parametrize("explicit", [False, True])
def test_a_transposed_tensor_is_saved_after_its_pending_product(
    tmp_path, torch_cuda, square, explicit
):
    torch = torch_cuda
    for _ in range(5):
        product = _busy(torch, *square)
        stream = {"stream": torch.cuda.current_stream()} if explicit else {}
        ps.save(tmp_path / "f", product.T, **stream)
        torch.cuda.synchronize()
        saved = np.fromfile(tmp_path / "f", "f4").reshape(SIDE, SIDE)
        np.testing.assert_array_equal(saved, product.T.contiguous().cpu().numpy())


@pytest.mark.gpu
def test_a_transposed_tensor_of_another_stream_is_saved_after_its_product(
    tmp_path, torch_cuda, square
):
    torch = torch_cuda
    side = torch.cuda.Stream()
    for _ in range(5):
        with torch.cuda.stream(side):
            product = _busy(torch, *square)
        ps.save(tmp_path / "f", product.T, stream=side)
        torch.cuda.synchronize()
        saved = np.fromfile(tmp_path / "f", "f4").reshape(SIDE, SIDE)
        np.testing.assert_array_equal(saved, product.T.contiguous().cpu().numpy())


@pytest.mark.gpu
def test_a_list_of_rows_is_written_from_a_transposed_tensor_after_its_product(
    tmp_path, torch_cuda, square
):
    torch = torch_cuda
    rows = [*range(0, SIDE, 2)]
    with h5py.File(tmp_path / "f.h5", "w") as file:
        made = file.create_dataset("x", (SIDE, SIDE), "f4", chunks=(64, SIDE))
        for _ in range(5):
            product = _busy(torch, *square)
            ps.write(made, product.T[: len(rows)], rows)
            torch.cuda.synchronize()
            np.testing.assert_array_equal(made[:][rows], product.T[: len(rows)].cpu().numpy())


@pytest.mark.gpu
def test_a_dataset_is_created_from_a_reshaped_tensor_after_its_product(
    tmp_path, torch_cuda, square
):
    torch = torch_cuda
    side = torch.cuda.Stream()
    with ps.File(tmp_path / "f.h5", "w") as file, torch.cuda.stream(side):
        product = _busy(torch, *square)
        with torch.cuda.stream(torch.cuda.default_stream()):
            made = file.create("x", (SIDE * SIDE,), data=product.T, stream=side)
        torch.cuda.synchronize()
        expected = product.T.contiguous().cpu().numpy().ravel()
        np.testing.assert_array_equal(made.h5py[:], expected)


@pytest.mark.gpu
def test_a_transposed_tensor_is_complete_for_every_stream_when_a_load_returns(
    tmp_path, torch_cuda, square
):
    torch = torch_cuda
    contents = np.arange(SIDE * SIDE, dtype="f4")
    contents.tofile(tmp_path / "f")
    for _ in range(5):
        out = torch.zeros(SIDE, SIDE, device="cuda").T
        torch.cuda.synchronize()
        _busy(torch, *square)
        ps.load(tmp_path / "f", out=out)
        with torch.cuda.stream(torch.cuda.Stream()):
            seen = out.clone()
        torch.cuda.synchronize()
        np.testing.assert_array_equal(seen.cpu().numpy().ravel(), contents)
