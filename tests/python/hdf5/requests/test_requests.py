"""Reads and writes of datasets that go on while the program does."""

from __future__ import annotations

import asyncio
import gc
import threading
from time import perf_counter, sleep

import h5py
import numpy as np
import pytest

import penstock as ps
from penstock.hdf5 import submit
from penstock.request import _Native

NUMBERS = np.random.default_rng(5).integers(0, 100, (600, 500), "i4").cumsum(axis=1)

pytestmark = pytest.mark.usefixtures("nothing_is_small", "penstock_arrays")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    return request.param


@pytest.fixture
def file(tmp_path):
    with ps.File(tmp_path / "f.h5", "w") as file:
        for name in ("x", "y"):
            file.h5py.create_dataset(
                name, data=NUMBERS, chunks=(50, 100), compression="gzip", shuffle=True
            )
        yield file


def to_host(array):
    return array.numpy() if isinstance(array, ps.DeviceArray) else array


def on(device, array):
    return ps.DeviceArray.from_numpy(array) if device == "cuda" else array


def wait_by_polling(request):
    end = perf_counter() + 30
    while not request.done():
        assert perf_counter() < end
        sleep(0.001)
    request.wait()


def wait_in_asyncio(request):
    async def wait():
        await request

    asyncio.run(wait())


def test_a_read_continues_while_the_program_does(file, device):
    request = file["x"].read_async(np.s_[10:500], device=device)
    array = request.wait()
    assert array is request.array
    np.testing.assert_array_equal(to_host(array), NUMBERS[10:500])
    assert request.done()
    assert request.report.chunks == 50
    assert request.report.decoder != "none"
    assert request.progress() == array.nbytes


def test_an_array_of_any_strides_is_filled(file):
    out = np.zeros((1000, 1200), "i4")[::-2, ::2].T
    assert file["x"].read_async(out=out).wait() is out
    np.testing.assert_array_equal(out, NUMBERS)


def test_points_need_c_order_in_an_array_that_is_filled_meanwhile(file):
    mask = NUMBERS % 7 == 0
    out = np.zeros(2 * np.count_nonzero(mask), "i4")
    with pytest.raises(TypeError, match="contiguous"):
        file["x"].read_async(mask, out=out[::2])
    file["x"].read(mask, out=out[::2])
    np.testing.assert_array_equal(out[::2], NUMBERS[mask])


def test_many_requests_are_on_their_way_at_once(file, device):
    requests = [file["x"].read_async(np.s_[i : i + 37], device=device) for i in range(0, 600, 37)]
    found = np.concatenate([to_host(request.wait()) for request in requests])
    np.testing.assert_array_equal(found, NUMBERS)


def test_the_dataset_and_the_file_may_be_closed_meanwhile(tmp_path, device):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file.create_dataset("x", data=NUMBERS, chunks=(50, 100), compression="gzip")
    with h5py.File(tmp_path / "f.h5") as file:
        requests = [ps.read_async(file["x"], device=device) for _ in range(5)]
    for request in requests:
        np.testing.assert_array_equal(to_host(request.wait()), NUMBERS)


def test_requests_are_awaited(file, device):
    async def both():
        ones = file["x"].write_async(on(device, np.ones_like(NUMBERS)))
        return await asyncio.gather(file["y"].read_async(device=device), ones)

    found, _ = asyncio.run(both())
    np.testing.assert_array_equal(to_host(found), NUMBERS)
    assert (file["x"].h5py[...] == 1).all()


def test_what_hdf5_must_do_is_done_when_the_request_is_made(file):
    file.h5py["text"] = ["a", "bcd"]
    request = file["text"].read_async()
    assert request.done()
    assert list(request.wait(timeout=0)) == [b"a", b"bcd"]
    assert request.report.route == "hdf5"
    request.cancel()

    async def one():
        return await request

    assert list(asyncio.run(one())) == [b"a", b"bcd"]


def test_a_write_continues_while_it_is_waited_for(file, device):
    changed = NUMBERS[::-1].copy()
    request = file["x"].write_async(on(device, changed))
    request.wait()
    np.testing.assert_array_equal(file["x"].h5py[...], changed)
    assert request.report.chunks == 60


def test_a_write_continues_while_done_is_called(file, device):
    request = file["x"].write_async(on(device, NUMBERS + 1))
    while not request.done():
        pass
    np.testing.assert_array_equal(file["x"].h5py[...], NUMBERS + 1)


def test_writes_to_one_dataset_are_in_order(file):
    expected = NUMBERS.copy()
    requests = []
    for i in (1, 2, 3):
        expected[:, i:] = i
        requests.append(file["x"].write_async(np.full((600, 500 - i), i, "i4"), np.s_[:, i:]))
    for request in reversed(requests):
        request.wait()
    np.testing.assert_array_equal(file["x"].h5py[...], expected)


def test_a_read_sees_a_write_that_was_started_before(file):
    request = file["x"].write_async(NUMBERS + 1)
    np.testing.assert_array_equal(file["x"].read(), NUMBERS + 1)
    request.wait()


def test_a_write_that_is_not_waited_for_is_in_the_file_when_it_is_closed(tmp_path, device):
    with ps.File(tmp_path / "f.h5", "w") as file:
        made = file.create("x", (600, 500), "i4", chunks=(50, 100), compression="gzip")
        request = made.write_async(on(device, NUMBERS))
    assert request.done()
    with h5py.File(tmp_path / "f.h5") as file:
        np.testing.assert_array_equal(file["x"][...], NUMBERS)


def test_a_write_that_is_dropped_is_done(file):
    file["x"].write_async(NUMBERS + 2)
    gc.collect()
    np.testing.assert_array_equal(file["x"].h5py[...], NUMBERS + 2)


def test_drain_finishes_writes(file):
    request = file["x"].write_async(NUMBERS + 3)
    ps.drain()
    np.testing.assert_array_equal(file["x"].h5py[...], NUMBERS + 3)
    request.wait()


def test_threads_write_their_own_datasets(file):
    def work(name, value):
        for i in range(5):
            file[name].write(NUMBERS + value + i)

    threads = [threading.Thread(target=work, args=case) for case in (("x", 10), ("y", 20))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(file["x"].h5py[...], NUMBERS + 14)
    np.testing.assert_array_equal(file["y"].h5py[...], NUMBERS + 24)


def test_a_cancelled_read_ends(file, device):
    request = file["x"].read_async(device=device)
    request.cancel()
    try:
        np.testing.assert_array_equal(to_host(request.wait()), NUMBERS)
    except ps.CancelledError:
        assert request.done()


def test_a_damaged_chunk_fails_the_request_and_names_dataset_and_chunk(file, device):
    file["x"].h5py.id.write_direct_chunk((50, 100), b"no deflate stream")
    request = file["x"].read_async(device=device)
    with pytest.raises(ps.IOFailure, match=r"dataset /x: the chunk at \[1, 1\]"):
        request.wait()
    # The chunks around it are as they were.
    rest = file["x"].read(np.s_[100:], device=device)
    np.testing.assert_array_equal(to_host(rest), NUMBERS[100:])


@pytest.mark.gpu
def test_a_read_is_ordered_with_a_stream(file):
    out = ps.DeviceArray(NUMBERS.shape, "i4")
    request = file["x"].read_async(out=out, stream=0)
    request.wait()
    np.testing.assert_array_equal(out.numpy(), NUMBERS)


@pytest.fixture
def many_chunks(tmp_path):
    with h5py.File(tmp_path / "many.h5", "w") as file:
        yield file.create_dataset("x", data=np.zeros(40_000, "u1"), chunks=(2,))


@pytest.mark.parametrize("selection", [(), np.s_[1:]], ids=["all", "a part"])
def test_the_time_of_a_report_counts_from_the_call(many_chunks, selection):
    def share():
        start = perf_counter()
        ps.read(many_chunks, selection)
        return ps.last_report().seconds / (perf_counter() - start)

    # Other processes may delay the return of a call.
    assert any(share() > 0.7 for _ in range(10))


def test_the_time_of_a_request_counts_from_the_call(many_chunks):
    def share():
        start = perf_counter()
        request = ps.read_async(many_chunks)
        request.wait()
        return request.report.seconds / (perf_counter() - start)

    assert any(share() > 0.7 for _ in range(10))


@pytest.mark.parametrize("pieces", [{"compression": "gzip"}, {}], ids=["decoded", "plain"])
def test_other_threads_use_h5py_while_a_read_moves_its_bytes(tmp_path, monkeypatch, pieces):
    size = (9 << 20) + 1
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file.create_dataset("x", (size,), "u1", chunks=(1 << 20,), **pieces)[...] = 1
    free = []

    def poll(native, timeout):
        other = threading.Thread(target=h5py.h5.get_libversion)
        other.start()
        other.join(10)
        free.append(not other.is_alive())
        return wait(native, timeout)

    wait = _Native.poll
    monkeypatch.setattr(_Native, "poll", poll)
    with h5py.File(tmp_path / "f.h5") as file:
        assert ps.read(file["x"], np.s_[1:]).all()
    assert free
    assert all(free)


def test_a_read_of_few_elements_of_many_chunks_can_be_interrupted(tmp_path, monkeypatch):
    """The call that reads them all would not look for signals until its end."""
    polled = []

    def poll(native, timeout):
        polled.append(timeout)
        return wait(native, timeout)

    wait = _Native.poll
    monkeypatch.setattr(_Native, "poll", poll)
    with h5py.File(tmp_path / "f.h5", "w") as file:
        made = {"chunks": (1 << 20,), "compression": 1, "fillvalue": 3}
        dataset = file.create_dataset("x", (300 << 20,), "u1", **made)
        dataset[0] = 1
        assert (ps.read(dataset, np.s_[:: 1 << 10]) == 3).sum() == (300 << 10) - 1
        assert polled


@pytest.mark.gpu
@pytest.mark.parametrize("ends", [ps.Request.wait, wait_by_polling, wait_in_asyncio])
def test_of_writes_in_the_order_of_a_stream_the_last_can_be_waited_for_first(file, driver, ends):
    stream = driver.stream().value
    numbers = on("cuda", NUMBERS)
    first = ps.write_async(file["x"].h5py, numbers, stream=stream)
    last = ps.write_async(file["y"].h5py, numbers, stream=stream)
    ends(last)
    first.wait()
    assert (file["y"].h5py[()] == NUMBERS).all()


@pytest.mark.gpu
def test_host_memory_is_filled_after_a_write_that_its_stream_waits_for(file, driver):
    stream = driver.stream().value
    made = ps.write_async(file["x"].h5py, on("cuda", NUMBERS + 1), stream=stream)
    found = ps.read(file["y"].h5py, out=np.empty_like(NUMBERS), stream=stream)
    assert (found == NUMBERS).all()
    made.wait()


@pytest.mark.gpu
def test_a_file_closes_after_writes_that_its_own_come_after(file, driver, tmp_path):
    stream = driver.stream().value
    first = ps.write_async(file["x"].h5py, on("cuda", NUMBERS + 1), stream=stream)
    with ps.File(tmp_path / "other.h5", "w") as other:
        dataset = other.h5py.create_dataset("x", NUMBERS.shape, "i4", chunks=(50, 100))
        last = ps.write_async(dataset, on("cuda", NUMBERS), stream=stream)
    last.wait()
    first.wait()
    with h5py.File(tmp_path / "other.h5") as other:
        assert (other["x"][()] == NUMBERS).all()


def test_a_dataset_that_grows_while_a_read_begins_overwrites_nothing(tmp_path, monkeypatch):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = file.create_dataset(
            "x", data=np.arange(60_000), maxshape=(None,), compression="gzip"
        )
        memory = np.full(70_000, -7)

        def grow(*_: object) -> None:
            """Grow as if another thread had refreshed the dataset, which another process writes."""
            dataset.resize((70_000,))

        monkeypatch.setattr(submit, "wait_for", grow)
        with pytest.raises(ps.InvalidError, match=r"the selection has shape \[70000\]"):
            ps.read(dataset, out=memory[:60_000])
        assert (memory == -7).all()
