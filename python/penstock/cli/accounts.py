"""The files of JSON lines in which the HDF5 driver of each process reports its transfers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER_VARIABLE = "PENSTOCK_REPORT_DIR"
"""Names the folder in which each process writes one file."""

_HOST = ("metadata", "host_buffered", "host_direct")
_MODES = {
    "gds_p2p": "GDS",
    "gds_nvfs": "GDS",
    "gds_posix": "GDS (compatibility mode)",
    "gds_unproven": "GDS (compatibility mode)",
    "staged_buffered": "STAGED",
    "staged_direct": "STAGED",
    "mapped": "MAPPED",
}


@dataclass
class Process:
    """What one process did through the driver."""

    pid: int
    closed: list[dict[str, Any]] = field(default_factory=list)
    """The account of each file, as the process gave it when it closed the file."""
    lost: list[dict[str, Any]] = field(default_factory=list)
    """Files that were never closed: the process ended before it wrote their accounts."""
    inherited: list[dict[str, Any]] = field(default_factory=list)
    """Accounts of files that a parent had opened before it forked: they begin with what the parent
    had counted by then, so nobody can tell what this process added."""
    damaged: int = 0
    """Malformed lines, such as the last line of a process that was killed."""

    @property
    def mode(self) -> str:
        """Legate's name of the path that most bytes of GPU memory took."""
        carried: Counter[str] = Counter()
        for _, operation, path, counts in flows(self.closed):
            if operation != "copy" and path not in _HOST:
                carried[_MODES.get(path, "POSIX")] += counts["bytes"]
        return carried.most_common(1)[0][0] if carried.total() else "POSIX"


@dataclass
class Flow:
    """The bytes between one file and memory on one path, of all processes and openings."""

    file: str
    operation: str
    path: str
    calls: int = 0
    bytes: int = 0
    ns: int = 0


def read(folder: Path) -> list[Process]:
    """The accounts of all processes, in the order of their numbers."""
    files = sorted(folder.glob("*.jsonl"), key=lambda file: (len(file.stem), file.stem))
    return [_process(file) for file in files]


def _process(file: Path) -> Process:
    process = Process(int(file.stem) if file.stem.isdecimal() else 0)
    is_open: dict[int, dict[str, Any]] = {}
    for line in file.read_bytes().splitlines():
        try:
            event = json.loads(line)
            number = event["file"]
            if event["event"] == "opened":
                # After exec, the same process counts its files from 1 again.
                if number in is_open:
                    process.lost.append(is_open[number])
                is_open[number] = event
            elif event["event"] == "closed":
                mine = is_open.pop(number, None) is not None
                (process.closed if mine else process.inherited).append(event)
        except (ValueError, KeyError, TypeError):
            process.damaged += 1
    process.lost.extend(is_open.values())
    return process


def flows(
    closed: Iterable[dict[str, Any]],
) -> Iterator[tuple[str, str, str, dict[str, int]]]:
    """The counts of each account: file, operation, path, and calls, bytes and nanoseconds."""
    for account in closed:
        for operation in ("read", "write"):
            for path, counts in account.get(operation, {}).items():
                yield account["path"], operation, path, counts
        if account.get("copies", {}).get("calls"):
            yield account["path"], "copy", "between memories", account["copies"]


def total(processes: Iterable[Process]) -> list[Flow]:
    """The sums by file, operation and path, in the order in which they first appear."""
    sums: dict[tuple[str, str, str], Flow] = {}
    for process in processes:
        for name, operation, path, counts in flows(process.closed):
            flow = sums.setdefault((name, operation, path), Flow(name, operation, path))
            flow.calls += counts["calls"]
            flow.bytes += counts["bytes"]
            flow.ns += counts["ns"]
    return sorted(sums.values(), key=lambda flow: flow.file)


def notes(processes: Iterable[Process]) -> list[str]:
    """What the reader should know beyond the counts, each once."""
    found: dict[str, None] = {}
    for process in processes:
        for account in process.closed:
            found.update((f"{account['path']}: {note}", None) for note in account.get("notes", ()))
        for event in process.lost:
            told = f"{event['path']}: opened by process {process.pid} and not closed, so what went"
            found[f"{told} to and from it is not counted"] = None
        for account in process.inherited:
            told = f"{account['path']}: closed by process {process.pid}, which got it by fork"
            found[f"{told}; its part is not counted"] = None
        if process.damaged:
            told = f"process {process.pid}: {process.damaged} line(s) of its account are damaged"
            found[told] = None
    return list(found)
