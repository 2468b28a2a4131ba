"""Datasets slab by slab."""

from __future__ import annotations

import gc
import itertools
import weakref

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import penstock as ps
from penstock.hdf5 import reading
from penstock.hdf5.blocks import slab_shape, slabs


@pytest.fixture
def stored(tmp_path):
    """A chunked dataset of 1,000 x 30 numbers, and the numbers."""
    numbers = np.arange(30_000, dtype="i4").reshape(1000, 30)
    with ps.File(tmp_path / "f.h5", "w") as file:
        file.h5py.create_dataset("x", data=numbers, chunks=(64, 30), compression="gzip")
    with ps.File(tmp_path / "f.h5") as file:
        yield file["x"], numbers


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request, penstock_arrays):
    return request.param


def to_host(array):
    return array.numpy() if isinstance(array, ps.DeviceArray) else array


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_slabs_make_up_the_whole_once(data):
    whole = data.draw(hnp.array_shapes(max_dims=3, min_side=0, max_side=7))
    asked = tuple(data.draw(st.none() | st.integers(1, 8)) for _ in whole)
    asked = asked[: data.draw(st.integers(0, len(asked)))]
    count = np.zeros(whole, int)
    shape = slab_shape(whole, asked)
    for index in slabs(whole, shape):
        count[index] += 1
        assert all(n <= most for n, most in zip(count[index].shape, shape, strict=True))
    assert (count == 1).all()


@pytest.mark.parametrize("prefetch", [0, 1, 2, 7, 1000])
def test_blocks_are_the_dataset_in_order(stored, device, prefetch):
    dataset, numbers = stored
    firsts = []
    for index, array in dataset.blocks((64, 16), prefetch=prefetch, device=device):
        np.testing.assert_array_equal(to_host(array), numbers[index])
        firsts.append(tuple(part.start for part in index))
    assert firsts == [*itertools.product(range(0, 1000, 64), (0, 16))]


def test_arrays_are_fresh(stored):
    dataset, numbers = stored
    kept = list(dataset.blocks(100))
    np.testing.assert_array_equal(np.concatenate([array for _, array in kept]), numbers)


def test_arrays_are_filled_again_if_requested(stored, device):
    dataset, numbers = stored
    seen = set()
    for index, array in dataset.blocks(64, prefetch=1, device=device, reuse=True):
        np.testing.assert_array_equal(to_host(array), numbers[index])
        seen.add(id(array))
    # Two in turn, and the last one, which is smaller.
    assert len(seen) <= 3


def test_elements_are_converted(stored):
    dataset, numbers = stored
    index, array = next(dataset.blocks(10, dtype="f8"))
    assert array.dtype == np.float64
    np.testing.assert_array_equal(array, numbers[index])


def test_no_more_than_the_prefetch_is_on_its_way(stored, monkeypatch):
    dataset, _ = stored
    started = []
    read_async = reading.read_async
    monkeypatch.setattr(
        reading, "read_async", lambda *a, **k: started.append(a) or read_async(*a, **k)
    )
    blocks = dataset.blocks(10, prefetch=3)
    assert not started
    next(blocks)
    assert len(started) == 4
    next(blocks)
    assert len(started) == 5


def test_closing_stops_what_is_on_its_way(stored):
    dataset, _ = stored
    blocks = dataset.blocks(10, prefetch=5)
    next(blocks)
    blocks.close()
    ps.drain()
    with pytest.raises(StopIteration):
        next(blocks)


def test_an_exception_in_the_loop_leaves_nothing_behind(stored):
    dataset, _ = stored

    def use(_):
        raise KeyError

    with pytest.raises(KeyError):
        list(map(use, dataset.blocks(10, prefetch=5)))
    ps.drain()


@pytest.mark.parametrize("prefetch", [0, 2, 100])
@pytest.mark.parametrize("mode", ["r", "r+"])
def test_slabs_before_one_that_cannot_be_read_come_first(tmp_path, mode, prefetch):
    numbers = np.arange(60.0).reshape(20, 3)
    with h5py.File(tmp_path / "source.h5", "w") as file:
        file["x"] = numbers[:10]
    layout = h5py.VirtualLayout((20, 3), "f8")
    layout[...] = h5py.VirtualSource("source.h5", "x", shape=(20, 3))
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file.create_virtual_dataset("v", layout)
    with ps.File(tmp_path / "v.h5", mode) as file:
        blocks = file["v"].blocks(4, prefetch=prefetch)
        for first in (0, 4):
            np.testing.assert_array_equal(next(blocks)[1], numbers[first : first + 4])
        with pytest.raises(ps.Error, match="mapping"):
            next(blocks)
        with pytest.raises(StopIteration):
            next(blocks)


def test_the_error_of_a_slab_keeps_no_slab_and_no_dataset(stored, monkeypatch):
    dataset, _ = stored
    begin, started = reading.read_async, []

    def refuse_the_third(*arguments, **keys):
        started.append(arguments)
        if len(started) == 3:
            raise ps.Error("refused")
        return begin(*arguments, **keys)

    monkeypatch.setattr(reading, "read_async", refuse_the_third)
    gc.disable()
    try:
        blocks, slabs = dataset.blocks(64), []
        with pytest.raises(ps.Error, match="refused"):
            slabs.extend(weakref.ref(slab) for _, slab in blocks)
        del blocks
        assert [slab() for slab in slabs] == [None, None]
    finally:
        gc.enable()


@pytest.mark.parametrize("shape", [0, -1, (10, 10, 10), (0,)])
def test_a_shape_that_is_none_of_a_block_is_refused_at_once(stored, shape):
    with pytest.raises(ValueError, match="block"):
        stored[0].blocks(shape)


def test_a_negative_prefetch_is_refused_at_once(stored):
    with pytest.raises(ValueError, match="prefetch"):
        stored[0].blocks(10, prefetch=-1)


def test_a_dataset_without_data_has_no_blocks(tmp_path):
    with ps.File(tmp_path / "f.h5", "w") as file:
        file.h5py["null"] = h5py.Empty("f4")
        file.h5py["none"] = np.zeros((0, 5))
        file.h5py["scalar"] = 1.5
        with pytest.raises(ValueError, match="no data"):
            file["null"].blocks(1)
        assert list(file["none"].blocks(1)) == []
        ((index, value),) = file["scalar"].blocks(())
        assert (index, value) == ((), 1.5)


def test_strings_come_as_h5py_reads_them(tmp_path):
    with ps.File(tmp_path / "f.h5", "w") as file:
        file.h5py["text"] = ["a", "bcd", "e"]
        found = [list(array) for _, array in file["text"].blocks(2)]
    assert found == [[b"a", b"bcd"], [b"e"]]
