"""The cost of a call besides its I/O, and of a ring block besides its read."""

from __future__ import annotations

import os
import resource
import statistics
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from cffi import FFI

from penstock._native import NULL, lib, pointer
from penstock.bench import gpu, native, verify
from penstock.bench.files import DataFile, data_file, warm
from penstock.bench.measure import ROUNDS, Contestant, Row, nothing
from penstock.bench.peers import kvikio
from penstock.bench.peers.kvikio import Setting

from .run import Run, benchmark

_SMALL = 4096
_CALLS = 20_000


@benchmark("Cost of a call and of a ring block", size="256MiB", quick_size="16MiB")
def overhead(run: Run) -> None:
    file = data_file(run.folder, run.size)
    warm(file)
    calls = 200 if run.quick else _CALLS
    penstock, pread, _ = _small_reads_to_host(run, file, calls)
    _small_reads_to_gpu(run, file, max(calls // 10, 1))
    extra = None if not (pread.value and penstock.value) else penstock.value - pread.value
    run.target("4 KiB host read, over pread", 3, extra, "us", at_most=True)
    _ring_block(run, file)


def _small_reads_to_host(run: Run, file: DataFile, calls: int) -> list[Row]:
    """Time 4 KiB reads from Python; Penstock and the C library's pread both use cffi."""
    ffi: Any = FFI()
    ffi.cdef("ssize_t pread(int, void *, size_t, long);")
    libc = ffi.dlopen(None)
    descriptor = os.open(file.path, os.O_RDONLY)
    memory = np.zeros(_SMALL, np.uint8)
    address = memory.__array_interface__["data"][0]
    at = file.offset

    def check(_: object) -> None:
        if memory.tobytes() != os.pread(descriptor, _SMALL, at):
            raise AssertionError("wrong bytes")

    def penstock() -> None:
        read, handle, buffer = lib.penstock_read, opened.handle, pointer(address)
        for _ in range(calls):
            if read(handle, buffer, _SMALL, at, NULL, NULL):
                raise OSError("penstock_read")

    def pread() -> None:
        read, buffer = libc.pread, ffi.cast("void *", address)
        for _ in range(calls):
            if read(descriptor, buffer, _SMALL, at) != _SMALL:
                raise OSError("pread")

    def preadv() -> None:
        read, buffers = os.preadv, [memory]
        for _ in range(calls):
            if read(descriptor, buffers, at) != _SMALL:
                raise OSError("preadv")

    ways = [("Penstock", "penstock_read, cffi", penstock), ("pread", "cffi", pread)]
    ways.append(("os.preadv", "Python", preadv))
    poison = partial(memory.fill, 0)
    entered = [
        Contestant(name, setting, calls, timed, poison=poison, check=check)
        for name, setting, timed in ways
    ]
    try:
        with native.OpenFile(file.path) as opened:
            return run.race(entered, "us", group="4 KiB to the host")
    finally:
        os.close(descriptor)


def _small_reads_to_gpu(run: Run, file: DataFile, calls: int) -> None:
    buffer = gpu.Buffer(file.nbytes)
    opened = native.OpenFile(file.path)
    reader = kvikio.Reader(file, buffer)
    poison, check = verify.reading(file, _SMALL, buffer.address)

    def penstock() -> None:
        for _ in range(calls):
            opened.read(buffer.address, _SMALL, file.offset)

    def by_kvikio() -> None:
        read, part, at = reader.handle.pread, buffer.part(_SMALL), file.offset
        for _ in range(calls):
            read(part, _SMALL, at).get()

    before = reader.prepare(Setting(1))
    ours = Contestant("Penstock", "penstock_read, cffi", calls, penstock, nothing, poison, check)
    theirs = Contestant("KvikIO", "pread().get()", calls, by_kvikio, before, poison, check)
    run.race([ours, theirs], "us", group="4 KiB to the GPU")


def _ring_block(run: Run, file: DataFile) -> None:
    """Count page faults and system calls of a repeated staged read, whose memory is allocated."""
    buffer = gpu.Buffer(file.nbytes)
    options: dict[str, Any] = {"route": "staged", "io": "threads", "direct": False, "block": "1MiB"}
    with native.OpenFile(file.path, **options) as opened:
        for _ in range(3):
            opened.read(buffer.address, file.nbytes, file.offset)
        before = _read_calls()
        own_calls = _read_calls() - before
        all_faults, all_calls = [], []
        for _ in range(ROUNDS):
            calls_before, faults_before = _read_calls(), _page_faults()
            opened.read(buffer.address, file.nbytes, file.offset)
            all_faults.append(_page_faults() - faults_before)
            all_calls.append(_read_calls() - calls_before - own_calls)
        faults, calls = statistics.median(all_faults), statistics.median(all_calls)
        report = opened.report
    blocks = -(-file.nbytes // max(report.block, 1))
    run.target("Page faults a ring block", 0.02, faults / blocks, "", at_most=True)
    text = "Read system calls besides the reported I/O, a ring block"
    run.target(text, 0, (calls - report.io_calls) / blocks, "", at_most=True)


def _page_faults() -> int:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_minflt + usage.ru_majflt


def _read_calls() -> int:
    """Return the reads that all threads of the process have issued, including the one here."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("syscr:"):
            return int(line.split()[1])
    raise OSError("/proc/self/io has no syscr")
