"""Batches that are read ahead, in host memory and in torch's own loader."""

from __future__ import annotations

import ast
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.torch.processes import run_ranks

pytest.importorskip("torch", reason="torch is not installed")

import torch

from penstock import request
from penstock.data.started import Started
from penstock.data.streams import stream_of
from penstock.errors import CancelledError, Error
from penstock.torch import Batches, HDF5Dataset
from penstock.torch.data import batches as batches_module
from penstock.torch.data.samples import tensors_of

NAMES = {"image": "image", "state": "group/state", "label": "label"}


def dataset_of(files: Any, **arguments: Any) -> HDF5Dataset:
    return HDF5Dataset(files.paths, NAMES, device="cpu", **arguments)


def labels(batches: Any) -> list[int]:
    return [label for batch in batches for label in batch["label"].tolist()]


@pytest.mark.parametrize("prefetch", [0, 1, 3, 50])
@pytest.mark.parametrize("shuffle", ["full", "blocks", False])
def test_batches_have_the_samples(files: Any, shuffle: Any, prefetch: int) -> None:
    batches = Batches(dataset_of(files), 7, shuffle=shuffle, seed=5, prefetch=prefetch)
    for _ in range(2):
        taken = list(batches)
        assert [len(batch["image"]) for batch in taken] == [7] * 5 + [4]
        found = np.concatenate([batch["label"] for batch in taken])
        place = {label: at for at, label in enumerate(files.arrays["label"].tolist())}
        order = [place[label] for label in found.tolist()]
        images = np.concatenate([batch["image"] for batch in taken])
        assert np.array_equal(images, files.arrays["image"][order])
        assert sorted(order) == list(range(39))


def test_the_batches_are_the_same_whatever_the_prefetch(files: Any) -> None:
    found = [labels(Batches(dataset_of(files), 4, seed=9, prefetch=n)) for n in (0, 1, 2, 8)]
    assert all(one == found[0] for one in found)


def test_a_batch_stays_as_it_was_while_later_ones_are_read(files: Any) -> None:
    batches = Batches(dataset_of(files), 3, shuffle=False)
    kept = list(batches)
    assert labels(kept) == files.arrays["label"].tolist()


class Recorded(HDF5Dataset):
    """Counts the reads that were started and those that have ended."""

    def start(self, indices: Any) -> Started:
        made = super().start(indices)
        self.__dict__.setdefault("made", []).append(made)
        return made

    def pending(self) -> int:
        return sum(made.is_pending for made in self.__dict__["made"])


def test_as_many_reads_as_prefetch_says_are_pending(files: Any) -> None:
    dataset = Recorded(files.paths, NAMES, device="cpu")
    for number, _ in enumerate(Batches(dataset, 5, prefetch=2)):
        started = len(dataset.__dict__["made"])
        assert started == min(number + 3, 8)
        assert dataset.pending() == started - number - 1


def test_leaving_early_ends_the_pending_reads(files: Any) -> None:
    dataset = Recorded(files.paths, NAMES, device="cpu")
    batches = Batches(dataset, 5)
    for _ in batches:
        break
    gc.collect()
    assert not dataset.pending()
    assert len(labels(batches)) == 39


def test_an_error_of_the_consumer_ends_the_pending_reads(files: Any) -> None:
    dataset = Recorded(files.paths, NAMES, device="cpu")

    def consume() -> None:
        for _ in Batches(dataset, 5):
            raise RuntimeError("the model failed")

    with pytest.raises(RuntimeError, match="the model failed"):
        consume()
    gc.collect()
    assert not dataset.pending()
    assert not request._pending


def test_an_iterator_that_was_dropped_ends_its_reads(files: Any) -> None:
    dataset = Recorded(files.paths, NAMES, device="cpu")
    iterator = iter(Batches(dataset, 5))
    next(iterator)
    del iterator
    gc.collect()
    assert not dataset.pending()


def test_an_error_of_a_read_is_raised_at_its_batch(files: Any) -> None:
    dataset = dataset_of(files)
    batches = iter(Batches(dataset, 11, shuffle=False, prefetch=0))
    next(batches)
    os.truncate(files.paths[2], 3000)
    with pytest.raises(Error, match=r"2\.h5"):
        list(batches)


def test_an_error_of_a_start_is_raised_at_its_batch(files: Any) -> None:
    class Failing(Recorded):
        def start(self, indices: Any) -> Started:
            if 30 in indices:
                raise OSError("no such file any more")
            return super().start(indices)

    batches = iter(Batches(Failing(files.paths, NAMES, device="cpu"), 10, shuffle=False))
    assert len([next(batches) for _ in range(3)]) == 3
    with pytest.raises(OSError, match="no such file any more"):
        next(batches)


def test_a_program_that_ends_inside_an_iteration_ends_quietly(files: Any) -> None:
    program = """
import sys
from penstock.torch import Batches, HDF5Dataset
from penstock.torch.data import batches as batches_module
batches = iter(Batches(HDF5Dataset(sys.argv[1], ["image", "label"], device="cpu"), 3))
print(len(next(batches)["label"]))
"""
    command = [sys.executable, "-c", program, str(files.paths[2])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")


def test_an_error_of_the_transform_ends_the_pending_reads(files: Any) -> None:
    def transform(batch: Any) -> Any:
        raise ValueError("a bad batch")

    dataset = Recorded(files.paths, NAMES, device="cpu", transform=transform)
    with pytest.raises(ValueError, match="a bad batch"):
        next(iter(Batches(dataset, 5)))
    gc.collect()
    assert not dataset.pending()


def test_a_started_batch_that_is_dropped_is_cancelled(files: Any) -> None:
    class Slow:
        cancelled = waited = False

        def cancel(self) -> None:
            self.cancelled = True

        def wait(self) -> None:
            self.waited = True
            raise CancelledError("cancelled")

    slow = Slow()
    started = Started(list, [slow])
    del started
    gc.collect()
    assert slow.cancelled
    assert slow.waited


def test_the_error_of_a_read_that_was_settled_is_raised_where_its_batch_is_taken() -> None:
    class Failing:
        def cancel(self) -> None: ...

        def wait(self) -> None:
            raise CancelledError("the read failed")

    started = Started(list, [Failing(), Failing()])
    started.settle()
    assert not started.is_pending
    with pytest.raises(CancelledError, match="the read failed"):
        started.wait()


@pytest.mark.parametrize("seconds", [0.0, 0.01])
def test_a_consumer_may_be_faster_or_slower(files: Any, seconds: float) -> None:
    found: list[int] = []
    for batch in Batches(dataset_of(files), 4):
        time.sleep(seconds)
        found += batch["label"].tolist()
    assert sorted(found) == sorted(files.arrays["label"].tolist())


def test_threads_may_iterate_over_one_data_set(files: Any) -> None:
    dataset = dataset_of(files)
    found: dict[int, list[int]] = {}

    def consume(seed: int) -> None:
        for _ in range(5):
            found[seed] = labels(Batches(dataset, 4, seed=seed))

    threads = [threading.Thread(target=consume, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    expected = sorted(files.arrays["label"].tolist())
    assert [sorted(found[seed]) for seed in range(4)] == [expected] * 4


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_memory_is_flat_over_a_thousand_batches(files: Any) -> None:
    dataset = dataset_of(files)
    counts = []
    for number in range(1000 // 13 + 13):
        for _ in Batches(dataset, 3, seed=number):
            pass
        if number % 38 == 12:
            gc.collect()
            counts.append((resident(), len(gc.get_objects())))
    assert counts[-1][0] < counts[0][0] + (8 << 20)
    assert counts[-1][1] < counts[0][1] + 500


class Streams:
    """Stands for torch.cuda: notes in which order streams are used."""

    def __init__(self, monkeypatch: Any) -> None:
        self.notes: list[str] = []
        self.current = "model"
        monkeypatch.setattr(torch.cuda, "Stream", lambda _: self)
        monkeypatch.setattr(torch.cuda, "stream", self.within)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda _: self)
        monkeypatch.setattr(batches_module, "stream_of", stream_of.__wrapped__)  # without a cache
        self.device = torch.device("cuda", 0)

    @contextmanager
    def within(self, _: Any) -> Iterator[None]:
        self.current = "batches"
        yield
        self.current = "model"

    def wait_stream(self, _: Any) -> None:
        self.notes.append(f"{self.current} waits")

    def record_event(self) -> Any:
        return self

    def synchronize(self) -> None:
        self.notes.append("the step before has ended")


def test_reads_and_transforms_are_on_the_stream_of_the_batches(monkeypatch: Any) -> None:
    streams = Streams(monkeypatch)

    class Source:
        device = torch.device("cuda", 0)

        def __len__(self) -> int:
            return 2

        def start(self, indices: Any) -> Started:
            streams.notes.append(f"read on {streams.current}")
            return Started(lambda: streams.notes.append(f"transform on {streams.current}"))

        def blocks(self, length: int | None = None) -> Any:
            raise NotImplementedError

    for _ in Batches(Source(), 1, prefetch=1):
        streams.notes.append(f"used on {streams.current}")
    first = ["read on batches"] * 2 + ["transform on batches", "model waits", "used on model"]
    second = ["transform on batches", "the step before has ended", "model waits", "used on model"]
    assert streams.notes == first + second


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_give_host_tensors(files: Any, context: str) -> None:
    dataset = dataset_of(files)
    dataset[0]  # the parent has files open
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=6, shuffle=True, num_workers=2, multiprocessing_context=context
    )
    taken = list(loader)
    assert sorted(labels(taken)) == sorted(files.arrays["label"].tolist())
    assert all(batch["image"].device.type == "cpu" for batch in taken)


def test_the_loader_of_torch_takes_a_batch_without_a_copy(files: Any) -> None:
    dataset = dataset_of(files)
    loader = torch.utils.data.DataLoader(dataset, batch_size=6)
    assert labels(loader) == files.arrays["label"].tolist()
    samples = dataset.__getitems__([1, 2])
    assert torch.utils.data.default_collate(samples) is samples.batch


def test_subsets_and_samples_of_other_data_sets_are_collated(files: Any) -> None:
    dataset = dataset_of(files)
    subset = torch.utils.data.Subset(dataset, [30, 2, 17])
    (batch,) = torch.utils.data.DataLoader(subset, batch_size=3)
    assert batch["label"].tolist() == files.arrays["label"][[30, 2, 17]].tolist()
    twice = torch.utils.data.ConcatDataset([dataset, dataset])
    (batch,) = torch.utils.data.DataLoader(twice, batch_size=2, sampler=[0, 40])
    assert np.array_equal(batch["image"], files.arrays["image"][[0, 1]])


def test_the_transform_is_collated_like_the_batch(files: Any) -> None:
    dataset = dataset_of(files, transform=lambda batch: (batch["image"] / 2, batch["label"]))
    images, found = next(iter(torch.utils.data.DataLoader(dataset, batch_size=4)))
    assert torch.equal(images, torch.from_numpy(files.arrays["image"][:4]) / 2)
    assert found.tolist() == files.arrays["label"][:4].tolist()


RANKS = """
import sys
import torch
from penstock.torch import Batches, HDF5Dataset
from penstock.torch.data import batches as batches_module
rank, path, address = int(sys.argv[1]), sys.argv[2], sys.argv[3]
torch.distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
batches = Batches(HDF5Dataset(path, "label", device="cpu"), 4, seed=1)
print([label for batch in batches for label in batch["label"].tolist()], len(batches))
torch.distributed.destroy_process_group()
"""


def test_ranks_of_a_process_group_share_an_epoch(files: Any, tmp_path: Path) -> None:
    address = f"file://{tmp_path}/group"
    found = run_ranks(RANKS, [str(files.paths[2]), address])
    shares = [ast.literal_eval(text.rpartition(" ")[0]) for text in found]
    assert [len(share) for share in shares] == [10, 10]
    assert sorted(shares[0] + shares[1]) == sorted(files.parts["label"][2].tolist())


class WithSlots:
    __slots__ = ("__first", "second")

    def __init__(self, first: Any) -> None:
        self.__first = first
        self.second = self


class Plain:
    def __init__(self, value: Any) -> None:
        self.value = value
        self.path, self.number, self.names = Path("a"), 1, np.array(["b"])


def test_the_tensors_of_a_batch_are_found_in_mappings_sequences_and_attributes() -> None:
    one, two = torch.zeros(2), torch.nn.Parameter(torch.zeros(3))
    for batch in (
        {"x": (one, [two])},
        WithSlots(Plain({"x": one, "y": {3: two}})),
        (Plain(one), WithSlots(two)),
    ):
        found, is_complete = tensors_of(batch)
        assert {id(tensor) for tensor in found} == {id(one), id(two)}
        assert is_complete


@pytest.mark.parametrize(
    "hide",
    [
        lambda x: lambda: x,
        lambda x: (one for one in [x]),
        lambda x: iter([x]),
        lambda x: partial(print, x),
        lambda x: np.array([x, None], object),
        lambda x: x.to_sparse(),
        lambda x: Plain({"rest": map(abs, [x])}),
    ],
)
def test_a_batch_that_may_have_other_tensors_is_known(hide: Any) -> None:
    assert not tensors_of(hide(torch.ones(2)))[1]
