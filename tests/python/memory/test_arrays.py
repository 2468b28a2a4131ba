"""Arrays of all protocols as memory."""

from __future__ import annotations

import array as array_module
import ctypes
import gc
import math
import sys
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import penstock as ps
from penstock import arrays, dlpack
from penstock.dtypes import element_type
from penstock.placement import parse_device
from penstock.streams import stream_handle


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_contiguity_is_numpys(data):
    base = np.zeros(data.draw(hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4)))
    view = base[data.draw(hnp.basic_indices(base.shape))]
    if not isinstance(view, np.ndarray):
        return
    if data.draw(st.booleans()):
        view = view.T
    strides = view.strides
    kept = arrays.unless_c_order(view.shape, strides, view.itemsize)
    assert (kept is None) == view.flags.c_contiguous


def test_a_numpy_array_is_described_as_it_is():
    array = np.arange(6, dtype="f4").reshape(2, 3)
    view = arrays.view(array)
    assert view.pointer == array.ctypes.data
    assert (view.nbytes, view.shape, view.dtype.name) == (24, (2, 3), "float32")
    assert (view.device, view.contiguous, view.readonly) == (-1, True, False)


@pytest.mark.parametrize(
    "make",
    [
        lambda: bytearray(b"12345678"),
        lambda: memoryview(bytearray(b"12345678")),
        lambda: array_module.array("i", [1, 2]),
        lambda: (ctypes.c_uint8 * 8)(*range(8)),
    ],
)
def test_buffers_are_filled_and_saved(tmp_path, make):
    buffer = make()
    ps.save(tmp_path / "f", buffer)
    assert (tmp_path / "f").read_bytes() == bytes(memoryview(buffer))
    (tmp_path / "f").write_bytes(b"abcdefgh")
    ps.load(tmp_path / "f", out=buffer)
    assert bytes(memoryview(buffer)) == b"abcdefgh"


def test_bytes_can_be_saved_but_not_filled(tmp_path):
    ps.save(tmp_path / "f", b"hello")
    assert (tmp_path / "f").read_bytes() == b"hello"
    with pytest.raises(ValueError, match="read-only"):
        ps.load(tmp_path / "f", out=b"hello")


def test_a_read_only_array_is_not_filled(tmp_path):
    (tmp_path / "f").write_bytes(bytes(5))
    out = np.ones(5, "u1")
    out.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        ps.load(tmp_path / "f", out=out)
    assert out.all()


def test_a_numpy_scalar_can_be_saved_but_not_filled(tmp_path):
    ps.save(tmp_path / "f", np.float32(3))
    assert np.fromfile(tmp_path / "f", "f4") == 3
    with pytest.raises(ps.InvalidError):
        ps.load(tmp_path / "f", out=np.float32(3))


@pytest.mark.parametrize("thing", [[1, 2], "text", 3, None, object(), np.ma.masked_array([1])])
def test_what_is_no_array_is_a_type_error(tmp_path, thing):
    with pytest.raises(TypeError):
        ps.save(tmp_path / "f", thing)


def test_an_object_with_the_array_interface_is_shared(tmp_path):
    class Wrapper:
        def __init__(self, array):
            self.__array_interface__ = array.__array_interface__
            self.array = array

    (tmp_path / "f").write_bytes(b"abc")
    wrapper = Wrapper(np.zeros(3, "u1"))
    ps.load(tmp_path / "f", out=wrapper)
    assert wrapper.array.tobytes() == b"abc"


@pytest.mark.parametrize("versioned", [False, True])
def test_dlpack_of_host_memory_is_shared(tmp_path, dlpack_only, versioned):
    array = np.zeros((2, 3), "i4")
    np.arange(6, dtype="i4").tofile(tmp_path / "f")
    ps.load(tmp_path / "f", out=dlpack_only(array, versioned=versioned))
    np.testing.assert_array_equal(array, np.arange(6).reshape(2, 3))


def test_dlpack_strides_and_types_are_read(dlpack_only):
    array = np.zeros((4, 6), "c16")[:, ::2]
    view = arrays.view(dlpack_only(array, versioned=False))
    assert (view.shape, view.contiguous, view.dtype.numpy) == ((4, 3), False, array.dtype)
    assert view.pointer == array.ctypes.data


DLPACK_LAYOUTS = {
    "every second column": lambda array: np.repeat(array, 2, axis=1)[:, ::2],
    "Fortran order": np.asfortranarray,
    "reversed": lambda array: array[::-1, ::-1].copy()[::-1, ::-1],
}


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("layout", DLPACK_LAYOUTS.values(), ids=DLPACK_LAYOUTS)
@pytest.mark.parametrize("chunks", [None, (2, 3)])
def test_a_strided_host_array_with_only_dlpack_is_filled_and_stored(
    tmp_path, dlpack_only, versioned, layout, chunks
):
    def made(values):
        array = layout(values)
        assert not array.flags.c_contiguous
        return array, dlpack_only(array, versioned=versioned)

    values = np.arange(24, dtype="f4").reshape(4, 6)
    _, given = made(values)
    ps.save(tmp_path / "f", given)
    assert (tmp_path / "f").read_bytes() == values.tobytes()
    array, out = made(np.zeros_like(values))
    assert ps.load(tmp_path / "f", out=out) is out
    np.testing.assert_array_equal(array, values)
    with ps.File(tmp_path / "f.h5", "w") as file:
        dataset = file.create_dataset("x", values.shape, "f4", chunks=chunks)
        ps.write(dataset, given)
        np.testing.assert_array_equal(dataset[...], values)
        array, out = made(np.zeros_like(values))
        assert ps.read(dataset, out=out) is out
        np.testing.assert_array_equal(array, values)


def test_an_export_of_a_type_of_ml_dtypes_has_that_type():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    memory = np.arange(6, dtype="f4").astype(bfloat16)

    class Exporter:
        def __dlpack_device__(self):
            return (dlpack.CPU, 0)

        def __dlpack__(self, **_arguments):
            return dlpack.export_array(
                memory.ctypes.data,
                memory.shape,
                element_type(bfloat16),
                (dlpack.CPU, 0),
                memory,
                versioned=True,
            )

    np.testing.assert_array_equal(arrays.view(Exporter()).array, memory, strict=True)


def test_a_read_only_array_with_only_dlpack_is_not_filled(tmp_path, dlpack_only):
    (tmp_path / "f").write_bytes(bytes(range(5)))
    array = np.ones(10, "u1")[::2]
    array.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        ps.load(tmp_path / "f", out=dlpack_only(array, versioned=True))
    assert array.all()


@pytest.mark.parametrize("dtype", [">f4", "M8[s]"])
def test_an_array_that_its_library_cannot_export_is_a_type_error(tmp_path, dlpack_only, dtype):
    with pytest.raises(ps.IncompatibleError, match=r"DLPackOnly cannot be exported by DLPack: \w"):
        ps.save(tmp_path / "f", dlpack_only(np.zeros(3, dtype), versioned=True))


@pytest.mark.parametrize("step", ["__dlpack__", "__dlpack_device__"])
@pytest.mark.parametrize("error", [NotImplementedError, TypeError, AttributeError, ValueError])
def test_a_refusal_of_another_library_is_a_type_error_with_its_words(
    tmp_path, dlpack_only, step, error
):
    class Deleted(dlpack_only):
        pass

    def refuse(_self, **_arguments):
        raise error("the array has been deleted: UNIMPLEMENTED")

    setattr(Deleted, step, refuse)
    with pytest.raises(ps.IncompatibleError, match=r"Deleted cannot .* DLPack: the array has been"):
        ps.save(tmp_path / "f", Deleted(np.zeros(3), versioned=True))


def test_a_failure_of_a_device_is_not_taken_for_a_refusal(tmp_path, dlpack_only):
    class Broken(dlpack_only):
        def __dlpack__(self, **_arguments):
            raise RuntimeError("CUDA error: out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        ps.save(tmp_path / "f", Broken(np.zeros(3), versioned=True))


def test_what_is_no_array_is_named_by_its_type(tmp_path):
    with pytest.raises(ps.IncompatibleError, match=r"^an instance of object is not an array"):
        ps.save(tmp_path / "f", object())


def test_the_array_of_an_export_keeps_the_export_alive(dlpack_only):
    array = np.arange(10)[::2]
    alive = weakref.ref(array)
    made = arrays.view(dlpack_only(array, versioned=False)).array
    del array
    gc.collect()
    assert alive() is not None
    np.testing.assert_array_equal(made, [0, 2, 4, 6, 8])
    del made
    gc.collect()
    assert alive() is None


def test_a_dlpack_export_lives_as_long_as_the_view(dlpack_only):
    array = np.zeros(10)
    alive = weakref.ref(array)
    view = arrays.view(dlpack_only(array, versioned=False))
    view.array = None
    del array
    gc.collect()
    assert alive() is not None
    del view
    gc.collect()
    assert alive() is None


@pytest.mark.gpu
def test_the_cuda_array_interface_is_understood(tmp_path, cuda_interface):
    a = ps.DeviceArray((2, 3), "f4")
    np.arange(6, dtype="f4").tofile(tmp_path / "f")
    ps.load(tmp_path / "f", out=cuda_interface(a))
    np.testing.assert_array_equal(a.numpy(), np.arange(6).reshape(2, 3))
    ps.save(tmp_path / "g", cuda_interface(a, stream=1))
    assert (tmp_path / "g").read_bytes() == (tmp_path / "f").read_bytes()


@pytest.mark.gpu
def test_a_strided_or_read_only_cuda_array_is_refused(tmp_path, cuda_interface):
    a = ps.DeviceArray((4, 4), "f4")
    (tmp_path / "f").write_bytes(bytes(64))
    with pytest.raises(TypeError, match="C-contiguous"):
        ps.load(tmp_path / "f", out=cuda_interface(a, strides=(4, 16)))
    with pytest.raises(ValueError, match="read-only"):
        ps.load(tmp_path / "f", out=cuda_interface(a, data=(a.data_ptr, True)))


@pytest.mark.gpu
@pytest.mark.parametrize("versioned", [False, True])
def test_dlpack_of_gpu_memory_is_shared(tmp_path, dlpack_only, versioned):
    a = ps.DeviceArray(6, "u1")
    (tmp_path / "f").write_bytes(b"abcdef")
    ps.load(tmp_path / "f", out=dlpack_only(a, versioned=versioned))
    assert a.numpy().tobytes() == b"abcdef"


@pytest.mark.gpu
def test_the_memory_kind_is_known(memory):
    assert ps.memory_kind(memory.empty(100)) == memory.kind


def test_plain_memory_is_host_memory():
    assert ps.memory_kind(np.zeros(3)) == "host"
    assert ps.memory_kind(bytearray(3)) == "host"


def test_torch_tensors_on_the_host_are_filled(tmp_path, torch):
    np.arange(6, dtype="f4").tofile(tmp_path / "f")
    t = torch.zeros(2, 3)
    assert ps.load(tmp_path / "f", out=t) is t
    assert torch.equal(t, torch.arange(6.0).reshape(2, 3))
    strided = torch.zeros(3, 2).T
    ps.load(tmp_path / "f", out=strided)
    assert torch.equal(strided, t)
    ps.save(tmp_path / "g", strided)
    assert (tmp_path / "g").read_bytes() == (tmp_path / "f").read_bytes()


def test_a_parameter_is_filled_and_autograd_notices(tmp_path, torch):
    np.ones(3, "f4").tofile(tmp_path / "f")
    weight = torch.zeros(3, requires_grad=True)
    loss = (weight * weight).sum()
    with torch.no_grad():
        ps.load(tmp_path / "f", out=weight)
    assert weight.tolist() == [1, 1, 1]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    ps.save(tmp_path / "g", weight)


class StubTensor:
    """What is asked of a tensor of torch, which need not be installed."""

    def __init__(self, values: np.ndarray, *, requires_grad: bool) -> None:
        self.values = values
        self.requires_grad = requires_grad
        self.shape, self.dtype = values.shape, values.dtype
        self.device, self.layout = SimpleNamespace(type="cpu", index=None), "strided"
        self.is_nested = False
        self.is_conj = self.is_neg = self.is_inference = lambda: False
        self.is_contiguous, self.is_cpu, self.is_cuda = lambda: True, True, False
        self.data_ptr = lambda: values.ctypes.data
        self.numel, self.element_size = lambda: values.size, lambda: values.itemsize
        self.storage_offset = lambda: 0
        self.untyped_storage = lambda: SimpleNamespace(nbytes=lambda: values.nbytes)


@pytest.fixture
def grad_mode(monkeypatch) -> SimpleNamespace:
    """The mode of a stub of torch."""
    mode = SimpleNamespace(enabled=True)
    graph = SimpleNamespace(increment_version=lambda tensor: None)
    stub = SimpleNamespace(
        Tensor=StubTensor,
        strided="strided",
        is_grad_enabled=lambda: mode.enabled,
        autograd=SimpleNamespace(graph=graph),
    )
    monkeypatch.setitem(sys.modules, "torch", stub)
    return mode


FILLS = {
    "load": lambda path, out: ps.load(path, out=out),
    "load_async": lambda path, out: ps.load_async(path, out=out).wait(),
    "load_many": lambda path, out: ps.load_many(path, [(0, out)]),
    "read": lambda path, out: ps.read(f"{path}.h5:x", out=out),
    "read_async": lambda path, out: ps.read_async(f"{path}.h5:x", out=out).wait(),
    "read_many": lambda path, out: ps.read_many([f"{path}.h5:x"], out=[out]),
    "Dataset.read": lambda path, out: ps.File(f"{path}.h5")["x"].read(out=out),
    "Group.read_many": lambda path, out: ps.File(f"{path}.h5").read_many(["x"], out=[out]),
}


@pytest.mark.parametrize("fill", FILLS.values(), ids=FILLS)
@pytest.mark.parametrize("length", [3, 100_000])
def test_a_tensor_that_requires_grad_is_filled_only_while_gradients_are_disabled(
    tmp_path, grad_mode, fill, length
):
    values = np.arange(length, dtype="f4")
    values.tofile(tmp_path / "f")
    with ps.File(tmp_path / "f.h5", "w") as file:
        file["x"] = values
    weight = StubTensor(np.zeros(length, "f4"), requires_grad=True)
    with pytest.raises(ps.InvalidError, match=r"requires grad.*torch\.no_grad\(\)"):
        fill(tmp_path / "f", weight)
    assert not weight.values.any()
    grad_mode.enabled = False
    fill(tmp_path / "f", weight)
    np.testing.assert_array_equal(weight.values, values)
    grad_mode.enabled = True
    other = StubTensor(np.zeros(length, "f4"), requires_grad=False)
    fill(tmp_path / "f", other)
    np.testing.assert_array_equal(other.values, values)


def test_lazily_conjugated_tensors_are_saved_with_their_values(tmp_path, torch):
    t = torch.tensor([1 + 2j, 3 - 4j])
    ps.save(tmp_path / "f", t.conj())
    assert np.fromfile(tmp_path / "f", "c8").tolist() == [1 - 2j, 3 + 4j]
    with pytest.raises(ps.InvalidError):
        ps.load(tmp_path / "f", out=t.conj())


def test_bfloat16_tensors_need_no_ml_dtypes(tmp_path, torch):
    t = torch.arange(5).to(torch.bfloat16)
    ps.save(tmp_path / "f", t)
    out = torch.zeros(5, dtype=torch.bfloat16)
    ps.load(tmp_path / "f", out=out)
    assert torch.equal(t, out)


def test_tensors_without_memory_are_a_type_error(tmp_path, torch):
    for tensor in (torch.zeros(3, device="meta"), torch.eye(3).to_sparse()):
        with pytest.raises(TypeError):
            ps.save(tmp_path / "f", tensor)


@pytest.mark.parametrize(
    ("device", "ordinal"),
    [(None, -1), ("cpu", -1), ("cuda", None), ("cuda:0", 0), ("cuda:13", 13), (1, 1)],
)
def test_devices_are_understood(device, ordinal):
    assert parse_device(device) == ordinal


@pytest.mark.parametrize(
    "device",
    [-1, 1 << 31, 1 << 70, "cuda:-1", f"cuda:{1 << 70}", "cuda:" + "9" * 5000],
    ids=range(6),
)
def test_a_number_that_no_gpu_has_is_an_error(device, tmp_path):
    ps.save(tmp_path / "f", np.zeros(3))
    with pytest.raises(ps.InvalidError, match="device"):
        ps.load(tmp_path / "f", dtype="f8", device=device)
    if isinstance(device, int):
        with pytest.raises(ps.InvalidError, match="device"):
            ps.DeviceArray(3, device=device)


def test_torch_devices_are_understood(torch):
    assert parse_device(torch.device("cuda", 1)) == 1
    assert parse_device(torch.device("cpu")) == -1


def test_the_spellings_of_a_type_are_one_type(torch):
    assert element_type("float32") == element_type(np.float32) == element_type(torch.float32)
    assert element_type("bfloat16") == element_type(torch.bfloat16)
    assert element_type([("a", "f4"), ("b", "i2")]).itemsize == 6


@pytest.mark.parametrize("dtype", ["float33", object, "O", 3.5])
def test_what_is_no_type_is_a_type_error(dtype):
    with pytest.raises(TypeError):
        element_type(dtype)


class _Stream:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class _ProtocolStream:
    def __cuda_stream__(self):
        return (0, 77)


@pytest.mark.parametrize(
    ("stream", "handle"),
    [
        (None, None),
        (0, 0),
        (1, 0),
        (2, 2),
        (_Stream(cuda_stream=55), 55),
        (_Stream(ptr=66), 66),
        (_ProtocolStream(), 77),
    ],
)
def test_streams_are_understood(stream, handle):
    assert stream_handle(stream) == handle


@pytest.mark.parametrize("stream", ["cuda", 1.5, True, object()])
def test_what_is_no_stream_is_a_type_error(stream):
    with pytest.raises(TypeError):
        stream_handle(stream)


@pytest.mark.parametrize(
    ("shape", "strides"), [((10, 10), (12, 4)), ((3, 4), (0, 4)), ((4,), (2,)), ((2, 2), (4, 6))]
)
def test_an_array_whose_elements_share_memory_is_not_filled(tmp_path, shape, strides):
    path = tmp_path / "x"
    np.arange(1000, dtype="i4").tofile(path)
    out = np.lib.stride_tricks.as_strided(np.zeros(1000, "i4"), shape, strides)
    with pytest.raises(ps.InvalidError, match="share memory"):
        ps.load(path, out=out)


@pytest.mark.parametrize(
    ("shape", "strides"), [((3, 2), (8, 12)), ((4, 2), (4, -16)), ((1, 5), (0, 8))]
)
def test_an_array_whose_rows_are_interleaved_is_filled(tmp_path, shape, strides):
    path = tmp_path / "x"
    expected = np.arange(math.prod(shape), dtype="i4")
    expected.tofile(path)
    memory = np.zeros(1000, "i4")
    out = np.lib.stride_tricks.as_strided(memory[100:], shape, strides)
    ps.load(path, out=out)
    np.testing.assert_array_equal(out.ravel(), expected)
