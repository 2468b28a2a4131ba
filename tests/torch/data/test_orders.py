"""Orders of samples: each once an epoch over all ranks, whatever ranks, batches and restarts."""

from __future__ import annotations

from itertools import chain, zip_longest
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch is not installed")

import torch

from penstock.data import order
from penstock.errors import InvalidError
from penstock.torch.data.batches import Batches

COUNTS = st.integers(0, 200)


class Numbers:
    """A data set whose samples are their numbers, in blocks of seven."""

    device = torch.device("cpu")

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def start(self, indices: Any) -> Any:
        return Given(np.asarray(indices))

    def blocks(self, length: int | None = None) -> Any:
        return np.arange(0, self.count, length or 7)


class Given:
    def __init__(self, batch: Any) -> None:
        self.batch = batch

    def wait(self) -> Any:
        return self.batch

    def cancel(self) -> None: ...
    def close(self) -> None: ...


def batches_of(count: int, rank: int, ranks: int, size: int, **arguments: Any) -> Batches:
    return Batches(Numbers(count), size, rank=rank, world_size=ranks, **arguments)


@settings(deadline=None)
@given(
    count=COUNTS,
    ranks=st.integers(1, 7),
    size=st.integers(1, 20),
    shuffle=st.sampled_from(["full", "blocks", False]),
    epoch=st.integers(0, 3),
    prefetch=st.integers(0, 4),
)
def test_each_sample_is_in_one_batch_of_one_rank(
    count: int, ranks: int, size: int, shuffle: Any, epoch: int, prefetch: int
) -> None:
    seen: list[int] = []
    for rank in range(ranks):
        batches = batches_of(count, rank, ranks, size, shuffle=shuffle, prefetch=prefetch)
        batches.set_epoch(epoch)
        taken = list(batches)
        assert len(taken) == len(batches)
        assert all(0 < len(batch) <= size for batch in taken)
        seen += [number for batch in taken for number in batch.tolist()]
    assert sorted(seen) == list(range(count))


@given(count=COUNTS, ranks=st.integers(1, 7), size=st.integers(2, 20))
def test_all_ranks_make_the_same_number_of_steps(count: int, ranks: int, size: int) -> None:
    lengths = {len(batches_of(count, rank, ranks, size)) for rank in range(ranks)}
    assert len(lengths) == 1 or count < ranks


@given(count=COUNTS, ranks=st.integers(1, 7), size=st.integers(1, 20))
def test_drop_last_leaves_full_batches_only(count: int, ranks: int, size: int) -> None:
    for rank in range(ranks):
        taken = list(batches_of(count, rank, ranks, size, drop_last=True))
        assert [len(batch) for batch in taken] == [size] * (count // (size * ranks))


@settings(deadline=None)
@given(
    count=COUNTS,
    size=st.integers(1, 20),
    ranks=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    taken=st.integers(0, 30),
    shuffle=st.sampled_from(["full", "blocks", False]),
    prefetch=st.integers(0, 4),
)
def test_a_state_resumes_at_the_very_sample_on_any_number_of_ranks(
    count: int, size: int, ranks: tuple[int, int], taken: int, shuffle: Any, prefetch: int
) -> None:
    seen: list[int] = []
    state: dict[str, Any] = {}
    before, after = ranks
    for rank in range(before):
        batches = batches_of(count, rank, before, size, shuffle=shuffle, prefetch=prefetch)
        iterator = iter(batches)
        for _, batch in zip(range(taken), iterator, strict=False):
            seen += batch.tolist()
        state = state or batches.state_dict()
    for rank in range(after):
        batches = batches_of(count, rank, after, size + 1, shuffle=shuffle, prefetch=prefetch)
        batches.load_state_dict(state)
        if state["epoch"] == 0:
            seen += [number for batch in batches for number in batch.tolist()]
    assert sorted(seen) == list(range(count))


@pytest.mark.parametrize("shuffle", ["full", "blocks", False])
def test_a_resumed_iteration_has_the_same_batches(shuffle: Any) -> None:
    whole = [batch.tolist() for batch in batches_of(100, 1, 3, 8, shuffle=shuffle)]
    batches = batches_of(100, 1, 3, 8, shuffle=shuffle)
    iterator = iter(batches)
    first = [next(iterator).tolist() for _ in range(2)]
    state = batches.state_dict()
    again = batches_of(100, 1, 3, 8, shuffle=shuffle)
    again.load_state_dict(state)
    again.set_epoch(0)  # as a training loop does, which keeps the position
    assert first + [batch.tolist() for batch in again] == whole


def test_an_epoch_that_ended_is_followed_by_the_next() -> None:
    batches = batches_of(50, 0, 1, 8, seed=3)
    first = [batch.tolist() for batch in batches]
    assert batches.epoch == 1
    second = [batch.tolist() for batch in batches]
    assert first != second
    batches.set_epoch(0)
    assert [batch.tolist() for batch in batches] == first


@pytest.mark.parametrize("prefetch", [0, 1, 5, 100])
def test_the_order_depends_on_seed_and_epoch_alone(prefetch: int) -> None:
    def taken(**arguments: Any) -> list[int]:
        return [n for batch in batches_of(64, 0, 1, 8, **arguments) for n in batch.tolist()]

    assert taken(prefetch=prefetch) == taken()
    assert taken(seed=1, prefetch=prefetch) != taken()


@settings(deadline=None)
@given(
    count=COUNTS,
    ranks=st.integers(1, 5),
    size=st.integers(1, 20),
    shuffle=st.sampled_from(["full", "blocks", False]),
    mix=st.integers(1, 5),
    block=st.integers(1, 30),
)
def test_the_order_is_the_same_for_each_batch_size_and_number_of_ranks(
    count: int, ranks: int, size: int, shuffle: Any, mix: int, block: int
) -> None:
    def batches(rank: int, ranks: int, size: int) -> list[Any]:
        keys = {"shuffle": shuffle, "mix": mix, "block": block, "seed": 3}
        return list(batches_of(count, rank, ranks, size, **keys))

    whole = [n for batch in batches(0, 1, count + 1) for n in batch.tolist()]
    place = {n: at for at, n in enumerate(whole)}
    assert [n for batch in batches(0, 1, size) for n in batch.tolist()] == whole
    of_ranks = [batches(rank, ranks, size) for rank in range(ranks)]
    at = 0
    for step in zip_longest(*of_ranks, fillvalue=np.arange(0)):
        places = [[place[n] for n in batch.tolist()] for batch in step]
        assert all(few == sorted(few) for few in places)
        together = sorted(chain.from_iterable(places))
        assert together == list(range(at, at + len(together)))
        at += len(together)
    assert at == count


def test_orders_are_the_same_with_every_version_of_numpy() -> None:
    assert order.full(8, (0, 0)).indices.tolist() == FULL
    assert order.blocks(np.arange(0, 8, 2), 8, 2, (0, 0)).indices.tolist() == BLOCKS
    assert order.weighted(np.arange(8.0), 8, (0, 0)).indices.tolist() == WEIGHTED


FULL = [3, 2, 1, 6, 0, 7, 4, 5]
BLOCKS = [7, 4, 6, 5, 2, 3, 0, 1]
WEIGHTED = [6, 4, 2, 1, 7, 7, 6, 6]


def test_blocks_are_read_one_after_the_other() -> None:
    found = order.blocks(np.arange(0, 100, 10), 100, 2, (5, 0)).indices
    for begin in range(0, 100, 20):
        assert len(set(found[begin : begin + 20] // 10)) == 2
    assert (np.diff(found) != 1).any()


def test_ranks_share_a_step_by_blocks() -> None:
    numbers = [next(iter(batches_of(70, rank, 5, 14, shuffle="blocks"))) for rank in range(5)]
    assert all(len(set(batch // 7)) == 2 for batch in numbers)


@given(
    weights=st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=1, max_size=50),
    seed=st.integers(0, 1000),
)
def test_samples_without_a_weight_are_never_drawn(weights: list[float], seed: int) -> None:
    if not any(weights):
        with pytest.raises(InvalidError, match="positive"):
            batches_of(len(weights), 0, 1, 4, weights=weights)
        return
    drawn = [
        n for batch in batches_of(len(weights), 0, 1, 4, weights=weights, seed=seed) for n in batch
    ]
    assert len(drawn) == len(weights)
    assert all(weights[number] > 0 for number in drawn)


def test_samples_are_drawn_in_proportion_to_their_weights() -> None:
    weights = np.ones(40_000)
    weights[:20_000] = 3
    found = order.weighted(weights, 40_000, (1, 0)).indices
    assert np.isclose((found < 20_000).mean(), 0.75, atol=0.01)
    assert len(set(found.tolist())) < 40_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shuffle": "some"}, "shuffle"),
        ({"weights": [1.0]}, "weights of shape"),
        ({"weights": [-1.0] * 10}, "not negative"),
        ({"weights": [float("nan")] * 10}, "finite"),
        ({"weights": [1.0] * 10, "shuffle": False}, "leave out shuffle"),
        ({"prefetch": -1}, "prefetch"),
        ({"batch_size": 0}, "batch_size"),
        ({"seed": -1}, "seed"),
        ({"block": 0}, "block"),
        ({"rank": 2, "world_size": 2}, "rank 2"),
        ({"rank": 2}, "together"),
    ],
)
def test_arguments_that_make_no_batches_are_refused(
    arguments: dict[str, Any], message: str
) -> None:
    size = arguments.pop("batch_size", 2)
    with pytest.raises(InvalidError, match=message):
        Batches(Numbers(10), size, **arguments)


@pytest.mark.parametrize(
    "change", [{"samples": 11}, {"seed": 7}, {"shuffle": False}, {"weights": True}, {"mix": 9}]
)
def test_the_state_of_another_order_is_refused(change: dict[str, Any]) -> None:
    state = Batches(Numbers(10), 2).state_dict() | change
    with pytest.raises(InvalidError, match=next(iter(change))):
        Batches(Numbers(10), 2).load_state_dict(state)


def test_a_data_set_that_cannot_start_reads_is_refused() -> None:
    with pytest.raises(TypeError, match="DataLoader"):
        Batches([1, 2, 3], 2)  # type: ignore[arg-type]


def test_an_iteration_within_another_leaves_the_state_of_the_outer_one() -> None:
    batches = batches_of(20, 0, 1, 2, shuffle=False)
    for number, _ in enumerate(batches):
        assert (batches.epoch, batches.state_dict()["position"]) == (0, 2 * number + 2)
        if number == 3:
            assert len(list(batches)) == 10
            assert (batches.epoch, batches.state_dict()["position"]) == (1, 0)
    state = batches.state_dict()
    assert (state["epoch"], state["position"]) == (1, 0)
    resumed = batches_of(20, 0, 1, 2, shuffle=False)
    resumed.load_state_dict(state)
    assert len(list(resumed)) == 10


def test_an_epoch_that_is_set_during_an_iteration_is_that_of_the_next() -> None:
    batches = batches_of(20, 0, 1, 2, shuffle=False)
    for number, _ in enumerate(batches):
        if number == 3:
            batches.set_epoch(5)
        assert batches.state_dict()["epoch"] == (5 if number == 3 else 0)
    assert batches.epoch == 5
    assert len(list(batches)) == 10
    assert batches.epoch == 6
