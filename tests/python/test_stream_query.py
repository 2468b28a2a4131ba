"""Streams of frameworks: whether they have work is asked without harm to others."""

import ctypes
import os
import sys
import threading
from types import SimpleNamespace

import pytest

from penstock import frameworks

GLOBAL_MODE = 0


class Driver:
    """The CUDA driver, with the primary context of device 0 current on this thread."""

    def __init__(self):
        self.cuda = ctypes.CDLL(os.environ.get("PENSTOCK_CUDA_LIBRARY", "libcuda.so.1"))
        self.call("cuInit", 0)
        self.context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 0)
        self.enter()

    def enter(self):
        self.call("cuCtxSetCurrent", self.context)

    def call(self, name, *arguments):
        code = getattr(self.cuda, name)(*arguments)
        assert code == 0, f"{name}: {code}"

    def stream(self):
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), 1)
        return stream


@pytest.fixture
def driver():
    try:
        return Driver()
    except (OSError, AssertionError) as error:
        pytest.skip(f"no CUDA driver: {error}")


def as_torch(driver, handle):
    """What ``torch_pending`` uses of torch, with a stream that asks the driver as torch's does."""

    def query():
        driver.enter()
        return driver.cuda.cuStreamQuery(handle) == 0

    stream = SimpleNamespace(cuda_stream=handle.value or 0, query=query)
    return SimpleNamespace(cuda=SimpleNamespace(current_stream=lambda ordinal: stream))


@pytest.mark.parametrize("is_default", [True, False])
def test_asking_for_work_ends_no_capture_of_another_thread(driver, monkeypatch, is_default):
    asked = ctypes.c_void_p(0) if is_default else driver.stream()
    monkeypatch.setitem(sys.modules, "torch", as_torch(driver, asked))
    captured, graph = driver.stream(), ctypes.c_void_p()
    driver.call("cuStreamBeginCapture_v2", captured, GLOBAL_MODE)
    answers = []
    loader = threading.Thread(target=lambda: answers.append(frameworks.torch_pending(0)))
    loader.start()
    loader.join()
    driver.call("cuStreamEndCapture", captured, ctypes.byref(graph))
    assert answers == [None]


def test_a_stream_with_work_is_told_until_the_work_is_done(driver, monkeypatch):
    stream = driver.stream()
    monkeypatch.setitem(sys.modules, "torch", as_torch(driver, stream))
    word = ctypes.c_void_p()
    driver.call("cuMemHostAlloc", ctypes.byref(word), ctypes.c_size_t(4096), 3)
    gate = ctypes.c_uint32.from_address(word.value)
    gate.value = 0
    at_least = 0
    driver.call("cuStreamWaitValue32_v2", stream, ctypes.c_uint64(word.value), 1, at_least)
    assert frameworks.torch_pending(0) == stream.value
    gate.value = 1
    driver.call("cuStreamSynchronize", stream)
    assert frameworks.torch_pending(0) is None
