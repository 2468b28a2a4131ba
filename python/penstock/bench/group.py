"""The ranks of a benchmark as a group that loads together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from penstock.dist.gathering import Gathering
from penstock.dist.mpi.ranks import this_host
from penstock.frameworks import loaded, with_gpu

from .ranks import Ranks

T = TypeVar("T")


class BenchGroup(Gathering):
    """The ranks by what :class:`Ranks` has: no word from one that does not go through all."""

    def __init__(self, ranks: Ranks) -> None:
        super().__init__(ranks.rank, ranks.size)
        self._ranks = ranks

    def all_gather(self, value: T, step: str) -> list[T]:
        """Return on all ranks the values of all, in order."""
        return self._ranks.gather(value)

    def share(self, memory: np.ndarray[Any, Any], bounds: Sequence[int], step: str) -> None:
        """Complete bytes in host memory on all ranks, each of which has filled its own share."""
        start, stop = bounds[self.rank], bounds[self.rank + 1]
        parts = self._ranks.gather(memory[start:stop])
        memory[bounds[0] : bounds[-1]] = np.concatenate(parts)


def of(ranks: Ranks) -> Any:
    """Return what ``load_replicated`` takes for all ranks: a communicator, or a group."""
    if ranks.launcher == "MPI":
        from mpi4py import MPI

        return MPI.COMM_WORLD
    return BenchGroup(ranks)


def _gpu(torch: Any) -> str:
    """Name torch's current GPU as all processes of the host do, whichever of them each sees."""
    current = torch.cuda.current_device()
    found = torch.cuda.get_device_properties(current)
    return str(getattr(found, "uuid", current))


def nccl(ranks: Ranks, folder: Path) -> Any:
    """Return a process group of torch that has NCCL, or text that says why there is none.

    All ranks have chosen their GPUs.
    """
    torch: Any = with_gpu("torch")
    why = "" if torch else "torch is not installed, or finds no GPU"
    if torch and not torch.distributed.is_nccl_available():
        why = "this torch has no NCCL"
    used = ranks.gather((this_host(), _gpu(torch)) if torch and not why else None)
    if not why and len(set(used)) < ranks.size:
        why = "NCCL needs a GPU for each rank"
    why = next(filter(None, ranks.gather(why)), "")
    if why:
        return why
    distributed = torch.distributed
    if not distributed.is_initialized():
        store = f"file://{folder / 'nccl'}"
        keys = {"rank": ranks.rank, "world_size": ranks.size}
        distributed.init_process_group("nccl", init_method=store, **keys)
    return distributed.group.WORLD


def end() -> None:
    """End the process group of :func:`nccl`, if there is one. Collective.

    The file by which its ranks have met must still be there: NCCL's threads read it until then,
    and wait for it if it is missing.
    """
    torch: Any = loaded("torch")
    if torch and torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
