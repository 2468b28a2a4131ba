"""An exception that a signal handler raises, at any step of a call, frees no memory in use."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import h5py
import numpy as np
import pytest
from h5py._objects import phil

import penstock as ps
from penstock import native_calls, request, text_file, transfer
from penstock._native import ffi, lib
from penstock.dist.mpi import parts
from penstock.dist.place import Place
from penstock.dist.storage import Storage
from penstock.files import READ, NativeFile
from penstock.hdf5 import dataset_reader, small, submit

PACKAGE = str(Path(ps.__file__).parent)
RUNNING = (lib.PENSTOCK_PENDING, lib.PENSTOCK_TURN)
SHAPE = (256, 2048)


class Interrupted(BaseException):
    """What the signal handler of a program raises."""


class Interrupter:
    """Counts the bytecodes of the package, and raises at one of them."""

    def __init__(self) -> None:
        self.seen = 0
        self.at = sys.maxsize

    def run(self, call: Callable[[], object], at: int = sys.maxsize) -> int:
        """Make the call; how many bytecodes it took."""
        self.seen, self.at = 0, at
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            call()
        finally:
            sys.settrace(before)
        return self.seen

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        frame.f_trace_opcodes = True
        return self._step

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode":
            self.seen += 1
            if self.seen == self.at:
                raise Interrupted
        return self._step


def _give_lock_back() -> None:
    """Release h5py's lock where the interrupt came in the last step of a ``with`` block.

    CPython runs no signal handler there, but a trace function can raise there.
    """
    with suppress(RuntimeError):
        while True:
            phil.release()


class Watch:
    """The native library, with a record of the requests that it started."""

    def __init__(self, interrupter: Interrupter) -> None:
        self.interrupter = interrupter
        self.started: list[Any] = []
        self.first_start = 0
        self.freed_early = 0

    def __getattr__(self, name: str) -> Any:
        function = getattr(lib, name)
        if not name.endswith(("submit", "selected")):
            return function

        def submit(*arguments: Any) -> int:
            if not self.started:
                self.first_start = self.interrupter.seen
            status: int = function(*arguments)
            self.started.append(arguments[-1][0])
            return status

        return submit

    def guarded(self, shape: tuple[int, ...] = SHAPE) -> np.ndarray[Any, Any]:
        """An array that must not go while a request is under way."""
        array = np.ones(shape, "f4")
        weakref.finalize(array, self._look)
        return array

    def _look(self) -> None:
        running = [lib.penstock_request_test(handle) in RUNNING for handle in self.started]
        self.freed_early += any(running)


@pytest.fixture
def watch(monkeypatch) -> Iterator[Watch]:
    watch = Watch(Interrupter())
    for module in (request, transfer, submit):
        monkeypatch.setattr(module, "lib", watch)
    monkeypatch.setattr(request, "_scan_at", 0)
    monkeypatch.setattr(request, "_FIRST_SCAN_AT", 0)
    monkeypatch.setattr(transfer, "AT_ONCE", 0)
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    monkeypatch.setattr(small, "ROWS", 0)
    yield watch
    request.finish_all()
    gc.collect()
    request._scan_at = 0
    request._discard_finished()
    assert not request._pending


@pytest.fixture
def path(tmp_path) -> Path:
    np.ones(SHAPE, "f4").tofile(tmp_path / "raw")
    with h5py.File(tmp_path / "file.h5", "w") as file:
        file.create_dataset("x", data=np.ones(SHAPE, "f4"), chunks=(16, 512), compression="gzip")
    return tmp_path


SLOW: dict[str, Any] = {"threads": 1, "block": "4KiB", "io": "threads", "direct": "no"}


def _load_async(watch: Watch, path: Path, _: Any) -> object:
    return ps.load_async(path / "raw", out=watch.guarded(), **SLOW)


def _save_async(watch: Watch, path: Path, _: Any) -> object:
    return ps.save_async(path / "new", watch.guarded(), **SLOW)


def _read_async(watch: Watch, _: Path, dataset: Any) -> object:
    return ps.read_async(dataset, out=watch.guarded())


def _write_async(watch: Watch, _: Path, dataset: Any) -> object:
    return ps.write_async(dataset, watch.guarded())


def _load(watch: Watch, path: Path, _: Any) -> object:
    return ps.load(path / "raw", out=watch.guarded(), **SLOW)


def _read_of_a_list(watch: Watch, _: Path, dataset: Any) -> object:
    rows = [*range(0, 200, 3), *range(200, 256)]
    return ps.read(dataset, rows, out=watch.guarded((len(rows), *SHAPE[1:])))


def _strided_write(watch: Watch, _: Path, dataset: Any) -> object:
    return ps.write(dataset, watch.guarded((2 * SHAPE[0], SHAPE[1]))[::2])


CALLS = (
    _load_async,
    _save_async,
    _read_async,
    _write_async,
    _load,
    _read_of_a_list,
    _strided_write,
)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__.strip("_"))
def test_memory_outlives_the_request_wherever_its_start_is_interrupted(watch, path, call):
    with h5py.File(path / "file.h5", "r+") as file:

        def start() -> None:
            watch.started.clear()
            call(watch, path, file["x"])

        start()  # what is done once in a process is done
        steps = watch.interrupter.run(start)
        assert watch.started
        for at in range(max(watch.first_start - 10, 1), steps + 1):
            with suppress(Interrupted):  # in a drop, it is not reported
                watch.interrupter.run(start, at)
            _give_lock_back()
    assert not watch.freed_early


def test_memory_outlives_the_request_wherever_its_drop_is_interrupted(watch, path):
    def drop(at: int = sys.maxsize) -> int:
        watch.started.clear()
        made = [ps.load_async(path / "raw", out=watch.guarded(), **SLOW)]
        return watch.interrupter.run(made.clear, at)

    for at in range(1, drop() + 1):
        drop(at)
    assert not watch.freed_early


def test_a_file_is_closed_wherever_its_drop_is_interrupted(watch, path):
    def drop(at: int = sys.maxsize) -> int:
        made = [NativeFile(path / "raw", READ)]
        with suppress(Interrupted):
            return watch.interrupter.run(made.clear, at)
        return at

    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    steps, before = drop(), descriptors()
    for at in range(1, steps + 3):
        drop(at)
    assert descriptors() == before


def test_the_end_of_the_interpreter_frees_a_request_before_its_memory(watch, path):
    made = ps.load_async(path / "raw", out=watch.guarded(), **SLOW)
    native = made._native
    del made.__dict__["_native"], made  # as an interrupted drop leaves it
    assert native in request._pending
    request._pending.clear()
    del native
    assert not watch.freed_early


def test_an_interrupted_call_returns_when_nothing_moves_any_more(watch, path, monkeypatch):
    def interrupted(*_: Any) -> int:
        monkeypatch.setattr(request._Native, "poll", poll)
        raise Interrupted

    poll = request._Native.poll
    monkeypatch.setattr(request._Native, "poll", interrupted)
    with pytest.raises(Interrupted):
        ps.load(path / "raw", **SLOW)
    assert lib.penstock_request_test(watch.started[0]) not in RUNNING


def failing(folder: Path) -> ps.Request[Any]:
    """A save under way whose file cannot take its place, for there is a folder by then."""
    made = ps.save_async(folder / "taken", np.ones(64 << 20, "u1"), **SLOW)
    (folder / "taken").mkdir()
    return made


def test_the_error_of_a_dropped_write_is_printed(tmp_path, capsys):
    failing(tmp_path)
    printed = capsys.readouterr().err
    assert printed.startswith("penstock: ")
    assert "taken" in printed


class Opened:
    """The native library, with a record of the readers that it opened."""

    def __init__(self, interrupter: Interrupter) -> None:
        self.interrupter = interrupter
        self.readers: list[Any] = []
        self.first = 0
        kind = "int(penstock_hid, penstock_hid, penstock_decoding *, penstock_reader **)"
        self.penstock_reader_open_decoded = ffi.callback(kind, self._open)

    def __getattr__(self, name: str) -> Any:
        return getattr(lib, name)

    def _open(self, dataset: int, kind: int, decoding: Any, place: Any) -> int:
        self.first = self.interrupter.seen
        status: int = lib.penstock_reader_open_decoded(dataset, kind, decoding, place)
        self.readers.append(place[0])
        return status


@pytest.fixture
def opened(monkeypatch):
    made = Opened(Interrupter())
    monkeypatch.setattr(native_calls, "lib", made)
    native_calls.library.cache_clear()
    yield made
    native_calls.library.cache_clear()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_no_reader_is_left_wherever_its_opening_is_interrupted(tmp_path, opened):
    interrupter = opened.interrupter
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file["x"] = np.arange(64)

    def run(at: int = sys.maxsize) -> int:
        with h5py.File(tmp_path / "f.h5") as file:
            dataset = file["x"]
            try:
                return interrupter.run(lambda: ps.Dataset(dataset)[0:4], at)
            except Interrupted:
                return at
            finally:
                _give_lock_back()
                dataset_reader.drop(dataset)
                gc.collect()
                with phil:  # what is closed is not said to be forgotten
                    lib.penstock_hdf5_forget(file.id.id)
                assert not any(map(lib.penstock_reader_is_forgotten, opened.readers)), at

    run()
    steps = run()
    assert opened.readers
    for at in range(opened.first, steps + 1):
        run(at)


MAKERS = (
    lambda path: text_file.replace(path, "text"),
    text_file.require_replaceable,
    parts.Folder,
    lambda path: Storage(path, {}),
)


@pytest.mark.parametrize("make", MAKERS, ids=("replace", "require", "folder", "storage"))
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_no_hidden_file_is_left_wherever_its_making_is_interrupted(tmp_path, make):
    def run(at: int = sys.maxsize) -> int:
        made: list[object] = []  # what is made is dropped after the call, uninterrupted
        with suppress(Interrupted, SystemError):  # as h5py's driver for Python objects raises it
            return interrupter.run(lambda: made.append(make(tmp_path / "f")), at)
        return at

    def hidden() -> list[str]:
        return [name for name in os.listdir(tmp_path) if name != "f"]

    interrupter = Interrupter()
    run()
    steps = run()
    assert steps > 50
    for at in range(1, steps + 1):
        run(at)
        assert not hidden(), at


def test_a_place_needs_no_proc(tmp_path, monkeypatch):
    read_link = os.readlink

    def without_proc(path: str, *arguments: Any, **keys: Any) -> str:
        if os.fspath(path).startswith("/proc"):
            raise FileNotFoundError
        return read_link(path, *arguments, **keys)

    (tmp_path / "link").symlink_to("f")
    (tmp_path / "folder").symlink_to(".")
    monkeypatch.setattr(os, "readlink", without_proc)
    assert Place(tmp_path / "folder" / "link").path == tmp_path / "f"


@pytest.mark.filterwarnings("error")
def test_a_reported_failure_is_not_reported_again(tmp_path, monkeypatch):
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    made = failing(tmp_path)
    with pytest.raises(ps.IOFailure, match="taken"):
        made.wait()
    del made
    assert not unraisable


@pytest.mark.filterwarnings("error")
def test_a_cancelled_request_may_be_dropped_without_a_word(slow_file, monkeypatch):
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    made = ps.load_async(slow_file)
    made.cancel()
    del made
    assert not unraisable


THREADS = """
import sys, threading, h5py, numpy as np, penstock as ps

values = np.random.default_rng(0).random((4, 1 << 12), dtype="f4")

def work(dataset):
    for _ in range(60):
        dataset.write_async(values, np.s_[0:4]).wait()
        found = dataset.read_async(np.s_[0:4]).wait()
        assert np.array_equal(found, values)

with ps.File(sys.argv[1], "w") as file:
    chunks = {"chunks": (4, 1 << 12), "compression": "gzip"}
    made = [file.create(f"d{i}", (64, 1 << 12), "f4", **chunks) for i in range(6)]
    threads = [threading.Thread(target=work, args=(dataset,)) for dataset in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_threads_may_write_and_read_datasets_of_one_file_at_once(tmp_path):
    subprocess.run([sys.executable, "-c", THREADS, tmp_path / "f.h5"], check=True, timeout=120)


FIRST_USE = """
import os, sys
from pathlib import Path
import h5py, numpy as np, penstock as ps

PACKAGE = Path(ps.__file__).parent

class Interrupted(BaseException):
    pass

def use():
    with ps.File(sys.argv[1], "r+") as file:
        file["x"].write_async(np.ones(10)).wait()
        assert (file["x"].read_async().wait() == 1).all()

def use_interrupted(at):
    seen = 0
    def look(frame, event, argument):
        nonlocal seen
        seen += event == "call" and PACKAGE in Path(frame.f_code.co_filename).parents
        if seen == at:
            raise Interrupted
    sys.setprofile(look)
    try:
        use()
    except Interrupted:
        return True
    finally:
        sys.setprofile(None)
    return False

with h5py.File(sys.argv[1], "w") as file:
    file["x"] = np.zeros(10)
at, was_interrupted = 1, True
while was_interrupted:
    child = os.fork()
    if child == 0:
        was_interrupted = use_interrupted(at)
        use()  # as if nothing had been
        os._exit(2 if was_interrupted else 0)
    was_interrupted = {0: False, 2: True}[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]
    at += 10
assert at > 11
"""


def test_a_first_call_that_is_interrupted_takes_nothing_from_later_ones(tmp_path):
    subprocess.run([sys.executable, "-c", FIRST_USE, tmp_path / "f.h5"], check=True, timeout=120)
