"""Files by which the kernel and the drivers tell of themselves, below a root folder."""

from __future__ import annotations

import os
import platform
from pathlib import Path


class System:
    """Reads /proc, /sys, /etc, /boot and /run. What is missing or may not be read is ``None``.

    Args:
        root: The folder that stands for ``/``: that of another tree in tests.
        machine: The processor architecture, as ``uname -m`` has it.
    """

    def __init__(self, root: str | os.PathLike[str] = "/", machine: str | None = None) -> None:
        self.root = Path(root).resolve()
        self.machine = machine or platform.machine()

    def at(self, path: str) -> Path:
        """Where a path of the machine lies."""
        return self.root / path.lstrip("/")

    def bytes(self, path: str) -> bytes | None:
        """The contents of a regular file: a pipe would be waited for, a device has no end."""
        try:
            return self.at(path).read_bytes() if self.at(path).is_file() else None
        except OSError:
            return None

    def text(self, path: str) -> str | None:
        """The contents of a file, without white space around them; bytes that are no UTF-8 stay as
        by ``os.fsdecode``."""
        contents = self.bytes(path)
        return None if contents is None else contents.decode("utf-8", "surrogateescape").strip()

    def number(self, path: str) -> int | None:
        """A file that holds one integer, decimal or with 0x before it."""
        try:
            return int(self.text(path) or "", 0)
        except ValueError:
            return None

    def names(self, path: str) -> list[str]:
        """What a folder holds, sorted."""
        try:
            return sorted(os.listdir(self.at(path)))
        except OSError:
            return []

    def exists(self, path: str) -> bool:
        """Whether there is something at a path that may be looked at."""
        return os.path.exists(self.at(path))

    def is_missing(self, path: str) -> bool:
        """Whether there is nothing at a path: not so where a folder above may not be entered."""
        try:
            self.at(path).stat()
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False
        return False

    def target(self, path: str) -> str | None:
        """The path on the machine that a link leads to, all links followed."""
        try:
            real = self.at(path).resolve(strict=True)
            return "/" + str(real.relative_to(self.root)).lstrip("/")
        except (OSError, ValueError, RuntimeError):
            return None
