"""The log in which the HDF5 connector tells how each call went."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# Seconds since 1970, call, manner, and what there is of bytes and reason.
_LINE = re.compile(r"\d+\.\d+ (\S+) (async|deferred|sync)(?: (\d+) bytes)?(?:: (.*))?")


@dataclass
class Calls:
    """Calls of one name that went the same way for the same reason."""

    name: str
    manner: str
    """async: its bytes moved in the background; deferred: done when it was waited for, or when its
    file was flushed or closed; sync: done when it returned."""
    why: str
    count: int = 0
    bytes: int = 0


def size(log: Path) -> int:
    """Bytes that are in the log already."""
    return log.stat().st_size if log.exists() else 0


def read(log: Path, start: int = 0) -> list[Calls]:
    """What was added to the log from ``start`` on."""
    if not log.exists():
        return []
    with log.open("rb") as file:
        file.seek(start)
        return total(line.decode("utf-8", "replace") for line in file)


def total(lines: Iterable[str]) -> list[Calls]:
    """The sums by name, manner and reason, those of one name together. What is no line of a log,
    such as the last one of a process that was killed, is left out."""
    sums: dict[tuple[str, str, str], Calls] = {}
    for line in lines:
        if match := _LINE.fullmatch(line.rstrip("\n")):
            name, manner, moved, why = match.groups(default="")
            calls = sums.setdefault((name, manner, why), Calls(name, manner, why))
            calls.count += 1
            calls.bytes += int(moved or 0)
    return sorted(sums.values(), key=lambda calls: (calls.name, calls.manner, -calls.count))
