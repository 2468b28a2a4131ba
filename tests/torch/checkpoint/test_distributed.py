"""PenstockWriter and PenstockReader beside FileSystemWriter and FileSystemReader."""

from __future__ import annotations

import os
import pickle
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock as ps

from .conftest import assert_same, blank, state_dict, tensors, torch

dcp = pytest.importorskip("torch.distributed.checkpoint")
checkpoint = pytest.importorskip("penstock.torch.checkpoint")

WRITERS = [dcp.FileSystemWriter, checkpoint.PenstockWriter]
READERS = [dcp.FileSystemReader, checkpoint.PenstockReader]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize(
    "options", [{}, {"thread_count": 3}, {"single_file_per_rank": False}, {"sync_files": False}]
)
def test_each_library_reads_what_either_has_written(
    tmp_path: Path, writer: Any, reader: Any, options: dict[str, Any]
) -> None:
    dcp.save(state_dict(), storage_writer=writer(tmp_path, **options))
    loaded = blank(state_dict())
    dcp.load(loaded, storage_reader=reader(tmp_path))
    assert_same(loaded, state_dict())


def test_the_files_are_those_of_torch(tmp_path: Path) -> None:
    listed = []
    for name, writer in (("torch", dcp.FileSystemWriter), ("penstock", checkpoint.PenstockWriter)):
        dcp.save(state_dict(), storage_writer=writer(tmp_path / name, thread_count=2))
        found = sorted(os.listdir(tmp_path / name))
        listed.append([re.sub("_[0-9a-f]{32}", "", one) for one in found])
    assert listed[0] == listed[1]


def test_a_file_is_written_by_one_request_and_read_by_two(
    tmp_path: Path, count_requests: list[int]
) -> None:
    state = {f"layer{n}": torch.full((100,), float(n)) for n in range(30)}
    dcp.save(state, storage_writer=checkpoint.PenstockWriter(tmp_path))
    assert len(count_requests) == 1
    loaded = blank(state)
    dcp.load(loaded, storage_reader=checkpoint.PenstockReader(tmp_path))
    assert count_requests[1:] == [60, 30]  # both ends of each archive, each tensor
    assert_same(loaded, state)


@pytest.mark.parametrize("writer", WRITERS)
def test_tensors_of_other_strides_and_types_are_filled(tmp_path: Path, writer: Any) -> None:
    saved = tensors()
    dcp.save(saved, storage_writer=writer(tmp_path))
    loaded = {
        "matrix": torch.zeros(200, 300).t(),
        "transposed": torch.zeros(200, 300, dtype=torch.float64),
        "rows": torch.zeros(2, 400)[:, ::2],
        "large": torch.zeros(1 << 18, dtype=torch.int64),
        "conjugate": torch.zeros(2, dtype=torch.complex64).conj(),
    }
    dcp.load(loaded, storage_reader=checkpoint.PenstockReader(tmp_path))
    for name, value in loaded.items():
        assert bool((value == saved[name]).all()), name


def test_a_tensor_that_shares_its_elements_is_refused_as_torch_does(tmp_path: Path) -> None:
    dcp.save({"one": torch.ones(3, 4)}, storage_writer=checkpoint.PenstockWriter(tmp_path))
    with pytest.raises(dcp.api.CheckpointException, match="single memory location"):
        dcp.load(
            {"one": torch.zeros(4).expand(3, 4)},
            storage_reader=checkpoint.PenstockReader(tmp_path),
        )


def blocks_of(saved: Any, offsets: Any, lengths: Any, target: Any, tmp_path: Path) -> None:
    """Read one block of a saved tensor into a tensor."""
    from torch.distributed.checkpoint import planner

    reader = checkpoint.PenstockReader(tmp_path)
    metadata = reader.read_metadata()
    reader.set_up_storage_reader(metadata, is_coordinator=True)
    (index,) = metadata.storage_data
    item = planner.ReadItem(
        type=planner.LoadItemType.TENSOR,
        dest_index=dcp.metadata.MetadataIndex("one"),
        dest_offsets=torch.Size([0] * len(lengths)),
        storage_index=index,
        storage_offsets=torch.Size(offsets),
        lengths=torch.Size(lengths),
    )
    loading = dcp.DefaultLoadPlanner()
    loading.set_up_planner({"one": target}, metadata, is_coordinator=True)
    reader.read_data(planner.LoadPlan([item]), loading)
    want = saved
    for axis, (first, length) in enumerate(zip(offsets, lengths, strict=True)):
        want = want.narrow(axis, first, length)
    assert bool((target == want).all())


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize(
    ("offsets", "lengths"),
    [
        ((0, 0, 0), (6, 50, 300)),
        ((2, 0, 0), (3, 50, 300)),
        ((1, 7, 0), (4, 30, 300)),
        ((0, 3, 20), (6, 40, 250)),
        ((5, 49, 299), (1, 1, 1)),
        ((0, 0, 7), (6, 50, 3)),
        ((3, 2, 1), (0, 5, 5)),
    ],
)
def test_of_a_tensor_that_is_needed_in_part_that_part_is_read(
    tmp_path: Path, writer: Any, offsets: Any, lengths: Any
) -> None:
    saved = torch.arange(90_000.0).reshape(6, 50, 300)
    dcp.save({"one": saved}, storage_writer=writer(tmp_path))
    blocks_of(saved, offsets, lengths, torch.zeros(lengths), tmp_path)
    strided = torch.zeros(*reversed(lengths)).permute(2, 1, 0)
    blocks_of(saved, offsets, lengths, strided, tmp_path)


def test_temporaries_are_small_whatever_the_tensor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count_requests: list[int]
) -> None:
    from penstock.torch.checkpoint import blocks

    monkeypatch.setattr(blocks, "_MOST_BETWEEN", 50_000)
    saved = torch.arange(90_000.0).reshape(300, 300)
    dcp.save({"one": saved}, storage_writer=checkpoint.PenstockWriter(tmp_path))
    del count_requests[:]
    blocks_of(saved, (0, 5), (300, 2), torch.zeros(300, 2), tmp_path)
    assert len(count_requests) == 9  # the directory, and eight parts of 300 rows


def test_an_async_save_has_the_values_of_its_call(tmp_path: Path) -> None:
    state = {"one": torch.ones(100_000), "step": 1}
    future = dcp.async_save(state, storage_writer=checkpoint.PenstockWriter(tmp_path))
    state["one"].zero_()
    getattr(future, "upload_completion", future).result()
    loaded = {"one": torch.zeros(100_000), "step": 0}
    dcp.load(loaded, storage_reader=checkpoint.PenstockReader(tmp_path))
    assert_same(loaded, {"one": torch.ones(100_000), "step": 1})


def test_a_checkpoint_replaces_the_one_before_it_and_leaves_no_file_of_it(tmp_path: Path) -> None:
    for step in range(4):
        state = {name: torch.full((1000,), float(step)) for name in ("one", "two")}
        writer = checkpoint.PenstockWriter(tmp_path, thread_count=2)
        dcp.save(state, storage_writer=writer)
        loaded = blank(state)
        dcp.load(loaded, storage_reader=dcp.FileSystemReader(tmp_path))
        assert_same(loaded, state)
        assert len(os.listdir(tmp_path)) == 3


def test_overwriting_can_be_refused(tmp_path: Path) -> None:
    dcp.save({"step": 1}, storage_writer=checkpoint.PenstockWriter(tmp_path))
    with pytest.raises(dcp.api.CheckpointException, match="already exists"):
        dcp.save({"step": 2}, storage_writer=checkpoint.PenstockWriter(tmp_path, overwrite=False))


def test_other_files_in_the_folder_stay(tmp_path: Path) -> None:
    (tmp_path / "__0_notes.distcp").touch()
    (tmp_path / "config.json").touch()
    for step in range(2):
        dcp.save({"step": step}, storage_writer=checkpoint.PenstockWriter(tmp_path))
    assert {"config.json", "__0_notes.distcp"} <= set(os.listdir(tmp_path))


@pytest.mark.parametrize("age", [-1e6, 1e6])
def test_a_data_file_that_the_replaced_metadata_does_not_name_stays_whatever_its_age(
    tmp_path: Path, age: float
) -> None:
    dcp.save({"step": 0}, storage_writer=checkpoint.PenstockWriter(tmp_path))
    other = tmp_path / "__3_0.distcp"
    other.touch()
    at = other.stat().st_mtime + age
    os.utime(other, (at, at))
    for step in range(1, 3):
        dcp.save({"step": step}, storage_writer=checkpoint.PenstockWriter(tmp_path))
    assert sorted(os.listdir(tmp_path)) == [".metadata", data_file(tmp_path).name, other.name]


def test_what_a_killed_save_had_not_completed_is_removed_by_the_next(tmp_path: Path) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().replace("-", "")
    (tmp_path / f".penstock-{boot[:16]}-1-0").touch()
    dcp.save({"step": 1}, storage_writer=checkpoint.PenstockWriter(tmp_path))
    assert len(os.listdir(tmp_path)) == 2


@pytest.mark.parametrize(
    "damaged",
    [b"\x80\x04nonsense", pickle.dumps(7), b"ctorch.distributed.checkpoint.of_later\nMetadata\n."],
)
def test_a_save_replaces_metadata_that_cannot_be_read(tmp_path: Path, damaged: bytes) -> None:
    (tmp_path / ".metadata").write_bytes(damaged)
    dcp.save({"step": 1}, storage_writer=checkpoint.PenstockWriter(tmp_path))
    loaded = {"step": 9}
    dcp.load(loaded, storage_reader=dcp.FileSystemReader(tmp_path))
    assert loaded == {"step": 1}


@pytest.mark.parametrize("name", ["../outside.distcp", "notes.txt"])
def test_metadata_cannot_have_a_save_remove_other_files(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "checkpoint"
    dcp.save({"step": 1}, storage_writer=checkpoint.PenstockWriter(folder))
    (folder / name).touch()
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    for info in metadata.storage_data.values():
        info.relative_path = name
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    dcp.save({"step": 2}, storage_writer=checkpoint.PenstockWriter(folder))
    assert (folder / name).exists()


def data_file(path: Path, rank: int = 0) -> Path:
    """Return the data file of a rank, which has one."""
    (found,) = path.glob(f"__{rank}_0_*.distcp")
    return found


def parts_of_a_save(
    path: Path, state: dict[str, Any], **options: Any
) -> tuple[Callable[[], Any], ...]:
    """Return functions that write the data of a state dict and then its metadata."""
    writer = checkpoint.PenstockWriter(path, **options)
    planner = dcp.DefaultSavePlanner()
    writer.set_up_storage_writer(is_coordinator=True)
    planner.set_up_planner(state, is_coordinator=True)
    plan = writer.prepare_local_plan(planner.create_local_plan())
    plans, metadata = planner.create_global_plan([plan])
    (plan,) = writer.prepare_global_plan(plans)
    results: list[Any] = []
    return (
        lambda: results.append(writer.write_data(plan, planner).value()),
        lambda: writer.finish(metadata, results),
    )


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_two_saves_at_the_same_time_that_which_ends_last_stays(
    tmp_path: Path, order: tuple[int, int]
) -> None:
    dcp.save({"one": torch.zeros(1000)}, storage_writer=checkpoint.PenstockWriter(tmp_path))
    states = [{"one": torch.full((1000,), value)} for value in (1.0, 2.0)]
    saves = [parts_of_a_save(tmp_path, state) for state in states]
    for write, _ in saves:
        write()
    for which in order:
        saves[which][1]()
        loaded = blank(states[which])
        dcp.load(loaded, storage_reader=dcp.FileSystemReader(tmp_path))
        assert_same(loaded, states[which])
    assert len(os.listdir(tmp_path)) == 2


def test_saves_at_the_same_time_never_take_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (
        parts_of_a_save(tmp_path, {"one": torch.full((9,), value)}) for value in (1.0, 2.0)
    )
    write = checkpoint.PenstockWriter._write_items

    def write_both(*args: Any) -> Any:
        monkeypatch.setattr(checkpoint.PenstockWriter, "_write_items", write)
        second[0]()
        return write(*args)

    monkeypatch.setattr(checkpoint.PenstockWriter, "_write_items", write_both)
    first[0]()
    second[1]()
    loaded = {"one": torch.zeros(9)}
    dcp.load(loaded, storage_reader=checkpoint.PenstockReader(tmp_path))
    assert_same(loaded, {"one": torch.full((9,), 2.0)})


@pytest.mark.parametrize("others", [1, 2, 3])
def test_a_save_that_others_overtake_is_whole(tmp_path: Path, others: int) -> None:
    write, finish = parts_of_a_save(tmp_path, {"one": torch.ones(9)})
    write()
    for step in range(others):
        dcp.save({"step": step}, storage_writer=checkpoint.PenstockWriter(tmp_path))
    finish()
    loaded = {"one": torch.zeros(9)}
    dcp.load(loaded, storage_reader=dcp.FileSystemReader(tmp_path))
    assert_same(loaded, {"one": torch.ones(9)})
    assert len(os.listdir(tmp_path)) == 2


@pytest.mark.parametrize("lost", ["missing", "short", "long"])
def test_a_save_of_which_a_file_is_lost_leaves_the_last_checkpoint(
    tmp_path: Path, lost: str
) -> None:
    dcp.save({"step": 5}, storage_writer=checkpoint.PenstockWriter(tmp_path))
    before = set(os.listdir(tmp_path))
    write, finish = parts_of_a_save(tmp_path, {"one": torch.ones(9)})
    write()
    (new,) = set(os.listdir(tmp_path)) - before
    if lost == "missing":
        (tmp_path / new).unlink()
    else:
        os.truncate(tmp_path / new, (tmp_path / new).stat().st_size + (1 if lost == "long" else -1))
    with pytest.raises(OSError if lost == "missing" else ps.Error, match=rf"{new}.*save again"):
        finish()
    loaded = {"step": 9}
    dcp.load(loaded, storage_reader=dcp.FileSystemReader(tmp_path))
    assert loaded == {"step": 5}
    assert set(os.listdir(tmp_path)) == before


def test_of_two_saves_at_the_same_time_that_must_not_overwrite_the_first_stays(
    tmp_path: Path,
) -> None:
    saves = [parts_of_a_save(tmp_path, {"step": step}, overwrite=False) for step in range(2)]
    for write, _ in saves:
        write()
    saves[0][1]()
    with pytest.raises(RuntimeError, match="already exists"):
        saves[1][1]()
    loaded = {"step": 9}
    dcp.load(loaded, storage_reader=dcp.FileSystemReader(tmp_path))
    assert loaded == {"step": 0}
    assert len(os.listdir(tmp_path)) == 2


def test_a_writer_that_makes_plans_once_uses_no_name_again(tmp_path: Path) -> None:
    try:
        planner = [dcp.DefaultSavePlanner(enable_plan_caching=True) for _ in range(3)]
    except TypeError:
        pytest.skip("this torch makes plans for each save")
    names = set()
    for step in range(3):
        state = {"one": torch.full((9,), float(step))}
        writer = checkpoint.PenstockWriter(tmp_path)
        dcp.save(state, storage_writer=writer, planner=planner[step])
        names |= set(os.listdir(tmp_path))
        loaded = blank(state)
        dcp.load(loaded, storage_reader=dcp.FileSystemReader(tmp_path))
        assert_same(loaded, state)
    assert len(names) == 4


def test_a_name_is_not_used_again_by_later_checkpoints(tmp_path: Path) -> None:
    names = set()
    for step in range(4):
        dcp.save({"step": step}, storage_writer=checkpoint.PenstockWriter(tmp_path))
        names |= set(os.listdir(tmp_path))
    assert len(names) == 5


def test_a_rank_that_writes_without_collectives_removes_its_own_files_only(tmp_path: Path) -> None:
    for rank in (0, 1, 0):
        writer = checkpoint.PenstockWriter(tmp_path)
        writer.set_up_storage_writer(is_coordinator=True, rank=rank, use_collectives=False)
        planner = dcp.DefaultSavePlanner()
        planner.set_up_planner({"one": torch.full((2,), float(rank))}, is_coordinator=True)
        plan = writer.prepare_local_plan(planner.create_local_plan())
        (plan,), metadata = planner.create_global_plan([plan])
        results = writer.write_data(plan, planner).value()
        writer.finish(metadata, [results])
    found = [re.sub("_[0-9a-f]{32}", "", name) for name in os.listdir(tmp_path)]
    names = [".metadata", "_0.distcp"]
    assert sorted(found) == sorted(f"__{rank}{name}" for rank in (0, 1) for name in names)


def test_stream_extensions_are_those_of_torch(tmp_path: Path) -> None:
    extension = pytest.importorskip("torch.distributed.checkpoint._extension")
    try:
        zstd = extension.ZStandard()
    except (ImportError, ValueError) as error:
        pytest.skip(f"torch's extension needs a package: {error}")
    writer = checkpoint.PenstockWriter(tmp_path, _extensions=[zstd])
    dcp.save(state_dict(), storage_writer=writer)
    for reader in READERS:
        loaded = blank(state_dict())
        dcp.load(loaded, storage_reader=reader(tmp_path))
        assert_same(loaded, state_dict())


def test_checkpoint_ids_are_paths_of_local_files(tmp_path: Path) -> None:
    for kind in (checkpoint.PenstockWriter, checkpoint.PenstockReader):
        assert kind.validate_checkpoint_id(tmp_path)
        assert kind.validate_checkpoint_id(str(tmp_path / "new"))
        assert not kind.validate_checkpoint_id("s3://bucket/checkpoint")


def test_a_writer_and_a_reader_can_go_on_to_another_folder(tmp_path: Path) -> None:
    writer = checkpoint.PenstockWriter(tmp_path / "a")
    reader = checkpoint.PenstockReader(tmp_path / "a")
    for name in ("a", "b"):
        dcp.save({"name": name}, storage_writer=writer, checkpoint_id=tmp_path / name)
    loaded = {"name": "?"}
    dcp.load(loaded, storage_reader=reader, checkpoint_id=tmp_path / "b")
    assert loaded == {"name": "b"}


def test_a_file_that_is_cut_off_is_an_error_that_names_file_and_tensor(tmp_path: Path) -> None:
    dcp.save({"one": torch.ones(1000)}, storage_writer=checkpoint.PenstockWriter(tmp_path))
    os.truncate(data_file(tmp_path), 2000)
    with pytest.raises(
        dcp.api.CheckpointException, match=r"__0_0_.*\.distcp has 2000 bytes.*'one'"
    ):
        dcp.load({"one": torch.ones(1000)}, storage_reader=checkpoint.PenstockReader(tmp_path))


def test_a_damaged_archive_is_an_error_that_names_file_and_tensor(tmp_path: Path) -> None:
    dcp.save({"one": torch.ones(1000)}, storage_writer=checkpoint.PenstockWriter(tmp_path))
    file = data_file(tmp_path)
    file.write_bytes(bytes(file.stat().st_size))
    with pytest.raises(dcp.api.CheckpointException) as caught:
        dcp.load({"one": torch.ones(1000)}, storage_reader=checkpoint.PenstockReader(tmp_path))
    assert caught.value.failures


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(dcp.api.CheckpointException, match=r"No such file.*\.metadata"):
        dcp.load({}, storage_reader=checkpoint.PenstockReader(tmp_path))
    dcp.save({"one": torch.ones(3)}, storage_writer=checkpoint.PenstockWriter(tmp_path))
    data_file(tmp_path).unlink()
    with pytest.raises(dcp.api.CheckpointException, match=r"__0_0_.*\.distcp"):
        dcp.load({"one": torch.ones(3)}, storage_reader=checkpoint.PenstockReader(tmp_path))


class _Attack:
    def __reduce__(self) -> Any:
        return os.mkdir, ("attacked",)


def test_metadata_that_runs_code_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".metadata").write_bytes(pickle.dumps(_Attack()))
    with pytest.raises(pickle.UnpicklingError, match=r"\.metadata.*mkdir.*add_safe_globals"):
        checkpoint.PenstockReader(tmp_path).read_metadata()
    assert not (tmp_path / "attacked").exists()


def test_metadata_that_is_damaged_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / ".metadata").write_bytes(b"\x80\x04nonsense")
    with pytest.raises(checkpoint.CheckpointFileError, match=r"\.metadata"):
        checkpoint.PenstockReader(tmp_path).read_metadata()


def test_metadata_may_hold_what_the_program_allows(tmp_path: Path) -> None:
    dcp.save({"one": torch.ones(3)}, storage_writer=checkpoint.PenstockWriter(tmp_path))
    metadata = checkpoint.PenstockReader(tmp_path).read_metadata()
    metadata.planner_data = Path("x"), _Allowed()
    (tmp_path / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(pickle.UnpicklingError, match="_Allowed"):
        checkpoint.PenstockReader(tmp_path).read_metadata()
    with torch.serialization.safe_globals([_Allowed]):
        found = checkpoint.PenstockReader(tmp_path).read_metadata()
    assert isinstance(found.planner_data[1], _Allowed)
    assert checkpoint.PenstockReader(tmp_path, weights_only=False).read_metadata()


def _changed(pickled: bytes, name: bytes, value: bytes) -> bytes:
    """Return the instructions that set an attribute of the object of a pickle, and drop it."""
    return pickled + b"N}X" + struct.pack("<I", len(name)) + name + value + b"s\x86b0"


@pytest.mark.parametrize(
    "changed",
    [
        b"ctorch.distributed.checkpoint.planner\nReadItem\n",
        b"ctorch.distributed.checkpoint.metadata\nTensorProperties\n",
        b"ctorch.serialization\n_get_layout\n",
        b"ctorch.distributed.checkpoint.planner\nLoadItemType\n(K\1tR",
    ],
)
def test_metadata_cannot_change_classes_functions_and_constants(
    tmp_path: Path, changed: bytes
) -> None:
    dcp.save({"one": torch.ones(3)}, storage_writer=checkpoint.PenstockWriter(tmp_path))
    good = (tmp_path / ".metadata").read_bytes()
    evil = b"\x80\4" + _changed(changed, b"penstock_test", b"cbuiltins\nset\n")
    (tmp_path / ".metadata").write_bytes(evil + pickle.dumps(pickle.loads(good), 2)[2:])
    with pytest.raises(pickle.UnpicklingError, match=r"\.metadata.*changes a class"):
        checkpoint.PenstockReader(tmp_path).read_metadata()
    target = pickle.loads(b"\x80\4" + changed + b".")
    assert not hasattr(target, "penstock_test")


class _Allowed:
    """A class that only the program knows."""


@pytest.mark.parametrize("kind", ["", "HuggingFace"])
def test_copies_of_tensors_that_are_not_contiguous_are_written_in_portions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count_requests: list[int], kind: str
) -> None:
    from penstock.torch.checkpoint import writer as module

    monkeypatch.setattr(module, "MOST_COPIED", 1000)
    state = {str(n): torch.arange(200.0).reshape(20, 10).t() for n in range(8)}
    writer = getattr(checkpoint, f"Penstock{kind}Writer")(path=str(tmp_path))
    dcp.save(state, storage_writer=writer)
    assert len(count_requests) == 4
    loaded = blank(state)
    reader = getattr(checkpoint, f"Penstock{kind}Reader")(path=str(tmp_path))
    dcp.load(loaded, storage_reader=reader)
    assert_same(loaded, state)
