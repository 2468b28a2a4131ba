"""Runs behind the interposer: each case in a fork of this process, which has Penstock imported."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

import numpy as np
from tests.faults.case import ACTIONS, Case

import penstock as ps


def content(length: int, seed: int) -> np.ndarray[Any, Any]:
    """Bytes that differ between old and new at each position, and are never zero."""
    known = _KNOWN.get(seed)
    if known is None or len(known) < length:
        at = np.arange(max(length, 4 << 20), dtype=np.uint32)
        _KNOWN[seed] = known = ((at * 31 + at // 251 * 7) % 127 * 2 + 1 + seed % 2).astype(np.uint8)
    return known[:length]


_KNOWN: dict[int, np.ndarray[Any, Any]] = {}
OLD, NEW = 2, 1  # seeds: odd bytes are old ones, even bytes new ones


def shifted(length: int, by: int) -> np.ndarray[Any, Any]:
    return np.empty(length + by, np.uint8)[by:]


def perform(case: Case, target: str, faults: ctypes.CDLL) -> dict[str, object]:
    array = shifted(case.size, case.shift)
    options: dict[str, Any] = case.options()
    if case.operation == "save":
        array[...] = content(case.size, NEW)
        save = ps.save if case.waited else ps.save_async
    os.umask(case.umask)
    faults.faults_arm(1)
    try:
        if case.operation == "save":
            request = save(target, array, **options)
        else:
            load = ps.load if case.waited else ps.load_async
            request = load(target, out=array, offset=case.shift, **options)
        if not case.waited:
            request.wait()
        outcome: dict[str, object] = {"outcome": "done"}
    except ps.Error as error:
        faults.faults_arm(0)
        outcome = {
            "outcome": "error",
            "message": str(error),
            "errno": error.errno,
            "path": error.path,
            "remedy": error.remedy,
        }
    faults.faults_arm(0)
    if case.operation == "load" and outcome["outcome"] == "done":
        expected = content(case.size + case.shift, NEW)[case.shift :]
        outcome["right"] = bool(np.array_equal(array, expected))
    return outcome


def run(case: Case, target: str, faults: ctypes.CDLL) -> dict[str, object]:
    fault = case.fault
    faults.faults_set(
        os.path.dirname(target).encode(),
        fault.call.encode(),
        ctypes.c_long(fault.occurrence),
        ACTIONS[fault.action],
        fault.code,
        int(not case.unnamed),
    )
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            said: dict[str, object] = perform(case, target, faults)
        except BaseException as error:  # what is not the library's own error
            said = {"outcome": "exception", "message": f"{type(error).__name__}: {error}"}
        os.write(writing, json.dumps(said).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    said = json.loads(text) if text else {"outcome": "killed", "signal": signal}
    calls = [faults.faults_call(n).decode() for n in range(faults.faults_calls())]
    return {**said, "calls": calls, "hit": faults.faults_hit()}


def main() -> None:
    content(1, NEW)  # made once for all forks
    faults = ctypes.CDLL(sys.argv[1])
    faults.faults_state.restype = ctypes.c_void_p
    faults.faults_calls.restype = faults.faults_hit.restype = ctypes.c_long
    faults.faults_call.restype = ctypes.c_char_p
    faults.faults_call.argtypes = [ctypes.c_long]
    if faults.faults_state() is None:
        raise OSError("no memory to share with the cases")
    for line in sys.stdin:
        order = json.loads(line)
        answer = run(Case.of(order["case"]), order["target"], faults)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
