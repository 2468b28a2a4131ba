"""Where new arrays go: ``device``, ``like`` and ``pin``, in every function that makes arrays."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

import penstock as ps
import penstock.torch
from penstock import frameworks
from penstock.hdf5 import small

NUMBERS = np.arange(60_000, dtype="f4").reshape(200, 300)


@pytest.fixture
def folder(tmp_path):
    NUMBERS.tofile(tmp_path / "x.bin")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["plain"] = NUMBERS
        file["swapped"] = NUMBERS.astype(">f4")
        file.create_dataset("zipped", data=NUMBERS, chunks=(50, 300), compression="gzip")
        file["number"] = np.float32(2.5)
        file["text"] = "text"
        file["points"] = np.zeros(3, [("x", "f4"), ("y", "i2")])
    return tmp_path


def load(folder, **where):
    return ps.load(folder / "x.bin", dtype="f4", shape=(200, 300), **where)


def load_async(folder, **where):
    return ps.load_async(folder / "x.bin", dtype="f4", shape=(200, 300), **where).wait()


def reader(name):
    def read(folder, **where):
        return ps.read(f"{folder}/x.h5:{name}", **where)

    return read


def read_async(folder, **where):
    with ps.File(folder / "x.h5") as file:
        return file["zipped"].read_async(**where).wait()


def blocks(folder, **where):
    with ps.File(folder / "x.h5") as file:
        return next(file["plain"].blocks((200, 300), **where))[1]


WAYS = [load, load_async, read_async, blocks, *map(reader, ["plain", "swapped", "zipped"])]
EACH_WAY = pytest.mark.parametrize("way", WAYS, ids=range(len(WAYS)))
EACH_SIZE = pytest.mark.parametrize("limit", [0, small.LIMIT, 1 << 30])


@pytest.fixture
def _limit(limit, monkeypatch):
    monkeypatch.setattr(small, "LIMIT", limit)


@EACH_WAY
@EACH_SIZE
@pytest.mark.either
@pytest.mark.usefixtures("_limit")
def test_host_memory_is_page_locked_if_requested(folder, way):
    array = way(folder, pin=True)
    assert type(array) is np.ndarray
    np.testing.assert_array_equal(array, NUMBERS)
    if ps.devices():
        assert ps.memory_kind(array) == "pinned"


@EACH_WAY
def test_numpy_is_the_library_of_the_host(folder, way):
    array = way(folder, like="numpy")
    assert type(array) is np.ndarray
    np.testing.assert_array_equal(array, NUMBERS)


def test_a_scalar_and_a_structure_are_page_locked(folder):
    number = ps.read(f"{folder}/x.h5:number", pin=True)
    assert (number.shape, number[()]) == ((), 2.5)
    assert (ps.read(f"{folder}/x.h5:points", pin=True)["x"] == 0).all()
    with pytest.raises(ps.IncompatibleError):
        ps.read(f"{folder}/x.h5:text", pin=True)


@pytest.mark.gpu
@EACH_WAY
def test_a_device_array_is_made_if_requested(folder, way):
    array = way(folder, like="device")
    assert isinstance(array, ps.DeviceArray)
    assert isinstance(way(folder, like="device", device="cuda:0"), ps.DeviceArray)
    np.testing.assert_array_equal(array.numpy(), NUMBERS)


@pytest.mark.parametrize(
    "where",
    [
        {"like": "cupy", "device": "cpu"},
        {"like": "device", "device": "cpu"},
        {"like": "numpy", "device": "cuda"},
        {"pin": True, "device": "cuda"},
        {"pin": True, "like": "cupy"},
        {"like": "tensorflow"},
        {"like": "jax", "out": np.zeros((200, 300), "f4")},
        {"like": "numpy", "out": np.zeros((200, 300), "f4")},
        {"pin": True, "out": np.zeros((200, 300), "f4")},
    ],
    ids=lambda where: ", ".join(where),  # the same in each process
)
def test_arguments_that_exclude_each_other_are_an_error(folder, where):
    with pytest.raises(ps.InvalidError):
        load(folder, **where)
    with pytest.raises(ps.InvalidError):
        reader("plain")(folder, **where)


@pytest.mark.parametrize("library", ["torch", "cupy", "jax"])
def test_a_library_that_is_absent_is_an_error_that_names_it(folder, library):
    try:
        __import__(library)
    except ImportError:
        for way in (load, reader("plain"), reader("number")):
            with pytest.raises(ps.UnavailableError, match=library):
                way(folder, like=library)
    else:
        pytest.skip(f"{library} is installed")


def test_an_error_for_lack_of_torch_names_the_extra(folder, monkeypatch):
    monkeypatch.setattr(frameworks, "installed", lambda name: None)
    tensors = {"x": NUMBERS}
    for call in (
        lambda: load(folder, like="torch"),
        lambda: ps.torch.save_file(tensors, folder / "x.safetensors"),
    ):
        with pytest.raises(ps.UnavailableError, match=r"pip install 'penstock\[torch\]'"):
            call()


@EACH_WAY
@EACH_SIZE
@pytest.mark.usefixtures("_limit")
def test_a_torch_tensor_is_made_in_host_memory(folder, way, torch):
    for where in ({"like": "torch"}, {"device": torch.device("cpu")}):
        tensor = way(folder, **where)
        assert isinstance(tensor, torch.Tensor)
        assert tensor.device.type == "cpu"
        assert tensor.dtype == torch.float32
        np.testing.assert_array_equal(tensor.numpy(), NUMBERS)
        assert not tensor.is_pinned() or not torch.cuda.is_available()


@EACH_WAY
def test_the_default_device_of_torch_changes_nothing(folder, way, torch):
    with torch.device("meta"):
        tensors = way(folder, like="torch"), way(folder, device=torch.device("cpu"))
    for tensor in tensors:
        np.testing.assert_array_equal(tensor.numpy(), NUMBERS)


def test_a_torch_tensor_has_the_type_requested(folder, torch):
    tensor = ps.read(f"{folder}/x.h5:zipped", np.s_[0, :256], like="torch", dtype="bfloat16")
    assert tensor.dtype == torch.bfloat16
    assert torch.equal(tensor, torch.from_numpy(NUMBERS[0, :256]).to(torch.bfloat16))
    assert ps.read(f"{folder}/x.h5:number", like="torch").item() == 2.5
    with pytest.raises(ps.IncompatibleError):
        ps.read(f"{folder}/x.h5:points", like="torch")


@EACH_WAY
@pytest.mark.either
def test_a_torch_tensor_is_page_locked_if_requested(folder, way, torch):
    tensor = way(folder, like="torch", pin=True)
    np.testing.assert_array_equal(tensor.numpy(), NUMBERS)
    if ps.devices():
        assert ps.memory_kind(tensor) == "pinned"


@EACH_WAY
def test_a_torch_tensor_is_made_on_the_gpu(folder, way, torch_cuda):
    tensor = way(folder, like="torch", device="cuda")
    assert tensor.is_cuda
    np.testing.assert_array_equal(tensor.cpu().numpy(), NUMBERS)


@EACH_WAY
def test_a_cupy_array_is_made_on_the_gpu(folder, way, cupy):
    for where in ({"like": "cupy"}, {"like": "cupy", "device": "cuda:0"}):
        array = way(folder, **where)
        assert isinstance(array, cupy.ndarray)
        np.testing.assert_array_equal(array.get(), NUMBERS)


@pytest.fixture
def jax():
    return pytest.importorskip("jax", reason="JAX is not installed")


@EACH_WAY
@EACH_SIZE
@pytest.mark.either
@pytest.mark.usefixtures("_limit")
@pytest.mark.parametrize("pin", [False, True])
def test_an_array_of_jax_is_made_in_host_memory(folder, way, jax, pin):
    array = way(folder, like="jax", pin=pin)
    assert isinstance(array, jax.Array)
    np.testing.assert_array_equal(np.asarray(array), NUMBERS)
    np.testing.assert_array_equal(np.asarray(jax.numpy.sum(array, 1)), NUMBERS.sum(1))


def test_many_arrays_of_jax_are_made(folder, jax):
    pieces = [(0, (200, 300), "f4"), (4, 7, "f4"), (8, (), "i4"), (12, (3, 0), "u1"), (16, 3, "f4")]
    arrays = ps.load_many(folder / "x.bin", pieces, like="jax")
    assert all(isinstance(array, jax.Array) for array in arrays)
    for array, (offset, shape, dtype) in zip(arrays, pieces, strict=True):
        expected = np.frombuffer(NUMBERS.tobytes(), dtype, np.prod(shape, dtype=int), offset)
        np.testing.assert_array_equal(np.asarray(array), expected.reshape(shape))
    with ps.File(folder / "x.h5") as file:
        for array in file.read_many(["plain", "zipped"], like="jax"):
            assert isinstance(array, jax.Array)
            np.testing.assert_array_equal(np.asarray(array), NUMBERS)


def test_an_array_of_jax_has_the_type_requested_or_is_an_error(folder, jax):
    array = ps.read(f"{folder}/x.h5:zipped", like="jax", dtype="bfloat16")
    assert array.dtype == jax.numpy.bfloat16
    assert (array[0, :256] == NUMBERS[0, :256]).all()
    assert ps.read(f"{folder}/x.h5:number", like="jax") == 2.5
    with pytest.raises(ps.IncompatibleError, match="jax_enable_x64"):
        ps.read(f"{folder}/x.h5:plain", like="jax", dtype="f8")
    for name in ("points", "text"):
        with pytest.raises(ps.IncompatibleError):
            ps.read(f"{folder}/x.h5:{name}", like="jax")
    with pytest.raises(ps.InvalidError, match="JAX cannot be changed"):
        ps.read_columns(f"{folder}/x.h5:points", like="jax")


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float32", "bool", "complex64"])
def test_arrays_of_jax_in_host_memory_are_saved(folder, jax, dtype):
    array = jax.numpy.arange(12).astype(dtype).reshape(3, 4)
    ps.save(folder / "saved", array)
    assert (folder / "saved").read_bytes() == np.asarray(array).tobytes()
    with pytest.raises(ps.InvalidError, match="read-only"):
        ps.load(folder / "saved", out=array)


def test_a_device_of_torch_is_where_out_must_be(folder, torch):
    out = torch.empty((200, 300))
    assert load(folder, out=out, device=torch.device("cpu")) is out
    with pytest.raises(ps.InvalidError):
        load(folder, out=out, device=torch.device("cuda"))
