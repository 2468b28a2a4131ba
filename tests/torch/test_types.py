"""The data types of torch, which all functions that take tensors have alike."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.deepnvme import AsyncIOBuilder
from penstock.dtypes import element_type
from penstock.torch.safetensors.dtypes import TORCH_NAMES

torch = pytest.importorskip("torch", reason="torch is not installed")
dcp = pytest.importorskip("torch.distributed.checkpoint")
weights = pytest.importorskip("penstock.torch.safetensors")
checkpoint = pytest.importorskip("penstock.torch.checkpoint")

NAMES = sorted(
    name
    for name in {*TORCH_NAMES.values(), "complex32", "complex128"}
    if isinstance(getattr(torch, name, None), torch.dtype)
)
IN_FORMAT = [name for name in NAMES if name in TORCH_NAMES.values()]


pytestmark = pytest.mark.filterwarnings(
    "ignore:ComplexHalf support",
    "ignore:torch.distributed is disabled",
    "ignore:TypedStorage is deprecated",
    "ignore::UserWarning:torch.*",
)


def made(name: str) -> Any:
    """Return 2 x 3 elements, whose bytes are valid in each type, bool too."""
    dtype = getattr(torch, name)
    return (torch.arange(6 * dtype.itemsize, dtype=torch.uint8) % 2).view(dtype).reshape(2, 3)


def bytes_of(tensor: Any) -> bytes:
    return bytes(tensor.contiguous().view(torch.uint8).flatten().tolist())


@pytest.mark.parametrize("name", NAMES)
def test_each_type_of_torch_has_its_size_by_name_too(name: str) -> None:
    dtype = getattr(torch, name)
    assert element_type(dtype).itemsize == element_type(name).itemsize == dtype.itemsize
    assert element_type(dtype).name == name


@pytest.mark.parametrize("name", NAMES)
def test_tensors_of_each_type_are_saved_and_loaded_raw(tmp_path: Any, name: str) -> None:
    x = made(name)
    ps.save(tmp_path / "x", x)
    assert (tmp_path / "x").read_bytes() == bytes_of(x)
    for found in (
        ps.load(tmp_path / "x", out=torch.zeros_like(x.view(torch.uint8)).view(x.dtype)),
        ps.load(tmp_path / "x", dtype=name, shape=(2, 3), like="torch"),
        ps.load_many(tmp_path / "x", [(0, (2, 3), x.dtype)], like="torch")[0],
    ):
        assert (found.dtype, found.shape) == (x.dtype, x.shape)
        assert bytes_of(found) == bytes_of(x)


@pytest.mark.parametrize("name", NAMES)
def test_deepnvme_moves_tensors_of_each_type(tmp_path: Any, name: str) -> None:
    x, out = made(name), made(name)
    out.view(torch.uint8).zero_()
    handle = AsyncIOBuilder().load().aio_handle()
    handle.sync_pwrite(x, str(tmp_path / "x"))
    handle.sync_pread(out, str(tmp_path / "x"))
    assert bytes_of(out) == bytes_of(x)


@pytest.mark.parametrize("name", IN_FORMAT)
@pytest.mark.parametrize("save", [weights.save_file, checkpoint.save])
def test_files_hold_tensors_of_each_type(tmp_path: Any, name: str, save: Any) -> None:
    x = made(name)
    save({"x": x}, tmp_path / "x")
    load = weights.load_file if save is weights.save_file else checkpoint.load
    found = load(tmp_path / "x")["x"]
    assert (found.dtype, found.shape) == (x.dtype, x.shape)
    assert bytes_of(found) == bytes_of(x)


@pytest.mark.parametrize("name", IN_FORMAT)
def test_models_with_tensors_of_each_type_are_loaded(tmp_path: Any, name: str) -> None:
    model = torch.nn.Module()
    model.register_buffer(
        "x", torch.zeros_like(made(name).view(torch.uint8)).view(made(name).dtype)
    )
    weights.save_file({"x": made(name)}, tmp_path / "x.safetensors")
    assert weights.load_model(model, tmp_path / "x.safetensors") == (set(), [])
    assert bytes_of(model.x) == bytes_of(made(name))


@pytest.mark.parametrize("name", IN_FORMAT)
@pytest.mark.parametrize("kind", ["", "HuggingFace"])
def test_distributed_checkpoints_hold_tensors_of_each_type(
    tmp_path: Any, name: str, kind: str
) -> None:
    x, out = made(name), made(name)
    out.view(torch.uint8).zero_()
    writer, reader = (
        getattr(checkpoint, f"Penstock{kind}{what}")(str(tmp_path)) for what in ("Writer", "Reader")
    )
    dcp.save({"x": x}, storage_writer=writer)
    dcp.load({"x": out}, storage_reader=reader)
    assert bytes_of(out) == bytes_of(x)


class Subclass(torch.Tensor):
    """A subclass whose elements are in memory of its own."""


def test_the_hugging_face_writer_takes_a_subclass_as_torch_does(tmp_path: Any) -> None:
    pytest.importorskip("safetensors")
    x = torch.arange(6.0).reshape(2, 3).as_subclass(Subclass)
    files = []
    for number, writer in enumerate(
        (dcp.HuggingFaceStorageWriter, checkpoint.PenstockHuggingFaceWriter)
    ):
        folder = tmp_path / str(number)
        dcp.save({"x": x}, storage_writer=writer(str(folder)))
        (file,) = folder.glob("*.safetensors")
        files.append(weights.load_file(file)["x"])
    assert type(files[1]) is torch.Tensor
    assert torch.equal(files[0], files[1])
    assert torch.equal(files[0], torch.arange(6.0).reshape(2, 3))


def test_packed_elements_are_in_a_hugging_face_file_as_torch_writes_them(tmp_path: Any) -> None:
    pytest.importorskip("safetensors")
    if "float4_e2m1fn_x2" not in NAMES:
        pytest.skip("this torch has no float4_e2m1fn_x2")
    x = made("float4_e2m1fn_x2")
    try:
        dcp.save({"x": x}, storage_writer=dcp.HuggingFaceStorageWriter(str(tmp_path)))
    except Exception as error:
        pytest.skip(f"torch's writer does not take the type: {error}")
    out = torch.zeros(2, 3, dtype=torch.uint8).view(x.dtype)
    reader = checkpoint.PenstockHuggingFaceReader(str(tmp_path))
    dcp.load({"x": out}, storage_reader=reader)
    assert bytes_of(out) == bytes_of(x)
    (file,) = tmp_path.glob("*.safetensors")
    folder = tmp_path / "ours"
    dcp.save({"x": x}, storage_writer=checkpoint.PenstockHuggingFaceWriter(str(folder)))
    (ours,) = folder.glob("*.safetensors")
    shapes = [weights.safe_open(path, "np").get_slice("x").get_shape() for path in (file, ours)]
    assert shapes == [[2, 6], [2, 6]]
