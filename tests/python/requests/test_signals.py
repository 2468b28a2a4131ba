"""Threads of Penstock block signals, so that only threads of the program handle them."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock import _threads
from penstock.signals import temporary_folder, undisturbed

BLOCKED = signal.valid_signals() - {
    signal.SIGKILL,
    signal.SIGSTOP,
    # What a thread causes by its own instructions stays with it.
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGTRAP,
    signal.SIGSYS,
}

SEEN = """
import os, sys, threading, time
import h5py, numpy as np
import penstock as ps

masks = {}

def look():
    while True:
        for task in os.listdir("/proc/self/task"):
            try:
                with open(f"/proc/self/task/{task}/status") as status:
                    lines = dict(line.split(":", 1) for line in status)
            except OSError:  # the thread has ended
                continue
            masks[lines["Name"].strip()] = int(lines["SigBlk"], 16)

threading.Thread(target=look, daemon=True).start()

def until(name, step):
    end = time.monotonic() + 60
    while name not in masks and time.monotonic() < end:
        step()

path = sys.argv[1]
values = np.ones(8 << 20)

def small_writes():
    with h5py.File(path, "w", driver="penstock") as file:
        for at in range(20):
            file[f"{at}"] = values[:9]
        time.sleep(0.05)

def implicit_write():
    options = {"implicit": True}
    with ps.File(path, "w", connector="penstock_async", connector_options=options) as file:
        file.h5py.create_dataset("x", values.shape, "f8")[:] = values

def small_reads():
    with ps.File(path) as file:
        file["x"][:10]
    time.sleep(0.1)
"""

HOST = """
ps.save(path, values)
until("penstock", lambda: ps.load_async(path, out=np.empty_like(values)).wait())
until("penstock-sieve", small_writes)
until("penstock-copy", implicit_write)
until("penstock-delay", implicit_write)
with h5py.File(path, "w") as file:
    file.create_dataset("x", data=values[:10000], chunks=(1000,), compression=1)
until("penstock-idle", small_reads)
print({name: mask for name, mask in masks.items() if name.startswith("penstock")})
"""
HOST_THREADS = {
    "penstock",
    "penstock-copy",
    "penstock-delay",
    "penstock-idle",
    "penstock-sieve",
}

GPU = """
import ctypes

sys.path.append(sys.argv[2])
from conftest import Driver

array = ps.DeviceArray.from_numpy(values)
driver = Driver()
stream = driver.stream()

def waits_for_a_stream():
    gate = driver.hold(stream)
    request = ps.save_async(path, array, stream=stream.value)
    gate.value = 1
    request.wait()

def baseline():
    hdf5 = ctypes.CDLL(h5py.h5.__file__)
    hdf5.H5Dwrite.argtypes = [*[ctypes.c_int64] * 5, ctypes.c_void_p]
    with h5py.File(path, "w", driver="penstock", driver_mode="posix-mt") as file:
        made = file.create_dataset("x", values.shape, "f8")
        kind = h5py.h5t.NATIVE_DOUBLE.id
        assert hdf5.H5Dwrite(made.id.id, kind, 0, 0, 0, array.data_ptr) >= 0

until("penstock-watch", waits_for_a_stream)
until("penstock-posix-", baseline)
print({name: mask for name, mask in masks.items() if name.startswith("penstock")})
"""
GPU_THREADS = {"penstock", "penstock-watch", "penstock-posix-"}


def masks(program, path):
    environment = {**os.environ, "HDF5_ASYNC_DELAY_MICROSECOND": "1000"}
    command = [sys.executable, "-c", SEEN + program, str(path), str(Path(__file__).parents[1])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    found = ast.literal_eval(done.stdout)
    return {name: {n for n in range(1, 65) if mask >> (n - 1) & 1} for name, mask in found.items()}


@pytest.mark.parametrize(
    ("program", "threads"),
    [
        pytest.param(HOST, HOST_THREADS, id="host"),
        pytest.param(GPU, GPU_THREADS, id="gpu", marks=pytest.mark.gpu),
    ],
)
def test_every_kind_of_thread_blocks_the_signals(tmp_path, program, threads):
    found = masks(program, tmp_path / "f.h5")
    assert set(found) >= threads
    for name, blocked in found.items():
        assert blocked >= BLOCKED, name


def test_a_program_waits_for_a_signal_that_it_has_blocked(tmp_path):
    program = """
import os, signal, sys, time
import numpy as np, penstock as ps
path, values = sys.argv[1], np.ones(4 << 20)
ps.save_async(path, values).wait()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
os.kill(os.getpid(), signal.SIGTERM)
ps.load(path, out=np.empty_like(values))
print(signal.sigtimedwait({signal.SIGTERM}, 20).si_signo)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "f")],
        # NumPy's own threads would take the signal.
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout.split()) == (0, [str(int(signal.SIGTERM))]), done.stderr


def test_threads_of_python_block_the_signals():
    program = """
import signal
from penstock._threads import Pool, start
mask = lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ())
found = []
start(lambda: found.append(mask())).join()
with Pool(2) as pool:
    found += pool.map(lambda _: mask(), range(2))
print(([[int(one) for one in each] for each in found], len(mask())))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found, own = ast.literal_eval(done.stdout)
    assert len(found) == 3
    assert all(set(each) >= BLOCKED for each in found)
    assert own == 0


def test_a_thread_that_starts_others_keeps_its_mask(monkeypatch):
    # Otherwise a handler that raises could keep the main thread from restoring it.
    def noted(*arguments):
        callers.append(threading.current_thread())
        return change(*arguments)

    change, callers = signal.pthread_sigmask, []
    monkeypatch.setattr(signal, "pthread_sigmask", noted)
    _threads.start(int).join()
    with _threads.Pool(1) as pool:
        pool.submit(int).result()
    assert len(callers) == 2
    assert threading.main_thread() not in callers


def test_a_handler_of_a_library_in_c_stays_where_signals_are_ignored(monkeypatch):
    known = signal.getsignal
    in_c = lambda number: None if number == signal.SIGHUP else known(number)  # noqa: E731
    before = known(signal.SIGHUP)
    monkeypatch.setattr(signal, "getsignal", in_c)
    with undisturbed():
        assert known(signal.SIGINT) == signal.SIG_IGN
        assert known(signal.SIGHUP) == before
    assert known(signal.SIGINT) == signal.default_int_handler


def test_a_folder_of_another_thread_than_the_main_one_is_removed():
    def make() -> Path:
        with temporary_folder("penstock-") as folder:
            return folder

    with ThreadPoolExecutor(1) as pool:
        assert not pool.submit(make).result().exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_handlers_are_restored_if_one_raises_before_all_are_replaced(monkeypatch, number):
    replace = signal.signal

    def interrupt(of: int, handler: object) -> object:
        if of == number and handler == signal.SIG_IGN:
            raise KeyboardInterrupt
        return replace(of, handler)

    monkeypatch.setattr(signal, "signal", interrupt)
    with pytest.raises(KeyboardInterrupt), undisturbed():
        pass
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler
