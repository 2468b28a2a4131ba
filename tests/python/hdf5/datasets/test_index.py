"""The parser of ``dataset[...]`` against NumPy and h5py, for random shapes and indices."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock._core import elements

CASES = int(os.environ.get("PENSTOCK_TEST_LISTS", "300"))
LISTS = (list, tuple, range, np.ndarray)


def selected(shape: tuple[int, ...], index: Any) -> np.ndarray[Any, Any] | None:
    """The numbers of the elements in C order that the parser finds, in the shape of the result."""
    found = elements(shape, index)
    if found is None:
        return None
    if not math.prod(found.shape):  # whose lists may hold indices outside the array
        return np.empty(found.shape, int)
    whole = np.arange(math.prod(shape)).reshape(shape)
    if found.points is not None:
        return whole[tuple(found.points.T.astype(int))].reshape(found.shape)
    assert found.index is not None
    axes = [np.arange(n)[one].ravel() for n, one in zip(shape, found.index, strict=True)]
    assert found.lengths == tuple(
        len(axis) for axis, one in zip(axes, found.index, strict=True) if not isinstance(one, int)
    )
    grid = whole[np.ix_(*axes)].reshape(found.lengths)
    return (grid if found.order is None else grid.transpose(np.argsort(found.order))).reshape(
        found.shape
    )


def as_numpy(index: tuple[Any, ...]) -> tuple[Any, ...]:
    arrays = (np.asarray(one) if isinstance(one, LISTS) else one for one in index)
    return tuple(
        np.asarray(one, int) if isinstance(one, np.ndarray) and not one.size else one
        for one in arrays
    )


def expected(shape: tuple[int, ...], index: tuple[Any, ...]) -> np.ndarray[Any, Any]:
    """What NumPy selects; but one list keeps its place among integers, as by h5py."""
    whole = np.arange(math.prod(shape)).reshape(shape)
    index = as_numpy(index)
    lists = [one for one in index if isinstance(one, np.ndarray) and one.ndim]
    one_axis = len(lists) == 1 and (lists[0].dtype != bool or lists[0].ndim == 1)
    if not one_axis:
        return whole[index]
    at = [isinstance(one, np.ndarray) for one in index].index(True)
    kept = list(index)
    kept[at] = slice(None)
    missing = len(shape) - sum(one is not Ellipsis for one in index)
    axis = sum(
        missing if one is Ellipsis else not isinstance(one, (int, np.integer)) for one in kept[:at]
    )
    taken = lists[0].nonzero()[0] if lists[0].dtype == bool else lists[0]
    part = whole[tuple(kept)]
    if lists[0].dtype == bool and len(lists[0]) != part.shape[axis]:
        raise IndexError
    return part.take(taken, axis=axis)


@st.composite
def cases(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    shape = tuple(draw(st.lists(st.integers(0, 5), min_size=1, max_size=4)))
    count = draw(st.integers(0, len(shape)))
    parts: list[Any] = []
    for size in shape[:count]:
        number = st.integers(-size - 1, size)
        numbers = st.lists(number, max_size=3)
        part: Any = draw(
            st.one_of(
                number,
                number.map(np.int16),
                st.builds(
                    slice, *[st.none() | st.integers(-7, 7)] * 2, st.none() | st.integers(1, 3)
                ),
                numbers,
                numbers.map(lambda one: np.array(one, ">i2")),
                numbers.map(lambda one: np.array(one, "i8")[:, None]),
                st.lists(number, min_size=1, max_size=1),
                st.lists(st.booleans(), min_size=size, max_size=size).map(
                    lambda one: np.array(one, bool)
                ),
            )
        )
        parts.append(part)
    if draw(st.booleans()):
        parts.insert(draw(st.integers(0, len(parts))), Ellipsis)
    return shape, tuple(parts)


@settings(max_examples=CASES, deadline=None)
@given(case=cases())
def test_an_index_selects_what_it_does_with_numpy(case) -> None:
    shape, index = case
    try:
        wanted = expected(shape, index)
    except IndexError:
        with suppress(IndexError):
            assert selected(shape, index) is None
        return
    found = selected(shape, index)
    if found is None:  # h5py ignores a list of which nothing is read
        assert not wanted.size
    else:
        np.testing.assert_array_equal(found, wanted, strict=True)


@pytest.mark.parametrize(
    "index",
    [None, True, np.True_, 1.0, "name", slice(None, None, -1), slice(0.5), [0.5], [[0], [1, 2]],
     (0, 0, 0), (..., ...), 3, -4, np.ones(4, bool), (slice(0, 0), [9]), object(),
     1 << 70, np.uint64(1 << 63)],
    ids=lambda index: "object" if type(index) is object else repr(index),  # without its address
)  # fmt: skip
def test_what_h5py_interprets_or_refuses_is_left_to_it(index) -> None:
    assert elements((3, 5), index) is None


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (([3],), "index 3 is outside a dimension of size 3"),
        ((slice(None), np.array([0, -6])), "index -6 is outside a dimension of size 5"),
        (([0, 1], [0, 1, 2]), r"lists of the shapes \(2,\), \(3,\) cannot be broadcast together"),
    ],
)
def test_a_list_that_fits_nothing_is_an_error(index, text) -> None:
    with pytest.raises(IndexError, match=text):
        elements((3, 5), index)


def test_integers_and_slices_select_the_shape_that_they_do_with_h5py() -> None:
    for index in [
        (1, 2),
        (1, ...),
        (..., 2),
        (slice(1, 3), 4),
        slice(9, 20),
        (slice(0, 3, 2), ...),
    ]:
        found = elements((3, 5), index)
        assert found is not None
        assert found.shape == h5py._hl.selections.select((3, 5), index).array_shape


@given(
    st.integers(1, 40), st.integers(1, 9), st.integers(0, 40), st.integers(0, 40), st.integers(1, 9)
)
def test_chunks_of_a_slice_are_those_of_its_elements(length, chunk, start, stop, step):
    found = elements((length, 3), (slice(start, stop, step), 1))
    indices = np.arange(length)[start:stop:step]
    assert found is not None
    assert found.chunks((chunk, 2)) == len(set(indices // chunk))
