"""Small reads into tensors of torch, in host memory and on a GPU."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import h5py
import numpy as np
import pytest

import penstock as ps

VALUES = np.random.default_rng(1).standard_normal((60, 200)).astype("f4")
ROW = VALUES[3]


@pytest.fixture
def path(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file.create_dataset("x", data=VALUES, chunks=(7, 40), compression="gzip")
        file.create_dataset("bytes", data=np.arange(100, dtype="i1"))
        file.create_dataset("large", data=np.arange(3 << 20, dtype="f4"))
    return tmp_path / "f.h5"


@pytest.fixture
def quick_only(monkeypatch):
    """Fail on a read that does not take the quick way."""

    def not_small(*_, **__):
        raise AssertionError("a small read took the way of large ones")

    monkeypatch.setattr("penstock.hdf5.reading._start", not_small)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request, torch):
    if request.param == "cuda":
        request.getfixturevalue("torch_kernels")
    return request.param


@pytest.mark.gpu
@pytest.mark.usefixtures("quick_only")
@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:00", "gpu", "gpu:0"])
def test_each_name_of_a_gpu_is_that_of_a_small_read(path, torch_cuda, device):
    # JAX makes the last GPU current in the thread that first uses it.
    with torch_cuda.cuda.device(0), ps.File(path) as file:
        for _ in range(2):  # the second one knows torch's type
            found = file["x"].read(3, device=device)
            assert (found.device.type, found.device.index) == ("cuda", 0)
            assert np.array_equal(found.cpu().numpy(), ROW)


@pytest.mark.usefixtures("quick_only")
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("mode", ["read", "async"])
def test_a_tensor_is_filled_by_the_native_reader(path, torch, device, dtype, mode):
    out = torch.zeros(200, dtype=getattr(torch, dtype), device=device)
    with ps.File(path) as file:
        if mode == "read":
            assert file["x"].read(3, out=out) is out
        else:
            assert file["x"].read_async(3, out=out).wait() is out
    expected = torch.from_numpy(ROW).to(out.dtype)
    assert torch.equal(out.cpu(), expected)


@pytest.mark.usefixtures("quick_only")
def test_one_element_fills_a_tensor_without_dimensions(path, torch, device):
    out = torch.zeros((), device=device)
    with ps.File(path) as file:
        file["x"].read((3, 5), out=out)
    assert out.item() == VALUES[3, 5]


@pytest.mark.usefixtures("quick_only")
@pytest.mark.parametrize("mode", ["read", "async"])
@pytest.mark.parametrize("pin", [False, True])
def test_a_new_tensor_is_filled_by_the_native_reader(path, torch, device, mode, pin):
    if pin and device == "cuda":
        pytest.skip("pin is for host memory")
    with ps.File(path) as file:
        read = file["x"].read if mode == "read" else file["x"].read_async
        found = read(np.s_[1:3], device=device, like="torch", pin=pin)
        found = found if mode == "read" else found.wait()
    assert type(found) is torch.Tensor
    assert found.dtype == torch.float32
    np.testing.assert_array_equal(found.cpu().numpy(), VALUES[1:3])


def test_a_new_tensor_can_be_resized(path, torch, device):
    with ps.File(path) as file:
        found = file["x"].read(3, device=device, like="torch")
    assert found.resize_(4000).shape == (4000,)


@pytest.mark.gpu
@pytest.mark.usefixtures("torch")
def test_a_new_array_on_a_gpu_follows_a_new_tensor_on_the_host(path):
    with ps.File(path) as file:
        file["x"].read(3, device="cpu", like="torch")
        for _ in range(2):
            found = file["x"].read(3, device="cuda")
            host = found.numpy() if type(found) is ps.DeviceArray else found.cpu().numpy()
            np.testing.assert_array_equal(host, ROW)


@pytest.mark.usefixtures("quick_only")
def test_a_tensor_is_filled_from_a_file_that_is_open_for_writing(path, torch):
    out = torch.zeros(200)
    version = out._version
    with ps.File(path, "r+") as file:
        file["x"].read(3, out=out)
    assert torch.equal(out, torch.from_numpy(ROW))
    assert out._version > version
    assert out.untyped_storage().resizable()


@pytest.mark.parametrize("mode", ["read", "async"])
def test_a_read_counts_as_a_change_of_the_tensor(path, torch, device, mode):
    weight = torch.ones(200, device=device, requires_grad=True)
    out = torch.ones(200, device=device)
    product = (weight * out).sum()
    with ps.File(path) as file:
        if mode == "read":
            file["x"].read(3, out=out)
        else:
            file["x"].read_async(3, out=out).wait()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_an_inference_tensor_is_filled(path, torch, device):
    with torch.inference_mode():
        out = torch.zeros(200, device=device)
    with ps.File(path) as file:
        file["x"].read(3, out=out)
    np.testing.assert_array_equal(out.cpu().numpy(), ROW)


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_tensor_that_requires_grad_is_refused_while_torch_records(path, torch, device, mode):
    out = torch.zeros(200, device=device, requires_grad=True)
    with ps.File(path, mode) as file:
        with pytest.raises(ps.InvalidError, match="requires grad"):
            file["x"].read(3, out=out)
        assert not out.any()
        with torch.no_grad():
            file["x"].read(3, out=out)
    np.testing.assert_array_equal(out.detach().cpu().numpy(), ROW)


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_lazily_negative_tensor_is_refused(path, torch, device, mode):
    out = torch._neg_view(torch.zeros(200, device=device))
    with ps.File(path, mode) as file, pytest.raises(ps.InvalidError, match="read-only"):
        file["x"].read(3, out=out)


@pytest.mark.parametrize("make", ["to_sparse", "to_mkldnn"])
def test_a_tensor_without_plain_memory_is_refused(path, torch, make):
    out = getattr(torch.ones(200), make)()
    with ps.File(path) as file, pytest.raises(ps.IncompatibleError, match="layout"):
        file["x"].read(3, out=out)


def test_elements_of_four_bits_are_not_taken_for_longer_ones(path, torch, device):
    whole = torch.zeros(100, dtype=torch.int8, device=device)
    with ps.File(path) as file:
        file["bytes"].read((), out=torch.empty_like(whole))
        with contextlib.suppress(ps.IncompatibleError):  # NumPy has the type with ml_dtypes
            file["bytes"].read((), out=whole.view(torch.int4))
    assert whole.max() < 16


def test_a_strided_tensor_is_filled(path, torch, device):
    out = torch.zeros(200, 2, device=device)
    with ps.File(path) as file:
        file["x"].read(3, out=out[:, 1])
    np.testing.assert_array_equal(out[:, 1].cpu().numpy(), ROW)
    assert not out[:, 0].any()


def test_a_tensor_of_another_shape_is_refused(path, torch, device):
    with ps.File(path) as file, pytest.raises(ps.InvalidError, match="shape"):
        file["x"].read(3, out=torch.zeros(199, device=device))


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_the_tensor_of_which_another_is_a_lazy_copy_is_not_changed(path, torch, mode):
    original = torch.zeros(200)
    out = torch._lazy_clone(original)
    with ps.File(path, mode) as file:
        file["x"].read(3, out=out)
    np.testing.assert_array_equal(out.numpy(), ROW)
    assert not original.any()


def test_an_index_that_shrinks_the_tensor_keeps_it_from_being_filled(path, torch, device):
    out = torch.zeros((1, 200), device=device)

    class Shrinking:
        def __index__(self) -> int:
            out.resize_(1, 10)
            return 4

    with ps.File(path) as file:
        file["x"].read(np.s_[3:4], out=torch.zeros_like(out))
        with pytest.raises(ps.InvalidError, match="shape"):
            file["x"].read(np.s_[3 : Shrinking()], out=out)


OLDER = """
import sys, numpy as np, torch, penstock as ps
from penstock.hdf5 import reading
path, device, kind = sys.argv[1:]
if kind == "absent":
    del torch.Tensor.__dlpack_c_exchange_api__
else:  # that of another package
    del torch._C._dlpack_exchange_api

def not_small(*_, **__):
    raise AssertionError("a small read took the way of large ones")

slow, reading._start = reading._start, not_small
with ps.File(path) as file:
    out = torch.zeros(200, device=device)
    file["x"].read(3, out=out)
    assert np.array_equal(out.cpu().numpy(), file["x"][3])
    reading._start = slow
    try:
        file["x"].read(3, out=out.requires_grad_())
    except ps.InvalidError:
        sys.exit(0)
"""


@pytest.mark.parametrize("kind", ["absent", "added"])
def test_a_torch_without_the_exchange_api_of_dlpack_is_supported(path, device, kind):
    command = [sys.executable, "-c", OLDER, str(path), device, kind]
    assert subprocess.run(command, check=False).returncode == 0


@pytest.mark.gpu
@pytest.mark.usefixtures("quick_only")
def test_a_read_into_a_tensor_follows_the_work_of_the_current_stream(path, torch_kernels):
    torch = torch_kernels
    out = torch.zeros(200, device="cuda")
    stream = torch.cuda.Stream()
    with ps.File(path) as file:
        file["x"].read(3, out=out)
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            out.fill_(-1)
            before = stream.record_event()
            file["x"].read(4, out=out)
            assert before.query()
    np.testing.assert_array_equal(out.cpu().numpy(), VALUES[4])


@pytest.mark.gpu
@pytest.mark.usefixtures("quick_only")
def test_a_read_into_a_tensor_follows_the_stream_of_the_call(path, torch_kernels):
    torch = torch_kernels
    out = torch.zeros(200, device="cuda")
    stream = torch.cuda.Stream()
    with ps.File(path) as file:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            out.fill_(-1)
        file["x"].read(4, out=out, stream=stream)
    np.testing.assert_array_equal(out.cpu().numpy(), VALUES[4])


@pytest.mark.gpu
@pytest.mark.usefixtures("quick_only")
def test_a_tensor_of_more_bytes_than_one_call_reads_is_filled(path, torch_cuda):
    out = torch_cuda.zeros(3 << 20, device="cuda")
    with ps.File(path) as file:
        file["large"].read(np.s_[:], out=out)
    np.testing.assert_array_equal(out.cpu().numpy(), np.arange(3 << 20, dtype="f4"))


def freed(torch, kind):
    """Return a tensor of four elements whose memory is a null pointer."""
    if kind == "zeros":
        return torch._efficientzerotensor(4)
    whole = torch.zeros(100)
    tensor = whole[90:94] if kind == "part" else whole[:4]
    whole.untyped_storage().resize_(0)
    return tensor


def assert_refused(folder, out, why):
    """Fill and write a tensor of four elements in each way, and expect an error."""
    np.arange(4, dtype="f4").tofile(folder / "raw")
    with h5py.File(folder / "f.h5", "w") as file:
        file["x"] = np.arange(4, dtype="f4")
        file.create_dataset("gzip", data=np.arange(4, dtype="f4"), compression="gzip")
    with ps.File(folder / "f.h5") as file:
        x, path = file["x"], folder / "raw"
        calls = [
            lambda: x.read(out=out),
            lambda: x.read(slice(4), out=out),
            lambda: file["gzip"].read(out=out),
            lambda: x.read_async(out=out).wait(),
            lambda: file.read_many(["x"], out=[out]),
            lambda: ps.load(path, out=out),
            lambda: ps.load_async(path, out=out).wait(),
            lambda: ps.load_many(path, [(0, out)]),
            lambda: ps.save(folder / "new", out),
        ]
        for call in calls:
            with pytest.raises(ps.InvalidError, match=why):
                call()
    with ps.File(folder / "f.h5", "a") as file:
        with pytest.raises(ps.InvalidError, match=why):
            file["x"].write(out)
        with pytest.raises(ps.InvalidError, match=why):
            file["x"][...] = out


@pytest.mark.parametrize("kind", ["whole", "part", "zeros"])
def test_a_tensor_whose_memory_is_freed_is_neither_filled_nor_written(tmp_path, torch, kind):
    assert_refused(tmp_path, freed(torch, kind), "null pointer")


@pytest.mark.parametrize("kind", ["whole", "part", "strided", "conjugate"])
def test_a_tensor_beyond_its_storage_is_neither_filled_nor_written(tmp_path, torch, kind):
    whole = torch.zeros(100, dtype=torch.complex64 if kind == "conjugate" else torch.float32)
    tensor = whole[8:16:2] if kind == "strided" else whole[90:94] if kind == "part" else whole[:4]
    end = (tensor.storage_offset() + 3 * tensor.stride(0) + 1) * tensor.element_size()
    whole.untyped_storage().resize_(end - 1)
    out = tensor.conj() if kind == "conjugate" else tensor
    assert_refused(tmp_path, out, f"ends at byte {end} of its storage, which has {end - 1} bytes")


def test_a_tensor_at_the_end_of_its_storage_is_filled(path, torch):
    whole = torch.zeros(201)
    with ps.File(path) as file:
        file["x"].read(3, out=whole[1:])
    np.testing.assert_array_equal(whole[1:].numpy(), ROW)


@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")  # by make_dual
def test_a_tensor_with_a_tangent_is_neither_filled_nor_written(tmp_path, torch):
    forward = torch.autograd.forward_ad
    with forward.dual_level():
        dual = forward.make_dual(torch.zeros(4), torch.ones(4))
        assert_refused(tmp_path, dual, "tangent")
        ps.load(tmp_path / "raw", out=torch.zeros(4))


@pytest.mark.parametrize("kind", ["fake", "functional"])
def test_a_tensor_of_a_compiler_is_neither_filled_nor_written(tmp_path, torch, kind):
    if kind == "fake":
        mode = pytest.importorskip("torch._subclasses.fake_tensor").FakeTensorMode
        with mode():
            out = torch.zeros(4)
    else:
        out = torch._to_functional_tensor(torch.zeros(4))
    assert_refused(tmp_path, out, "null pointer")


def test_a_tensor_of_a_transformation_is_neither_filled_nor_written(tmp_path, torch):
    np.arange(4, dtype="f4").tofile(tmp_path / "raw")

    def function(x):
        for call in (ps.load, ps.save):
            with pytest.raises(ps.IncompatibleError, match=r"torch\.func"):
                call(tmp_path / "raw", **{"out" if call is ps.load else "array": x})
        return x

    torch.func.vmap(function)(torch.zeros(3, 4))


def test_a_tensor_without_elements_needs_no_memory(tmp_path, torch):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file["x"] = np.empty(0, "f4")
    with ps.File(tmp_path / "f.h5") as file:
        assert file["x"].read(out=torch.zeros(0)).shape == (0,)


@pytest.mark.parametrize("count", [3, 2000])
def test_a_lazily_negative_tensor_is_written_as_the_numbers_that_it_shows(torch, tmp_path, count):
    numbers = np.arange(1, count + 1, dtype="f4")
    tensor = torch._neg_view(torch.from_numpy(-numbers))
    with ps.File(tmp_path / "new.h5", "w") as file:
        file["created"] = tensor
        for dtype in ("f4", "f8"):
            file.create_dataset(dtype, (count,), dtype)[...] = tensor
    with h5py.File(tmp_path / "new.h5") as file:
        for found in file.values():
            assert np.array_equal(found, numbers)
