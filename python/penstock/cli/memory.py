"""The memory that a command can still have, which containers and batch systems limit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class _Names(NamedTuple):
    """Names of a version of control groups."""

    folder: str
    limit: str
    used: str
    reclaimable: str
    """The entry of memory.stat with the bytes that the kernel would drop."""


_FIRST = _Names("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_SECOND = _Names("", "memory.max", "memory.current", "inactive_file")


def left(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the bytes that the machine has left, or less if a control group is the limit."""
    words = _table(proc / "meminfo")["MemAvailable:"]
    return min([int(words[0]) << 10, *_of_groups(proc, groups)])


def _of_groups(proc: Path, groups: Path) -> Iterator[int]:
    lines = ""
    with suppress(OSError):  # a kernel without control groups
        lines = (proc / "self/cgroup").read_text()
    for line in lines.splitlines():
        number, controllers, path = line.split(":", 2)
        if number != "0" and "memory" not in controllers.split(","):
            continue
        names = _SECOND if number == "0" else _FIRST
        root = groups / names.folder
        group = root / path.lstrip("/")
        # In a container, the path may be that of the host, and the root then is its group.
        for folder in (group, *group.parents):
            with suppress(OSError, ValueError, KeyError):  # such as no limit, "max"
                limit, used = (int((folder / name).read_text()) for name in names[1:3])
                yield limit - used + int(_table(folder / "memory.stat")[names.reclaimable][0])
            if folder == root:
                break


def _table(file: Path) -> dict[str, list[str]]:
    """Return the words of each line by its first one."""
    lines = (line.split() for line in file.read_text().splitlines())
    return {words[0]: words[1:] for words in lines}
