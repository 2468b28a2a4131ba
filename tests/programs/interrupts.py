"""Signals whose handler raises while the library is in the middle of a call."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import numpy as np

import penstock

from .model import WrongError
from .program import Operation

if TYPE_CHECKING:
    from .machine import Machine

_CANARY = 0x3C


class HandlerError(Exception):
    """The exception that the handler raises."""


class Alarm:
    """Interrupts calls, then allocates arrays that must stay unchanged.

    The arrays have the size of the memory that the interrupted call released, and would show that
    its request still writes there.
    """

    def __init__(self) -> None:
        self._armed = False
        self._canaries: list[np.ndarray[Any, Any]] = []
        self._previous = signal.signal(signal.SIGALRM, self._ring)

    def _ring(self, *_: object) -> None:
        if self._armed:
            self._armed = False
            raise HandlerError

    def call(self, seconds: float, function: Any, *arguments: Any, **more: Any) -> Any:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            self._armed = True
            made = function(*arguments, **more)
            self._armed = False
            return made
        finally:
            self._armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)

    def occupy(self, nbytes: int) -> None:
        self._canaries += [np.full(nbytes, _CANARY, np.uint8) for _ in range(3)]

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._previous)
        for canary in self._canaries:
            changed = int((canary != _CANARY).sum())
            if changed:
                raise WrongError(f"{changed} bytes of another array were changed")


def run(machine: Machine, operation: Operation) -> None:
    """Operations, each of which a signal may end."""
    if not machine.interface.interrupts:
        return
    machine.alarm = alarm = Alarm()
    try:
        for each in operation["groups"][0]:
            machine.alarm_after = each.get("after", 0.0)
            machine.step(each)
        machine.alarm_after = 0
        machine._settle()
        penstock.drain()  # writes whose requests were lost, too, for the rule of plain access
    finally:
        machine.alarm = None
        alarm.stop()
