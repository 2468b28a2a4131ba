"""DeepNVMe's handles: every failure is raised, once, and says what failed."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager

import numpy as np
import pytest

import penstock as ps
from penstock import deepnvme


@pytest.fixture(params=["aio", "gds"])
def handle(request):
    made = {"aio": deepnvme.aio_handle, "gds": deepnvme.gds_handle}[request.param]()
    yield made
    assert made.wait() == 0


@contextmanager
def no_longer_files(length):
    """Limit the length of files to ``length`` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (length, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


CALLS = {
    "read": lambda handle, *arguments: handle.read(*arguments, False),
    "pread": lambda handle, *arguments: handle.pread(*arguments, False, False),
    "sync_pread": lambda handle, *arguments: handle.sync_pread(*arguments),
    "async_pread": lambda handle, *arguments: (handle.async_pread(*arguments), handle.wait()),
    "write": lambda handle, *arguments: handle.write(*arguments, False),
    "pwrite": lambda handle, *arguments: handle.pwrite(*arguments, False, False),
    "sync_pwrite": lambda handle, *arguments: handle.sync_pwrite(*arguments),
    "async_pwrite": lambda handle, *arguments: (handle.async_pwrite(*arguments), handle.wait()),
}
READS = [name for name in CALLS if "read" in name]
WRITES = [name for name in CALLS if "write" in name]


@pytest.mark.parametrize("call", CALLS)
def test_a_missing_file_or_folder_is_a_file_not_found_error_that_names_it(tmp_path, handle, call):
    path = tmp_path / ("missing" if call in READS else "missing/f")
    with pytest.raises(FileNotFoundError) as raised:
        CALLS[call](handle, np.zeros(10), path)
    assert raised.value.filename == str(path)


@pytest.mark.parametrize("call", READS)
def test_a_file_that_is_too_short_is_an_end_of_file_error(tmp_path, memory, handle, call):
    (tmp_path / "f").write_bytes(bytes(99))
    with pytest.raises(ps.EndOfFileError) as raised:
        CALLS[call](handle, memory.empty(100), tmp_path / "f")
    assert (raised.value.path, raised.value.offset) == (str(tmp_path / "f"), 0)
    assert raised.value.length == 100


@pytest.mark.parametrize("call", WRITES)
def test_a_file_that_cannot_grow_is_an_error_that_names_the_place(tmp_path, memory, handle, call):
    # The system call fails with EFBIG: nothing but the write itself can find that out.
    with no_longer_files(1 << 20), pytest.raises(OSError, match="f") as raised:
        CALLS[call](handle, memory.array(np.zeros(3 << 20, "u1")), tmp_path / "f")
    assert raised.value.errno == errno.EFBIG
    assert raised.value.path == str(tmp_path / "f")
    assert 0 <= raised.value.offset < 3 << 20
    assert raised.value.length > 0


def test_a_file_without_byte_ranges_is_refused(handle):
    with pytest.raises(ps.InvalidError, match="character device"):
        handle.sync_pwrite(np.zeros(10), "/dev/null")


@pytest.mark.parametrize("call", CALLS)
def test_what_is_no_array_is_a_type_error_and_makes_no_file(tmp_path, handle, call):
    with pytest.raises(TypeError):
        CALLS[call](handle, "text", tmp_path / "f")
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize("call", CALLS)
def test_a_negative_offset_is_a_value_error(tmp_path, handle, call):
    (tmp_path / "f").write_bytes(bytes(10))
    more = {"pread": (False, False), "pwrite": (False, False), "read": (False,), "write": (False,)}
    with pytest.raises(ValueError, match="-1"):
        getattr(handle, call)(np.zeros(1, "u1"), tmp_path / "f", *more.get(call, ()), -1)


@pytest.mark.parametrize("offset", [(1 << 63) - 9, 1 << 64])
@pytest.mark.parametrize("call", CALLS)
def test_an_offset_that_no_file_has_is_a_value_error_and_makes_no_file(
    tmp_path, handle, call, offset
):
    path = tmp_path / ("f" if call in READS else "made")
    (tmp_path / "f").write_bytes(bytes(10))
    more = {"pread": (False, False), "pwrite": (False, False), "read": (False,), "write": (False,)}
    with pytest.raises(ValueError, match=str(offset)):
        getattr(handle, call)(np.zeros(10, "u1"), path, *more.get(call, ()), offset)
    assert not (tmp_path / "made").exists()


def test_a_number_that_no_descriptor_has_is_a_value_error(handle):
    for number in (1 << 31, 1 << 80, -(1 << 40)):
        with pytest.raises(ValueError, match=str(number)):
            handle.sync_pread(np.zeros(1, "u1"), number)


def test_a_read_only_array_is_not_read_into(tmp_path, handle):
    (tmp_path / "f").write_bytes(bytes(10))
    array = np.zeros(10, "u1")
    array.flags.writeable = False
    for read in (handle.sync_pread, handle.async_pread):
        with pytest.raises(ValueError, match="read-only"):
            read(array, tmp_path / "f")


def test_a_descriptor_that_is_not_open_or_not_for_that_is_an_error(tmp_path, handle):
    (tmp_path / "f").write_bytes(b"content")
    descriptor = os.open(tmp_path / "f", os.O_RDONLY)
    with pytest.raises(ps.InvalidError, match="not open for writing") as raised:
        handle.async_pwrite(np.zeros(3, "u1"), fd=descriptor)
    assert raised.value.path == str(tmp_path / "f")
    os.close(descriptor)
    with pytest.raises(OSError, match=str(descriptor)) as closed:
        handle.async_pwrite(np.zeros(3, "u1"), fd=descriptor)
    assert closed.value.errno == errno.EBADF
    assert (tmp_path / "f").read_bytes() == b"content"


def test_a_failure_in_the_background_is_raised_by_wait_once_with_its_place(tmp_path, handle):
    (tmp_path / "f").write_bytes(bytes(100))
    array = np.zeros(50, "u1")
    with no_longer_files(100):
        assert handle.async_pwrite(np.ones(50, "u1"), tmp_path / "f", 80) == 0
        assert handle.async_pread(array, tmp_path / "f", 0) == 0
        with pytest.raises(OSError, match="f") as raised:
            handle.wait()
    assert raised.value.path == str(tmp_path / "f")
    assert 80 <= raised.value.offset < 130
    assert raised.value.offset + raised.value.length == 130
    assert len(handle.reports) == 1  # the other one's
    assert handle.wait() == 0


def test_each_of_several_failures_is_reported(tmp_path, handle):
    for name in "abc":
        (tmp_path / name).write_bytes(bytes(10))
        handle.async_pread(np.empty(10, "u1"), tmp_path / name)
    assert handle.wait() == 3
    with no_longer_files(0):
        for name in "xyz":
            handle.async_pwrite(np.zeros(10, "u1"), tmp_path / name)
        with pytest.raises(OSError, match="x") as raised:
            handle.wait()
    first = raised.value
    assert [e.path for e in (first, first.__cause__, first.__cause__.__cause__)] == [
        str(tmp_path / name) for name in "xyz"
    ]
    assert first.__cause__.__cause__.__cause__ is None


def test_a_synchronous_call_raises_what_failed_in_the_background(tmp_path, handle):
    with no_longer_files(100):
        handle.async_pwrite(np.zeros(200, "u1"), tmp_path / "f")
        with pytest.raises(OSError, match="f") as raised:
            handle.sync_pwrite(np.ones(10, "u1"), tmp_path / "g")
        assert raised.value.path == str(tmp_path / "f")
    assert (tmp_path / "g").read_bytes() == bytes([1] * 10)
    with no_longer_files(100):
        handle.async_pwrite(np.zeros(200, "u1"), tmp_path / "f")
        with pytest.raises(FileNotFoundError) as both:
            handle.sync_pread(np.ones(10, "u1"), tmp_path / "missing")
    assert both.value.__cause__.path == str(tmp_path / "f")


def test_an_operation_that_was_not_started_is_not_counted(tmp_path, handle):
    handle.async_pwrite(np.zeros(10), tmp_path / "f")
    with pytest.raises(FileNotFoundError):
        handle.async_pread(np.zeros(10), tmp_path / "missing")
    assert handle.wait() == 1


def test_a_failure_that_a_handle_has_not_reported_is_printed(tmp_path, capsys):
    handle = deepnvme.aio_handle()
    with no_longer_files(100):
        handle.async_pwrite(np.zeros(200, "u1"), tmp_path / "f")
        del handle
    assert "cannot write" in capsys.readouterr().err


@pytest.mark.parametrize("background", [False, True])
def test_validation_finds_bytes_that_differ(tmp_path, memory, handle, background, monkeypatch):
    contents = np.arange(1000, dtype="u1")
    path = tmp_path / "f"
    array = memory.array(contents)
    assert handle.pwrite(array, path, True, background, 7) == (0 if background else 1)
    assert handle.wait() == (1 if background else 0)
    out = memory.empty(1000)
    with open(path, "r+b") as file:  # changes between the read and its validation
        real = deepnvme.handle.compare

        def late(*arguments):
            file.seek(507)
            file.write(b"\xff")
            file.flush()
            real(*arguments)

        monkeypatch.setattr(deepnvme.handle, "compare", late)

        def read_and_wait():
            handle.pread(out, path, True, background, 7)
            handle.wait()

        with pytest.raises(ps.IOFailure, match="differ") as raised:
            read_and_wait()
    assert (raised.value.path, raised.value.offset) == (str(path), 507)


@pytest.mark.parametrize("operation", ["pread", "pwrite"])
def test_validation_looks_at_the_file_that_was_meant_when_the_call_was_made(
    tmp_path, memory, handle, operation, monkeypatch
):
    contents = np.arange(1000, dtype="u1")
    contents.tofile(tmp_path / "f")
    (tmp_path / "other").write_bytes(bytes(2000))
    monkeypatch.chdir(tmp_path)
    call = getattr(handle, operation)
    # The number of a descriptor that is closed is the next one's.
    for _ in range(20):
        descriptor = os.open("f", os.O_RDWR)
        assert call(memory.array(contents), descriptor, True, True) == 0
        os.close(descriptor)
        other = os.open("other", os.O_RDWR)
        assert handle.wait() == 1
        os.close(other)
        if other == descriptor:
            break  # else a thread of the library was first to take the number
    assert other == descriptor
    # Nor is a name bound to a file.
    assert call(memory.array(contents), "f", True, True) == 0
    os.rename("other", "f")
    assert handle.wait() == 1


def test_after_a_fork_the_child_continues_although_another_thread_was_waiting():
    program = """
import os, signal, sys, threading
import numpy as np
import penstock as ps
from penstock.deepnvme import aio_handle
handle = aio_handle()
held, over = threading.Event(), threading.Event()
def hold():
    with handle._lock:  # as wait and all others do
        held.set()
        over.wait()
thread = threading.Thread(target=hold)
handle.async_pwrite(np.zeros(10), sys.argv[1])
assert handle.wait() == 1
thread.start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(20)
    found = np.ones(10)
    handle.async_pread(found, sys.argv[1])
    os._exit(7 if handle.wait() == 1 and not found.any() else 1)
over.set()
thread.join()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    with tempfile.NamedTemporaryFile() as file:
        done = subprocess.run(
            # Python 3.12 warns of a fork beside threads, which is what is tested.
            [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, file.name],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (7, "")


def test_ctrl_c_ends_a_wait_and_loses_no_operation(slow_file):
    handle = deepnvme.aio_handle()
    out = np.ones(128 << 20, "u1")

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    signals = (threading.get_ident(), signal.SIGUSR1)
    timer = threading.Timer(0.01, signal.pthread_kill, signals)
    waited = 0
    try:
        handle.async_pread(out, slow_file)
        timer.start()
        waited = handle.wait()
        timer.join()
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert waited + handle.wait() == 1
    assert not out.any()


def test_a_process_that_ends_with_operations_in_flight_ends_well(slow_file):
    program = """
import sys, numpy as np
from penstock.deepnvme import aio_handle
handle = aio_handle()
handle.async_pread(np.empty(128 << 20, "u1"), sys.argv[1])
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(slow_file)], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def disk(tmp_path):
    """A file system with room for 4 MiB."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", tmp_path], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted: {mounted.stderr.strip()}")
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


@pytest.mark.parametrize("call", WRITES)
def test_a_full_disk_is_reported_with_its_errno_file_and_range(disk, memory, handle, call):
    with pytest.raises(ps.NoSpaceError) as raised:
        CALLS[call](handle, memory.array(np.zeros(8 << 20, "u1")), disk / "f")
    assert raised.value.errno == errno.ENOSPC
    assert raised.value.path == str(disk / "f")
    assert raised.value.offset < 8 << 20
    assert raised.value.length > 0


def test_a_writer_on_a_full_disk_raises_and_closes_its_file(disk, memory):
    config = deepnvme.FastFileWriterConfig(deepnvme.aio_handle(), memory.empty(1 << 20))
    writer = deepnvme.FastFileWriter(disk / "f", config)
    with pytest.raises(ps.NoSpaceError):
        writer.write(bytes(8 << 20))
    writer.close()
    # Nothing is open that would keep the file system busy.
    subprocess.run(["umount", disk], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", disk], check=True)
