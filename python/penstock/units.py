"""Byte counts as people read them."""

from __future__ import annotations


def size_in_words(count: int) -> str:
    """Give "64 MiB" where that is exact, else "1000 bytes"."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor and count % factor == 0:
            return f"{count // factor} {unit}"
    return f"{count} bytes"


def size(count: float) -> str:
    """Give "1.5 GiB", with the binary prefixes that memory and files are counted by."""
    if count < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if count < 1024:
            return f"{count:.1f} {unit}"
    return f"{count / 1024:.1f} TiB"
