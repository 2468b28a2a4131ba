"""All that four ranks do, in one start of them: what was done is printed, a line each.

Arguments: the folder, the device of the arrays, and the rank that does not come to a step.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mpi4py import MPI

sys.path.insert(0, str(Path(__file__).parent))

import absent
import described
import divided
import errors
import killed
import reading
import replicated
import round_trip

world = MPI.COMM_WORLD
base, device, away = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])


def does(what: str, run: Callable[..., Any], comm: Any, *arguments: Any) -> None:
    """Carry out a part in a folder of its own, and say so."""
    folder = base / f"{what.replace(' ', '-')}-{comm.size}"
    if comm.rank == 0:
        folder.mkdir()
    comm.Barrier()
    run(comm, folder, *arguments)
    world.Barrier()
    if world.rank == 0:
        print(f"done: {what}", flush=True)


does("shapes", round_trip.run, world, device, "shapes")
does("types", round_trip.run, world, device, "types")
does("filters", round_trip.run, world, device, "filters")
does("reading", reading.run, world, device)
does("files of their own", divided.run, world, device)
does("replicated", replicated.run, world, device)
if device == "cpu":
    three_and_one = world.Split(int(world.rank == 3))
    does("three ranks and one", round_trip.run, three_and_one, device, "shapes")
    does("replicated on three ranks and one", replicated.run, three_and_one, device)
    does("ten million chunks", lambda comm, _: described.run(comm), world)
    does("errors", errors.run, world)
    does("errors of replicated loads", replicated.fail, world)
    does("each step", killed.look_at_each_step, world)
    does(f"rank {away} is absent", absent.run, world, away)
    # MPI would wait for what was left undone.
    os._exit(0)
