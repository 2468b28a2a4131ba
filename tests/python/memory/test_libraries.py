"""Arrays of JAX, CuPy, Numba and torch while their GPU still computes or uses them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import h5py
import numpy as np
import pytest

import penstock as ps

pytestmark = pytest.mark.gpu

SIDE = 2048
KERNELS = "the stand-in GPU runs no kernels of this library"


def _product(matmul: Callable[[Any, Any], Any], x: Any) -> Any:
    """Return what takes the GPU a while."""
    y = x
    for _ in range(40):
        y = matmul(y, x)
    return y


def _matrix() -> np.ndarray[Any, Any]:
    made = np.random.default_rng(1).random((SIDE, SIDE), "f4")
    return made * np.float32(2 / SIDE)


@pytest.fixture
def jax() -> Any:
    if "PENSTOCK_CUDA_LIBRARY" in os.environ:
        pytest.skip(KERNELS)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    module = pytest.importorskip("jax", reason="JAX is not installed")
    if module.default_backend() != "gpu":
        pytest.skip("JAX has no GPU")
    return module


@pytest.fixture
def numba() -> Any:
    if "PENSTOCK_CUDA_LIBRARY" in os.environ:
        pytest.skip(KERNELS)
    module = pytest.importorskip("numba.cuda", reason="numba-cuda is not installed")
    if not module.is_available():
        pytest.skip("Numba has no GPU")
    try:
        module.jit("void(float32[:])")(lambda x: None)
    except AttributeError as error:
        pytest.skip(f"Numba does not compile with this NumPy: {error}")
    return module


def save(path: Any, array: Any) -> Any:
    ps.save(path, array)
    return np.fromfile(path, "f4").reshape(array.shape)


def save_async(path: Any, array: Any) -> Any:
    ps.save_async(path, array).wait()
    return np.fromfile(path, "f4").reshape(array.shape)


def write(path: Any, array: Any) -> Any:
    with ps.File(path, "w") as file:
        file.create_dataset("x", array.shape, "f4", chunks=(64, SIDE)).write(array)
    with h5py.File(path) as file:
        return file["x"][()]


def create(path: Any, array: Any) -> Any:
    with ps.File(path, "w") as file:
        file.create_dataset("x", data=array)
    with h5py.File(path) as file:
        return file["x"][()]


STORES = pytest.mark.parametrize(
    "store", [save, save_async, write, create], ids=lambda way: way.__name__
)


@STORES
def test_arrays_of_jax_are_stored_when_they_are_computed(tmp_path, jax, store):
    x = jax.numpy.asarray(_matrix())
    multiply = jax.jit(jax.numpy.matmul)
    multiply(x, x).block_until_ready()
    for number in range(3):
        y = _product(multiply, x + number * 1e-6)
        stored = store(tmp_path / "x", y)
        np.testing.assert_array_equal(stored, np.asarray(y))


@STORES
def test_arrays_that_jax_still_copies_to_the_gpu_are_stored(tmp_path, jax, store):
    for number in range(3):
        host = _matrix() + np.float32(number)
        np.testing.assert_array_equal(store(tmp_path / "x", jax.numpy.asarray(host)), host)


def test_an_array_of_jax_is_not_filled(tmp_path, jax):
    np.zeros(4, "f4").tofile(tmp_path / "x")
    with pytest.raises(ps.InvalidError, match="read-only"):
        ps.load(tmp_path / "x", out=jax.numpy.ones(4, "f4"))


@STORES
def test_arrays_of_cupy_are_stored_when_their_current_stream_is_done(tmp_path, cupy, store):
    x = cupy.asarray(_matrix())
    cupy.matmul(x, x)
    cupy.cuda.Device().synchronize()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        y = _product(cupy.matmul, x)
        stored = store(tmp_path / "x", y)
        stream.synchronize()
        np.testing.assert_array_equal(stored, y.get())


def test_an_array_of_cupy_is_filled_when_its_old_elements_are_used(tmp_path, cupy):
    np.zeros(SIDE * SIDE, "f4").tofile(tmp_path / "x")
    x = cupy.asarray(_matrix())
    expected = cupy.copy(x)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        _product(cupy.matmul, x)
        copy = x.copy()
        ps.load(tmp_path / "x", out=x)
        stream.synchronize()
    assert (copy == expected).all()
    assert not x.any()


@pytest.mark.filterwarnings("ignore:.*Grid size")
@pytest.mark.parametrize("is_named", [False, True])
@STORES
def test_arrays_of_numba_are_stored_when_their_kernels_are_done(tmp_path, numba, store, is_named):
    @numba.jit
    def count(x, rounds):
        at = numba.grid(1)
        if at < x.size:
            for _ in range(rounds):
                x[at] += 1

    stream = numba.stream() if is_named else numba.default_stream()
    x = numba.to_device(np.zeros(SIDE, "f4"), stream=stream)
    count[SIDE // 256, 256, stream](x, 1)
    numba.synchronize()
    count[SIDE // 256, 256, stream](x, 1 << 20)
    assert (store_row(store, tmp_path / "x", x) == 1 + (1 << 20)).all()


def store_row(store: Any, path: Any, x: Any) -> Any:
    if store is write:
        ps.File(path, "w").create_dataset("x", x.shape, "f4").write(x)
        return ps.read(f"{path}:x")
    return store(path, x)
