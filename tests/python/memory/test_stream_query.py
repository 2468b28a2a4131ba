"""Streams of frameworks: whether they have work is asked without harm to others."""

import ctypes
import sys
import threading
from types import SimpleNamespace

import pytest

from penstock import frameworks

GLOBAL_MODE = 0


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


def test_a_stream_with_work_is_pending_until_the_work_is_done(driver, monkeypatch):
    stream = driver.stream()
    monkeypatch.setitem(sys.modules, "torch", as_torch(driver, stream))
    gate = driver.hold(stream)
    assert frameworks.torch_pending(0) == stream.value
    gate.value = 1
    driver.call("cuStreamSynchronize", stream)
    assert frameworks.torch_pending(0) is None
