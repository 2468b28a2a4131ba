"""Byte counts as people read them."""

from __future__ import annotations


def size(count: float) -> str:
    """Give "1.5 GiB", with the binary prefixes that memory and files are counted by."""
    if count < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if count < 1024:
            return f"{count:.1f} {unit}"
    return f"{count / 1024:.1f} TiB"
