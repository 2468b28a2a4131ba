"""Runs programs in separate processes, to identify a program that crashes or hangs."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .program import Program

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Outcome:
    program: Program
    message: str | None
    """The failure; ``None`` after success."""
    operations: int = 0


class Worker:
    """A process that is started on demand, and again after a crash."""

    def __init__(self, folder: str | None, timeout: float) -> None:
        self._folder = folder
        self._timeout = timeout
        self._process: subprocess.Popen[str] | None = None
        self._complaints = tempfile.TemporaryFile("w+")  # noqa: SIM115, closed with the worker

    def run(self, program: Program) -> Outcome:
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(program.to_json() + "\n")
            process.stdin.flush()
            answer = self._answer(process)
        except BrokenPipeError:
            answer = ""
        if answer is None:
            self.close()
            return Outcome(program, f"no answer for {self._timeout:.0f} s: it hangs")
        if not answer:
            status = process.wait()
            output = self._output()
            self.close()
            name = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
            return Outcome(program, f"the process ended with {name}{output}")
        message, operations, goes_on = json.loads(answer)
        if not goes_on:
            self.close()
        return Outcome(program, message, operations)

    def _start(self) -> subprocess.Popen[str]:
        self._complaints.seek(0)
        self._complaints.truncate()
        arguments = [self._folder] if self._folder else []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.programs.worker", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            cwd=ROOT,
        )
        return self._process

    def _answer(self, process: subprocess.Popen[str]) -> str | None:
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)  # type: ignore[arg-type]
            if not selector.select(self._timeout):
                return None
        assert process.stdout is not None
        return process.stdout.readline()

    def _output(self) -> str:
        self._complaints.seek(0)
        output = self._complaints.read().strip()[-1500:]
        return f"\n{output}" if output else ""

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()  # type: ignore[union-attr]
            try:
                process.wait(2)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()  # type: ignore[union-attr]

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._complaints.close()


def run_all(programs: Iterator[Program], processes: int, timeout: float = 60) -> Iterator[Outcome]:
    """Yield the outcomes in the order of completion."""
    from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
    from queue import SimpleQueue

    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="programs-"))
        stack.callback(_unmount, folder)
        free: SimpleQueue[Worker] = SimpleQueue()
        for _ in range(processes):
            free.put(stack.enter_context(Worker(folder, timeout)))

        def run(program: Program) -> Outcome:
            worker = free.get()
            try:
                return worker.run(program)
            finally:
                free.put(worker)

        pool = stack.enter_context(ThreadPoolExecutor(processes))
        under_way: set[Future[Outcome]] = set()
        for program in programs:
            under_way.add(pool.submit(run, program))
            if len(under_way) > processes:
                ended, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                yield from (each.result() for each in ended)
        yield from (each.result() for each in under_way)


def _unmount(folder: str) -> None:
    """Unmount file systems that crashed programs have left."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        place = line.split(" ")[1]
        if place.startswith(folder):
            subprocess.run(["umount", "-l", place], capture_output=True)


def default_processes() -> int:
    return max(len(os.sched_getaffinity(0)), 1)
