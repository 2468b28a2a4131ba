"""Integers of NumPy are integers, wherever a number is an argument."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

import penstock as ps

KINDS = [np.int64, np.uint8, np.int32]
EACH_KIND = pytest.mark.parametrize("integer", KINDS, ids=lambda kind: kind.__name__)


@pytest.fixture
def path(tmp_path):
    np.arange(100, dtype="i4").tofile(tmp_path / "x.bin")
    return tmp_path / "x.bin"


@EACH_KIND
def test_as_shape_and_offset_of_a_file(path, integer):
    for shape in (integer(5), (integer(5),), [integer(5)], np.array([5], integer)):
        array = ps.load(path, dtype="i4", shape=shape, offset=integer(40))
        assert array.tolist() == [10, 11, 12, 13, 14]
        request = ps.load_async(path, dtype="i4", shape=shape, offset=integer(40))
        assert request.wait()[0] == 10


@EACH_KIND
def test_as_options(path, integer, tmp_path):
    with ps.options(threads=integer(2), queue_depth=integer(4)):
        assert ps.load(path, dtype="i4")[99] == 99
    assert ps.load(path, dtype="i4", threads=integer(1), slots=integer(2))[99] == 99
    ps.save(tmp_path / "y.bin", np.arange(3), durable=np.bool_(True))


@EACH_KIND
@pytest.mark.gpu
def test_as_a_device(path, integer, penstock_arrays):
    array = ps.load(path, dtype="i4", device=integer(0))
    assert array.device == 0
    made = ps.DeviceArray((integer(2), integer(3)), "f4", integer(0))
    assert made.shape == (2, 3)
    assert all(type(n) is int for n in (*made.shape, made.device))
    assert ps.DeviceArray(integer(4)).shape == (4,)


def test_a_device_that_is_no_ordinal_is_refused(path):
    for device in (np.int64(-1), np.float64(0), True, np.bool_(True)):
        with pytest.raises(ps.InvalidError):
            ps.load(path, device=device)


@EACH_KIND
def test_as_shape_index_and_size_of_a_dataset(tmp_path, integer):
    with ps.File(tmp_path / "f.h5", "w") as file:
        for shape in (integer(6), (integer(6),), np.array([6])):
            name = str(len(file))
            made = file.create_dataset(name, shape, "i4", maxshape=(None,), chunks=(integer(2),))
            made[integer(2)] = integer(7)
            assert made[integer(2)] == 7
            assert made[integer(1) : integer(3)].tolist() == [0, 7]
            made.resize(integer(8), axis=integer(0))
            made.resize((integer(9),))
            assert made.shape == (9,)
            blocks = list(made.blocks(integer(4), prefetch=integer(1)))
            assert [len(block) for _, block in blocks] == [4, 4, 1]
        data = file.create_dataset("data", integer(3), data=np.arange(3))
        assert data.shape == (3,)


@EACH_KIND
def test_as_a_timeout_and_a_stream(path, integer):
    request = ps.load_async(path, dtype="i4")
    assert request.wait(timeout=integer(10))[1] == 1


def test_a_wait_without_end_waits(path):
    assert ps.load_async(path, dtype="i4").wait(float("inf"))[99] == 99
    assert ps.load_async(path, dtype="i4").wait(timeout=np.inf)[99] == 99


def test_blocks_have_a_length(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file["x"] = np.zeros((10, 7))
        file["scalar"] = 1
        file["nothing"] = np.zeros((0, 7))
    with ps.File(tmp_path / "f.h5") as file:
        for shape in (1, 3, 10, 100, (3, 2), (None, 5)):
            blocks = file["x"].blocks(shape)
            assert len(blocks) == len(list(blocks))
        assert len(file["nothing"].blocks(3)) == len(list(file["nothing"].blocks(3))) == 0
        assert len(file["scalar"].blocks(())) == 1
        blocks = file["x"].blocks(1)
        next(blocks)
        blocks.close()
        assert list(blocks) == []
