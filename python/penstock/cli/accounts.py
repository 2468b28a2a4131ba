"""Reads the files of JSON lines in which the HDF5 driver of each process reports its transfers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER_VARIABLE = "PENSTOCK_REPORT_DIR"
"""The environment variable with the folder in which each process writes one file."""

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
    """The account of each file, written when the process closed the file."""
    lost: list[dict[str, Any]] = field(default_factory=list)
    """Files that were never closed: the process ended before it wrote their accounts."""
    inherited: list[dict[str, Any]] = field(default_factory=list)
    """Accounts of files that a parent had opened before it forked.

    They include the counts of the parent, so the part of this process is unknown."""
    damaged: int = 0
    """Malformed lines, such as the last line of a process that was killed."""

    @property
    def mode(self) -> str:
        """Legate's name for the path that carried the most bytes of GPU memory."""
        carried: Counter[str] = Counter()
        for _, operation, path, counts in flows(self.closed):
            if operation != "copy" and path not in _HOST:
                carried[_MODES.get(path, "POSIX")] += counts["bytes"]
        return carried.most_common(1)[0][0] if carried.total() else "POSIX"


@dataclass
class Flow:
    """The bytes that all processes moved between one file and memory by one path."""

    file: str
    operation: str
    path: str
    calls: int = 0
    bytes: int = 0
    ns: int = 0


def read(folder: Path) -> list[Process]:
    """Return the accounts of all processes, ordered by process id."""
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


def flows(closed: Iterable[dict[str, Any]]) -> Iterator[tuple[str, str, str, dict[str, int]]]:
    """Yield file, operation, path, and counts (calls, bytes, ns) from each account."""
    for account in closed:
        for operation in ("read", "write"):
            for path, counts in account.get(operation, {}).items():
                yield account["path"], operation, path, counts
        if account.get("copies", {}).get("calls"):
            yield account["path"], "copy", "between memories", account["copies"]


def total(processes: Iterable[Process]) -> list[Flow]:
    """Return the sums by file, operation and path, ordered by file."""
    sums: dict[tuple[str, str, str], Flow] = {}
    for process in processes:
        for name, operation, path, counts in flows(process.closed):
            flow = sums.setdefault((name, operation, path), Flow(name, operation, path))
            flow.calls += counts["calls"]
            flow.bytes += counts["bytes"]
            flow.ns += counts["ns"]
    return sorted(sums.values(), key=lambda flow: flow.file)


def notes(processes: Iterable[Process]) -> list[str]:
    """Return notes on incomplete counts, without duplicates."""
    found: dict[str, None] = {}
    for process in processes:
        for account in process.closed:
            found.update((f"{account['path']}: {note}", None) for note in account.get("notes", ()))
        for event in process.lost:
            text = f"{event['path']}: opened by process {process.pid} and not closed, so its"
            found[f"{text} transfers are not counted"] = None
        for account in process.inherited:
            text = f"{account['path']}: closed by process {process.pid}, which inherited it by fork"
            found[f"{text}; its part is not counted"] = None
        if process.damaged:
            text = f"process {process.pid}: {process.damaged} malformed line(s) in its account"
            found[text] = None
    return list(found)
