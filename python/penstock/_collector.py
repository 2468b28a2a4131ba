"""Pauses of Python's collector of cyclic garbage."""

from __future__ import annotations

import gc


class paused_collector:  # noqa: N801 - a context manager
    """Make many objects without a search for garbage, which looks at all objects of the program.

    With torch loaded, one such search takes longer than thousands of objects do.
    """

    def __enter__(self) -> None:
        self._was_enabled = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self._was_enabled:
            gc.enable()
