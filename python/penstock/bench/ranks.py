"""Processes that measure together: under ``mpirun``, started by :func:`start`, or one alone.

All ranks make the same calls in the same order. :meth:`Ranks.gather` is the only primitive: it
returns the values of all ranks on every rank. It is also a barrier.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

from penstock.dist.launched import MPI_SIZES

_VARIABLE = "PENSTOCK_BENCH_RANK"
"""The variable that :func:`start` sets for its processes: rank, size, address and key."""
_PAUSE = 1e-4
"""Seconds between two polls for ranks that have not arrived."""
_WAIT = 600
"""Seconds after which a silent rank counts as lost."""


@dataclass(frozen=True)
class Ranks:
    """One process alone."""

    rank: int = 0
    size: int = 1
    launcher: str = "alone"

    def gather(self, value: Any) -> list[Any]:
        return [value]

    def barrier(self) -> None:
        self.gather(None)

    def leave(self) -> None:
        """End the rank's part, as the last call. A rank that ends without it ends the others."""

    @property
    def is_first(self) -> bool:
        """Whether this rank prints and saves."""
        return self.rank == 0


class LostRankError(RuntimeError):
    """Another rank has ended or does not answer."""


class RankFailedError(LostRankError):
    """This rank has failed where the others may wait for it: all of them have to end."""


class NoRanksError(Exception):
    """The launched processes cannot measure together."""


class _Mpi(Ranks):
    def gather(self, value: Any) -> list[Any]:
        from mpi4py import MPI

        arrived = MPI.COMM_WORLD.Ibarrier()
        while not arrived.Test():
            # Inside a blocking MPI call, Python could not handle a signal and remove the files.
            time.sleep(_PAUSE)
        found: list[Any] = MPI.COMM_WORLD.allgather(value)
        return found

    def leave(self) -> None:
        from mpi4py import MPI

        MPI.Finalize()


@dataclass(frozen=True)
class _Local(Ranks):
    """A process started by :func:`start`. The first rank gathers, by a Unix socket."""

    address: str = ""
    key: bytes = b""

    @cached_property
    def _others(self) -> list[Connection]:
        """On the first rank, the connections to all others by rank; else the one to the first."""
        if self.rank:
            return [_connect(self.address, self.key)]
        # In the abstract namespace: there is no path to be too long, and no file to remove.
        place = f"\0{self.address}"
        with Listener(place, "AF_UNIX", authkey=self.key, backlog=self.size) as listener:
            found = [listener.accept() for _ in range(self.size - 1)]
        numbered = sorted(((_receive(other), other) for other in found), key=lambda pair: pair[0])
        return [other for _, other in numbered]

    def gather(self, value: Any) -> list[Any]:
        if self.rank:
            first = "_others" not in self.__dict__
            (to_first,) = self._others
            if first:
                _send(to_first, self.rank)
            _send(to_first, value)
            answer: list[Any] = _receive(to_first)
            return answer
        values = [value, *(_receive(other) for other in self._others)]
        for other in self._others:
            _send(other, values)
        return values


def _connect(address: str, key: bytes) -> Connection:
    deadline = time.monotonic() + _WAIT
    while True:
        try:
            return Client(f"\0{address}", "AF_UNIX", authkey=key)
        except ConnectionRefusedError:  # the first rank is not listening yet
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _send(connection: Connection, value: Any) -> None:
    try:
        connection.send(value)
    except ConnectionError:
        raise LostRankError("another rank has ended") from None


def _receive(connection: Connection) -> Any:
    try:
        if not connection.poll(_WAIT):
            raise LostRankError(f"another rank has not answered for {_WAIT} s")
        return connection.recv()
    except (EOFError, ConnectionError):
        raise LostRankError("another rank has ended") from None


def here() -> Ranks:
    """Return the ranks that this process belongs to."""
    if told := os.environ.get(_VARIABLE):
        rank, size, address, key = told.split(" ")
        return _Local(int(rank), int(size), "processes", address, bytes.fromhex(key))
    if any(int(os.environ.get(name, 0)) > 1 for name in MPI_SIZES):
        return _of_mpi()
    return Ranks()


def _of_mpi() -> Ranks:
    try:
        import mpi4py

        # Otherwise, after a failure, MPI_Finalize would wait for ranks that wait for this one.
        mpi4py.rc.finalize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError if it finds no MPI library
        why = f"ranks under mpirun need mpi4py ({error}): pip install mpi4py"
        raise NoRanksError(why) from None
    world = MPI.COMM_WORLD
    if world.Get_size() == 1:
        raise NoRanksError(
            f"mpi4py uses {MPI.Get_library_version().splitlines()[0]}, but another mpirun started "
            "these processes: use the mpirun of mpi4py's MPI"
        )
    return _Mpi(world.Get_rank(), world.Get_size(), "MPI")


def start(count: int, command: Sequence[str] | None = None) -> int:
    """Run this command as ``count`` processes, and return the first failure's exit status, or 0.

    If one fails, the others are terminated, because they would wait for it.
    """
    command = command or _this_command()
    address, key = f"penstock-bench-{secrets.token_hex(8)}", secrets.token_hex(16)
    with _processes() as processes:
        for rank in range(count):
            environment = {**os.environ, _VARIABLE: f"{rank} {count} {address} {key}"}
            # Ctrl-C on a terminal reaches all of them, and each cleans up.
            output = None if rank == 0 else subprocess.DEVNULL
            processes.append(subprocess.Popen(command, env=environment, stdout=output))
        return _worst(processes)


def launch(launcher: Sequence[str], variables: Mapping[str, str]) -> int:
    """Run this command by a launcher of MPI, and return its status.

    The launcher ends all ranks if one fails.
    """
    with _processes() as processes:
        environment = {**os.environ, **variables}
        processes.append(subprocess.Popen([*launcher, *_this_command()], env=environment))
        return _worst(processes)


def _this_command() -> list[str]:
    return [sys.executable, "-m", "penstock_command", *sys.argv[1:]]


@contextmanager
def _processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    """A list for processes; those that still run at the end are terminated."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        yield processes
    finally:
        # The remaining ones clean up, and are killed if they do not end.
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _worst(processes: list[subprocess.Popen[bytes]]) -> int:
    left = dict(enumerate(processes))
    while left:
        ended = {rank: it.returncode for rank, it in left.items() if it.poll() is not None}
        for rank, status in ended.items():
            del left[rank]
            if status < 0:
                name = signal.Signals(-status).name
                print(f"penstock: rank {rank} was killed by {name}", file=sys.stderr)
            if status:
                return max(status, 1)
        time.sleep(0.02)
    return 0
