"""The ranks of a process group of torch.distributed.

The group's own timeout applies. A rank that does not come in that time is torch's error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from penstock import frameworks
from penstock.dist.mpi.ranks import RankError, disagreement, failed_error, in_words
from penstock.errors import InvalidError, UnavailableError

T = TypeVar("T")

_NOT_A_MEMBER = -1


class TorchGroup:
    """A process group, with the methods of :class:`penstock.dist.group.Group`.

    Args:
        group: A ``torch.distributed.ProcessGroup``; ``None`` for the default one.

    Raises:
        InvalidError: This process is not in the group.
    """

    def __init__(self, group: Any) -> None:
        torch: Any = frameworks.installed("torch")
        self.torch = torch
        self._distributed = torch.distributed
        self.group = self._distributed.group.WORLD if group is None else group
        self.rank: int = self._distributed.get_rank(self.group)
        if self.rank == _NOT_A_MEMBER:
            raise InvalidError("this process is not in the process group")
        self.size: int = self._distributed.get_world_size(self.group)
        self.failure: RankError | None = None
        self.is_broken = False

    def agree(self, step: str, error: BaseException | None = None) -> None:
        """Return on all ranks, or raise on all."""
        told = self.all_gather((step, None if error is None else in_words(error)), step)
        for rank, (_, words) in enumerate(told):
            if words is not None:
                self.failure = failed_error(step, rank, words)
                raise self.failure from error
        of_root = told[0][0]
        for rank, (other, _) in enumerate(told):
            if other != of_root:
                self.failure = disagreement(of_root, rank, other)
                raise self.failure

    def broadcast(self, step: str, make: Callable[[], T], error: BaseException | None = None) -> T:
        """Return on all ranks what ``make`` returns on rank 0, or raise its error on all."""
        made: list[Any] = [None]
        if self.rank == 0 and error is None:
            try:
                made = [make()]
            except Exception as raised:
                error = raised
        self.agree(step, error)
        self._distributed.broadcast_object_list(made, src=self.global_rank(0), group=self.group)
        found: T = made[0]
        return found

    def all_gather(self, value: T, step: str) -> list[T]:
        """Return on all ranks the small values of all, in order."""
        found: list[Any] = [None] * self.size
        self._distributed.all_gather_object(found, value, group=self.group)
        return found

    def share(self, memory: np.ndarray[Any, Any], bounds: Sequence[int], step: str) -> None:
        """Complete bytes in host memory on all ranks, each of which has filled its own share."""
        if not self.has_backend("cpu"):
            raise UnavailableError(
                f"the process group moves no host memory, only {self.backends()}",
                remedy='init_process_group("cpu:gloo,cuda:nccl"), or device="cuda"',
            )
        whole = self.torch.from_numpy(memory)
        for root in range(self.size):
            part = whole[bounds[root] : bounds[root + 1]]
            if part.numel():
                source = self.global_rank(root)
                self._distributed.broadcast(part, src=source, group=self.group)

    def global_rank(self, rank: int) -> int:
        """Return the rank in the default group of a rank of this one."""
        return int(self._distributed.get_global_rank(self.group, rank))

    def backends(self) -> dict[str, str]:
        """Return the backend for each type of device, such as ``{"cuda": "nccl"}``."""
        told = str(self._distributed.get_backend_config(self.group))
        pairs = (pair.partition(":") for pair in told.split(",") if ":" in pair)
        return {device: backend for device, _, backend in pairs}

    def has_backend(self, device: str, name: str = "") -> bool:
        """Whether the group moves memory of a type of device, by the backend of that name."""
        found = self.backends().get(device)
        return found == name if name else found is not None

    def current_gpu(self) -> int | None:
        """Return the ordinal of torch's current GPU; ``None`` if torch has none."""
        cuda = self.torch.cuda
        return int(cuda.current_device()) if cuda.is_available() else None

    def free(self) -> None:
        """Do nothing: the group is its owner's."""

    def leave(self) -> None:
        """Take part in no step any more. The others find out by torch's timeout."""
        self.is_broken = True
