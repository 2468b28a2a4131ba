"""FastPersist's file object, with Python's own files as the oracle."""

from __future__ import annotations

import io
import os
import pickle
import resource
import threading
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.deepnvme import (
    FastFileWriter,
    FastFileWriterConfig,
    MockFileWriter,
    PyFileWriter,
    aio_handle,
    fast_file_writer,
    gds_handle,
)

FUNCTION_FIXTURES = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
COMMON = ["path", "flush", "write", "close", "fileno", "bytes", "write_secs", "write_GB/s"]


def config_with(buffer, **more):
    handle = gds_handle() if isinstance(buffer, ps.DeviceArray) else aio_handle()
    return FastFileWriterConfig(handle, buffer, **more)


@contextmanager
def no_longer_files(length):
    """Limit the length of files to ``length`` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (length, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def descriptors_on(folder):
    """What descriptors of this process are open on in a folder."""
    names = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except FileNotFoundError:  # that of the listing itself
            continue
    return [name for name in names if name.startswith(str(folder))]


def test_a_config_has_deepspeeds_fields_and_defaults():
    config = FastFileWriterConfig(dnvme_handle=aio_handle(), pinned_tensor=np.zeros(10))
    assert config.double_buffer is True
    assert (config.num_parallel_writers, config.writer_rank, config.global_rank) == (1, 0, 0)


@settings(max_examples=30, deadline=None, suppress_health_check=FUNCTION_FIXTURES)
@given(
    lengths=st.lists(st.one_of(st.sampled_from([0, 1, 512, 4096]), st.integers(0, 40_000))),
    buffer=st.sampled_from([511, 4096, 10_000, 1 << 20]),
    double=st.booleans(),
)
def test_the_file_holds_exactly_what_was_written(tmp_path, memory, noise, lengths, buffer, double):
    path = tmp_path / "f"
    path.write_bytes(b"older and longer" * 10_000)
    pieces = [noise(length).tobytes() for length in lengths]
    writer = FastFileWriter(path, config_with(memory.empty(buffer), double_buffer=double))
    for piece in pieces:
        assert writer.write(piece) == len(piece)
    writer.close()
    assert path.read_bytes() == b"".join(pieces)
    assert descriptors_on(path) == []


def test_a_writer_without_a_configuration_is_refused(tmp_path):
    with pytest.raises(ps.IncompatibleError, match="int is not a FastFileWriterConfig"):
        FastFileWriter(tmp_path / "f", 3)
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize("buffer", [2, 3])
def test_a_buffer_of_hardly_any_bytes_serves(tmp_path, memory, buffer):
    with FastFileWriter(tmp_path / "f", config_with(memory.empty(buffer))) as writer:
        writer.write(b"some")
        writer.write(b" bytes")
    assert (tmp_path / "f").read_bytes() == b"some bytes"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle_gives_the_bytes_that_it_gives_a_plain_file(tmp_path, noise, protocol):
    state = {"weights": [noise(100_000) for _ in range(5)], "step": 7, "name": "é" * 1000}
    plain = io.BytesIO()
    pickle.dump(state, plain, protocol)
    with FastFileWriter(tmp_path / "f", config_with(np.empty(64 << 10, "u1"))) as writer:
        pickle.dump(state, writer, protocol)
    assert (tmp_path / "f").read_bytes() == plain.getvalue()


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview, np.frombuffer])
def test_bytes_of_any_kind_are_taken(tmp_path, make):
    with FastFileWriter(tmp_path / "f", config_with(np.empty(10))) as writer:
        arguments = ("u1",) if make is np.frombuffer else ()
        assert writer.write(make(b"some bytes", *arguments)) == 10
        assert writer.write(memoryview(np.arange(4, dtype="i8"))[::2]) == 16
        with pytest.raises(TypeError):
            writer.write("text")
    assert (tmp_path / "f").read_bytes() == b"some bytes" + np.array([0, 2], "i8").tobytes()


def test_what_was_written_may_change_at_once(tmp_path):
    array = np.empty(1000, "u1")
    with FastFileWriter(tmp_path / "f", config_with(np.empty(5000, "u1"))) as writer:
        for i in range(100):
            array[:] = i
            writer.write(array)
    np.testing.assert_array_equal(
        np.fromfile(tmp_path / "f", "u1"), np.repeat(np.arange(100, dtype="u1"), 1000)
    )


def test_one_half_is_filled_while_the_other_is_written(tmp_path, noise):
    contents = noise(100_000)
    writer = FastFileWriter(tmp_path / "f", config_with(np.empty(20_000, "u1")))
    writer.write(contents[:10_000])
    assert writer._in_flight is not None
    writer.write(contents[10_000:19_000])  # does not wait
    assert writer._in_flight is not None
    writer.write(contents[19_000:])
    writer.close()
    np.testing.assert_array_equal(np.fromfile(tmp_path / "f", "u1"), contents)


def test_the_writer_has_nothing_to_do_with_other_operations_of_the_handle(tmp_path, noise):
    config = config_with(np.empty(10_000, "u1"))
    handle = config.dnvme_handle
    with FastFileWriter(tmp_path / "f", config) as writer:
        handle.async_pwrite(noise(1000), tmp_path / "g")
        writer.write(noise(100_000))
        assert handle.wait() == 1
    assert handle.wait() == 0
    np.testing.assert_array_equal(np.fromfile(tmp_path / "f", "u1"), noise(100_000))


@pytest.mark.parametrize("double", [False, True])
def test_an_error_of_writing_is_raised_once_and_ends_it(tmp_path, memory, double):
    config = config_with(memory.empty(2000), double_buffer=double)
    handle = config.dnvme_handle
    writer = FastFileWriter(tmp_path / "f", config)
    with no_longer_files(5000):
        with pytest.raises(OSError, match="f") as raised:
            writer.write(bytes(10_000))
        assert raised.value.path == str(tmp_path / "f")
        assert raised.value.offset <= 5000 < raised.value.offset + raised.value.length
        with pytest.raises(ValueError, match="earlier write failed"):
            writer.write(b"more")
        writer.close()
    assert descriptors_on(tmp_path) == []
    assert handle.wait() == 0


def test_an_error_that_is_found_last_is_raised_by_close(tmp_path):
    writer = FastFileWriter(tmp_path / "f", config_with(np.empty(2000, "u1")))
    with no_longer_files(500):
        writer.write(bytes(999))
        with pytest.raises(OSError, match="f"):
            writer.close()
        writer.close()
    assert descriptors_on(tmp_path) == []


def test_a_file_whose_path_means_nothing_any_more_is_written_to_its_end(
    tmp_path, memory, monkeypatch
):
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    writer = FastFileWriter("f", config_with(memory.empty(1000)))
    writer.write(b"a" * 1500)
    monkeypatch.chdir(tmp_path / "folder")
    writer.write(b"b" * 1500)
    os.rename(tmp_path / "f", tmp_path / "g")
    writer.write(b"c" * 1500)
    writer.close()
    assert (tmp_path / "g").read_bytes() == b"a" * 1500 + b"b" * 1500 + b"c" * 1500


def test_a_copy_that_fails_ends_the_writing(tmp_path, memory, monkeypatch):
    writer = FastFileWriter(tmp_path / "f", config_with(memory.empty(1000)))
    writer.write(b"a" * 1200)

    def fail(*_):
        raise ps.GpuError("no copy")

    with monkeypatch.context() as patched:
        patched.setattr(fast_file_writer, "copy_bytes", fail)
        with pytest.raises(ps.GpuError, match="no copy"):
            writer.write(b"b" * 100)
    # What follows would lie where the bytes that are missing should.
    with pytest.raises(ps.InvalidError, match="an earlier write failed"):
        writer.write(b"c" * 100)
    writer.close()
    assert (tmp_path / "f").read_bytes() == b"a" * 1000


def test_a_closed_writer_takes_nothing(tmp_path):
    writer = FastFileWriter(tmp_path / "f", config_with(np.empty(10)))
    writer.close()
    writer.close()
    with pytest.raises(ValueError, match="closed"):
        writer.write(b"more")
    assert (tmp_path / "f").read_bytes() == b""
    assert writer.statistics()["close"] == 2


def test_a_writer_that_is_dropped_writes_what_it_has(tmp_path, capsys):
    writer = FastFileWriter(tmp_path / "f", config_with(np.empty(100)))
    writer.write(b"content")
    del writer
    assert (tmp_path / "f").read_bytes() == b"content"
    writer = FastFileWriter(tmp_path / "f", config_with(np.empty(100)))
    writer.write(b"content")
    with no_longer_files(1):
        del writer
    assert "not closed" in capsys.readouterr().err


def test_what_a_writer_cannot_use_is_refused_before_the_file_is_touched(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"old")
    buffer = np.empty(10, "u1")
    with pytest.raises(TypeError, match="not a handle"):
        FastFileWriter(path, FastFileWriterConfig(object(), buffer))
    for wrong in (np.empty((4, 4))[:, ::2], "text"):
        with pytest.raises(TypeError):
            FastFileWriter(path, config_with(wrong))
    with pytest.raises(ValueError, match="too short"):
        FastFileWriter(path, config_with(buffer[:1]))
    with pytest.raises(ValueError, match="writer 2 of 2"):
        FastFileWriter(path, config_with(buffer, num_parallel_writers=2, writer_rank=2))
    with pytest.raises(FileNotFoundError):
        FastFileWriter(tmp_path / "missing" / "f", config_with(buffer))
    assert path.read_bytes() == b"old"


def test_the_writer_exposes_no_descriptor_of_the_file(tmp_path):
    with FastFileWriter(tmp_path / "f", config_with(np.empty(10))) as writer:
        assert writer.fileno() == -1
        assert writer.file_path() == tmp_path / "f"


def test_the_statistics_have_deepspeeds_names(tmp_path, capsys):
    writer = FastFileWriter(tmp_path / "f", config_with(np.empty(200, "u1")))
    writer.write(bytes(1000))
    writer.write(bytes(11))
    writer.flush()
    writer.close()
    found = writer.statistics()
    assert (found["write"], found["bytes"], found["aio_bytes"]) == (2, 1011, 1011)
    assert (found["flush"], found["close"], found["slow_bytes"]) == (1, 1, 0)
    assert found["write_secs"] > 0
    assert found["write_GB/s"] > 0
    own = ["aio_write_secs", "aio_GB/s", "fill_buffer_secs", "fill_buffer_count"]
    assert set(found) >= {*COMMON, *own, "fill_buffer_GB/s", "save_storage", "save_storage_bytes"}
    writer._dump_state()
    assert "'bytes': 1011" in capsys.readouterr().out


def test_the_plain_writer_writes_and_counts(tmp_path):
    writer = PyFileWriter(tmp_path / "f")
    assert writer.write(b"content") == 7
    writer.flush()
    writer.close()
    assert (tmp_path / "f").read_bytes() == b"content"
    found = writer.statistics()
    assert (found["write"], found["bytes"], found["flush"], found["close"]) == (1, 7, 1, 1)
    assert set(found) == set(COMMON)


def test_the_mock_writer_counts_and_writes_nothing(tmp_path):
    writer = MockFileWriter(tmp_path / "f")
    pickle.dump(list(range(1000)), writer)
    writer.flush()
    writer.close()
    assert (tmp_path / "f").read_bytes() == b""
    assert writer.statistics()["bytes"] == len(pickle.dumps(list(range(1000))))
    assert writer.fileno() == -1
    with pytest.raises(ValueError, match="closed"):
        writer.write(b"")


def test_threads_that_write_to_one_file_take_turns(tmp_path):
    path = tmp_path / "shared"
    with FastFileWriter(path, config_with(np.zeros(1000, "u1"))) as file:
        threads = [
            threading.Thread(
                target=lambda byte=byte: [file.write(bytes([byte]) * 997) for _ in range(50)]
            )
            for byte in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    written = np.fromfile(path, "u1").reshape(-1, 997)
    assert len(written) == 200
    assert (written == written[:, :1]).all()
    assert (np.bincount(written[:, 0]) == 50).all()


@pytest.mark.parametrize("name", ["writer_rank", "num_parallel_writers"])
@pytest.mark.parametrize("value", [2.5, "2", None])
def test_a_number_of_writers_that_is_no_integer_is_refused(tmp_path, name, value):
    with pytest.raises(ps.IncompatibleError, match="num_parallel_writers"):
        FastFileWriter(tmp_path / "x", config_with(np.zeros(10, "u1"), **{name: value}))
