"""Runs cases, and checks their results against the guarantees of load and save."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.faults.case import Case, Fault, faulty, scenario, simpler
from tests.faults.server import NEW, OLD, content

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).with_name("interpose.c")
NEIGHBOURS = {"neighbour": 0o640, ".penstock-notes": 0o644}
# As left by a process that died: of this boot of the system, and not locked.
BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().replace("-", "")[:16]
LEFTOVER = f".penstock-{BOOT}-1-0"
SYNCS = ("fsync", "fdatasync", "syncfs")
IN_PLACE = "the new file is in place"


class BrokenPromiseError(AssertionError):
    """A violated guarantee."""


class Machine:
    """A process behind the interposer, and a folder for its cases."""

    def __init__(self, folder: Path) -> None:
        self.base = folder
        library = folder / "interpose.so"
        compiler = os.environ.get("CC", "cc")
        flags = ["-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
        subprocess.run([compiler, *flags], check=True)
        environment = {
            **os.environ,
            "LD_PRELOAD": f"{library}:{os.environ.get('LD_PRELOAD', '')}".rstrip(":"),
            "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
            # No thread but the main one, as forks are made.
            "OPENBLAS_NUM_THREADS": "1",
        }
        command = [sys.executable, "-m", "tests.faults.server", str(library)]
        self.server = subprocess.Popen(
            command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def close(self) -> None:
        # Closes both pipes and waits.
        self.server.communicate()

    def perform(self, case: Case, target: Path) -> dict[str, Any]:
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(json.dumps({"case": case.text(), "target": str(target)}) + "\n")
        self.server.stdin.flush()
        line = self.server.stdout.readline()
        if not line:
            raise BrokenPromiseError(
                f"the process that runs the cases ended with {self.server.wait()}"
            )
        answer: dict[str, Any] = json.loads(line)
        return answer

    def run(self, case: Case) -> dict[str, Any]:
        """Runs a case in a folder of its own; raises its failure."""
        folder = self.base / "folder"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        target = folder / "target"
        for name, mode in NEIGHBOURS.items():
            (folder / name).write_bytes(name.encode())
            (folder / name).chmod(mode)
        if case.leftover:
            (folder / LEFTOVER).write_bytes(b"left")
        if case.operation == "load":
            target.write_bytes(content(case.size + case.shift, NEW).tobytes())
        elif case.old is not None:
            target.write_bytes(content(case.old, OLD).tobytes())
            target.chmod(case.mode)
        answer = self.perform(case, target)
        if case.operation == "load":
            check_load(case, answer, target)
        else:
            check_save(case, answer, target)
            self.next_save(case, folder)
        return answer

    def next_save(self, case: Case, folder: Path) -> None:
        """The next process that saves in the folder removes what a dead one left."""
        if hidden(folder):
            answer = self.perform(Case(size=1, unnamed=case.unnamed), folder / "another")
            expect(answer["outcome"] == "done", f"the next save: {answer}")
            expect(not hidden(folder), f"left by the next save: {hidden(folder)}")

    def calls(self, case: Case) -> list[str]:
        """The system calls of a case without a fault."""
        calls: list[str] = self.run(replace(case, fault=Fault()))["calls"]
        return calls


def expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise BrokenPromiseError(otherwise)


def hidden(folder: Path) -> list[str]:
    names = (path.name for path in folder.iterdir())
    return [n for n in names if n not in ("target", "another") and n not in NEIGHBOURS]


def has_met(answer: dict[str, Any]) -> bool:
    return bool(answer["hit"])


def check_outcome(case: Case, answer: dict[str, Any]) -> None:
    """Check the guarantees on the end of every operation."""
    fault, outcome = case.fault, answer["outcome"]
    expect(outcome != "exception", answer.get("message", ""))
    if outcome == "killed":
        expected = fault.kills and has_met(answer) and answer["signal"] == signal.SIGKILL
        expect(expected, f"the process died of signal {answer['signal']}")
    if not has_met(answer) or fault.action == "short" or fault.error == "EINTR":
        expect(outcome in ("done", "killed"), f"{outcome}: {answer.get('message')}")
    if outcome == "error":
        expect(answer["errno"] == fault.code, f"errno is {answer['errno']}: {answer['message']}")
        expect(str(answer["path"]).endswith("/target"), f"another file: {answer['path']}")
        expect("/target" in answer["message"], f"names no file: {answer['message']}")
        expect(bool(answer["remedy"]), f"names no remedy: {answer['message']}")


def check_load(case: Case, answer: dict[str, Any], target: Path) -> None:
    check_outcome(case, answer)
    if answer["outcome"] == "done":
        expect(answer["right"], "the array is not what the file has")
    kept = target.read_bytes() == content(case.size + case.shift, NEW).tobytes()
    expect(kept, "a load changed the file")


def check_save(case: Case, answer: dict[str, Any], target: Path) -> None:
    check_outcome(case, answer)
    fault, outcome = case.fault, answer["outcome"]
    found = target.read_bytes() if target.exists() else None
    old = None if case.old is None else content(case.old, OLD).tobytes()
    new = content(case.size, NEW).tobytes()
    is_new = found == new
    expect(is_new or found == old, f"neither old nor new: {described(found)}")
    if outcome == "done":
        expect(is_new, f"a save that succeeded left {described(found)}")
    if outcome == "error":
        says_so = IN_PLACE in answer["message"]
        expect(is_new == says_so or old == new, f"in place: {is_new}; {answer['message']}")
    if fault.action == "fail" and fault.call in SYNCS and fault.error in ("EIO", "ENOSPC"):
        expect(outcome == "error" or not has_met(answer), "a failed sync is not reported")

    usual = 0o666 & ~case.umask
    mode = usual if case.old is None else case.mode
    if found is not None:
        expect(mode_of(target) == mode, f"mode {mode_of(target):o}, not {mode:o}")
    for name, wanted in NEIGHBOURS.items():
        path = target.with_name(name)
        expect(path.read_bytes() == name.encode(), f"{name} has changed")
        expect(mode_of(path) == wanted, f"the mode of {name} has changed")

    for name in hidden(target.parent):
        path = target.with_name(name)
        if name == LEFTOVER and has_met(answer):
            continue  # The fault may have kept it from being seen.
        expect(outcome == "killed" or "unlink" in fault.call, f"{name} remains")
        wide = mode_of(path) & ~(mode | 0o600)
        expect(not wide, f"{name} has mode {mode_of(path):o}")
        if case.unnamed:
            expect("linkat" in answer["calls"], f"{name} remains of a file without a name")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def described(found: bytes | None) -> str:
    if found is None:
        return "no file"
    kinds = {0: "zero", 1: "old", 2: "new"}
    counts = {"zero": 0, "old": 0, "new": 0}
    for byte in found[: 1 << 16]:
        counts[kinds[0 if byte == 0 else 1 if byte % 2 else 2]] += 1
    return f"{len(found)} bytes, of the first of which {counts}"


def shrunk(machine: Machine, case: Case) -> tuple[Case, str]:
    """The simplest case near this one that fails, and how."""
    message = failure(machine, case)
    if message is None:
        return case, "it did not fail again: it depends on the timing of threads"
    going = True
    while going:
        going = False
        for other in simpler(case):
            found = failure(machine, other)
            if found is not None:
                case, message, going = other, found, True
                break
    return case, str(message)


def failure(machine: Machine, case: Case) -> str | None:
    try:
        machine.run(case)
    except BrokenPromiseError as wrong:
        return str(wrong)
    return None


def cases(machine: Machine, seed: int, number: int, most: int) -> list[Case]:
    """A scenario of a seed with its faults, at most ``most`` of them."""
    rng = random.Random(f"{seed}/{number}")
    case = scenario(rng)
    every = list(faulty(case, machine.calls(case)))
    # A large one takes long.
    most = most if case.size <= 64 << 20 else min(most, 6)
    return every if len(every) <= most else rng.sample(every, most)
