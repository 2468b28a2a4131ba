"""Runs one operation twice while streams of this program wait: `busy_gpu.py OPERATION STREAMS`.

It is the first use of the GPU by Penstock, and then a later one. Nothing but the CPU lets the
streams continue, so that an operation that waited for them would never end.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import h5py
import numpy as np

import penstock as ps

NON_BLOCKING = 1
ROWS = np.arange(1 << 20, dtype="f4").reshape(4096, 256)
PICKED = np.arange(1, 4096, 3)


class Program:
    """Streams of the device's primary context that wait until `go_on`."""

    def __init__(self, streams: int) -> None:
        name = os.environ.get("PENSTOCK_CUDA_LIBRARY", "libcuda.so.1")
        self._cuda = ctypes.CDLL(name)
        context = ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self._call("cuCtxSetCurrent", context)
        self._streams = [self.stream() for _ in range(streams)]
        word = ctypes.c_void_p()
        self._call("cuMemHostAlloc", ctypes.byref(word), ctypes.c_size_t(4096), 2)
        assert word.value is not None
        self._word = ctypes.c_uint32.from_address(word.value)
        self._on_gpu = ctypes.c_uint64()
        self._call("cuMemHostGetDevicePointer_v2", ctypes.byref(self._on_gpu), word, 0)
        self._value = 0
        self._word.value = 0

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._cuda, name)(*arguments)
        assert code == 0, f"{name}: {code}"

    def stream(self) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        self._call("cuStreamCreate", ctypes.byref(made), NON_BLOCKING)
        return made

    def block(self) -> None:
        self._value += 1
        for stream in self._streams:
            self._call("cuStreamWaitValue32_v2", stream, self._on_gpu, self._value, 0)

    def go_on(self) -> None:
        for stream in self._streams:
            assert self._cuda.cuStreamQuery(stream) == 600, "a stream did not wait"
        self._word.value = self._value
        for stream in self._streams:
            self._call("cuStreamSynchronize", stream)


def operation(name: str, folder: str) -> Callable[[], None]:
    """The operation, which checks its result."""
    file, raw = os.path.join(folder, "a.h5"), os.path.join(folder, "a.bin")
    target = ps.DeviceArray(ROWS.shape, "f4")
    is_write = name.startswith(("save", "write"))
    source = ps.DeviceArray.from_numpy(ROWS) if is_write else target
    kept = []  # since cuMemFree waits, as CUDA documents

    def check(got: Any, expected: Any) -> None:
        kept.append(got)
        np.testing.assert_array_equal(got.numpy(), expected)

    def read(dataset: str, selection: Any = ..., **options: Any) -> None:
        with ps.File(file) as opened:
            got = opened[dataset].read(selection, device="cuda", like="device", **options)
        check(got, ROWS[selection])

    def read_parts() -> None:
        with ps.File(file) as opened:
            parts = [np.s_[i : i + 64] for i in range(0, 4096, 64)]
            on_gpu = {"device": "cuda", "like": "device"}
            reads = [opened["plain"].read_async(part, **on_gpu) for part in parts]
            for part, pending in zip(parts, reads, strict=True):
                check(pending.wait(), ROWS[part])

    def read_reopened() -> None:
        on_gpu = {"device": "cuda", "like": "device"}
        with ps.File(file) as opened:
            dataset = opened["gzip"]
            check(dataset.read(3, **on_gpu), ROWS[3])
            ps.File(file).close()
            check(dataset.read(5, **on_gpu), ROWS[5])
            ps.File(file).close()
            check(dataset.read_async(7, **on_gpu).wait(), ROWS[7])

    def write(**how: Any) -> None:
        path = os.path.join(folder, "written.h5")
        with ps.File(path, "w") as opened:
            opened.create_dataset("x", ROWS.shape, "f4", **how).write(source)
        with h5py.File(path) as opened:
            np.testing.assert_array_equal(opened["x"][()], ROWS)

    def save() -> None:
        path = os.path.join(folder, "saved.bin")
        ps.save(path, source)
        np.testing.assert_array_equal(np.fromfile(path, "f4"), ROWS.ravel())

    def load(**options: Any) -> None:
        ps.load(raw, out=target, **options)
        np.testing.assert_array_equal(target.numpy(), ROWS)

    return {
        "load": load,
        "load_mapped": lambda: load(route="mapped"),
        "load_uring": lambda: load(route="staged", io="uring"),
        "load_direct": lambda: load(direct="yes"),
        "load_small": lambda: check(
            ps.load(raw, shape=64, dtype="f4", device="cuda", like="device"), ROWS.ravel()[:64]
        ),
        "read": lambda: read("plain"),
        "read_chunked": lambda: read("chunked"),
        "read_converted": lambda: read("big"),
        "read_gzip_cpu": lambda: read("gzip", decode="cpu"),
        "read_gzip_gpu": lambda: read("gzip", decode="gpu"),
        "read_gzip_auto": lambda: read("gzip"),
        "read_rows": lambda: read("gzip", PICKED),
        "read_strided": lambda: read("plain", np.s_[::3, 1::2]),
        "read_parts": read_parts,
        "read_reopened": read_reopened,
        "write": write,
        "write_chunked": lambda: write(chunks=(64, 256)),
        "write_gzip": lambda: write(chunks=(64, 256), compression="gzip"),
        "save": save,
        "init": lambda: ps.init(),
    }[name]


OPERATIONS = (
    "load",
    "load_mapped",
    "load_uring",
    "load_direct",
    "load_small",
    "read",
    "read_chunked",
    "read_converted",
    "read_gzip_cpu",
    "read_gzip_gpu",
    "read_gzip_auto",
    "read_rows",
    "read_strided",
    "read_parts",
    "read_reopened",
    "write",
    "write_chunked",
    "write_gzip",
    "save",
    "init",
)


def make_files(folder: str) -> None:
    """Make what the operations read."""
    ROWS.tofile(os.path.join(folder, "a.bin"))
    with h5py.File(os.path.join(folder, "a.h5"), "w") as made:
        made["plain"] = ROWS
        made["big"] = ROWS.astype(">f4")
        made.create_dataset("chunked", data=ROWS, chunks=(64, 256))
        made.create_dataset("gzip", data=ROWS, chunks=(64, 256), compression="gzip", shuffle=True)


def main() -> None:
    name, streams, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    make_files(folder)
    program = Program(streams)
    perform = operation(name, folder)
    for use in ("first", "later"):
        program.block()
        begin = perf_counter()
        try:
            perform()
            seconds = perf_counter() - begin
        finally:
            program.go_on()
        print(f"{name}, {streams} streams wait, {use} use: {seconds:.2f} s", flush=True)


if __name__ == "__main__":
    main()
