"""How an array that all ranks get is divided among them, and who the ranks are."""

from __future__ import annotations

import itertools
import time
import tracemalloc
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock import arrays
from penstock.dist import load_replicated
from penstock.dist.mpi.ranks import RankError
from penstock.dist.replicated import peers
from penstock.dist.replicated.source import _array_of, rounds
from penstock.dtypes import element_type
from penstock.memory import copy_bytes
from penstock.placement import allocate


@given(
    count=st.integers(0, 300),
    row=st.integers(1, 50),
    unit=st.integers(1, 20),
    ranks=st.integers(1, 9),
    piece=st.integers(1, 1000),
)
def test_each_row_is_in_one_share_and_shares_end_at_units(count, row, unit, ranks, piece):
    made = list(rounds(count, row, unit, ranks, piece))
    ends = [0, *(bounds[-1] for bounds in made)]
    assert [bounds[0] for bounds in made] == ends[:-1]
    assert ends[-1] == count
    for bounds in made:
        assert len(bounds) == ranks + 1
        assert bounds == sorted(bounds)
        assert all(border % unit == 0 or border == count for border in bounds)
    for bounds in made[:-1]:
        (share,) = {stop - start for start, stop in itertools.pairwise(bounds)}
        assert share * row <= max(piece, unit * row)
    for bounds in made[-1:]:
        units = [-(-(stop - start) // unit) for start, stop in itertools.pairwise(bounds)]
        assert max(units) - min(units) <= 1


def test_rows_without_bytes_need_no_round():
    assert list(rounds(10, 0, 1, 4, 100)) == []


def test_rounds_of_a_hundred_thousand_ranks_take_seconds_and_megabytes():
    count, ranks, piece = 10**7, 10**5, 64 << 20
    tracemalloc.start()
    began = time.perf_counter()
    covered = 0
    for bounds in rounds(count, 4 << 20, 1, ranks, piece):
        assert bounds[0] == covered
        covered = bounds[-1]
    took = time.perf_counter() - began
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert covered == count
    assert took < 5
    assert peak < 64 << 20


@pytest.mark.gpu
@pytest.mark.parametrize("nbytes", [100_000, 64 << 20], ids=["kept by malloc", "unmapped by free"])
def test_gpu_memory_that_hdf5_is_to_fill_has_zeros_at_first(nbytes):
    part = arrays.view(allocate((nbytes,), element_type(np.dtype("u1")), "cuda", None))
    content = np.full(nbytes, 255, np.uint8)
    copy_bytes(part.pointer, content.ctypes.data, nbytes)
    _array_of(part)
    copy_bytes(content.ctypes.data, part.pointer, nbytes)
    assert not content.any()


def test_without_a_default_group_the_error_says_how_to_make_one():
    with pytest.raises(ps.InvalidError, match=r"init_process_group"):
        load_replicated("x.bin")


def test_what_is_no_communicator_is_refused():
    with pytest.raises(ps.IncompatibleError, match="a int is not a communicator"):
        load_replicated("x.bin", 7)


@pytest.mark.parametrize("comes", [True, False])
def test_an_outbox_is_freed_only_after_all_ranks_have_left_it(monkeypatch, comes):
    calls = []

    class Driver:
        def __init__(self, ordinal):
            self.close = lambda: calls.append("close")

        def call(self, name, *arguments):
            calls.append(name)

        def current(self):
            return nullcontext()

    class Ranks:
        rank, size = 0, 2

        def agree(self, step):
            calls.append("agree")
            if not comes:
                raise RankError("rank 1 did not come")

    monkeypatch.setattr(peers, "Driver", Driver)
    view = arrays.view(np.zeros(100, np.uint8))
    outbox = peers.Peers(Ranks(), view)
    exported = outbox.export()
    outbox.open([exported, exported])
    with nullcontext() if comes else pytest.raises(RankError):
        outbox.finish()
    outbox.close()
    at = calls.index("cuIpcCloseMemHandle")
    assert at < calls.index("agree")
    assert ("cuMemFree_v2" in calls[at:]) == comes
