"""Parses and formats byte counts and rates."""

from __future__ import annotations

import os

import typer

from penstock._native import ffi, last_error, lib, text


def parse_size(value: str | int) -> int:
    """Read "256MiB", "1.5 GB" or a plain number of bytes, by the library's rules for options."""
    bytes_ = ffi.new("uint64_t *")
    if lib.penstock_parse_size(os.fsencode(str(value)), bytes_):
        raise typer.BadParameter(text(last_error().message))
    return int(bytes_[0])


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
