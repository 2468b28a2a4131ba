"""Many pieces of a file as one request, with NumPy as the oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps

FIXTURES = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
LENGTH = 300_000

pytestmark = pytest.mark.usefixtures("penstock_arrays")


@pytest.fixture
def path(tmp_path, noise):
    found = tmp_path / "f.bin"
    found.write_bytes(noise(LENGTH).tobytes())
    return found


@settings(max_examples=40, deadline=None, suppress_health_check=FIXTURES)
@given(
    pieces=st.lists(
        # Of 64 KiB and more, one call of the driver copies several.
        st.tuples(
            st.integers(0, LENGTH), st.integers(0, 70_000) | st.integers(60_000, 90_000)
        ).filter(lambda piece: sum(piece) <= LENGTH),
        max_size=12,
    ),
    asynchronous=st.booleans(),
    threads=st.sampled_from([None, 1, 3]),
    direct=st.sampled_from(["auto", "no", "yes"]),
)
def test_any_pieces_are_those_of_the_file(
    path, memory, noise, pieces, asynchronous, threads, direct
):
    contents = noise(LENGTH)
    given_arrays = [memory.empty(length) for _, length in pieces]
    arguments = [(at, out) for (at, _), out in zip(pieces, given_arrays, strict=True)]
    if asynchronous:
        found = ps.load_many_async(path, arguments, threads=threads, direct=direct).wait()
    else:
        found = ps.load_many(path, arguments, threads=threads, direct=direct)
        assert ps.last_report().bytes == sum(length for _, length in pieces)
    for (at, length), array, out in zip(pieces, found, given_arrays, strict=True):
        assert array is out
        np.testing.assert_array_equal(memory.numpy(out), contents[at : at + length])


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_new_arrays_have_the_shapes_and_types_requested(path, noise, device):
    contents = noise(LENGTH).tobytes()
    wanted = [
        (64, (10, 20), "f4"),
        (3, 7, "u1"),
        (80, (10, 20), "f4"),
        (16, (), "i8"),
        (0, 0, "u1"),
    ]
    found = ps.load_many(path, wanted, device=device)
    for (at, shape, dtype), array in zip(wanted, found, strict=True):
        count = int(np.prod(shape))
        expected = np.frombuffer(contents, dtype, count, at).reshape(shape)
        assert array.shape == expected.shape
        host = array.numpy() if device == "cuda" else array
        assert host.dtype == expected.dtype
        assert host.tobytes() == expected.tobytes()


def test_one_new_array_is_not_part_of_others(path):
    (array,) = ps.load_many(path, [(8, (5,), "f8")])
    assert array.base is None


@pytest.mark.gpu
def test_pieces_may_go_to_different_memories(path, noise):
    contents = noise(LENGTH)
    device, host = ps.DeviceArray(5000), np.empty(6000, "u1")
    ps.load_many(path, [(1000, device), (90_000, host)])
    np.testing.assert_array_equal(device.numpy(), contents[1000:6000])
    np.testing.assert_array_equal(host, contents[90_000:96_000])


def test_pieces_may_overlap_in_the_file(path, noise):
    contents = noise(LENGTH)
    pieces = [(n, np.empty(1000, "u1")) for n in (0, 500, 500, 999)]
    for (at, _), array in zip(pieces, ps.load_many(path, pieces), strict=True):
        np.testing.assert_array_equal(array, contents[at : at + 1000])


def test_neighbours_are_read_together_whatever_their_order(path):
    order = np.random.default_rng(2).permutation(290)
    pieces = [(1000 * int(n), np.empty(900, "u1")) for n in order]
    ps.load_many(path, pieces, direct="no")
    assert ps.last_report().io_calls < 20


def test_arrays_with_strides_are_filled_through_temporaries(path, noise):
    contents = noise(LENGTH)
    whole = np.zeros((10, 8), "u1")
    ps.load_many(path, [(0, whole[:, ::2]), (100, whole[:, 1::2])])
    np.testing.assert_array_equal(whole[:, ::2].ravel(), contents[:40])
    np.testing.assert_array_equal(whole[:, 1::2].ravel(), contents[100:140])
    with pytest.raises(ps.IncompatibleError, match="not C-contiguous"):
        ps.load_many_async(path, [(0, whole[:, ::2])])


def test_an_empty_list_is_loaded(path):
    assert ps.load_many(path, []) == []
    assert ps.load_many_async(path, []).wait() == []


def test_what_cannot_be_loaded_is_refused(path, tmp_path):
    room = np.empty(100, "u1")
    with pytest.raises(ps.NotFoundError):
        ps.load_many(tmp_path / "missing", [(0, room)])
    with pytest.raises(ps.EndOfFileError) as caught:
        ps.load_many(path, [(0, room), (LENGTH - 50, np.empty(100, "u1"))])
    assert caught.value.offset == LENGTH - 50
    with pytest.raises(ps.InvalidError, match="share memory"):
        ps.load_many(path, [(0, room), (100, room[50:])])
    with pytest.raises(ps.InvalidError, match="negative"):
        ps.load_many(path, [(-1, room)])
    with pytest.raises(ps.InvalidError, match="negative length"):
        ps.load_many(path, [(0, (-1,), "u1")])
    with pytest.raises(ps.EndOfFileError, match="piece 1: no file reaches to offset"):
        ps.load_many(path, [(0, room), (1 << 64, (4,), "u1")])
    room.flags.writeable = False
    with pytest.raises(ps.InvalidError, match="read-only"):
        ps.load_many(path, [(0, room)])


ROOM = np.empty(100, "u1")


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        (None, "pieces is None, not a list"),
        ("w.bin", "pieces is 'w.bin', not a list"),
        ({0: ROOM}, "pieces is a dict, not a list"),
        ([(0, ROOM), (0,)], "piece 1: a tuple of 1 is not a piece"),
        ([(0, ROOM), None], "piece 1: None is not a piece"),
        ([(0, ROOM), "ab"], "piece 1: 'ab' is not a piece"),
        ([(0, ROOM, "u1", 3)], "piece 0: a tuple of 4 is not a piece"),
        ([(0, ROOM), ("1", ROOM)], "piece 1: the offset '1' is not an integer"),
        ([(0, ROOM), (0, None)], "piece 1: "),
        ([(0, (3,), "no type")], "piece 0: .*no type"),
        ([(0, "3", "u1")], "piece 0: "),
    ],
)
@pytest.mark.parametrize("load", [ps.load_many, ps.load_many_async])
def test_pieces_of_another_form_are_type_errors_with_their_number(path, load, pieces, message):
    with pytest.raises(TypeError, match=message):
        load(path, pieces)


def test_new_arrays_are_of_the_library_requested(path, noise, torch):
    found = ps.load_many(path, [(0, (3, 4), "u1"), (7, 5, "u1")], like="torch")
    contents = noise(LENGTH)
    assert all(isinstance(tensor, torch.Tensor) for tensor in found)
    np.testing.assert_array_equal(found[1].numpy(), contents[7:12])
