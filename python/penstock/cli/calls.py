"""Reads the HDF5 connector's log, which has one line for each call."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# Seconds since 1970, name, manner, and optionally bytes and a reason.
_LINE = re.compile(r"\d+\.\d+ (\S+) (async|deferred|sync)(?: (\d+) bytes)?(?:: (.*))?")


@dataclass
class Calls:
    """The calls of one name, manner and reason."""

    name: str
    manner: str
    """When the calls were executed.

    async: in the background; deferred: by a wait, or by a flush or close of the file; sync: before
    the call returned.
    """
    why: str
    count: int = 0
    bytes: int = 0


def size(log: Path) -> int:
    """Return the length of the log in bytes; 0 if there is none."""
    return log.stat().st_size if log.exists() else 0


def read(log: Path, start: int = 0) -> list[Calls]:
    """Sum up the lines of the log from the byte ``start`` on."""
    if not log.exists():
        return []
    with log.open("rb") as file:
        file.seek(start)
        return total(line.decode("utf-8", "replace") for line in file)


def why_incomplete(folder: Path) -> str | None:
    """Return why a process could not write lines of the log; ``None`` if all could.

    Args:
        folder: The folder of the accounts, where the connector stores the error.
    """
    errors = (file.read_text() for file in sorted(folder.glob("*.log-error")))
    return next(errors, None)


def total(lines: Iterable[str]) -> list[Calls]:
    """Sum up lines by name, manner and reason, ordered by name.

    Malformed lines, such as the last line of a process that was killed, are skipped.
    """
    sums: dict[tuple[str, str, str], Calls] = {}
    for line in lines:
        if match := _LINE.fullmatch(line.rstrip("\n")):
            name, manner, moved, why = match.groups(default="")
            calls = sums.setdefault((name, manner, why), Calls(name, manner, why))
            calls.count += 1
            calls.bytes += int(moved or 0)
    return sorted(sums.values(), key=lambda calls: (calls.name, calls.manner, -calls.count))
