"""Partitions: hyperslabs that cover an array without overlap, aligned and balanced."""

from __future__ import annotations

import math
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.dist import partition


@st.composite
def arrays(draw, most_side=9, most_dimensions=4):
    rank = draw(st.integers(1, most_dimensions))
    shape = draw(st.tuples(*[st.integers(0, most_side)] * rank))
    chunks = draw(st.none() | st.tuples(*[st.integers(1, most_side + 2)] * rank))
    return shape, chunks, draw(st.integers(1, 40))


def test_bounds_of_the_largest_arrays_are_those_of_the_parts():
    parts = partition(((1 << 62) + 5,), None, 10**5)
    bounds = parts.bounds()
    for rank in (0, 1, 77_777, len(parts) - 1):
        assert [slice(*pair) for pair in bounds[rank].tolist()] == list(parts[rank])


@pytest.mark.parametrize(
    ("shape", "chunks", "n", "keys"),
    [
        (2**63 - 1, 2**62 + 1, 2, {}),
        (2**63 - 1, 2**63 - 1, 1, {}),
        (10, 3, 1, {"stripe": (1 << 61) + 1, "itemsize": 4}),
        (8036501515678728487, 4824663262091208211, 1, {"stripe": 512, "itemsize": 8}),
    ],
)
def test_bounds_are_right_where_the_last_chunk_ends_beyond_63_bits(shape, chunks, n, keys):
    parts = partition(shape, chunks, n, **keys)
    assert parts.bounds().tolist() == [[[part.start, part.stop]] for (part,) in parts]
    assert parts.bounds()[-1, 0, 1] == shape


def chunks_of(shape, chunks):
    """The grid of chunks; of elements for a contiguous array."""
    units = chunks or (1,) * len(shape)
    return [-(-side // unit) for side, unit in zip(shape, units, strict=True)]


def chunk_count(part, chunks):
    units = chunks or (1,) * len(part)
    touched = [
        -(-s.stop // u) - s.start // u if s.stop > s.start else 0
        for s, u in zip(part, units, strict=True)
    ]
    return math.prod(touched)


@settings(max_examples=400, deadline=None)
@given(arrays())
def test_parts_cover_the_array_and_none_overlap(case):
    shape, chunks, n = case
    counts = np.zeros(shape, dtype=int)
    parts = partition(shape, chunks, n)
    assert len(parts) == n
    for part in parts:
        counts[part] += 1
    assert (counts == 1).all()


@settings(max_examples=400, deadline=None)
@given(arrays())
def test_parts_start_and_end_at_borders_of_chunks(case):
    shape, chunks, n = case
    units = chunks or (1,) * len(shape)
    for part in partition(shape, chunks, n):
        for piece, unit, side in zip(part, units, shape, strict=True):
            assert piece.start % unit == 0 or piece.start == piece.stop
            assert piece.stop % unit == 0 or piece.stop == side


@settings(max_examples=400, deadline=None)
@given(arrays())
def test_no_part_exceeds_the_stated_balance(case):
    shape, chunks, n = case
    counts = chunks_of(shape, chunks)
    total = math.prod(counts)
    sizes = [chunk_count(part, chunks) for part in partition(shape, chunks, n)]
    if total <= n:
        assert max(sizes) == min(total, 1)
    else:
        assert max(sizes) < 4 * total / n
    if counts[0] >= n:
        assert max(sizes) <= -(-counts[0] // n) * math.prod(counts[1:])


@settings(max_examples=200, deadline=None)
@given(arrays())
def test_sides_of_parts_differ_by_one_chunk_at_most(case):
    shape, chunks, n = case
    units = chunks or (1,) * len(shape)
    parts = partition(shape, chunks, n)
    filled = parts[: parts.filled]
    if chunks is None:
        return
    for at, unit in enumerate(units):
        sides = [-(-part[at].stop // unit) - part[at].start // unit for part in filled]
        assert not sides or max(sides) - min(sides) <= 1


@settings(max_examples=200, deadline=None)
@given(arrays())
def test_a_part_of_a_contiguous_array_is_one_range_of_the_file(case):
    shape, _, n = case
    places = np.arange(math.prod(shape)).reshape(shape)
    end = 0
    for part in partition(shape, None, n):
        mine = places[part].ravel()
        if mine.size:
            assert (mine == np.arange(end, end + mine.size)).all()
            end = mine[-1] + 1


@settings(max_examples=200, deadline=None)
@given(arrays(), st.sampled_from([1, 6, 8, 64, 96]), st.sampled_from([1, 2, 4, 6]))
def test_parts_start_at_stripes_where_it_says_so(case, stripe, itemsize):
    shape, chunks, n = case
    parts = partition(shape, chunks, n, stripe=stripe, itemsize=itemsize)
    counts = np.zeros(shape, dtype=int)
    row = itemsize * math.prod(
        shape[1:]
        if chunks is None
        else [-(-side // c) * c for side, c in zip(shape[1:], chunks[1:], strict=True)]
    )
    for part in parts:
        counts[part] += 1
        if parts.is_striped:
            assert part[0].start * row % stripe == 0
            whole = all(p == slice(0, side) for p, side in zip(part[1:], shape[1:], strict=True))
            assert whole or part[0] == slice(0, 0)
    assert (counts == 1).all()


@settings(max_examples=200, deadline=None)
@given(arrays())
def test_bounds_are_those_of_the_parts(case):
    shape, chunks, n = case
    parts = partition(shape, chunks, n)
    one_by_one = [[(piece.start, piece.stop) for piece in part] for part in parts]
    assert parts.bounds().tolist() == [[list(pair) for pair in part] for part in one_by_one]


@settings(max_examples=200, deadline=None)
@given(arrays())
def test_tiles_are_whole_chunks_and_no_more_than_the_parts(case):
    shape, chunks, n = case
    parts = partition(shape, chunks, n)
    for tile, unit, side, most in zip(
        parts.tile, chunks or (1,) * len(shape), shape, parts.grid, strict=True
    ):
        assert tile > 0
        assert tile % unit == 0
        assert -(-side // tile) <= max(most, 1)


def test_tiles_of_a_contiguous_array_are_rows():
    assert partition((10, 30), None, 4).tile == (3, 30)
    assert partition((), None, 4).tile == ()
    assert partition((0, 3), None, 4).tile == (1, 3)


def test_a_scalar_goes_to_the_first():
    assert list(partition((), None, 3)) == [(), None, None]
    assert list(partition((), (), 2)) == [(), None]


def test_readers_beyond_the_rows_get_nothing():
    parts = partition((3, 4), (1, 4), 5)
    assert [part[0] for part in parts] == [slice(0, 1), slice(1, 2), slice(2, 3)] + [
        slice(0, 0)
    ] * 2


def test_an_array_without_elements_has_empty_parts():
    assert list(partition((5, 0), (2, 2), 3)) == [(slice(0, 0), slice(0, 0))] * 3


def test_stripes_that_leave_a_reader_without_rows_are_given_up():
    assert partition((64, 1024), None, 8, stripe=4096, itemsize=4).is_striped
    assert not partition((64, 1000), None, 8, stripe=1 << 20, itemsize=4).is_striped


def test_parts_are_counted_from_the_end_and_sliced_as_in_a_list():
    parts = partition((8,), (2,), 4)
    assert parts[-1] == (slice(6, 8),)
    assert parts[1:3] == [(slice(2, 4),), (slice(4, 6),)]
    with pytest.raises(IndexError, match="part 4 of 4"):
        parts[4]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((4, -1), None, 2), "at least 0"),
        (((4,), (0,), 2), "at least 1"),
        (((4,), (2, 2), 2), "dimensions"),
        (((4,), (2,), 0), "at least 1"),
        (((4.5,), (2,), 1), "integers"),
    ],
)
def test_impossible_arguments_are_refused(arguments, message):
    with pytest.raises(ps.InvalidError, match=message):
        partition(*arguments)


@pytest.mark.parametrize(
    ("shape", "chunks"),
    [((10**7,), (1,)), ((3163, 3163), (1, 1)), ((216, 216, 216), (1, 1, 1)), ((57,) * 4, (1,) * 4)],
)
def test_ten_million_chunks_for_a_hundred_thousand_ranks_take_seconds_and_megabytes(shape, chunks):
    tracemalloc.start()
    began = time.perf_counter()
    parts = partition(shape, chunks, 10**5)
    bounds = parts.bounds()
    took = time.perf_counter() - began
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert took < 5
    assert peak < 64 << 20
    sides = bounds[:, :, 1] - bounds[:, :, 0]
    assert int(sides.prod(axis=1).sum()) == math.prod(shape)
    assert parts[99_999] is not None
