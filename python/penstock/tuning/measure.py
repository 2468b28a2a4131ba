"""Measurements of settings by worker processes, one for each GPU."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import Error, NoSpaceError
from penstock.tuning.race import RefusedError, Setting
from penstock.tuning.rows import Row

TIMEOUT = 120.0
"""Seconds after which a worker that does not answer is killed."""
_LEAD = 0.003
"""Seconds between the order to start and the common start."""
_PROGRAM = (
    "import sys; sys.path = [p for p in sys.path if p]; "
    "from penstock.tuning.worker import main; main()"
)
"""Unlike ``-m``, this keeps the working folder, which may hold any module, out of the path."""


class AbsentError(Exception):
    """This file system does not offer the kind of transfer."""


class WrongBytesError(Exception):
    """A transfer moved wrong bytes."""


_ERRORS: dict[str, type[Exception]] = {
    "wrong": WrongBytesError,
    "not_here": AbsentError,
    "no_space": NoSpaceError,
    "error": RefusedError,
}
"""What a worker's answer means that has one of these keys."""


@dataclass(frozen=True)
class Measured:
    """The result of transfers that workers made at the same time."""

    rate: float
    """Bytes per second of all workers together."""
    rates: tuple[float, ...]
    """Bytes per second of each worker."""
    route: str
    """The route that carried the first one's bytes."""
    used: tuple[tuple[int, int], ...] = ()
    """Threads and block of each worker, at the end of its transfer."""


class _Worker:
    """One process, its file and its device."""

    def __init__(self, path: Path, nbytes: int, device: int, environment: dict[str, str]) -> None:
        self._order = json.dumps([os.fspath(path), nbytes, device])
        self._environment = environment
        self._process: Any = None
        self._errors: Any = None

    def start(self) -> None:
        """Start the process, unless it runs."""
        if self._process is not None:
            return
        # Measurements must not depend on an old profile or on options in the environment.
        environment = {k: v for k, v in os.environ.items() if k != "PENSTOCK_OPTIONS"}
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment | {"PENSTOCK_PROFILE": "off", **self._environment},
        )
        self.write(self._order)

    def wait_ready(self) -> None:
        answer = self.answer()
        if "ready" not in answer:
            raise Error(answer.get("error", "the measuring process did not start"))

    def write(self, line: str) -> None:
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # answer() reports that the process has ended

    def answer(self) -> dict[str, Any]:
        """Return the answer of the process, or an error if it ends or does not answer."""
        readable, _, _ = select.select([self._process.stdout], [], [], TIMEOUT)
        line = self._process.stdout.readline() if readable else ""
        if line:
            return dict(json.loads(line))
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines() or ["without a message"]
        self.stop()
        why = "gave no answer" if not readable else f"ended: {lines[-1]}"
        return {"error": f"the measuring process {why}"}

    def stop(self) -> None:
        """Stop the process and wait until it has ended."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.stdin.close()
            process.wait(2)
        except (OSError, subprocess.TimeoutExpired):
            process.kill()
            process.wait()
        process.stdout.close()
        self._errors.close()

    @property
    def is_running(self) -> bool:
        return self._process is not None


class Workers:
    """The processes that measure, one for each device.

    Args:
        places: A file and a CUDA ordinal (-1 for host memory) for each device.
        nbytes: The length of each file.
        environment: Variables to add to the environment of this process.
    """

    def __init__(
        self,
        places: Sequence[tuple[Path, int]],
        nbytes: int,
        environment: dict[str, str] | None = None,
    ) -> None:
        self._workers = [_Worker(path, nbytes, it, environment or {}) for path, it in places]

    def __enter__(self) -> Workers:
        try:
            for worker in self._workers:
                worker.start()
            for worker in self._workers:
                worker.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __len__(self) -> int:
        return len(self._workers)

    def stop(self) -> None:
        """Stop all processes."""
        for worker in self._workers:
            worker.stop()

    def run(
        self, row: Row, setting: Setting, amount: int, *, check: str = "none", count: int = 1
    ) -> Measured:
        """Have the first ``count`` workers make a transfer at the same time.

        ``check`` selects the bytes that are compared: "none", some "windows" or the "whole".

        Raises:
            RefusedError: The setting does not work here.
            AbsentError: This file system does not offer the kind of transfer.
            WrongBytesError: The transfer moved wrong bytes.
            NoSpaceError: The file system is full.
        """
        workers = self._workers[:count]
        for worker in workers:
            if not worker.is_running:
                worker.start()
                worker.wait_ready()
        kind = {"row": [row.operation, row.size, row.place], "options": list(setting)}
        order = json.dumps({**kind, "amount": amount, "check": check, "meet": count > 1})
        for worker in workers:
            worker.write(order)
        # Read all answers before any can raise: an unread one would answer the next order.
        answers = [worker.answer() for worker in workers]
        if count > 1:
            answers = _begin_together(workers, answers)
        for answer in answers:
            for key, kind_of_error in _ERRORS.items():
                if key in answer:
                    raise kind_of_error(answer[key])
            if answer["route"] != dict(setting).get("route", answer["route"]):
                why = answer["note"] or f"the transfer took the route {answer['route']}"
                raise RefusedError(why)
        spent = max(a["end"] for a in answers) - min(a["begin"] for a in answers)
        together = sum(a["bytes"] for a in answers) / spent
        rates = tuple(float(a["rate"]) for a in answers)
        rate = together if row.size == "large" and count > 1 else sum(rates)
        used = tuple((int(a["threads"]), int(a["block"])) for a in answers)
        return Measured(rate, rates, answers[0]["route"], used)


def _begin_together(
    workers: Sequence[_Worker], answers: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Have the prepared workers begin at one moment, and return all answers."""
    moment = str(time.monotonic() + _LEAD)
    prepared = [
        worker for worker, answer in zip(workers, answers, strict=True) if "prepared" in answer
    ]
    for worker in prepared:
        worker.write(moment)
    both = zip(workers, answers, strict=True)
    return [worker.answer() if worker in prepared else answer for worker, answer in both]
