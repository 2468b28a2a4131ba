"""What this machine offers, and functions that concern the whole library."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, cast

from penstock import arrays, memory, request
from penstock._native import NULL, ffi, is_loaded, lib, text
from penstock.ending import at_end
from penstock.errors import check
from penstock.files import Path, encode


def devices() -> list[str]:
    """Return the usable GPUs as ``["cuda:0", ...]``; empty if there is none."""
    count = ffi.new("int *")
    check(lib.penstock_device_count(count))
    return [f"cuda:{ordinal}" for ordinal in range(count[0])]


def describe(path: Path | None = None) -> dict[str, Any]:
    """Describe the machine: GPUs, driver, cuFile and whether it would start, io_uring.

    With a ``path``, it also describes the file system and its tuned profiles. For a file, it adds
    the length in bytes, the cached fraction and, on Lustre, the layout.
    """
    description = ffi.new("char **")
    check(lib.penstock_describe(NULL if path is None else encode(path), description))
    try:
        return cast("dict[str, Any]", json.loads(text(description[0])))
    finally:
        lib.penstock_string_free(description[0])


def memory_kind(array: Any) -> Literal["host", "pinned", "managed", "device"]:
    """Return the kind of an array's memory, as the CUDA driver knows it."""
    found = arrays.view(array)
    if not found.pointer:
        return "device" if found.device >= 0 else "host"
    kind, _ = memory.kind_of(found.pointer)
    return cast("Literal['host', 'pinned', 'managed', 'device']", memory.KINDS[kind])


def drain() -> None:
    """Wait for all requests of this process that are pending when this is called."""
    request.finish_all()
    check(lib.penstock_drain())


@contextmanager
def trace(path: Path) -> Iterator[None]:
    """Record all I/O, copies and requests within a ``with`` block to a file.

    The file is Chrome trace JSON, which https://ui.perfetto.dev displays.

    >>> with ps.trace("t.json"):
    ...     ps.load("w.bin", device="cuda")
    """
    check(lib.penstock_trace_start(encode(path)))
    try:
        yield
    finally:
        check(lib.penstock_trace_stop())


@at_end
def _drain_at_exit() -> None:
    """Finish pending requests before the interpreter frees the memory that they use."""
    if is_loaded():  # else a forked child would load a copy, which has nothing to finish
        request.finish_all()
        lib.penstock_drain()
