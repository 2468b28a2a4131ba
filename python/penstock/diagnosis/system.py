"""Reads the files with which kernel and drivers describe themselves, below a root folder."""

from __future__ import annotations

import os
import platform
from pathlib import Path


class System:
    """Reads /proc, /sys, /etc, /boot and /run. What is missing or unreadable is ``None``.

    Args:
        root: The folder used as ``/``; tests use another tree.
        machine: The processor architecture, as ``uname -m`` prints it.
    """

    def __init__(self, root: str | os.PathLike[str] = "/", machine: str | None = None) -> None:
        self.root = Path(root).resolve()
        self.machine = machine or platform.machine()

    def at(self, path: str) -> Path:
        """Return the place of a path of the machine below the root."""
        return self.root / path.lstrip("/")

    def bytes(self, path: str) -> bytes | None:
        """Return the contents of a regular file. A pipe would block, and a device has no end."""
        try:
            return self.at(path).read_bytes() if self.at(path).is_file() else None
        except OSError:
            return None

    def text(self, path: str) -> str | None:
        """Return the contents of a file without surrounding white space.

        Bytes that are not UTF-8 are kept as by ``os.fsdecode``.
        """
        contents = self.bytes(path)
        return None if contents is None else contents.decode("utf-8", "surrogateescape").strip()

    def number(self, path: str) -> int | None:
        """Return the integer in a file: decimal, or hexadecimal with 0x."""
        try:
            return int(self.text(path) or "", 0)
        except ValueError:
            return None

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a folder."""
        try:
            return sorted(os.listdir(self.at(path)))
        except OSError:
            return []

    def exists(self, path: str) -> bool:
        """Whether a path exists and can be accessed."""
        return os.path.exists(self.at(path))

    def is_missing(self, path: str) -> bool:
        """Whether nothing exists at a path; ``False`` if a parent folder cannot be searched."""
        try:
            self.at(path).stat()
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False
        return False

    def target(self, path: str) -> str | None:
        """Return the path on the machine that a link leads to, with all links resolved."""
        try:
            real = self.at(path).resolve(strict=True)
            return "/" + str(real.relative_to(self.root)).lstrip("/")
        except (OSError, ValueError, RuntimeError):
            return None
