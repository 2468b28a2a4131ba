"""Slabs that ranks write: overlaps are found, and disjoint slabs take little time."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.dist import partition
from penstock.dist.mpi.divided import Plan
from penstock.dist.mpi.slabs import refuse_overlap, row_of
from penstock.errors import InvalidError


def rows_of(slabs, number=0):
    """Rows of slabs, each of which a rank writes."""
    return np.concatenate([row_of(rank, number, slab) for rank, slab in enumerate(slabs)])


def rows_of_parts(shape, chunks, n, number=0):
    parts = partition(shape, chunks, n).bounds().reshape(n, -1)
    return np.concatenate([np.arange(n)[:, None], np.full((n, 1), number), parts], axis=1)


sides = st.tuples(st.integers(0, 12), st.integers(1, 4)).map(lambda s: range(s[0], s[0] + s[1]))


@settings(max_examples=400, deadline=None)
@given(
    st.integers(1, 3).flatmap(lambda n: st.lists(st.tuples(*[sides] * n), min_size=1)), st.data()
)
def test_an_overlap_is_an_error_that_names_two_ranks_which_write_one_element(slabs, data):
    elements = [set(np.ndindex(*map(len, slab))) for slab in slabs]
    elements = [
        {tuple(r[i] for r, i in zip(slab, at, strict=True)) for at in places}
        for slab, places in zip(slabs, elements, strict=True)
    ]
    rows, known = rows_of(slabs), []
    if sum(map(len, elements[:-1])) == len(set().union(*elements[:-1])):
        # The first ones do not overlap, so they may have been looked at before.
        split = data.draw(st.integers(0, len(slabs) - 1))
        known, rows = [rows[:split]], rows[split:]
    if sum(map(len, elements)) == len(set().union(*elements)):
        refuse_overlap("x", rows, known)
        return
    with pytest.raises(InvalidError, match="write the same elements") as raised:
        refuse_overlap("x", rows, known)
    first, second = (int(word) for word in str(raised.value).split() if word.isdecimal())
    assert first < second
    assert elements[first] & elements[second]


@pytest.mark.parametrize("turns", [1, 50])
def test_slabs_that_no_plane_separates_are_compared(turns):
    # Four around a fifth, like the blades of a windmill, and many of these.
    mill = [(0, 2, 0, 1), (2, 3, 0, 2), (1, 3, 2, 3), (0, 1, 1, 3), (1, 2, 1, 2)]
    slabs = [
        (range(3 * turn + a, 3 * turn + b), range(c, d))
        for turn in range(turns)
        for a, b, c, d in mill
    ]
    refuse_overlap("x", rows_of(slabs))
    with pytest.raises(InvalidError, match=f"ranks 4 and {len(slabs)} "):
        refuse_overlap("x", rows_of([*slabs, (range(1, 2), range(1, 2))]))


@pytest.mark.parametrize(
    ("shape", "chunks"),
    [
        ((10**6, 64), (1, 64)),
        ((320, 320), (1, 1)),
        ((47, 47, 47), (1, 1, 1)),
        ((64, 10**6), (64, 1)),
    ],
    ids=str,
)
def test_a_hundred_thousand_disjoint_slabs_take_a_second_or_so(shape, chunks):
    rows = rows_of_parts(shape, chunks, 10**5)
    rows = rows[(rows[:, 3::2] > rows[:, 2::2]).all(axis=1)]
    began = time.process_time()
    refuse_overlap("x", rows)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("is_outer", [True, False], ids=["time steps", "between others"])
def test_two_hundred_writes_of_a_thousand_ranks_take_seconds(is_outer):
    plan = Plan("x", (200, 1000) if is_outer else (1000, 200), {}, {})
    began = time.process_time()
    for number in range(200):
        table = rows_of_parts((1000,), (1,), 1000, number)
        place = np.tile([number, number + 1], (1000, 1))
        before, after = (place, table[:, 2:]) if is_outer else (table[:, 2:], place)
        plan.enter([np.hstack([table[:, :2], before, after])])
    assert time.process_time() - began < 10
    written = np.concatenate(plan.slabs)
    assert len(written) == 200 * 1000
    assert (np.diff(written[:, 1]) >= 0).all()
    assert len(plan.slabs) < 20
    with pytest.raises(InvalidError, match="write the same elements"):
        plan.enter([written[77_000:77_001]])


def test_a_hundred_thousand_slabs_of_the_same_elements_are_refused_at_once():
    rows = np.tile(row_of(0, 0, (range(5), range(5))), (10**5, 1))
    began = time.process_time()
    with pytest.raises(InvalidError, match="the same elements"):
        refuse_overlap("x", rows)
    assert time.process_time() - began < 5
