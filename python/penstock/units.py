"""Parses and formats byte counts and rates."""

from __future__ import annotations

import re

import typer

_FACTORS = {
    "": 1,
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}


def parse_size(text: str | int) -> int:
    """Read "256MiB", "1.5 GB" or a plain number of bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", str(text).strip())
    factor = _FACTORS.get(match[2]) if match else None
    if match is None or factor is None:
        raise typer.BadParameter(f"{text!r} is not a size: write, for example, 256MiB")
    if "." not in match[1]:
        return int(match[1]) * factor
    return int(float(match[1]) * factor)


def size_in_words(count: int) -> str:
    """Return "64 MiB" if that is exact, else "1000 bytes"."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor and count % factor == 0:
            return f"{count // factor} {unit}"
    return f"{count} bytes"


def size(count: float) -> str:
    """Return "1.5 GiB", with the binary prefixes customary for memory and files."""
    if count < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if count < 1024:
            return f"{count:.1f} {unit}"
    return f"{count / 1024:.1f} TiB"


def gigabytes_per_second(count: float, seconds: float) -> float:
    return count / seconds / 1e9 if seconds > 0 else 0.0


def rate(count: float, seconds: float) -> str:
    """Return "12.3 GB/s", with the decimal prefixes customary for links and disks."""
    figure = gigabytes_per_second(count, seconds)
    return f"{figure:.3g} GB/s" if figure < 100 else f"{figure:.0f} GB/s"
