"""Open files of a checkpoint, which stay readable when a save removes their names."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

_MOST = 128
"""Files of a checkpoint that are held open, at most. Those of larger ones are opened when read."""


class HeldFiles:
    """Descriptors of files by their names. They are closed with this object at the latest."""

    def __init__(self) -> None:
        self._descriptors: dict[str, int] = {}
        self._close: Any = None

    def hold(self, folder: Path, names: Iterable[str]) -> bool:
        """Open files in place of those held; return whether all names are there.

        If there are too many, or a file cannot be opened, none is held.
        """
        self.release()
        wanted = set(names)
        if len(wanted) > _MOST:
            return True
        found: dict[str, int] = {}
        with ExitStack() as failed:
            for name in wanted:
                try:
                    found[name] = os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC)
                except FileNotFoundError:
                    return False
                except OSError:  # the read raises it
                    return True
                failed.callback(os.close, found[name])
            self._close = weakref.finalize(self, failed.pop_all().close)
        self._descriptors = found
        return True

    def get(self, name: str) -> int | None:
        """Return the descriptor of a file, if it is held."""
        return self._descriptors.get(name)

    def release(self) -> None:
        """Close all files."""
        self._descriptors = {}
        if self._close is not None:
            self._close()
