"""Batches of cells."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from tests.anndata.cells import CELLS, cells_of, matrix, same

from penstock import IncompatibleError, InvalidError
from penstock.anndata import Batches, Rows
from penstock.data import streams

Write = Callable[..., str]


@pytest.fixture
def path(write: Write) -> str:
    return write(cells_of(matrix()))


@pytest.mark.parametrize("window", [None, 1, 2, 100])
@pytest.mark.parametrize("prefetch", [0, 1, 5])
@pytest.mark.parametrize("shuffle", ["full", "blocks", False])
def test_an_epoch_has_each_cell_once(
    path: str, shuffle: Any, prefetch: int, window: int | None
) -> None:
    batches = Batches(path, 16, shuffle=shuffle, prefetch=prefetch, window=window, block=10)
    for _ in range(2):
        taken = list(batches)
        assert [batch.x.shape[0] for batch in taken] == [16] * 9 + [6]
        assert all(same(batch.x, matrix()[batch.rows]) for batch in taken)
        assert sorted(np.concatenate([batch.rows for batch in taken])) == list(range(CELLS))
    assert batches.epoch == 2


def test_the_order_does_not_depend_on_the_window(path: str) -> None:
    found = [
        np.concatenate([batch.rows for batch in Batches(path, 7, seed=3, window=window)])
        for window in (1, 3, None)
    ]
    assert all(np.array_equal(one, found[0]) for one in found)


def test_annotations_come_as_numbers_and_codes(write: Write) -> None:
    parts = [cells_of(matrix(60, seed=at), at) for at in range(2)]
    paths = [write(part, f"{at}.h5ad") for at, part in enumerate(parts)]
    batches = Batches(paths, 32, obs=["kind", "depth", "batch"])
    kinds = [kind for part in parts for kind in part.obs["kind"]]
    names = [name for part in parts for name in part.obs["batch"]]
    depths = np.concatenate([part.obs["depth"] for part in parts])
    for batch in batches:
        for name, wanted in (("kind", kinds), ("batch", names)):
            found = batches.categories[name][batch.obs[name]]
            assert list(found) == [wanted[at] for at in batch.rows]
        assert np.array_equal(batch.obs["depth"], depths[batch.rows])


@pytest.mark.parametrize("like", ["numpy", "torch"])
@pytest.mark.filterwarnings("ignore:Sparse ")
def test_annotations_of_the_other_byte_order_are_those_of_the_machine(
    write: Write, like: Any
) -> None:
    pytest.importorskip(like)
    path = write(cells_of(matrix()))
    with h5py.File(path, "r+") as file:
        values, attributes = file["obs/depth"][:], dict(file["obs/depth"].attrs)
        del file["obs/depth"]
        file["obs/depth"] = values.astype(">f8")
        file["obs/depth"].attrs.update(attributes)
    (batch,) = Batches(path, CELLS, obs="depth", like=like, shuffle=False)
    found = np.asarray(batch.obs["depth"])
    assert found.dtype == np.float64
    assert np.array_equal(found, values)


def test_a_missing_number_is_nan_and_a_missing_category_is_minus_one(write: Write) -> None:
    made = cells_of(matrix())
    made.obs["age"] = pd.array([None, 3] * (CELLS // 2), dtype="Int64")
    made.obs["whole"] = pd.array([1, 2] * (CELLS // 2), dtype="Int16")
    made.obs["site"] = pd.Categorical([None, "left", "right"] * (CELLS // 3))
    (batch,) = Batches(write(made), CELLS, obs=["age", "whole", "site"], shuffle=False)
    assert np.array_equal(batch.obs["age"][:4], [np.nan, 3, np.nan, 3], equal_nan=True)
    assert batch.obs["whole"].dtype == np.int16
    assert batch.obs["site"][:3].tolist() == [-1, 0, 1]


def test_a_pickled_row_reader_reads_the_same(path: str) -> None:
    rows = pickle.loads(pickle.dumps(Rows(path)))
    assert same(rows[[4, 4, 1]], matrix()[[4, 4, 1]])


@pytest.mark.parametrize("as_numbers", [False, True])
def test_a_mask_leaves_cells_out(path: str, as_numbers: bool) -> None:
    mask = np.arange(CELLS) % 4 == 0
    used = np.flatnonzero(mask)
    batches = Batches(path, 8, mask=used if as_numbers else mask, shuffle="blocks", block=4)
    taken = list(batches)
    assert sorted(np.concatenate([batch.rows for batch in taken])) == list(used)
    assert all(same(batch.x, matrix()[batch.rows]) for batch in taken)


def test_weights_draw_cells_with_replacement(path: str) -> None:
    weights = np.zeros(CELLS)
    weights[[3, 140]] = 1, 3
    rows = np.concatenate([batch.rows for batch in Batches(path, 50, weights=weights)])
    assert len(rows) == CELLS
    assert set(rows) == {3, 140}
    assert (rows == 140).sum() > (rows == 3).sum()


@pytest.mark.parametrize("shuffle", ["full", "blocks"])
def test_ranks_share_the_cells(path: str, shuffle: Any) -> None:
    rows = [
        np.concatenate([batch.rows for batch in _rank(path, rank, shuffle)]) for rank in range(3)
    ]
    assert sorted(np.concatenate(rows)) == list(range(CELLS))


def _rank(path: str, rank: int, shuffle: Any) -> Batches:
    return Batches(path, 8, shuffle=shuffle, rank=rank, world_size=3, window=2)


@pytest.mark.parametrize("taken", [1, 3, 9])
def test_a_state_resumes_at_the_next_cell_also_inside_a_window(path: str, taken: int) -> None:
    batches = Batches(path, 16, seed=4, window=4)
    whole = [batch.rows for batch in batches]
    batches = Batches(path, 16, seed=4, window=4)
    for _, batch in zip(range(taken), batches, strict=False):
        assert batch is not None
    state = batches.state_dict()
    resumed = Batches(path, 16, seed=4, window=3)
    resumed.load_state_dict(state)
    rest = [batch.rows for batch in resumed]
    assert np.array_equal(np.concatenate(rest), np.concatenate(whole[taken:]))


def test_dense_batches_have_the_same_elements(path: str) -> None:
    for batch in Batches(path, 40, dense=True, dtype="float64"):
        assert np.array_equal(batch.x, matrix()[batch.rows].toarray())


def test_leaving_early_ends_the_pending_reads(path: str) -> None:
    rows = Rows(path)
    for _ in Batches(rows, 8, window=2):
        break
    gc.collect()
    assert same(rows[:], matrix())


@pytest.mark.parametrize("window", [1, 3, 100])
def test_the_stream_waits_for_the_program_before_each_batch(
    path: str, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    calls: list[str] = []

    class Stream(streams.Stream):
        def follow(self) -> None:
            calls.append("wait for the program")

        def current(self) -> AbstractContextManager[Any]:
            calls.append("work")
            return super().current()

    batches = Batches(path, 16, window=window)
    monkeypatch.setattr(batches, "_stream", Stream)
    monkeypatch.setattr(batches, "_follows", True)
    for _ in batches:
        # The program has work on this batch, and may drop it before the next one is made.
        calls.append("program")
    after = [calls[at + 1] for at, call in enumerate(calls) if call == "program"]
    assert after == ["wait for the program"] * 10


def test_an_error_of_a_file_is_raised_where_its_batch_is_taken(path: str) -> None:
    with h5py.File(path, "r+") as file:
        file["X/indices"][int(file["X/indptr"][100])] = 10**6
    batches = Batches(path, 50, shuffle=False, prefetch=3)
    taken = iter(batches)
    next(taken)
    next(taken)
    with pytest.raises(InvalidError, match="row 100 has the index 1000000"):
        next(taken)


def test_wrong_arguments_are_refused(path: str) -> None:
    for keys, message in (
        ({"window": 0}, "window=0 is less than 1"),
        ({"shuffle": "some"}, "shuffle='some'"),
        ({"weights": [1.0]}, "weights of shape"),
        ({"mask": [1, 1]}, "mask names a cell twice"),
    ):
        with pytest.raises(InvalidError, match=message):
            Batches(path, 8, **keys)
    with pytest.raises(KeyError, match=r"obs of .* has no column 'age'; it has kind, depth, batch"):
        Batches(path, 8, obs=["age"])
    with pytest.raises(IncompatibleError, match="batch_size="):
        Batches(path, "8")


def test_batches_of_dense_files_are_arrays(write: Write) -> None:
    path = write(cells_of(matrix().toarray()))
    taken = list(Batches(path, 64, shuffle="blocks"))
    wanted = matrix().toarray()
    assert all(np.array_equal(batch.x, wanted[batch.rows]) for batch in taken)
    assert not any(sp.issparse(batch.x) for batch in taken)
