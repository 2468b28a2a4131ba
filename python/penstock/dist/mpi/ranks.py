"""Collective steps of ranks: a failure on one rank fails on all, and no rank waits for ever.

Every collective step starts with one reduction of three numbers, whatever the step is. So a rank
that has failed meets the others in any step, and ranks in different steps detect it.

A rank that waits longer than the timeout raises the alarm at rank 0. Rank 0 calls all ranks; those
that wait answer, and after a grace rank 0 sends the missing ranks to all. So no rank waits longer
than the timeout and :data:`GRACES` graces of a tenth of it, at least 0.5 s and at most 10 s each.
"""

from __future__ import annotations

import hashlib
import pickle
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from penstock.dist.gathering import Gathering, RankError
from penstock.errors import InvalidError

T = TypeVar("T")
U = TypeVar("U")

DEFAULT_TIMEOUT = 300.0
"""Seconds that a rank waits for the slowest one."""
GRACES = 3

_HERE, _CALL, _VERDICT = 1, 2, 3
"""Tags of the messages about missing ranks."""
_SPINS = 200
_PAUSE = 2e-4
_LARGEST = 1 << 30
"""Bytes of one message: MPI counts in 31 bits."""
_FEW = 1 << 16
"""Bytes of an object that are received without a check that all ranks have memory for them."""
_MOST_NAMED = 8

_BOOT = Path("/proc/sys/kernel/random/boot_id")
"""The file that distinguishes hosts of the same name."""

_abandoned: list[Any] = []
"""Steps that not all ranks joined. MPI may still use their buffers."""


class Ranks(Gathering):
    """The ranks of a communicator, and their collective steps.

    Args:
        comm: An ``mpi4py.MPI.Comm``. The messages go through a duplicate of it.
        timeout: Seconds that a rank waits for the slowest one in a step.
    """

    def __init__(self, comm: Any, timeout: float = DEFAULT_TIMEOUT) -> None:
        super().__init__(comm.Get_rank(), comm.Get_size())
        self._refused: Exception | None = None
        """The error of an invalid timeout, which the first step reports to the other ranks."""
        try:
            is_usable = timeout > 0
        except TypeError:
            is_usable = False
        if not is_usable:
            self._refused = InvalidError(f"the timeout is {timeout!r} s, but must be positive")
            timeout = DEFAULT_TIMEOUT
        self.timeout = timeout
        self.grace = min(max(timeout / 10, 0.5), 10.0)
        self._comm: Any = None
        duplicate, request = comm.Idup()
        self._wait(request, "the opening", duplicate)
        self._comm = duplicate

    @property
    def is_root(self) -> bool:
        """Whether this is rank 0, which alone calls HDF5."""
        return self.rank == 0

    def agree(self, step: str, error: BaseException | None = None) -> None:
        """Return on all ranks, or raise on all, also if a rank has not come in time."""
        if self.is_broken:
            raise RankError(f"{step}: ranks are missing since an earlier step") from error
        error = error or self._refused
        number = _digest(step)
        mine = [self.size if error is None else self.rank, number, -number]
        failed, least, most = self._minimum(mine, step)
        if failed < self.size or least != -most:
            super().agree(step, error)  # raises with the words of the ranks

    def broadcast(self, step: str, make: Callable[[], T], error: BaseException | None = None) -> T:
        """Return on all ranks what ``make`` returns on rank 0, or raise its error on all."""
        made: Any = None
        parts: list[Any] = []
        if self.is_root and error is None:
            try:
                made = make()
                parts = _pickled(made)
            except Exception as raised:
                error = raised
        self.agree(step, error)
        found: T = self._object(made, parts, step)
        return found

    def broadcast_and_gather(
        self, step: str, make: Callable[[], T], own: U, error: BaseException | None = None
    ) -> tuple[T, list[U]]:
        """Return also the small values of all ranks, in order."""
        return self.broadcast(step, make, error), self.all_gather(own, step)

    def maximum(self, number: int, step: str) -> int:
        """Return the largest number of all ranks."""
        return -self._minimum([-number], step)[0]

    def gather(self, rows: np.ndarray[Any, Any], step: str) -> list[np.ndarray[Any, Any]]:
        """Return on rank 0 the rows of all ranks, a table of ``int64`` for each; else nothing."""
        width = rows.shape[1]
        own = np.ascontiguousarray(rows, dtype=np.int64)
        counts = np.empty(self.size if self.is_root else 0, np.int64)
        request = self._comm.Igather(np.array([own.size], np.int64), counts, root=0)
        self._wait(request, step, (own, counts))
        ends = np.cumsum(counts)
        found = self._allocated(step, lambda: np.empty(int(counts.sum()), np.int64))
        if not self.is_root:
            request = self._comm.Igatherv(own, None, root=0)
            self._wait(request, step, own)
            return []
        request = self._comm.Igatherv(own, [found, counts, ends - counts, _int64()], root=0)
        self._wait(request, step, (own, found))
        return [part.reshape(-1, width) for part in np.split(found, ends[:-1])]

    def scatter(
        self, lists: list[np.ndarray[Any, Any]], count: int, step: str
    ) -> np.ndarray[Any, Any]:
        """Return on each rank its list of ``int64``, of ``count`` numbers, that rank 0 has."""

        def make() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
            all_lists = [*lists, np.empty(0, np.int64)]
            joined = np.concatenate(all_lists, dtype=np.int64, casting="unsafe")
            return np.empty(count, np.int64), joined

        own, given = self._allocated(step, make)
        if not self.is_root:
            self._wait(self._comm.Iscatterv(None, own, root=0), step, own)
            return own
        counts = np.array([len(part) for part in lists], np.int64)
        starts = np.cumsum(counts) - counts
        request = self._comm.Iscatterv([given, counts, starts, _int64()], own, root=0)
        self._wait(request, step, (given, own))
        return own

    def all_gather(self, value: T, step: str) -> list[T]:
        """Return on all ranks the small values of all ranks, in order."""
        own = np.frombuffer(pickle.dumps(value), np.uint8)
        count, counts = np.array([own.size], np.int64), np.empty(self.size, np.int64)
        self._wait(self._comm.Iallgather(count, counts), step, (count, counts))
        ends = np.cumsum(counts)
        found = np.empty(int(counts.sum()), np.uint8)
        request = self._comm.Iallgatherv(own, [found, counts, ends - counts, _byte()])
        self._wait(request, step, (own, found))
        return [pickle.loads(part.tobytes()) for part in np.split(found, ends[:-1])]

    def share(self, memory: np.ndarray[Any, Any], bounds: Sequence[int], step: str) -> None:
        """Complete bytes in host memory on all ranks, each of which has filled its own share."""
        from mpi4py import MPI

        part = memory[bounds[0] : bounds[-1]]
        starts = np.array(bounds, np.int64) - bounds[0]
        if part.size <= _LARGEST:
            received = [part, np.diff(starts), starts[:-1], MPI.BYTE]
            self._wait(self._comm.Iallgatherv(MPI.IN_PLACE, received), step, received)
            return
        for root in range(self.size):
            for start in range(int(starts[root]), int(starts[root + 1]), _LARGEST):
                piece = part[start : min(start + _LARGEST, int(starts[root + 1]))]
                self._wait(self._comm.Ibcast(piece, root=root), step, piece)

    def local_rank(self) -> int:
        """Return the rank among those of this host. All ranks have just agreed on something.

        MPI's own function (``Split_type``) blocks, for ever if a rank is dead.
        """
        own = np.array([_digest(this_host())], np.int64)
        all_hosts = np.empty(self.size, np.int64)
        self._wait(self._comm.Iallgather(own, all_hosts), "the hosts", (own, all_hosts))
        return int((all_hosts[: self.rank] == own[0]).sum())

    def free(self) -> None:
        """Free the duplicate of the communicator. All ranks do so after the same step."""
        if not self.is_broken:
            self.is_broken = True
            self._comm.Free()

    def _minimum(self, numbers: list[int], step: str) -> list[int]:
        mine = np.array(numbers, np.int64)
        found = np.empty_like(mine)
        from mpi4py import MPI

        self._wait(self._comm.Iallreduce(mine, found, op=MPI.MIN), step, (mine, found))
        return [int(number) for number in found]

    def _allocated(self, step: str, make: Callable[[], T]) -> T:
        """Return what each rank has allocated, or raise on all if one has not the memory."""
        return self.made_by_all(f"{step} (memory)", make)

    def _object(self, value: Any, parts: list[Any], step: str) -> Any:
        """Return on all ranks an object of rank 0, which has pickled it.

        Of more than a few bytes, all ranks first agree that they have memory for them.
        """
        count = np.array([len(parts)], np.int64)
        self._wait(self._comm.Ibcast(count, root=0), step, count)
        sizes = np.array([part.size for part in parts] or [0] * int(count[0]), np.int64)
        self._wait(self._comm.Ibcast(sizes, root=0), step, sizes)
        own = parts

        def room() -> list[Any]:
            return own if self.is_root else [_room(int(size)) for size in sizes]

        parts = self._allocated(step, room) if sizes.sum() > _FEW else room()
        for part in parts:
            for start in range(0, part.size, _LARGEST):
                piece = part[start : start + _LARGEST]
                self._wait(self._comm.Ibcast(piece, root=0), step, piece)
        if self.is_root:
            return value
        return pickle.loads(parts[0], buffers=parts[1:])

    def _wait(self, request: Any, step: str, buffers: Any) -> None:
        """Wait for a nonblocking collective call. ``buffers`` stay alive as long as MPI needs them.

        Polling lets Python handle signals, which a blocking call of MPI does not.
        """
        deadline = time.monotonic() + self.timeout
        spins = 0
        try:
            while not request.Test():
                spins += 1
                if spins < _SPINS:
                    continue
                is_called = self._has_message(_HERE if self.is_root else _CALL)
                if is_called or time.monotonic() > deadline:
                    self.failure = self._missing(step)
                    raise self.failure
                time.sleep(_PAUSE)
        except BaseException:  # also a signal: the ranks are no longer at the same step
            self.is_broken = True
            _abandoned.append((request, buffers, self))
            raise

    def _has_message(self, tag: int) -> bool:
        from mpi4py import MPI

        # On the caller's own communicator, a message could be the caller's.
        return self._comm is not None and bool(self._comm.Iprobe(MPI.ANY_SOURCE, tag))

    def _missing(self, step: str) -> RankError:
        """Return the error of a step in which ranks are missing, with their numbers."""
        if self._comm is None:
            # Messages need the duplicate, which does not exist without the missing rank.
            return RankError(
                f"{step}: not all ranks have come within {self.timeout:g} s; the missing "
                "ranks are unknown, and the communicator cannot be used again, because MPI cannot "
                "cancel the step",
                remedy="see whether a rank was killed or waits for something else",
            )
        missing = self._roll_call() if self.is_root else self._verdict()
        if missing is None:
            return RankError(
                f"{step}: rank 0 does not answer: it has not come within {self.timeout:g} s, or "
                "has already waited for this rank without success",
                rank=0,
            )
        if not missing:
            return RankError(f"{step}: it was not complete within {self.timeout:g} s on all ranks")
        names = ", ".join(map(str, missing[:_MOST_NAMED]))
        if len(missing) > _MOST_NAMED:
            names += f" and {len(missing) - _MOST_NAMED} more"
        have = "rank" if len(missing) == 1 else "ranks"
        return RankError(
            f"{step}: {have} {names} did not come within {self.timeout:g} s",
            rank=missing[0],
            remedy="see whether the rank was killed or waits for something else",
        )

    def _roll_call(self) -> list[int]:
        """Call all ranks, and send the missing ranks to all, also to late ones."""
        for other in range(1, self.size):
            self._send(b"", other, _CALL)
        present = {0}
        end = time.monotonic() + self.grace
        while time.monotonic() < end and len(present) < self.size:
            while (answer := self._receive(_HERE)) is not None:
                present.add(answer[0])
            time.sleep(_PAUSE)
        missing = [rank for rank in range(self.size) if rank not in present]
        message = np.array(missing, np.int64).tobytes()
        for other in range(1, self.size):
            self._send(message, other, _VERDICT)
        return missing

    def _verdict(self) -> list[int] | None:
        """Report to rank 0, and return the missing ranks; ``None`` if rank 0 does not answer."""
        self._send(b"", 0, _HERE)
        end = time.monotonic() + (GRACES - 1) * self.grace
        while time.monotonic() < end:
            if (answer := self._receive(_VERDICT)) is not None:
                return [int(rank) for rank in np.frombuffer(answer[1], np.int64)]
            time.sleep(_PAUSE)
        return None

    def _send(self, message: bytes, to: int, tag: int) -> None:
        # A message this short is sent when the call returns. To a dead rank it fails or is lost,
        # which does not matter.
        buffer = bytearray(message)
        _abandoned.append((self._comm.Isend([buffer, _byte()], dest=to, tag=tag), buffer))

    def _receive(self, tag: int) -> tuple[int, bytes] | None:
        """Return the sender and the bytes of a message, if there is one."""
        from mpi4py import MPI

        status = MPI.Status()
        if not self._comm.Iprobe(source=MPI.ANY_SOURCE, tag=tag, status=status):
            return None
        buffer = bytearray(status.Get_count(_byte()))
        self._comm.Recv([buffer, _byte()], source=status.Get_source(), tag=tag)
        return status.Get_source(), bytes(buffer)


def this_host() -> str:
    """Return a text that identifies this host, also among hosts of the same name."""
    boot = _BOOT.read_text().strip() if _BOOT.exists() else ""
    return f"{socket.gethostname()} {boot}"


def _digest(text: str) -> int:
    """Return a hash of a text, of 56 bits."""
    words = text.encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(words, digest_size=7).digest(), "big")


def _pickled(value: Any) -> list[np.ndarray[Any, Any]]:
    """Pickle an object. The bytes of its arrays follow the head, uncopied."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return [_bytes(part) for part in (head, *(buffer.raw() for buffer in buffers))]


def _room(size: int) -> np.ndarray[Any, Any]:
    return np.empty(size, np.uint8)


def _int64() -> Any:
    from mpi4py import MPI

    return MPI.INT64_T


def _byte() -> Any:
    from mpi4py import MPI

    return MPI.BYTE


def _bytes(part: Any) -> np.ndarray[Any, Any]:
    return np.frombuffer(part, np.uint8) if len(part) else np.empty(0, np.uint8)
