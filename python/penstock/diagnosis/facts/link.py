"""Measures the rate of a GPU's link."""

from __future__ import annotations

import threading
from statistics import median
from time import perf_counter
from typing import Any

from penstock import _threads
from penstock._native import NULL, CData, ffi, lib
from penstock.diagnosis.facts import gpu
from penstock.diagnosis.system import System
from penstock.errors import Error, check

BYTES = 256 << 20
ROUNDS = 7


def measure(
    device: int, bus_id: str | None, system: System | None = None, nbytes: int = BYTES
) -> dict[str, Any]:
    """Time copies between pinned host memory and a GPU, one direction at a time.

    Return the median rates in bytes per second, and generation and width of the link meanwhile.
    After an error, ``reason`` has its message.
    """
    system = System() if system is None else system
    rates: dict[str, Any] = {"bytes": nbytes, "to_gpu": None, "from_gpu": None, "reason": None}
    try:
        with _Memory(device, nbytes) as (host, on_gpu):
            with _Watch(system, bus_id) as watch:
                rates["to_gpu"] = _rate(on_gpu, host, nbytes)
                rates["from_gpu"] = _rate(host, on_gpu, nbytes)
            rates["generation"], rates["width"] = watch.generation, watch.width
    except Error as error:
        rates["reason"] = str(error)
    return rates


def _rate(destination: CData, source: CData, nbytes: int) -> float:
    def seconds() -> float:
        began = perf_counter()
        check(lib.penstock_copy(destination, source, nbytes))
        return perf_counter() - began

    seconds()  # brings the link to full speed, and touches the pages
    return nbytes / median(seconds() for _ in range(ROUNDS))


class _Memory:
    """Pinned host memory and GPU memory, as pointers."""

    def __init__(self, device: int, nbytes: int) -> None:
        self._device, self._nbytes = device, nbytes
        self._host, self._gpu = ffi.new("void **"), ffi.new("void **")

    def __enter__(self) -> tuple[CData, CData]:
        try:
            check(lib.penstock_host_alloc(self._nbytes, self._host))
            check(lib.penstock_device_alloc(self._device, self._nbytes, self._gpu))
        except BaseException:
            self.__exit__()
            raise
        ffi.memmove(self._host[0], b"\1" * (1 << 20), min(1 << 20, self._nbytes))
        return self._host[0], self._gpu[0]

    def __exit__(self, *_: object) -> None:
        if self._gpu[0] != NULL:
            lib.penstock_device_free(self._gpu[0])
        if self._host[0] != NULL:
            lib.penstock_host_free(self._host[0])


class _Watch:
    """Samples the greatest speed of a GPU's link, which slows down when it is idle."""

    def __init__(self, system: System, bus_id: str | None) -> None:
        self._system, self._bus_id = system, bus_id
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.generation: int | None = None
        self.width: int | None = None

    def __enter__(self) -> _Watch:
        if self._bus_id is not None:
            self._thread = _threads.start(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _look(self) -> None:
        ended = False
        while not ended:
            now = gpu.link(self._system, self._bus_id or "")
            if (now["generation"] or 0) > (self.generation or 0):
                self.generation = now["generation"]
            if (now["width"] or 0) > (self.width or 0):
                self.width = now["width"]
            ended = self._ended.wait(0.02)
