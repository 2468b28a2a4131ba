"""Tunes all kinds of transfers within the time given: makes the files and runs the races."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.errors import Error
from penstock.signals import undisturbed
from penstock.tuning import files
from penstock.tuning.measure import AbsentError, Workers
from penstock.tuning.race import DEFAULT, Outcome, RefusedError, Setting, race
from penstock.tuning.rows import LARGE_FROM, MIB, ROWS, Row, grid, text

ALONE = 0.94
"""The least fraction of its best rate that a GPU working alone must keep."""
_ALONE_SHARE = 0.4
"""The fraction of a row's time for finding that rate, if several GPUs are tuned together."""
_FILE_PER_SECOND = 16 * MIB
_LARGEST_FILE = 1 << 30
_RUNS = 150
"""The approximate number of measurements that a row should have time for."""


@dataclass(frozen=True)
class Plan:
    """What to tune."""

    folder: Path
    devices: Sequence[int]
    """CUDA ordinals, or only -1 for host memory."""
    seconds: float
    size: int = 0
    """Bytes of each device's file; 0 for a size that suits the time."""

    @property
    def file_size(self) -> int:
        """Bytes of each device's file: what the time allows, but enough for a large transfer."""
        wanted = int(min(self.seconds * _FILE_PER_SECOND, _LARGEST_FILE))
        return self.size or max(wanted // (8 * MIB) * 8 * MIB, LARGE_FROM)


@dataclass
class Found:
    """The result for a row."""

    row: Row
    outcome: Outcome | None = None
    why_not: str = ""
    """Why there is no outcome."""
    alone: tuple[float, float] | None = None
    """With several GPUs: the best rate of one alone, and its rate with the tuned options."""
    runs: int = 0

    @property
    def options(self) -> str:
        """The tuned options as text."""
        return text(self.outcome.best) if self.outcome else ""

    @property
    def rates(self) -> tuple[float, float]:
        """Bytes per second with default options, and with the tuned ones."""
        if self.outcome is None or not self.outcome.trials:
            return 0.0, 0.0
        duel = self.outcome.duel
        usual = duel.default if duel else self.outcome.trials[0].rate
        return usual, duel.tuned if duel and self.options else usual

    @property
    def settings(self) -> int:
        """The number of settings tried."""
        return len(self.outcome.trials) if self.outcome else 0

    def as_json(self) -> dict[str, Any]:
        """Return the row of a profile. The engine reads the first four keys."""
        duel = self.outcome.duel if self.outcome else None
        default, tuned = self.rates
        found: dict[str, Any] = {
            "operation": self.row.operation,
            "size": self.row.size,
            "place": self.row.place,
            "options": self.options,
            "default_gbps": round(default / 1e9, 4),
            "tuned_gbps": round(tuned / 1e9, 4),
            "gain": round(duel.gain, 4) if duel and self.options else 0.0,
            "error": round(duel.error, 4) if duel else None,
            "settings": self.settings,
            "runs": self.runs,
        }
        if self.alone:
            best, kept = self.alone
            found["alone"] = {"best_gbps": round(best / 1e9, 4), "tuned_gbps": round(kept / 1e9, 4)}
        return found

    def trials_as_json(self) -> list[dict[str, Any]]:
        """Return all settings tried."""
        return [
            {
                "options": text(trial.setting),
                "gbps": [round(rate / 1e9, 4) for rate in trial.rates],
                "failure": trial.failure,
            }
            for trial in (self.outcome.trials if self.outcome else [])
        ]


@contextmanager
def own_files(plan: Plan) -> Iterator[list[Path]]:
    """Make a file for each device in the folder, and remove them at the end, even after an error.

    Raises:
        NoSpaceError: There is no room for the files.
        OSError: The files cannot be made.
    """
    remove_orphans(plan.folder)
    files.require_space(plan.folder, plan.file_size * len(plan.devices))
    name = f".penstock-tune-{socket.gethostname()}-{os.getpid()}"
    paths = [plan.folder / f"{name}-{number}.bin" for number in range(len(plan.devices))]
    try:
        for path in paths:
            files.make(path, plan.file_size)
        yield paths
    finally:
        with undisturbed():
            for path in paths:
                path.unlink(missing_ok=True)


def remove_orphans(folder: Path) -> None:
    """Remove, as far as possible, the files that killed processes of this host have left."""
    name = re.compile(rf"\.penstock-tune-{re.escape(socket.gethostname())}-(\d+)-\d+\.bin")
    for path in folder.iterdir():
        found = name.fullmatch(path.name)
        # This process has made no file yet: one with its id is of another container.
        if found and (int(found[1]) == os.getpid() or not Path(f"/proc/{found[1]}").exists()):
            with suppress(OSError):  # another user's, in a shared folder
                path.unlink()


def tune(plan: Plan, begun: Callable[[Row], None] = lambda row: None) -> Iterator[Found]:
    """Find the best settings of each row, and yield the results row by row.

    This calls ``begun`` before each row. The time starts with the first iteration.
    """
    left = until(plan.seconds)
    facts = ps.describe(plan.folder)
    with ExitStack() as stack:
        paths = stack.enter_context(own_files(plan))
        places = list(zip(paths, plan.devices, strict=True))
        workers = stack.enter_context(Workers(places, plan.file_size))
        weights = sum(row.weight for row in ROWS)
        for row in ROWS:
            begun(row)
            seconds = max(left(), 0.0) * row.weight / weights
            weights -= row.weight
            yield _Row(row, plan, facts, workers, seconds).found()


def until(seconds: float) -> Callable[[], float]:
    """Return a function that says how many seconds are left."""
    end = time.monotonic() + seconds
    return lambda: end - time.monotonic()


class _Row:
    """The race for one row."""

    def __init__(
        self, row: Row, plan: Plan, facts: dict[str, Any], workers: Workers, seconds: float
    ) -> None:
        self._row, self._plan, self._workers, self._seconds = row, plan, workers, seconds
        self._amount = LARGE_FROM
        self._checked: set[Setting] = set()
        self._runs = 0
        self._settings = grid(
            row,
            on_gpu=plan.devices[0] >= 0,
            cores=facts["cpu"]["cores"],
            gds=bool(facts["cufile"]["starts"] and facts["cufile"]["reason"] is None),
            uring=facts["io_uring"]["available"],
            direct=facts["file_system"]["direct_io"],
        )

    def found(self) -> Found:
        found = Found(self._row)
        left = until(self._seconds)
        try:
            # So many bytes in a transfer that there is time for many measurements.
            wanted = int(self._run(DEFAULT) * self._seconds / _RUNS)
            self._amount = max(LARGE_FROM, min(wanted, self._plan.file_size) // MIB * MIB)
            if len(self._workers) == 1:
                found.outcome = race(self._settings, self._run, left)
            else:
                self._together(found, left)
            # Compare all bytes once with the best setting: the race compares samples only.
            best = found.outcome.best if found.outcome else DEFAULT
            self._run(best, amount=LARGE_FROM, whole=True)
        except AbsentError as error:
            found.why_not = str(error)
        except RefusedError as error:
            found.outcome, found.why_not = None, str(error)
        found.runs = self._runs
        return found

    def _together(self, found: Found, left: Callable[[], float]) -> None:
        """Find the greatest rate of all GPUs that leaves one alone fast enough."""
        rest = left() * (1 - _ALONE_SHARE)
        alone = race(self._settings, self._run, lambda: left() - rest)
        _, best = Found(self._row, alone).rates

        def measure(setting: Setting) -> float:
            rate = self._run(setting, count=len(self._workers))
            kept = self._run(setting) / (ALONE * best) if best else 1.0
            return rate * min(kept, 1.0)

        found.outcome = race(self._settings, measure, left)
        found.alone = (best, self._run(found.outcome.best))

    def _run(
        self, setting: Setting, *, count: int = 1, amount: int | None = None, whole: bool = False
    ) -> float:
        kind = "whole" if whole else "none" if setting in self._checked else "windows"
        self._checked.add(setting)
        self._runs += 1
        size = self._amount if amount is None else amount
        return self._workers.run(self._row, setting, size, check=kind, count=count).rate


def check_devices(devices: Sequence[int]) -> None:
    """Raise an error if a GPU does not exist or is named twice."""
    there = range(len(ps.devices())) if any(device >= 0 for device in devices) else range(0)
    for device in devices:
        if device >= len(there):
            known = ", ".join(map(str, there)) or "none"
            raise Error(f"there is no GPU {device}; GPUs here: {known}")
    if len(set(devices)) != len(devices):
        raise Error(f"a GPU is named twice: {', '.join(map(str, devices))}")
