"""DeepNVMe's handles: what they are, and that bytes go where they should."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock import arrays, deepnvme
from penstock._native import NULL

FUNCTION_FIXTURES = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
LENGTHS = st.one_of(st.sampled_from([0, 1, 511, 512, 4097, (1 << 20) + 1]), st.integers(0, 100_000))


@pytest.fixture(params=["aio", "gds"])
def handle(request):
    made = {"aio": deepnvme.aio_handle, "gds": deepnvme.gds_handle}[request.param]()
    yield made
    assert made.wait() == 0  # each test waits for what it starts


@pytest.mark.parametrize("kind", [deepnvme.aio_handle, deepnvme.gds_handle])
def test_a_handle_has_the_default_arguments_of_deepspeed(kind):
    handle = kind()
    assert handle.get_block_size() == 1 << 20
    assert handle.get_queue_depth() == 128
    assert handle.get_single_submit() is False
    assert handle.get_overlap_events() is False
    assert handle.get_intra_op_parallelism() == 1
    assert handle.get_alignment() == 512


def test_a_handle_returns_the_arguments_that_it_was_given():
    given = (1024, 2, True, True, 4)
    named = deepnvme.aio_handle(
        block_size=1024,
        queue_depth=2,
        single_submit=True,
        overlap_events=True,
        intra_op_parallelism=4,
    )
    for handle in (deepnvme.aio_handle(*given), deepnvme.gds_handle(*given), named):
        assert handle.get_block_size() == 1024
        assert handle.get_queue_depth() == 2
        assert handle.get_single_submit() is True
        assert handle.get_overlap_events() is True
        assert handle.get_intra_op_parallelism() == 4
    assert deepnvme.aio_handle(*given).get_alignment() == 4 * 512
    assert deepnvme.gds_handle(*given).get_alignment() == 512


def test_settings_that_are_no_defaults_are_the_engines(tmp_path):
    given = deepnvme.aio_handle(64 << 10, 8, False, False, 3)
    options = given.options_for(arrays.view(np.empty(10)), tmp_path)()
    assert (options.block, options.queue_depth, options.threads) == (64 << 10, 8, 3)
    with ps.options(threads=2, block="128KiB"):
        options = given.options_for(arrays.view(np.empty(10)), tmp_path)()
        assert (options.block, options.queue_depth, options.threads) == (64 << 10, 8, 3)
        (tmp_path / "f").write_bytes(bytes(1 << 20))
        deepnvme.aio_handle().sync_pread(np.empty(1 << 20, "u1"), tmp_path / "f")
        assert ps.last_report().block == 128 << 10
    assert deepnvme.aio_handle().options_for(arrays.view(np.empty(10)), tmp_path)() == NULL


def test_settings_beyond_the_engines_bounds_are_cut_to_them(tmp_path):
    handle = deepnvme.aio_handle(1024, 1 << 20, False, False, 1000)
    array = np.arange(100_000)
    assert handle.sync_pwrite(array, tmp_path / "f") == 1
    np.testing.assert_array_equal(np.fromfile(tmp_path / "f", int), array)


@pytest.mark.parametrize("argument", ["block_size", "queue_depth", "intra_op_parallelism"])
@pytest.mark.parametrize("number", [0, -1])
def test_a_number_that_is_not_positive_is_a_value_error(argument, number):
    with pytest.raises(ValueError, match=argument):
        deepnvme.aio_handle(**{argument: number})


@settings(max_examples=40, deadline=None, suppress_health_check=FUNCTION_FIXTURES)
@given(
    length=LENGTHS,
    offset=st.one_of(st.sampled_from([0, 1, 512, 4096]), st.integers(0, 10_000)),
    misalignment=st.sampled_from([0, 1, 64, 511]),
    parallelism=st.sampled_from([1, 2, 3, 7]),
    by=st.sampled_from(["read", "pread", "sync", "async"]),
    validate=st.booleans(),
)
def test_any_range_is_read(
    tmp_path, memory, noise, handle, length, offset, misalignment, parallelism, by, validate
):
    contents = noise(offset + length + 3)
    path = tmp_path / "f"
    path.write_bytes(contents.tobytes())
    handle = type(handle)(intra_op_parallelism=parallelism)
    out, contents_of_out = memory.misaligned(length, misalignment)
    if by == "read":
        assert handle.read(out, path, validate, offset) == 0
    elif by == "pread":
        assert handle.pread(out, path, validate, False, offset) == 1
    elif by == "sync":
        assert handle.sync_pread(out, path, offset) == 1
    else:
        assert handle.async_pread(out, path, offset) == 0
        assert handle.wait() == 1
    np.testing.assert_array_equal(contents_of_out(), contents[offset : offset + length])
    (report,) = handle.reports
    assert report.bytes == length


@settings(max_examples=40, deadline=None, suppress_health_check=FUNCTION_FIXTURES)
@given(
    length=LENGTHS,
    offset=st.one_of(st.sampled_from([0, 1, 512, 4096]), st.integers(0, 10_000)),
    older=st.sampled_from([0, 5000, 200_000]),
    parallelism=st.sampled_from([1, 2, 3, 7]),
    by=st.sampled_from(["write", "pwrite", "sync", "async", "descriptor"]),
    validate=st.booleans(),
)
def test_any_range_is_written_and_nothing_else(
    tmp_path, memory, noise, handle, length, offset, older, parallelism, by, validate
):
    contents, before = noise(length), noise(older)
    path = tmp_path / "f"
    path.write_bytes(before.tobytes())
    handle = type(handle)(intra_op_parallelism=parallelism)
    array = memory.array(contents)
    if by == "write":
        assert handle.write(array, path, validate, offset) == 0
    elif by == "pwrite":
        assert handle.pwrite(array, path, validate, False, offset) == 1
    elif by == "sync":
        assert handle.sync_pwrite(array, path, offset) == 1
    elif by == "async":
        assert handle.async_pwrite(array, path, offset) == 0
        assert handle.wait() == 1
    else:
        descriptor = os.open(path, os.O_WRONLY)
        assert handle.async_pwrite(buffer=array, fd=descriptor, file_offset=offset) == 0
        os.close(descriptor)
        assert handle.wait() == 1
    end = offset + length if length else 0
    expected = np.zeros(max(older, end), "u1")
    expected[:older] = before
    expected[offset : offset + length] = contents
    np.testing.assert_array_equal(np.fromfile(path, "u1"), expected)


def test_a_file_that_is_not_there_is_made_by_a_write(tmp_path, handle):
    assert handle.async_pwrite(np.arange(3, dtype="u1"), filename=str(tmp_path / "f")) == 0
    assert handle.wait() == 1
    assert (tmp_path / "f").read_bytes() == b"\0\1\2"


@pytest.mark.parametrize("name", [str, os.fsencode, lambda path: path])
def test_a_path_may_be_of_any_kind(tmp_path, handle, name):
    handle.sync_pwrite(np.arange(3, dtype="u1"), name(tmp_path / "f"))
    out = np.empty(3, "u1")
    assert handle.sync_pread(out, name(tmp_path / "f")) == 1
    assert out.tolist() == [0, 1, 2]


def test_a_descriptor_serves_every_call(tmp_path, handle):
    descriptor = os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    out = np.empty(2, "u1")
    try:
        assert handle.sync_pwrite(np.arange(5, dtype="u1"), descriptor) == 1
        assert handle.pwrite(np.full(2, 9, "u1"), descriptor, True, False, 1) == 1
        os.unlink(tmp_path / "f")
        assert handle.async_pread(out, descriptor, 2) == 0
    finally:
        os.close(descriptor)
    assert handle.wait() == 1
    assert out.tolist() == [9, 3]


def test_a_descriptor_may_be_a_number_of_numpys(tmp_path):
    (tmp_path / "f").write_bytes(b"content")
    out = np.zeros(7, "u1")
    with open(tmp_path / "f", "rb") as file:
        assert deepnvme.aio_handle().sync_pread(out, np.int64(file.fileno())) == 1
    assert out.tobytes() == b"content"


def test_a_descriptor_for_direct_io_takes_any_length(tmp_path, handle):
    try:
        descriptor = os.open(tmp_path / "f", os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
    except OSError as error:
        pytest.skip(f"the file system of {tmp_path} has no direct I/O: {error}")
    handle.async_pwrite(np.arange(101, dtype="u1"), fd=descriptor, file_offset=3)
    os.close(descriptor)
    assert handle.wait() == 1
    assert (tmp_path / "f").read_bytes() == bytes(3) + bytes(range(101))


def test_the_argument_async_is_taken_by_place_and_by_name(tmp_path, handle):
    array = np.arange(4, dtype="u1")
    assert handle.pwrite(array, tmp_path / "f", False, True) == 0
    assert handle.pwrite(array, tmp_path / "g", validate=False, **{"async": True}) == 0
    assert handle.wait() == 2
    assert handle.pread(array, tmp_path / "f", False, **{"async": False}, file_offset=0) == 1
    for wrong in ({}, {"async": True, "async_": True}, {"async": True, "more": 1}):
        with pytest.raises(TypeError):
            handle.pread(array, tmp_path / "f", False, **wrong)


def test_async_pwrite_takes_one_target(tmp_path, handle):
    for arguments in ({}, {"filename": tmp_path / "f", "fd": 1}):
        with pytest.raises(TypeError):
            handle.async_pwrite(np.zeros(1), **arguments)
    with pytest.raises(TypeError):
        handle.async_pwrite(np.zeros(1), True)
    assert not (tmp_path / "f").exists()


def test_wait_counts_what_has_ended_since_the_last_call(tmp_path, noise, handle):
    contents = [noise(10_000 + i) for i in range(7)]
    for i, array in enumerate(contents):
        assert handle.async_pwrite(array, tmp_path / str(i)) == 0
    assert handle.wait() == 7
    assert len(handle.reports) == 7
    assert handle.wait() == 0
    assert handle.reports == ()
    out = [np.empty_like(array) for array in contents]
    for i, array in enumerate(out):
        handle.async_pread(array, tmp_path / str(i))
    assert handle.wait() == 7
    for read, written in zip(out, contents, strict=True):
        np.testing.assert_array_equal(read, written)
    assert [report.bytes for report in handle.reports] == [array.size for array in contents]


def test_a_synchronous_call_waits_for_those_in_the_background_and_counts_them(tmp_path, handle):
    for name in "abc":
        handle.async_pwrite(np.zeros(100_000), tmp_path / name)
    assert handle.sync_pwrite(np.zeros(10), tmp_path / "d") == 4
    assert len(handle.reports) == 4
    assert handle.wait() == 0


def test_read_and_write_leave_those_in_the_background_alone(tmp_path, handle):
    handle.async_pwrite(np.zeros(10), tmp_path / "a")
    assert handle.write(np.ones(10), tmp_path / "b", False) == 0
    assert handle.read(np.empty(10), tmp_path / "b", True) == 0
    assert handle.wait() == 1


def test_operations_on_the_same_bytes_keep_their_order(tmp_path, noise, handle):
    old, new = noise(3 << 20), noise((3 << 20) + 1)[1:]
    out = np.empty_like(old)
    for _ in range(5):
        handle.async_pwrite(old, tmp_path / "f")
        handle.async_pread(out, tmp_path / "f")  # after the write before it
        handle.async_pwrite(out, tmp_path / "g")  # of what was read
        handle.async_pwrite(new, tmp_path / "f")
        assert handle.wait() == 4
        np.testing.assert_array_equal(np.fromfile(tmp_path / "g", "u1"), old)
        np.testing.assert_array_equal(np.fromfile(tmp_path / "f", "u1"), new)
        out[:] = 0


def test_operations_on_other_bytes_continue_side_by_side(tmp_path, handle, slow_file):
    started = []

    class Watched(type(handle)):
        def _settle_conflicting(self, touches):
            super()._settle_conflicting(touches)
            started.append([o.is_settled for o in self._pending])

    watched = Watched()
    whole = np.empty(128 << 20, "u1")
    watched.async_pread(whole[: 64 << 20], slow_file)
    watched.async_pread(whole[64 << 20 :], slow_file, 64 << 20)
    watched.async_pwrite(np.zeros(10), tmp_path / "g")
    assert started == [[], [False], [False, False]]
    assert watched.wait() == 3


def test_a_strided_array_is_read_and_written_element_by_element(tmp_path, handle):
    array = np.arange(24, dtype="i4").reshape(4, 6)
    handle.async_pwrite(array[::-1, ::2], tmp_path / "f")
    assert handle.wait() == 1
    out = np.zeros((4, 6), "i4")
    handle.sync_pread(out[::-1, ::2], tmp_path / "f")
    again = np.zeros((4, 6), "i4")
    handle.async_pread(again[::-1, ::2], tmp_path / "f")
    handle.async_pwrite(again[:, :4], tmp_path / "g")  # after the read has put its elements there
    assert handle.wait() == 2
    for read in (out, again):
        np.testing.assert_array_equal(read[:, ::2], array[:, ::2])
        assert not read[:, 1::2].any()
    written = np.fromfile(tmp_path / "g", "i4").reshape(4, 4)
    np.testing.assert_array_equal(written, again[:, :4])


@pytest.mark.parametrize("versioned", [True, False])
def test_an_array_that_speaks_dlpack_only_is_served(tmp_path, dlpack_only, handle, versioned):
    array = np.arange(1000.0)
    handle.sync_pwrite(dlpack_only(array, versioned=versioned), tmp_path / "f")
    out = np.zeros(1000)
    handle.sync_pread(dlpack_only(out, versioned=versioned), tmp_path / "f")
    np.testing.assert_array_equal(out, array)


def test_an_array_that_is_dropped_lives_until_its_operation_is_over(tmp_path, slow_file, handle):
    for i in range(4):
        handle.async_pread(np.empty(8 << 20, "u1"), slow_file, i * (8 << 20))
        handle.async_pwrite(np.full(1 << 20, i, "u1"), tmp_path / str(i))
    assert handle.wait() == 8
    for i in range(4):
        assert (np.fromfile(tmp_path / str(i), "u1") == i).all()


def test_threads_share_a_handle(tmp_path, noise, handle):
    failures = []

    def work(number):
        try:
            for step in range(20):
                array = noise(5000 + number * 100 + step)
                path = tmp_path / f"{number}"
                assert handle.sync_pwrite(array, path) == 1
                out = np.empty_like(array)
                assert handle.sync_pread(out, path) == 1
                np.testing.assert_array_equal(out, array)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_what_several_threads_start_is_counted_once_in_all(tmp_path, handle):
    counts = []

    def work(number):
        for step in range(25):
            handle.async_pwrite(np.full(100, number), tmp_path / f"{number}-{step}")
        counts.append(handle.wait())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) + handle.wait() == 100


@pytest.mark.gpu
def test_aio_takes_gpu_memory_through_the_ring(tmp_path, noise):
    contents = noise((1 << 20) + 3)
    handle = deepnvme.aio_handle()
    handle.sync_pwrite(ps.DeviceArray.from_numpy(contents), tmp_path / "f")
    out = ps.DeviceArray(contents.size)
    handle.async_pread(out, tmp_path / "f")
    assert handle.wait() == 1
    np.testing.assert_array_equal(out.numpy(), contents)
    assert handle.reports[0].route == "staged"


@pytest.mark.gpu
def test_gds_takes_the_route_of_cufile_where_it_starts_and_else_says_why(tmp_path, noise):
    cufile = ps.describe(tmp_path)["cufile"]
    contents = noise((1 << 20) + 3)
    handle = deepnvme.gds_handle()
    handle.sync_pwrite(ps.DeviceArray.from_numpy(contents), tmp_path / "f")
    out = ps.DeviceArray(contents.size)
    handle.async_pread(out, tmp_path / "f")
    assert handle.wait() == 1
    np.testing.assert_array_equal(out.numpy(), contents)
    (report,) = handle.reports
    if cufile["mode"] is not None:
        assert (report.route, report.note) == ("gds", "")
    else:
        assert report.route != "gds"
        assert cufile["reason"] in report.note


@pytest.mark.gpu
def test_where_cufile_refuses_gds_takes_another_route_and_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr(deepnvme.gds, "_asked", {os.stat(tmp_path).st_dev: "no such luck"})
    handle = deepnvme.gds_handle()
    array = ps.DeviceArray.from_numpy(np.arange(1000))
    handle.sync_pwrite(array, tmp_path / "f")
    assert "no such luck" in ps.last_report().note
    handle.async_pwrite(array, tmp_path / "f")
    assert handle.wait() == 1
    (report,) = handle.reports
    assert report.bytes == 8000
    assert "no such luck" in report.note
    np.testing.assert_array_equal(np.fromfile(tmp_path / "f", int), np.arange(1000))


@pytest.mark.either
def test_the_builders_give_the_modules_with_the_handles():
    assert deepnvme.AsyncIOBuilder().is_compatible()
    assert deepnvme.AsyncIOBuilder().load(verbose=False).aio_handle is deepnvme.aio_handle
    assert deepnvme.GDSBuilder().is_compatible(True) == bool(ps.devices())
    assert deepnvme.GDSBuilder().load().gds_handle is deepnvme.gds_handle
    assert deepnvme.PinMemoryBuilder().load().pin_handle is deepnvme.pin_handle


def test_the_functions_of_the_module_read_write_and_copy(tmp_path, memory, noise):
    contents = noise(10_001)
    array, out = memory.array(contents), memory.empty(10_001)
    settings_of_a_handle = (1 << 20, 8, False, False, True)
    assert deepnvme.aio_write(array, tmp_path / "f", *settings_of_a_handle) == 0
    assert deepnvme.aio_read(out, tmp_path / "f", *settings_of_a_handle) == 0
    np.testing.assert_array_equal(memory.numpy(out), contents)
    copied = np.empty(10_001, "u1")
    assert deepnvme.deepspeed_memcpy(copied, array) == 0
    np.testing.assert_array_equal(copied, contents)
    with pytest.raises(ValueError, match="10001"):
        deepnvme.deepspeed_memcpy(copied[1:], array)
