"""KvikIO as its documentation uses it: an open CuFile, futures, the process's defaults.

It runs in its compatibility mode (POSIX reads and copies by its own threads), which is faster than
cuFile's own without GPUDirect Storage.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..files import DataFile
from ..gpu import Buffer
from ..measure import Contestant, absent, then

THREADS = (1, 2, 4, 8, 16)
_WARM_UP = 256 << 20


@dataclass(frozen=True)
class Setting:
    """Values of ``kvikio.defaults``; ``None`` keeps KvikIO's own."""

    num_threads: int
    task_size: int | None = None
    auto_direct_io_read: bool | None = None
    auto_direct_io_write: bool | None = None
    gds_threshold: int | None = None

    def __str__(self) -> str:
        words = [f"{self.num_threads} thread{'s' if self.num_threads > 1 else ''}"]
        if self.task_size is not None:
            words.append(f"task size {self.task_size >> 20} MiB")
        if self.gds_threshold is not None:
            words.append(f"gds_threshold {self.gds_threshold}")
        ways = {True: "direct", False: "buffered"}
        both = (self.auto_direct_io_read, self.auto_direct_io_write)
        return ", ".join(words + [ways[direct] for direct in both if direct is not None])


_applied: Setting | None = None
_original: dict[str, Any] = {}


def apply(setting: Setting, warm_up: Callable[[], object] | None = None) -> None:
    """Set the defaults of the process.

    New threads make their streams and bounce buffers in their first task; ``warm_up`` moves that
    out of the timed part.
    """
    global _applied
    if setting == _applied:
        return
    import kvikio
    import kvikio.defaults

    wanted = {**vars(setting)}
    for key, value in wanted.items():
        _original.setdefault(key, kvikio.defaults.get(key))
        if value is None:
            wanted[key] = _original[key]
    kvikio.defaults.set({"compat_mode": kvikio.CompatMode.ON, **wanted})
    if warm_up is not None:
        warm_up()
    _applied = setting


class Reader:
    """An open file that is read into the start of a buffer."""

    def __init__(self, file: DataFile, buffer: Buffer) -> None:
        self.file = file
        self.buffer = buffer
        self._handle: Any = None

    @property
    def handle(self) -> Any:
        """The handle, opened at first use, so that a missing KvikIO fails only its contestants."""
        if self._handle is None:
            import kvikio

            apply(Setting(1))
            self._handle = kvikio.CuFile(self.file.path, "r")
        return self._handle

    def prepare(self, setting: Setting) -> Callable[[], None]:
        nbytes = min(_WARM_UP, self.file.nbytes, self.buffer.nbytes)
        return lambda: apply(setting, lambda: self.read(nbytes))

    def read(self, nbytes: int, offset: int = 0) -> None:
        """Read from ``offset`` within the data, and wait."""
        target = self.buffer.part(nbytes)
        moved = self.handle.pread(target, nbytes, self.file.offset + offset).get()
        if moved != nbytes:
            raise OSError(f"{moved} bytes of {nbytes} were read")

    def read_many(self, pieces: list[tuple[int, int, Any]]) -> None:
        """Start a read of each (offset in the file, length, target), then wait for all."""
        pread = self.handle.pread
        futures = [pread(target, length, offset) for offset, length, target in pieces]
        for future in futures:
            future.get()


def write(path: os.PathLike[str], buffer: Buffer, *, sync: bool) -> None:
    """Write a buffer to a new file and, with ``sync``, wait until it is on the medium."""
    import kvikio

    with kvikio.CuFile(os.fspath(path), "w") as file:
        moved = file.write(buffer.part(buffer.nbytes))
        if moved != buffer.nbytes:
            raise OSError(f"{moved} bytes of {buffer.nbytes} were written")
        if sync:
            os.fsync(file.fileno())


_SETTINGS = (Setting(1), Setting(8, task_size=4 << 20), Setting(16, task_size=4 << 20))


def loads(source: Path, buffer: Buffer, template: Contestant) -> list[Contestant]:
    """Return contestants that read a whole file to the GPU, by a few settings."""
    reader = Reader(DataFile(source, 0, buffer.nbytes), buffer)
    return _each(template, partial(reader.read, buffer.nbytes), reader.prepare)


def stores(path: Path, buffer: Buffer, template: Contestant, *, sync: bool) -> list[Contestant]:
    """Return contestants that write GPU memory to a new file, by a few settings."""

    def prepare(setting: Setting) -> Callable[[], None]:
        return lambda: apply(setting, lambda: write(path, buffer, sync=False))

    return _each(template, partial(write, path, buffer, sync=sync), prepare)


def _each(
    template: Contestant,
    run: Callable[[], None],
    prepare: Callable[[Setting], Callable[[], None]],
) -> list[Contestant]:
    try:
        import kvikio  # noqa: F401
    except ImportError:
        return [absent("kvikio", "", "it is not installed")]
    named = replace(template, name="kvikio", run=run)
    return [
        replace(named, setting=str(setting), before=then(prepare(setting), template.before))
        for setting in _SETTINGS
    ]
