"""Refusal of an output that is the same file as an input."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from pathlib import Path


def conflict(output: Path, inputs: Iterable[Path]) -> str:
    """Return an error text if an output would replace an input, else "".

    Files are compared by device and inode, not by name.
    """
    for path in inputs:
        if _are_one(output, path):
            relation = "" if output == path else f" is {path}, which"
            return f"{output}{relation} is an input: give another file for the output"
    return ""


def _are_one(output: Path, path: Path) -> bool:
    try:
        written, read = output.stat(), path.stat()
    except OSError:
        # A file that does not exist yet has no inode: compare the paths.
        return output.resolve() == path.resolve()
    if not (stat.S_ISREG(written.st_mode) or stat.S_ISBLK(written.st_mode)):
        return False  # /dev/null, a terminal
    return (written.st_dev, written.st_ino) == (read.st_dev, read.st_ino)
