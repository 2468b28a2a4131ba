"""A save that fails or is killed leaves the last checkpoint."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.torch.processes import start

import penstock as ps
from penstock.replacement import Replacement

from .conftest import assert_same, blank, torch

dcp = pytest.importorskip("torch.distributed.checkpoint")
checkpoint = pytest.importorskip("penstock.torch.checkpoint")

SAVE = """
import sys
import torch
import torch.distributed.checkpoint as dcp
from penstock.torch import checkpoint
kind, path = sys.argv[1:]
state = {str(n): torch.full((1 << 20,), 2.0) for n in range(32)}
parent.send("ready")
for _ in range(1000):
    if kind == "state":
        checkpoint.save(state, path)
    elif kind == "dcp":
        dcp.save(state, storage_writer=checkpoint.PenstockWriter(path))
    else:
        dcp.save(state, storage_writer=checkpoint.PenstockHuggingFaceWriter(path))
"""


def state(value: float) -> dict[str, Any]:
    return {str(n): torch.full((1 << 20,), value) for n in range(32)}


def save(kind: str, path: Path, value: float) -> None:
    if kind == "state":
        checkpoint.save(state(value), path)
    elif kind == "dcp":
        dcp.save(state(value), storage_writer=checkpoint.PenstockWriter(path))
    else:
        dcp.save(state(value), storage_writer=checkpoint.PenstockHuggingFaceWriter(path))


def load(kind: str, path: Path) -> dict[str, Any]:
    """Load by torch's own readers."""
    if kind == "state":
        return dict(torch.load(path))
    loaded = blank(state(0.0))
    reader = dcp.FileSystemReader if kind == "dcp" else dcp.HuggingFaceStorageReader
    if kind != "dcp":
        pytest.importorskip("safetensors")
    dcp.load(loaded, storage_reader=reader(path))
    return loaded


KINDS = ["state", "dcp", "huggingface"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "delay", [0.1, *(pytest.param(delay, marks=pytest.mark.long) for delay in (0.01, 0.03, 0.3, 1))]
)
def test_a_killed_save_leaves_a_whole_checkpoint(tmp_path: Path, kind: str, delay: float) -> None:
    path = tmp_path / "checkpoint"
    save(kind, path, 1.0)
    process, end = start(SAVE, [kind, str(path)])
    assert end.recv() == "ready"
    time.sleep(delay)
    process.kill()
    process.join()
    loaded = load(kind, path)
    assert_same(loaded, state(float(loaded["0"][0])))
    save(kind, path, 3.0)
    assert_same(load(kind, path), state(3.0))
    assert os.listdir(tmp_path) == ["checkpoint"]


@contextmanager
def file_size_limit(nbytes: int) -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("kind", KINDS)
def test_a_save_that_finds_no_space_leaves_the_last_checkpoint(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "checkpoint"
    save(kind, path, 1.0)
    before = sorted(os.listdir(tmp_path)), sorted(os.listdir(path)) if kind != "state" else []
    with file_size_limit(1 << 20), pytest.raises(BaseException, match="checkpoint") as caught:
        save(kind, path, 2.0)
    assert "File too large" in str(caught.value)
    assert_same(load(kind, path), state(1.0))
    after = sorted(os.listdir(tmp_path)), sorted(os.listdir(path)) if kind != "state" else []
    assert after == before


def test_a_save_whose_second_file_fails_leaves_not_the_first(tmp_path: Path) -> None:
    small, large = torch.ones(1 << 10), torch.ones(1 << 20)
    writer = checkpoint.PenstockWriter(tmp_path, single_file_per_rank=False)
    with file_size_limit(1 << 20), pytest.raises(dcp.api.CheckpointException, match="too large"):
        dcp.save({"a": small, "b": large}, storage_writer=writer)
    assert os.listdir(tmp_path) == []


def test_a_save_whose_metadata_fails_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ps.NoSpaceError("no space")

    monkeypatch.setattr(Replacement, "write", fail)
    with pytest.raises(dcp.api.CheckpointException, match="no space"):
        dcp.save({"a": torch.ones(9)}, storage_writer=checkpoint.PenstockWriter(tmp_path))
    assert os.listdir(tmp_path) == []


def test_a_save_that_is_interrupted_when_its_metadata_is_in_place_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Replacement.write

    def write_and_interrupt(new: Replacement, data: bytes) -> None:
        write(new, data)
        raise ps.NoSpaceError("late")

    monkeypatch.setattr(Replacement, "write", write_and_interrupt)
    with pytest.raises(dcp.api.CheckpointException, match="late"):
        dcp.save({"a": torch.ones(9)}, storage_writer=checkpoint.PenstockWriter(tmp_path))
    loaded = {"a": torch.zeros(9)}
    dcp.load(loaded, storage_reader=dcp.FileSystemReader(tmp_path))
    assert_same(loaded, {"a": torch.ones(9)})


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    kind = ["mount", "-t", "tmpfs", "-o", "size=7m", "tmpfs", str(folder)]
    mounted = subprocess.run(kind, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_leaves_the_last_file(small_disk: Path) -> None:
    path = small_disk / "state.pt"
    checkpoint.save({"one": torch.full((1 << 20,), 1.0)}, path)
    with pytest.raises(OSError, match=r"No space left on device") as caught:
        checkpoint.save({"one": torch.full((1 << 20,), 2.0)}, path)
    assert caught.value.filename == str(path)
    assert str(path) in str(caught.value)
    assert_same(torch.load(path), {"one": torch.full((1 << 20,), 1.0)})
    assert os.listdir(small_disk) == ["state.pt"]


def test_a_full_disk_leaves_the_last_distributed_checkpoint(small_disk: Path) -> None:
    for value in (1.0, 2.0):
        state = {"one": torch.full((1 << 20,), value)}
        writer = checkpoint.PenstockWriter(small_disk)
        if value == 1:
            dcp.save(state, storage_writer=writer)
        else:
            with pytest.raises(dcp.api.CheckpointException, match="No space left"):
                dcp.save(state, storage_writer=writer)
    loaded = {"one": torch.zeros(1 << 20)}
    dcp.load(loaded, storage_reader=dcp.FileSystemReader(small_disk))
    assert_same(loaded, {"one": torch.full((1 << 20,), 1.0)})
    assert len(os.listdir(small_disk)) == 2


def test_a_device_is_not_replaced_by_a_file() -> None:
    with pytest.raises(Exception, match="/dev/full"):
        checkpoint.save({"one": torch.ones(3)}, "/dev/full")
    assert Path("/dev/full").is_char_device()


def test_a_file_has_no_bytes_under_its_name_before_it_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    end = Replacement.__exit__

    def noted(*arguments: Any) -> None:
        names.extend(os.listdir(tmp_path))
        end(*arguments)

    new = Replacement(tmp_path / "a")
    if os.listdir(tmp_path):
        pytest.skip("the file system has no files without a name")
    del new
    monkeypatch.setattr(Replacement, "__exit__", noted)
    dcp.save({"one": torch.ones(3)}, storage_writer=checkpoint.PenstockWriter(tmp_path))
    assert len(names) == 1  # that of the data, before the metadata
    assert names[0].endswith(".distcp")


def short() -> Any:
    tensor = torch.zeros(1000)
    tensor.untyped_storage().resize_(40)
    return tensor


@pytest.mark.parametrize("layout", ["dcp", "huggingface"])
def test_a_tensor_beyond_its_storage_is_neither_saved_nor_loaded(
    tmp_path: Path, layout: str
) -> None:
    writer, reader = {
        "dcp": (checkpoint.PenstockWriter, checkpoint.PenstockReader),
        "huggingface": (checkpoint.PenstockHuggingFaceWriter, checkpoint.PenstockHuggingFaceReader),
    }[layout]
    dcp.save({"a": torch.zeros(1000)}, storage_writer=writer(tmp_path), no_dist=True)
    why = "'a': .* ends at byte 4000 of its storage, which has 40 bytes"
    with pytest.raises(dcp.api.CheckpointException, match=why):
        dcp.save({"a": short()}, storage_writer=writer(tmp_path), no_dist=True)
    with pytest.raises(dcp.api.CheckpointException, match=why):
        dcp.load({"a": short()}, storage_reader=reader(tmp_path), no_dist=True)
    other_type = short().view(torch.int32)
    with pytest.raises(dcp.api.CheckpointException, match=why):
        dcp.load({"a": other_type}, storage_reader=reader(tmp_path), no_dist=True)


class Pending:
    """A request that ends when it is cancelled."""

    def __init__(self) -> None:
        self.is_cancelled = self.is_over = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def wait(self) -> None:
        if not self.is_cancelled:
            raise KeyboardInterrupt
        self.is_over = True
        raise ps.CancelledError("cancelled")


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[Pending]:
    """Return a list that gets the requests of 4000 bytes, each of which has one tensor."""
    from penstock.torch.checkpoint import reader, transfers

    made: list[Pending] = []
    submit = transfers.Ranges.submit

    def submit_or_hang(self: Any, *arguments: Any) -> Any:
        if self.nbytes != 4000:
            return submit(self, *arguments)
        made.append(Pending())
        return made[-1]

    monkeypatch.setattr(transfers.Ranges, "submit", submit_or_hang)
    monkeypatch.setattr(reader, "_LEAST_AT_ONCE", 1)
    return made


@pytest.mark.parametrize("layout", ["dcp", "huggingface"])
def test_no_request_is_under_way_after_a_tensor_was_refused(
    tmp_path: Path, requests: list[Pending], layout: str
) -> None:
    writer, reader = {
        "dcp": (checkpoint.PenstockWriter, checkpoint.PenstockReader),
        "huggingface": (checkpoint.PenstockHuggingFaceWriter, checkpoint.PenstockHuggingFaceReader),
    }[layout]
    saved = {name: torch.zeros(1000) for name in "abc"}
    dcp.save(saved, storage_writer=writer(tmp_path), no_dist=True)
    with pytest.raises(dcp.api.CheckpointException, match="'c'"):
        dcp.load({**saved, "c": short()}, storage_reader=reader(tmp_path), no_dist=True)
    assert [request.is_over for request in requests] == [True, True]


@pytest.mark.parametrize("moment", ["adding", "between", "finishing"])
def test_an_interrupt_ends_the_requests_of_all_files(
    tmp_path: Path, requests: list[Pending], moment: str
) -> None:
    from penstock.torch.checkpoint.archive import StoredTensor
    from penstock.torch.checkpoint.reader import FileReads

    (tmp_path / "file").write_bytes(bytes(4000))
    stored = StoredTensor(torch.float32, 0, (1000,), (4,))

    def read_twice() -> None:
        with FileReads(dcp.DefaultLoadPlanner()) as reads:
            for last in (False, True):
                with reads.start(tmp_path / "file") as read:
                    for _ in range(2):
                        read.blocks.add(stored, (0,), torch.zeros(1000))
                    if last and moment == "adding":
                        raise KeyboardInterrupt
            if moment == "between":
                raise KeyboardInterrupt
            reads.wait()

    used = len(os.listdir("/proc/self/fd"))
    with pytest.raises(KeyboardInterrupt):
        read_twice()
    assert [request.is_over for request in requests] == [True] * 4
    assert len(os.listdir("/proc/self/fd")) == used


def test_no_archive_is_made_of_a_tensor_beyond_its_storage(tmp_path: Path) -> None:
    with pytest.raises(ps.InvalidError, match="ends at byte 4000 of its storage"):
        checkpoint.save({"a": short()}, tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_a_checkpoint_is_loaded_although_a_save_has_removed_its_files(tmp_path: Path) -> None:
    def save(value: float) -> None:
        dcp.save({"a": torch.full((9,), value)}, storage_writer=checkpoint.PenstockWriter(tmp_path))

    class Reader(checkpoint.PenstockReader):
        def prepare_local_plan(self, plan: Any) -> Any:
            save(2.0)
            return super().prepare_local_plan(plan)

    save(1.0)
    found = {"a": torch.zeros(9)}
    dcp.load(found, storage_reader=Reader(tmp_path))
    assert found["a"].tolist() == [1.0] * 9
    dcp.load(found, storage_reader=checkpoint.PenstockReader(tmp_path))
    assert found["a"].tolist() == [2.0] * 9


def test_a_checkpoint_that_is_replaced_while_its_files_are_opened_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save(value: float) -> None:
        dcp.save({"a": torch.full((9,), value)}, storage_writer=checkpoint.PenstockWriter(tmp_path))

    save(1.0)
    from penstock.torch.checkpoint import reader

    opened = reader.unpickled
    replaced: list[Path] = []

    def replace_first(path: Path, content: bytes, **keys: Any) -> Any:
        if not replaced:
            replaced.append(path)
            save(2.0)
        return opened(path, content, **keys)

    monkeypatch.setattr(reader, "unpickled", replace_first)
    found = {"a": torch.zeros(9)}
    dcp.load(found, storage_reader=checkpoint.PenstockReader(tmp_path))
    assert found["a"].tolist() == [2.0] * 9


def test_a_file_that_is_not_there_is_named_and_no_descriptor_stays(tmp_path: Path) -> None:
    dcp.save({"a": torch.ones(9)}, storage_writer=checkpoint.PenstockWriter(tmp_path))
    used = len(os.listdir("/proc/self/fd"))
    dcp.load({"a": torch.zeros(9)}, storage_reader=checkpoint.PenstockReader(tmp_path))
    checkpoint.PenstockReader(tmp_path).read_metadata()
    (data,) = tmp_path.glob("*.distcp")
    data.unlink()
    with pytest.raises(dcp.api.CheckpointException, match=data.name):
        dcp.load({"a": torch.zeros(9)}, storage_reader=checkpoint.PenstockReader(tmp_path))
    assert len(os.listdir("/proc/self/fd")) == used


def test_ranks_that_see_different_checkpoints_do_not_load_them(tmp_path: Path) -> None:
    plans = []
    for value in (1.0, 2.0):
        state = {"a": torch.full((9,), value)}
        dcp.save(state, storage_writer=checkpoint.PenstockWriter(tmp_path))
        reader = checkpoint.PenstockReader(tmp_path)
        reader.set_up_storage_reader(reader.read_metadata(), is_coordinator=True)
        plans.append(reader.prepare_local_plan(dcp.planner.LoadPlan([])))
    assert len(reader.prepare_global_plan(plans[1:])) == 1
    with pytest.raises(checkpoint.CheckpointFileError, match="a save has replaced"):
        reader.prepare_global_plan(plans)
