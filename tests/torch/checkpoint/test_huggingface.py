"""The writer and the reader of safetensors files, beside those of torch."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import penstock as ps

from .conftest import assert_same, blank, tensors, torch

dcp = pytest.importorskip("torch.distributed.checkpoint")
checkpoint = pytest.importorskip("penstock.torch.checkpoint")
Writer, Reader = checkpoint.PenstockHuggingFaceWriter, checkpoint.PenstockHuggingFaceReader


def state() -> dict[str, Any]:
    """Return what torch's writer can hold: contiguous tensors of their own memory."""
    return {
        name: tensor.detach().clone(memory_format=torch.contiguous_format).resolve_conj()
        for name, tensor in tensors().items()
    }


def by_file() -> dict[str, int]:
    return {name: 1 + number % 3 for number, name in enumerate(state())}


OPTIONS = [{}, {"fqn_to_index_mapping": by_file()}, {"save_distributed": True}]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("reader", [dcp.HuggingFaceStorageReader, Reader])
@pytest.mark.parametrize("writer", [dcp.HuggingFaceStorageWriter, Writer])
def test_each_library_reads_what_either_has_written(
    tmp_path: Path, writer: Any, reader: Any, options: dict[str, Any]
) -> None:
    if writer is not Writer or reader is not Reader:
        pytest.importorskip("safetensors")
    dcp.save(state(), storage_writer=writer(path=str(tmp_path), **options))
    loaded = blank(state())
    dcp.load(loaded, storage_reader=reader(path=str(tmp_path)))
    assert_same(loaded, state())


@pytest.mark.parametrize("options", OPTIONS)
def test_names_and_index_are_those_of_torch(tmp_path: Path, options: dict[str, Any]) -> None:
    pytest.importorskip("safetensors")
    listed = []
    for name, writer in (("torch", dcp.HuggingFaceStorageWriter), ("penstock", Writer)):
        folder = tmp_path / name
        dcp.save(state(), storage_writer=writer(path=str(folder), **options))
        index = folder / "model.safetensors.index.json"
        contents = json.loads(index.read_text()) if index.exists() else {}
        listed.append((sorted(os.listdir(folder)), contents))
    assert listed[0] == listed[1]


def test_the_metadata_that_is_read_is_that_of_torch(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    dcp.save(state(), storage_writer=Writer(path=str(tmp_path), save_distributed=True))
    expected = dcp.HuggingFaceStorageReader(path=str(tmp_path)).read_metadata()
    metadata = Reader(path=str(tmp_path)).read_metadata()
    assert metadata.state_dict_metadata == expected.state_dict_metadata
    assert metadata.storage_data == expected.storage_data


def test_safetensors_loads_the_files(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.torch")
    dcp.save(tensors(), storage_writer=Writer(path=str(tmp_path)))
    loaded = library.load_file(tmp_path / "model-00001-of-00001.safetensors")
    assert {name: tuple(value.shape) for name, value in loaded.items()} == {
        name: tuple(value.shape) for name, value in tensors().items()
    }
    for name, value in tensors().items():
        assert bool((loaded[name] == value).all()), name


def test_files_of_ranks_are_consolidated_as_by_torch(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.torch")
    floats = {name: one for name, one in state().items() if one.is_floating_point() and one.numel()}
    writer = Writer(path=str(tmp_path), save_distributed=True, enable_consolidation=True)
    dcp.save(floats, storage_writer=writer)
    assert_same(
        dict(sorted(library.load_file(tmp_path / "model-00001-of-00001.safetensors").items())),
        dict(sorted(floats.items())),
    )


def test_a_file_is_written_by_one_request_and_read_by_one(
    tmp_path: Path, count_requests: list[int]
) -> None:
    state = {f"layer{n}": torch.full((100,), float(n)) for n in range(30)}
    dcp.save(state, storage_writer=Writer(path=str(tmp_path)))
    assert len(count_requests) == 1
    loaded = blank(state)
    dcp.load(loaded, storage_reader=Reader(path=str(tmp_path)))
    assert count_requests[1:] == [30]
    assert_same(loaded, state)


@pytest.mark.parametrize("folder", ["model", "./model", "a/../model", "."])
def test_the_folder_may_be_a_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path)
    saved = {"one": torch.ones(3)}
    dcp.save(saved, storage_writer=Writer(path=folder))
    loaded = blank(saved)
    dcp.load(loaded, storage_reader=Reader(path=folder))
    assert_same(loaded, saved)


def test_header_and_tensors_are_those_of_the_same_file_if_it_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.torch.checkpoint.reader import FileReads

    old, new = ({"one": torch.full((100,), value)} for value in (1.0, 2.0))
    new["two"] = torch.zeros(50, dtype=torch.float64)  # before the other in the file
    dcp.save(old, storage_writer=Writer(path=str(tmp_path)))
    start = FileReads.start

    def replace(reads: Any, path: Path) -> Any:
        dcp.save(new, storage_writer=Writer(path=str(tmp_path)))
        return start(reads, path)

    monkeypatch.setattr(FileReads, "start", replace)
    loaded = blank(old)
    dcp.load(loaded, storage_reader=Reader(path=str(tmp_path)))
    assert_same(loaded, {"one": new["one"]})


def test_an_object_that_is_no_tensor_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(dcp.api.CheckpointException, match="'names' is a Python object"):
        dcp.save({"names": [1]}, storage_writer=Writer(path=str(tmp_path)))
    assert not os.listdir(tmp_path)


def test_a_file_with_two_parts_of_a_tensor_is_refused_by_name(tmp_path: Path) -> None:
    class InTwoParts(dcp.DefaultSavePlanner):
        def resolve_data(self, item: Any) -> Any:
            return torch.zeros(5)

    planner, writer = InTwoParts(), Writer(path=str(tmp_path))
    planner.set_up_planner({"x": torch.zeros(10)}, is_coordinator=True)
    writer.set_up_storage_writer(is_coordinator=True)
    plan = writer.prepare_local_plan(planner.create_local_plan())
    (plan,) = writer.prepare_global_plan([replace(plan, items=plan.items * 2)])
    with pytest.raises(ps.IncompatibleError, match="several parts of 'x'"):
        writer.write_data(plan, planner)
    assert not list(tmp_path.iterdir())


def test_offsets_that_lie_are_refused_by_name(tmp_path: Path) -> None:
    from penstock.torch.safetensors.header import encode_header

    for offsets in ('{"one": {}}', '{"one": {"saved_offsets": [-1]}}', "[", '{"two": 1}'):
        header, _ = encode_header({"one": ("U8", (2,))}, {"DCP_SHARDING_INFO": offsets})
        (tmp_path / "model.safetensors").write_bytes(header + b"ab")
        with pytest.raises(checkpoint.CheckpointFileError, match=r"model\.safetensors.*SHARDING"):
            Reader(path=str(tmp_path)).read_metadata()


def test_files_of_different_checkpoints_in_a_folder_are_refused(tmp_path: Path) -> None:
    from penstock.torch.safetensors.header import encode_header

    for name, shape in (("a", (2,)), ("b", (1, 2))):
        header, _ = encode_header({"one": ("U8", shape)}, None)
        (tmp_path / f"{name}.safetensors").write_bytes(header + b"ab")
    with pytest.raises(checkpoint.CheckpointFileError, match="'one'"):
        Reader(path=str(tmp_path)).read_metadata()


def test_a_tensor_that_two_checkpoints_in_a_folder_have_is_refused(tmp_path: Path) -> None:
    indices = {"x": 1, "y": 2}
    old = {name: torch.zeros(4) for name in indices}
    dcp.save(old, storage_writer=Writer(path=str(tmp_path), fqn_to_index_mapping=indices))
    new = {name: torch.ones(4) for name in indices}
    dcp.save(new, storage_writer=Writer(path=str(tmp_path)))
    with pytest.raises(checkpoint.CheckpointFileError, match=r"'x' is also in .*00001-of-00001"):
        Reader(path=str(tmp_path)).read_metadata()


@pytest.mark.parametrize(
    ("offsets", "is_whole"),
    [
        ([(0, 0), (2, 0)], True),
        ([(0, 0), (0, 3)], True),
        ([(2, 3), (0, 3), (2, 0), (0, 0)], True),
        ([(0, 0), (1, 0)], False),
        ([(0, 0), (3, 0)], False),
        ([(2, 0)], False),
        ([(0, 0), (0, 3), (2, 1), (2, 4), (1, 6)], False),
        ([(0, 0), (2, 3)], False),
        ([(0, 0), (1, 1), (0, 3), (2, 3)], False),
    ],
)
def test_parts_of_a_tensor_are_refused_unless_they_hold_each_element_once(
    tmp_path: Path, offsets: list[tuple[int, int]], is_whole: bool
) -> None:
    from penstock.torch.safetensors.header import encode_header

    for number, offset in enumerate(offsets):
        saved = json.dumps({"one": {"saved_offsets": offset}})
        header, _ = encode_header({"one": ("U8", (2, 3))}, {"DCP_SHARDING_INFO": saved})
        (tmp_path / f"{number}.safetensors").write_bytes(header + bytes(6))
    reader = Reader(path=str(tmp_path))
    if is_whole:
        assert len(reader.read_metadata().state_dict_metadata["one"].chunks) == len(offsets)
    else:
        with pytest.raises(checkpoint.CheckpointFileError, match="parts of 'one' overlap"):
            reader.read_metadata()
