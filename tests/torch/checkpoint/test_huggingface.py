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


def test_a_checkpoint_that_is_replaced_while_it_is_loaded_is_loaded_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.torch.checkpoint.reader import FileReads

    old, new = ({"one": torch.full((100,), value)} for value in (1.0, 2.0))
    new["two"] = torch.zeros(50, dtype=torch.float64)  # before the other in the file
    dcp.save(old, storage_writer=Writer(path=str(tmp_path)))
    start = FileReads.start

    def replace(reads: Any, *rest: Any) -> Any:
        dcp.save(new, storage_writer=Writer(path=str(tmp_path)))
        return start(reads, *rest)

    monkeypatch.setattr(FileReads, "start", replace)
    loaded = blank(old)
    dcp.load(loaded, storage_reader=Reader(path=str(tmp_path)))
    assert_same(loaded, old)


def test_a_checkpoint_of_many_files_that_is_replaced_while_it_is_loaded_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.torch.checkpoint import held
    from penstock.torch.checkpoint.reader import FileReads

    monkeypatch.setattr(held, "_MOST", 1)
    ranks = Ranks(tmp_path, [1.0] * 3)
    ranks.save()
    start = FileReads.start

    def replace(reads: Any, *rest: Any) -> Any:
        monkeypatch.setattr(FileReads, "start", start)
        Ranks(tmp_path, [2.0] * 3).save()
        return start(reads, *rest)

    monkeypatch.setattr(FileReads, "start", replace)
    with pytest.raises(dcp.api.CheckpointException, match=r"shard-0000.*a save has replaced it"):
        dcp.load(parts(3, 0.0), storage_reader=Reader(path=str(tmp_path)))


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
    library = pytest.importorskip("safetensors.torch")
    for name in "ab":
        library.save_file({"x": torch.zeros(4)}, tmp_path / f"{name}.safetensors")
    with pytest.raises(checkpoint.CheckpointFileError, match=r"'x' is also in .*a\.safetensors"):
        Reader(path=str(tmp_path)).read_metadata()


@pytest.mark.parametrize("options", [{}, {"fqn_to_index_mapping": {"x": 1, "y": 2, "z": 3}}])
@pytest.mark.parametrize("before", [{}, {"fqn_to_index_mapping": {"x": 1, "y": 2, "z": 3}}])
def test_a_save_leaves_no_file_of_the_checkpoint_before(
    tmp_path: Path, before: dict[str, Any], options: dict[str, Any]
) -> None:
    (tmp_path / "adapter.safetensors").write_bytes(b"notes")
    for value, keys in ((1.0, before), (2.0, options)):
        state = {name: torch.full((4,), value) for name in "xyz"}
        dcp.save(state, storage_writer=Writer(path=str(tmp_path), **keys))
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())["weight_map"]
    listed = {"adapter.safetensors", "model.safetensors.index.json", *index.values()}
    assert set(os.listdir(tmp_path)) == listed
    assert (tmp_path / "adapter.safetensors").read_bytes() == b"notes"


def test_a_save_leaves_copies_of_its_files_under_other_names(tmp_path: Path) -> None:
    for value in (1.0, 2.0):
        dcp.save({"x": torch.full((4,), value)}, storage_writer=Writer(path=str(tmp_path)))
        (name,) = {one.name for one in tmp_path.glob("model-*")}
        if value == 1.0:
            content = (tmp_path / name).read_bytes()
            (tmp_path / "best.safetensors").write_bytes(content)
    assert (tmp_path / "best.safetensors").read_bytes() == content


def test_links_and_rights_of_files_that_a_save_replaces_stay(tmp_path: Path) -> None:
    folder, name = tmp_path / "model", "shard-00001-model-00001-of-00001.safetensors"
    (tmp_path / "blobs").mkdir()
    folder.mkdir()
    (folder / name).symlink_to("../blobs/one")
    Ranks(folder, [1.0] * 2).save()
    (tmp_path / "blobs" / "one").chmod(0o640)
    Ranks(folder, [2.0] * 2).save()
    assert_loads(folder, 2, 2.0)
    assert (folder / name).is_symlink()
    assert (tmp_path / "blobs" / "one").stat().st_mode & 0o777 == 0o640
    assert len(os.listdir(folder)) == 2
    assert os.listdir(tmp_path / "blobs") == ["one"]


def test_two_ranks_that_write_the_same_file_are_refused(tmp_path: Path) -> None:
    dcp.save(parts(1, 1.0), storage_writer=Writer(path=str(tmp_path)))
    before = set(os.listdir(tmp_path))
    with pytest.raises(
        ps.IncompatibleError, match=r"two ranks have written.*save_distributed=True"
    ):
        Ranks(tmp_path, [2.0] * 2, save_distributed=False).save()
    assert set(os.listdir(tmp_path)) == before


class Ranks:
    """A save of several ranks, whose steps this process does for them. Each has a part."""

    def __init__(self, path: Path, values: list[float], **options: Any) -> None:
        options.setdefault("save_distributed", True)
        self.writers = [Writer(path=str(path), **options) for _ in values]
        self.planners = [dcp.DefaultSavePlanner() for _ in values]
        plans = []
        for rank, value in enumerate(values):
            writer, planner = self.writers[rank], self.planners[rank]
            state = {f"part{rank}": torch.full((1000,), value)}
            planner.set_up_planner(state, is_coordinator=not rank)
            writer.set_up_storage_writer(is_coordinator=not rank)
            plans.append(writer.prepare_local_plan(planner.create_local_plan()))
        plans, self.metadata = self.planners[0].create_global_plan(plans)
        self.plans = self.writers[0].prepare_global_plan(plans)
        self.results: list[Any] = []

    def write(self, rank: int) -> None:
        planner = self.planners[rank]
        plan = planner.finish_plan(self.plans[rank])
        self.results.append(self.writers[rank].write_data(plan, planner).value())

    def finish(self) -> None:
        self.writers[0].finish(self.metadata, self.results)

    def save(self) -> None:
        for rank in range(len(self.plans)):
            self.write(rank)
        self.finish()


def parts(ranks: int, value: float) -> dict[str, Any]:
    return {f"part{rank}": torch.full((1000,), value) for rank in range(ranks)}


def assert_loads(path: Path, ranks: int, value: float) -> None:
    """Load by the reader of either library."""
    pytest.importorskip("safetensors")
    for reader in (dcp.HuggingFaceStorageReader, Reader):
        loaded = parts(ranks, 0.0)
        dcp.load(loaded, storage_reader=reader(path=str(path)))
        assert_same(loaded, parts(ranks, value))


@pytest.mark.parametrize("order", ["aabbAB", "aabbBA", "abbaAB", "abbaBA", "abbBaA", "baaAbB"])
def test_of_two_saves_at_the_same_time_that_which_ends_last_stays(
    tmp_path: Path, order: str
) -> None:
    saves = {name: Ranks(tmp_path, [value] * 2) for name, value in (("a", 1.0), ("b", 2.0))}
    ranks = {"a": [0, 1], "b": [1, 0]}
    for step in order:
        save = saves[step.lower()]
        if step.isupper():
            save.finish()
            assert_loads(tmp_path, 2, 1.0 if step == "A" else 2.0)
        else:
            save.write(ranks[step].pop())
    assert len(os.listdir(tmp_path)) == 2


@pytest.mark.parametrize("ranks", [(3, 2), (2, 3), (3, 1), (1, 3)])
def test_a_save_of_another_number_of_ranks_leaves_no_file_of_the_one_before(
    tmp_path: Path, ranks: tuple[int, int]
) -> None:
    for value, count in zip((1.0, 2.0), ranks, strict=True):
        Ranks(tmp_path, [value] * count).save()
    assert_loads(tmp_path, ranks[1], 2.0)
    assert len(os.listdir(tmp_path)) == ranks[1]


@pytest.mark.parametrize("kind", ["torch", "index"])
def test_a_save_of_ranks_replaces_checkpoints_of_other_kinds(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("safetensors")
    if kind == "torch":
        writer = dcp.HuggingFaceStorageWriter(path=str(tmp_path), save_distributed=True)
        dcp.save({"part3": torch.zeros(9)}, storage_writer=writer)
        os.rename(*(tmp_path / f"shard-0000{n}-model-00001-of-00001.safetensors" for n in (1, 4)))
    else:
        dcp.save(parts(2, 1.0), storage_writer=Writer(path=str(tmp_path)))
    Ranks(tmp_path, [2.0] * 2).save()
    assert_loads(tmp_path, 2, 2.0)
    assert len(os.listdir(tmp_path)) == 2


def test_a_rank_that_fails_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    Ranks(tmp_path, [1.0] * 3).save()
    before = set(os.listdir(tmp_path))
    failing = Ranks(tmp_path, [2.0] * 3)
    failing.write(0)
    failing.planners[1].resolve_data = lambda item: [].pop()
    with pytest.raises(IndexError):
        failing.write(1)
    assert_loads(tmp_path, 3, 1.0)
    assert {name for name in os.listdir(tmp_path) if name.endswith(".safetensors")} == before
    Ranks(tmp_path, [3.0] * 3).save()
    assert_loads(tmp_path, 3, 3.0)


@pytest.mark.parametrize("lost", ["missing", "short"])
def test_a_file_of_a_rank_that_is_lost_leaves_the_last_checkpoint(
    tmp_path: Path, lost: str
) -> None:
    Ranks(tmp_path, [1.0] * 2).save()
    before = set(os.listdir(tmp_path))
    save = Ranks(tmp_path, [2.0] * 2)
    save.write(0)
    save.write(1)
    new = tmp_path / max(set(os.listdir(tmp_path)) - before)
    assert new.name.startswith("shard-00002")
    if lost == "missing":
        new.unlink()
    else:
        os.truncate(new, 100)
    with pytest.raises(ps.Error, match=r"shard-00002.*save again"):
        save.finish()
    assert_loads(tmp_path, 2, 1.0)
    assert set(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("other", ["penstock", "torch"])
def test_files_of_two_saves_that_fit_together_are_refused_by_name(
    tmp_path: Path, other: str
) -> None:
    pytest.importorskip("safetensors")
    for name, value in (("a", 1.0), ("b", 2.0)):
        if name == "b" and other == "torch":
            writer = dcp.HuggingFaceStorageWriter(path=str(tmp_path / name), save_distributed=True)
            dcp.save({"part1": torch.full((1000,), value)}, storage_writer=writer)
            os.rename(
                tmp_path / name / "shard-00001-model-00001-of-00001.safetensors",
                tmp_path / name / "shard-00002-model-00001-of-00001.safetensors",
            )
        else:
            Ranks(tmp_path / name, [value] * 2).save()
    os.replace(*(tmp_path / n / "shard-00002-model-00001-of-00001.safetensors" for n in "ba"))
    with pytest.raises(checkpoint.CheckpointFileError, match=r"shard-00002.*same save.*shard-0000"):
        Reader(path=str(tmp_path / "a")).read_metadata()


@pytest.mark.parametrize("other", ["a save", "plain weights"])
def test_files_of_two_saves_of_an_index_are_refused_by_name(tmp_path: Path, other: str) -> None:
    from penstock.torch.safetensors import (
        SafetensorError,
        iter_weights,
        load_file,
        load_model,
        save_file,
    )

    indices = {"part0": 1, "part1": 2}
    for name in "ab":
        writer = Writer(path=str(tmp_path / name), fqn_to_index_mapping=indices)
        dcp.save(parts(2, 1.0), storage_writer=writer)
    module = torch.nn.Module()
    for name in indices:
        module.register_buffer(name, torch.zeros(1000))
    loads = (
        load_file,
        lambda path: list(iter_weights([path])),
        lambda path: load_model(module, path),
    )
    for load in loads:
        load(tmp_path / "a")
    assert module.part1[0] == 1
    of_other, own = (tmp_path / name / "model-00002-of-00002.safetensors" for name in "ba")
    if other == "plain weights":
        save_file({"part1": torch.ones(1000)}, of_other)
    os.replace(of_other, own)
    with pytest.raises(checkpoint.CheckpointFileError, match=r"00002-of-00002.*same save.*00001"):
        Reader(path=str(tmp_path / "a")).read_metadata()
    for load in loads:
        with pytest.raises(SafetensorError, match=r"00002-of-00002.*same save.*00001-of-00002"):
            load(tmp_path / "a")


def test_whole_tensors_of_ranks_replace_those_of_the_save_before(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    for value, ranks, files in ((1.0, 3, 3), (2.0, 2, 1)):
        indices = {f"part{rank}": rank % files + 1 for rank in range(ranks)}
        save = Ranks(
            tmp_path, [value] * ranks, enable_consolidation=True, fqn_to_index_mapping=indices
        )
        save.save()
        assert_loads(tmp_path, ranks, value)
        assert_loads(tmp_path / "sharded", ranks, value)
        assert len(os.listdir(tmp_path / "sharded")) == ranks
        assert len(os.listdir(tmp_path)) == files + 2


def test_whole_tensors_that_cannot_be_made_leave_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Ranks(tmp_path, [1.0] * 2, enable_consolidation=True).save()
    failing = Ranks(tmp_path, [2.0] * 2, enable_consolidation=True)
    monkeypatch.setattr(Reader, "whole_tensors", lambda *_: [].pop())
    with pytest.raises(IndexError):
        failing.save()
    assert_loads(tmp_path, 2, 1.0)
    assert_loads(tmp_path / "sharded", 2, 1.0)
    assert len(os.listdir(tmp_path)) == 3
    assert len(os.listdir(tmp_path / "sharded")) == 2


def test_saves_by_plans_that_are_made_once_have_identities_of_their_own(tmp_path: Path) -> None:
    from penstock.torch.safetensors.header import SAVE, read_header

    try:
        planners = [dcp.DefaultSavePlanner(enable_plan_caching=True) for _ in range(3)]
    except TypeError:
        pytest.skip("this torch makes plans for each save")
    saves = set()
    for value, planner in enumerate(planners):
        writer = Writer(path=str(tmp_path), save_distributed=True)
        dcp.save(parts(2, float(value)), storage_writer=writer, planner=planner)
        (file,) = tmp_path.iterdir()
        saves.add(read_header(file).metadata[SAVE])
        assert_loads(tmp_path, 2, float(value))
    assert len(saves) == 3


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
