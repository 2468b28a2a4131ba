"""Requests: waiting, asyncio, cancelling, lifetimes."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import penstock as ps


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def _events() -> int:
    """Return the number of descriptors of events, which no worker opens meanwhile."""
    folder = Path("/proc/self/fd")
    links = []
    for name in os.listdir(folder):
        with suppress(OSError):  # it may be closed meanwhile
            links.append(os.readlink(folder / name))
    return links.count("anon_inode:[eventfd]")


def test_a_request_gives_the_array_and_a_report(tmp_path, memory, noise):
    contents = noise(100_000)
    contents.tofile(tmp_path / "f")
    out = memory.empty(100_000)
    request = ps.load_async(tmp_path / "f", out=out)
    assert request.array is out
    assert request.wait() is out
    assert request.done()
    assert request.wait(0) is out
    np.testing.assert_array_equal(memory.numpy(out), contents)
    assert request.report.bytes == request.progress() == 100_000


def test_many_requests_at_once_do_not_mix(tmp_path, noise):
    contents = noise(1 << 20)
    contents.tofile(tmp_path / "f")
    requests = [
        ps.load_async(tmp_path / "f", shape=5000, offset=offset)
        for offset in range(0, 1_000_000, 5000)
    ]
    for i, request in enumerate(requests):
        np.testing.assert_array_equal(request.wait(), contents[i * 5000 : (i + 1) * 5000])


def test_a_request_that_is_not_finished_says_so(slow_file):
    request = ps.load_async(slow_file)
    with pytest.raises(TimeoutError) as caught:
        request.wait(0)
    assert isinstance(caught.value, ps.WaitTimeout)
    with pytest.raises(ps.InvalidError, match="not finished"):
        _ = request.report
    assert not request.wait().any()


@pytest.mark.parametrize("timeout", [float("inf"), 1e300])
def test_a_timeout_may_be_longer_than_any_clock_counts(slow_file, timeout):
    assert not ps.load_async(slow_file).wait(timeout).any()


def test_a_timeout_that_is_not_a_number_is_refused(slow_file):
    request = ps.load_async(slow_file)
    with pytest.raises(ps.InvalidError, match="timeout"):
        request.wait(float("nan"))
    request.wait()


def test_a_file_that_ends_early_is_raised_at_once_or_by_wait(tmp_path):
    (tmp_path / "f").write_bytes(bytes(10))
    with pytest.raises(ps.EndOfFileError, match="f"):
        ps.load_async(tmp_path / "f", shape=20).wait()


def test_a_failed_save_is_raised_by_wait(tmp_path):
    with pytest.raises(FileNotFoundError):
        ps.save_async(tmp_path / "no" / "f", np.zeros(3)).wait()


def test_a_file_that_is_missing_is_raised_at_once(tmp_path):
    with pytest.raises(FileNotFoundError):
        ps.load_async(tmp_path / "f")


def test_a_cancelled_request_ends_and_says_so(slow_file):
    request = ps.load_async(slow_file)
    request.cancel()
    for _ in range(2):
        with pytest.raises(ps.CancelledError):
            request.wait()
    assert request.done()
    assert request.report.bytes < request.array.nbytes
    request.cancel()  # too late, and harmless


def test_an_unfinished_request_may_be_dropped(slow_file):
    before = _descriptors()
    for _ in range(3):
        ps.load_async(slow_file)
    gc.collect()
    ps.drain()
    assert _descriptors() <= before + 3  # what the library keeps for its workers


def test_an_unfinished_request_in_a_cycle_may_be_dropped(slow_file):
    request = ps.load_async(slow_file)
    request.itself = request
    del request
    gc.collect()
    ps.drain()


def test_finished_requests_that_are_gone_hold_no_descriptors(tmp_path):
    (tmp_path / "f").write_bytes(bytes(10))
    ps.load(tmp_path / "f")
    before = _descriptors()
    requests = [ps.load_async(tmp_path / "f") for _ in range(50)]
    for request in requests:
        request.wait()
    del request
    requests.clear()
    assert _descriptors() <= before


def test_a_request_keeps_its_array(tmp_path, noise):
    contents = noise(1 << 20)
    request = ps.save_async(tmp_path / "f", contents.copy())
    gc.collect()
    request.wait()
    assert (tmp_path / "f").read_bytes() == contents.tobytes()


def test_an_out_that_is_not_contiguous_is_refused(tmp_path):
    (tmp_path / "f").write_bytes(bytes(4))
    with pytest.raises(TypeError, match="C-contiguous"):
        ps.load_async(tmp_path / "f", out=np.zeros((2, 4), "u1")[:, ::2])


def test_several_threads_may_wait_for_one_request(slow_file):
    request = ps.load_async(slow_file)
    results = []
    threads = [threading.Thread(target=lambda: results.append(request.wait())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all(result is request.array for result in results)


def test_a_request_can_be_awaited(slow_file):
    async def main():
        request = ps.load_async(slow_file)
        assert not request.done()
        array = await request
        assert request.done()
        assert (await request) is array  # also when it is already done
        return array

    assert not asyncio.run(main()).any()


def test_several_tasks_may_await_one_request(slow_file):
    async def one(request):
        return await request

    async def main():
        request = ps.load_async(slow_file)
        return await asyncio.gather(*(one(request) for _ in range(5)))

    results = asyncio.run(main())
    assert all(result is results[0] for result in results)


def test_the_event_loop_runs_while_a_request_is_awaited(slow_file):
    async def main():
        request = ps.load_async(slow_file)
        ticks = 0
        task = asyncio.ensure_future(_await(request))
        while not task.done():
            await asyncio.sleep(0.001)
            ticks += 1
        return ticks

    assert asyncio.run(main()) > 1


async def _await(request):
    return await request


def test_a_failure_is_raised_by_await(tmp_path):
    (tmp_path / "f").write_bytes(bytes(10))

    async def main():
        await ps.load_async(tmp_path / "f", shape=20)

    with pytest.raises(EOFError):
        asyncio.run(main())


def test_cancelling_the_task_cancels_the_request_and_cleans_up(slow_file):
    async def main():
        request = ps.load_async(slow_file)
        task = asyncio.ensure_future(_await(request))
        await asyncio.sleep(0)
        before = _events()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert _events() < before  # the duplicate that the loop watched is closed
        with pytest.raises(ps.CancelledError):
            request.wait()

    asyncio.run(main())


def test_a_request_orders_with_a_stream(tmp_path, torch_kernels):
    torch = torch_kernels
    np.full(1 << 22, 3, "f4").tofile(tmp_path / "f")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        t = torch.zeros(1 << 22, device="cuda")
        for _ in range(50):
            t += 1
        request = ps.load_async(tmp_path / "f", out=t, stream=stream)
        doubled = t * 2  # queued after: starts when the transfer is finished
    request.wait()
    stream.synchronize()
    assert (doubled == 6).all()
    with torch.cuda.stream(stream):
        t += 4
    saved = ps.save_async(tmp_path / "g", t, stream=stream.cuda_stream)
    with torch.cuda.stream(stream):
        t.zero_()  # must wait for the save
    saved.wait()
    assert (np.fromfile(tmp_path / "g", "f4") == 7).all()


@pytest.mark.gpu
def test_the_default_stream_may_be_named(tmp_path, noise):
    contents = noise(100_000)
    contents.tofile(tmp_path / "f")
    out = ps.DeviceArray(100_000)
    ps.load_async(tmp_path / "f", out=out, stream=0).wait()
    np.testing.assert_array_equal(out.numpy(), contents)
    ps.save(tmp_path / "g", out, stream=1)
    assert (tmp_path / "g").read_bytes() == contents.tobytes()
