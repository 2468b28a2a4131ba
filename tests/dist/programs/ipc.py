"""CUDA's IPC handles for the stand-in driver, which has none.

The stand-in keeps the memory of a device in a memory file, which another process can open.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.dist.replicated import peers

_FORM = "qqq"
"""Process, descriptor of its memory file, and the offset of an allocation there."""
_SPACING = 1 << 50
"""Between the addresses of opened allocations, which are never dereferenced."""


def is_missing() -> bool:
    """Whether the driver has no IPC handles, as the stand-in."""
    return not hasattr(peers.Driver(0)._cuda, "cuIpcGetMemHandle")


@contextmanager
def provided(*, fails: str = "") -> Iterator[None]:
    """Provide them within a block. ``fails`` is a function that fails."""
    before = peers.Driver
    try:
        peers.Driver = lambda ordinal: _WithIpc(ordinal, fails)  # type: ignore[assignment, misc]
        yield
    finally:
        peers.Driver = before  # type: ignore[misc]


class _WithIpc(peers.Driver):
    """The driver, and what it lacks."""

    def __init__(self, ordinal: int, fails: str) -> None:
        self._fails = fails
        self._opened: dict[int, tuple[int, int]] = {}
        super().__init__(ordinal)

    def call(self, name: str, *arguments: Any) -> None:
        if name == self._fails:
            raise ps.GpuError(f"{name}: made to fail")
        own = getattr(self, f"_{name}", None)
        is_foreign = name != "cuMemcpyDtoDAsync_v2" or self._find(arguments[1].value)
        if own is not None and is_foreign:
            own(*arguments)
        else:
            super().call(name, *arguments)

    def close(self) -> None:
        assert not self._opened, "an allocation of another process is still open"
        super().close()

    def _cuIpcGetMemHandle(self, handle: Any, base: Any) -> None:  # noqa: N802
        inode, offset = _mapped(base.value)
        packed = struct.pack(_FORM, os.getpid(), _descriptor(inode), offset)
        ctypes.memmove(handle._obj.bytes, packed, len(packed))

    def _cuIpcOpenMemHandle_v2(self, base: Any, handle: Any, flags: int) -> None:  # noqa: N802
        assert flags == 1
        process, descriptor, offset = struct.unpack_from(_FORM, bytes(handle.bytes))
        assert process != os.getpid()
        opened = os.open(f"/proc/{process}/fd/{descriptor}", os.O_RDWR)
        base._obj.value = _SPACING * (len(self._opened) + 1)
        self._opened[base._obj.value] = opened, offset

    def _cuIpcCloseMemHandle(self, base: Any) -> None:  # noqa: N802
        os.close(self._opened.pop(base.value)[0])

    def _cuMemcpyDtoDAsync_v2(self, target: Any, source: Any, length: Any, _: Any) -> None:  # noqa: N802
        base = self._find(source.value)
        opened, offset = self._opened[base]
        inode, start = _mapped(target.value)
        # As they are stored: the stand-in combines bytes of devices with a constant.
        data = os.pread(opened, length.value, offset + source.value - base)
        assert os.pwrite(_descriptor(inode), data, start) == length.value

    def _find(self, address: int) -> int:
        return max((base for base in self._opened if base <= address), default=0)


def _mapped(address: int) -> tuple[int, int]:
    """Return the inode of the file that is mapped at an address, and the offset there."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        area, _, offset, _, inode, *_ = line.split()
        start, stop = (int(end, 16) for end in area.split("-"))
        if start <= address < stop:
            return int(inode), int(offset, 16) + address - start
    raise AssertionError(f"nothing is mapped at {address:#x}")


def _descriptor(inode: int) -> int:
    for entry in Path("/proc/self/fd").iterdir():
        is_memory = entry.is_symlink() and "memfd:" in os.readlink(entry)
        if is_memory and entry.stat().st_ino == inode:
            return int(entry.name)
    raise AssertionError(f"no descriptor of inode {inode} is open")
