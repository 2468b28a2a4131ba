"""Memory that another library lends while it has work queued there: no transfer comes before it."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import h5py
import numpy as np
import pytest

import penstock as ps
from penstock.deepnvme import AsyncIOBuilder
from penstock.torch.safetensors.save import write_file

COUNT = 3000
OLD, NEW = 1, 7


KEPT: list[Any] = []
"""Memory that is not freed before the end: a GPU frees memory when no stream is held."""


@pytest.fixture(autouse=True)
def first_use(tmp_path: Any) -> None:
    """Make what the first transfers make, which would wait for streams that are held."""
    if KEPT or not ps.devices():
        return
    array = ps.DeviceArray.from_numpy(np.full(COUNT, OLD, "u1"))
    KEPT.append(array)
    for store in STORES:
        store(tmp_path / "first", array)
    for fill in FILLS:
        fill(tmp_path / "first", array)


class Lender:
    """A library's array of bytes, and work on a stream of the library's own."""

    def __init__(self, driver: Any) -> None:
        KEPT.append(self)
        self.driver, self.stream = driver, driver.stream()
        self.memory = ps.DeviceArray.from_numpy(np.full(COUNT, OLD, "u1"))
        self.asked: list[Any] = []
        self._gate = driver.hold(self.stream)

    def become_new(self) -> None:
        """Queue work that makes the elements."""
        address = ctypes.c_uint64(self.memory.data_ptr)
        self.driver.call(
            "cuMemsetD8Async", address, ctypes.c_ubyte(NEW), ctypes.c_size_t(COUNT), self.stream
        )

    def copy_old(self) -> ps.DeviceArray:
        """Queue work that uses the elements: it copies them."""
        copy = ps.DeviceArray(COUNT)
        KEPT.append(copy)
        addresses = (ctypes.c_uint64(array.data_ptr) for array in (copy, self.memory))
        self.driver.call("cuMemcpyAsync", *addresses, ctypes.c_size_t(COUNT), self.stream)
        return copy

    def proceed(self) -> None:
        """Let the queued work begin."""
        self._gate.value = 1

    def finish(self) -> None:
        self.proceed()
        self.driver.call("cuStreamSynchronize", self.stream)

    def _make_wait(self, stream: int) -> None:
        """Make a stream wait for the work, as a lender by DLPack does."""
        event = ctypes.c_void_p()
        self.driver.enter()
        self.driver.call("cuEventCreate", ctypes.byref(event), 2)
        self.driver.call("cuEventRecord", event, self.stream)
        self.driver.call("cuStreamWaitEvent", ctypes.c_void_p(stream), event, 0)

    def _interface(self, **changes: Any) -> dict[str, Any]:
        return {**self.memory.__cuda_array_interface__, **changes}


class Exporter(Lender):
    """Exports by DLPack 0.8, as libraries without an interface of CUDA do."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.memory.__dlpack_device__()

    def __dlpack__(self, *, stream: int | None = None) -> object:
        self.asked.append(stream)
        assert stream, "DLPack forbids the stream 0"
        self._make_wait(stream)
        return self.memory.__dlpack__()


class JaxArray(Exporter):
    """JAX's interface of CUDA names no stream and waits for none."""

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None) -> object:
        return super().__dlpack__(stream=stream)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        interface = self._interface(version=2)
        del interface["stream"]
        return interface


class UnexportedJaxArray(JaxArray):
    """An array of a type that DLPack lacks."""

    def __dlpack__(self, **_: Any) -> object:
        raise BufferError("no such type")


class TensorflowTensor(Exporter):
    """Exports by DLPack without a stream."""

    def __dlpack__(self) -> object:
        return self.memory.__dlpack__()


class NumbaArray(Lender):
    """Names its stream; none if kernels were launched without one."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self._interface(stream=self.stream.value)


class NumbaArrayWithoutStream(Lender):
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self._interface(stream=None)


class CupyArray(JaxArray):
    """Has both, and its interface names the current stream."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self._interface(stream=self.stream.value)


LENDERS = (
    Exporter,
    JaxArray,
    UnexportedJaxArray,
    TensorflowTensor,
    NumbaArray,
    NumbaArrayWithoutStream,
    CupyArray,
)


@pytest.fixture(params=LENDERS, ids=lambda kind: kind.__name__)
def lender(request: pytest.FixtureRequest, driver: Any) -> Iterator[Lender]:
    made = request.param(driver)
    yield made
    made.finish()


@pytest.fixture
def soon(lender: Lender) -> Iterator[threading.Timer]:
    """Lets the lender's work begin while the transfer is in progress."""
    timer = threading.Timer(0.05, lender.proceed)
    timer.start()
    yield timer
    timer.join()


def save(path: Any, array: Any) -> Any:
    ps.save(path, array)
    return np.fromfile(path, "u1")


def save_async(path: Any, array: Any) -> Any:
    ps.save_async(path, array).wait()
    return np.fromfile(path, "u1")


def save_file(path: Any, array: Any) -> Any:
    write_file({"x": array}, path, None, {})
    return np.fromfile(path, "u1")[-COUNT:]


def pwrite(path: Any, array: Any) -> Any:
    AsyncIOBuilder().load().aio_handle().sync_pwrite(array, str(path))
    return np.fromfile(path, "u1")


def write(path: Any, array: Any, **creation: Any) -> Any:
    with ps.File(path, "w") as file:
        made = file.create_dataset("x", (COUNT,), "u1", **creation)
        made.write(array)
    with h5py.File(path) as file:
        return file["x"][()]


def write_chunks(path: Any, array: Any) -> Any:
    return write(path, array, chunks=(1000,), compression="gzip")


def create(path: Any, array: Any) -> Any:
    with ps.File(path, "w") as file:
        file.create_dataset("x", data=array)
    with h5py.File(path) as file:
        return file["x"][()]


STORES = (save, save_async, save_file, pwrite, write, write_chunks, create)


@pytest.mark.gpu
@pytest.mark.parametrize("store", STORES, ids=lambda way: way.__name__)
@pytest.mark.usefixtures("soon")
def test_an_array_is_stored_when_its_library_has_made_it(tmp_path, lender, store):
    lender.become_new()
    assert (store(tmp_path / "x", lender) == NEW).all()


def load(path: Any, out: Any) -> None:
    np.full(COUNT, NEW, "u1").tofile(path)
    ps.load(path, out=out)


def load_many(path: Any, out: Any) -> None:
    np.full(COUNT, NEW, "u1").tofile(path)
    ps.load_many(path, [(0, out)])


def pread(path: Any, out: Any) -> None:
    np.full(COUNT, NEW, "u1").tofile(path)
    AsyncIOBuilder().load().aio_handle().sync_pread(out, str(path))


def read(path: Any, out: Any) -> None:
    with h5py.File(path, "w") as file:
        file["x"] = np.full(COUNT, NEW, "u1")
    ps.read(f"{path}:x", out=out)


def read_many(path: Any, out: Any) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.full(COUNT, NEW, "u1"), chunks=(1000,), compression="gzip")
    ps.read_many([f"{path}:x"], out=[out])


FILLS = (load, load_many, pread, read, read_many)


@pytest.mark.gpu
@pytest.mark.parametrize("fill", FILLS, ids=lambda way: way.__name__)
@pytest.mark.usefixtures("soon")
def test_an_array_is_filled_when_its_library_has_used_the_old_elements(tmp_path, lender, fill):
    copy = lender.copy_old()
    fill(tmp_path / "x", lender)
    lender.finish()
    assert (copy.numpy() == OLD).all()
    assert (lender.memory.numpy() == NEW).all()


@pytest.mark.gpu
@pytest.mark.parametrize("kind", LENDERS, ids=lambda kind: kind.__name__)
def test_the_caller_does_not_wait_if_it_names_the_stream(tmp_path, driver, kind):
    lender = kind(driver)
    lender.become_new()
    request = ps.save_async(tmp_path / "x", lender, stream=lender.stream.value)
    assert not request.done()
    lender.proceed()
    request.wait()
    assert (np.fromfile(tmp_path / "x", "u1") == NEW).all()


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [Exporter, JaxArray, NumbaArray], ids=lambda kind: kind.__name__)
def test_a_lender_that_orders_work_makes_no_call_wait(tmp_path, driver, kind):
    lender = kind(driver)
    lender.become_new()
    request = ps.save_async(tmp_path / "x", lender)
    assert not request.done()
    lender.proceed()
    request.wait()
    assert (np.fromfile(tmp_path / "x", "u1") == NEW).all()


@pytest.mark.gpu
@pytest.mark.parametrize("lender", [Exporter, JaxArray, NumbaArray, CupyArray], indirect=True)
@pytest.mark.usefixtures("soon")
def test_an_array_is_stored_after_its_library_if_the_caller_names_another_stream(
    tmp_path, driver, lender
):
    lender.become_new()
    ps.save(tmp_path / "x", lender, stream=driver.stream().value)
    assert (np.fromfile(tmp_path / "x", "u1") == NEW).all()


@pytest.mark.gpu
def test_dlpack_is_asked_for_the_callers_stream_and_else_for_one_that_has_no_work(driver, tmp_path):
    lender = JaxArray(driver)
    lender.proceed()
    ps.save(tmp_path / "x", lender, stream=0)
    ps.save(tmp_path / "x", lender, stream=lender.stream.value)
    ps.save(tmp_path / "x", lender)
    assert lender.asked[:2] == [1, lender.stream.value]
    assert lender.asked[2] not in (0, 1, 2, lender.stream.value)


class MappedArray(np.ndarray):
    """An array of NumPy in memory that a GPU uses, as Numba has."""

    stream: Any

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.__array_interface__, "version": 3, "stream": self.stream}


@contextmanager
def mapped_array(
    driver: Any, soon: int, *, is_named: bool
) -> Iterator[tuple[MappedArray, ctypes.c_void_p]]:
    """Make an array whose bytes a stream soon sets, and return both; the array may name it."""
    stream, address = driver.stream(), ctypes.c_void_p()
    gate = driver.hold(stream)
    driver.call("cuMemHostAlloc", ctypes.byref(address), ctypes.c_size_t(COUNT), 3)
    memory = np.ctypeslib.as_array((ctypes.c_ubyte * COUNT).from_address(address.value))
    memory[:] = OLD
    array = memory.view(MappedArray)
    array.stream = stream.value if is_named else None
    source = ps.DeviceArray.from_numpy(np.full(COUNT, soon, "u1"))
    KEPT.append(source)
    addresses = ctypes.c_uint64(address.value), ctypes.c_uint64(source.data_ptr)
    driver.call("cuMemcpyAsync", *addresses, ctypes.c_size_t(COUNT), stream)
    timer = threading.Timer(0.05, lambda: setattr(gate, "value", 1))
    timer.start()
    yield array, stream
    timer.join()
    driver.call("cuMemFreeHost", address)


@pytest.mark.gpu
@pytest.mark.parametrize("is_named", [False, True])
@pytest.mark.parametrize("store", STORES, ids=lambda way: way.__name__)
def test_an_array_of_numpy_that_a_gpu_writes_is_stored_when_it_has(
    tmp_path, driver, store, is_named
):
    with mapped_array(driver, soon=NEW, is_named=is_named) as (array, _):
        assert (store(tmp_path / "x", array) == NEW).all()


@pytest.mark.gpu
@pytest.mark.parametrize("is_named", [False, True])
@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("is_async", [False, True])
def test_an_array_of_numpy_that_a_gpu_writes_is_filled_when_it_has(
    tmp_path, driver, mode, is_named, is_async
):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file["x"] = np.full(COUNT, NEW, "u1")
    with mapped_array(driver, soon=OLD, is_named=is_named) as (array, stream):
        with h5py.File(tmp_path / "f.h5", mode) as file:
            if is_async:
                ps.read_async(file["x"], out=array).wait()
            else:
                ps.read(file["x"], out=array)
        driver.call("cuStreamSynchronize", stream)
        assert (array == NEW).all()


@pytest.mark.gpu
def test_an_array_of_jax_is_not_filled_by_either_protocol(tmp_path, driver, monkeypatch):
    monkeypatch.setattr(JaxArray, "__module__", "jaxlib._jax")
    monkeypatch.setattr(UnexportedJaxArray, "__module__", "jaxlib._jax")
    for kind in (JaxArray, UnexportedJaxArray):
        lender = kind(driver)
        lender.proceed()
        with pytest.raises(ps.InvalidError, match="read-only"):
            load(tmp_path / "x", lender)


def test_the_memory_of_an_export_without_a_stream_is_that_of_the_host_too(tmp_path):
    """A library older than DLPack's versions takes no arguments for host memory."""

    class Old:
        def __init__(self) -> None:
            self.array = np.arange(5)

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

        def __dlpack__(self) -> object:
            return self.array.__dlpack__()

    ps.save(tmp_path / "x", Old())
    assert np.fromfile(tmp_path / "x", "i8").tolist() == [0, 1, 2, 3, 4]
