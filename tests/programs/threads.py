"""Threads that use one file at the same time, each with a dataset of its own."""

from __future__ import annotations

import copy
import threading
from typing import TYPE_CHECKING

from .program import Operation

if TYPE_CHECKING:
    from .machine import Machine


def run(machine: Machine, operation: Operation) -> None:
    failures: list[BaseException] = []
    barrier = threading.Barrier(len(operation["groups"]))
    for model in machine.models.values():  # each file once, before the threads
        machine._open(model.kind["file"])
    machine._open("main")

    def work(group: list[Operation]) -> None:
        own = copy.copy(machine)
        own.pending = []
        try:
            barrier.wait(20)
            for each in group:
                own.step(each)
            own._settle()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(group,)) for group in operation["groups"]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    machine.count += sum(map(len, operation["groups"]))
    if failures:
        raise failures[0]
