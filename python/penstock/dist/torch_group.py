"""The ranks of a process group of torch.distributed.

The group's own timeout applies. If a rank is missing for that time, torch raises an error.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import numpy as np

from penstock import frameworks
from penstock.dist.gathering import Gathering
from penstock.errors import UnavailableError

T = TypeVar("T")

_ROOM = 4096
"""Bytes of a message that need no second call: torch's own function for objects makes two."""
_LENGTH = struct.Struct("q")


class TorchGroup(Gathering):
    """A process group.

    Args:
        group: A ``torch.distributed.ProcessGroup``; ``None`` for the default one.
    """

    def __init__(self, group: Any) -> None:
        self.torch = frameworks.torch_module()
        distributed = self._distributed = self.torch.distributed
        self.group = distributed.group.WORLD if group is None else group
        rank, size = (of(self.group) for of in (distributed.get_rank, distributed.get_world_size))
        super().__init__(int(rank), int(size))
        self._gpu: int | None = None

    def use_gpu(self, ordinal: int) -> None:
        """Send this rank's values from this GPU. NCCL requires a different GPU for each rank."""
        self._gpu = ordinal

    def _on_gpu(self) -> AbstractContextManager[Any]:
        cuda = self.torch.cuda
        is_there = self._gpu is not None and cuda.is_available()
        return cuda.device(self._gpu) if is_there else nullcontext()

    def all_gather(self, value: T, step: str) -> list[T]:
        """Return on all ranks the small values of all ranks, in order."""
        pickled = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        message = np.frombuffer(_LENGTH.pack(len(pickled)) + pickled, np.uint8)
        gathered = self._gather(message[:_ROOM], _ROOM)
        lengths = [_LENGTH.unpack_from(part)[0] for part in gathered]
        if (longest := _LENGTH.size + max(lengths)) > _ROOM:
            gathered = self._gather(message, longest)
        pairs = zip(gathered, lengths, strict=True)
        return [pickle.loads(part[_LENGTH.size :][:length]) for part, length in pairs]

    def _gather(self, message: np.ndarray[Any, Any], nbytes: int) -> np.ndarray[Any, Any]:
        """Return a row of ``nbytes`` for each rank: its message, which is not longer."""
        own = self.torch.zeros(nbytes, dtype=self.torch.uint8, device="cpu")
        own[: message.size] = self.torch.from_numpy(message.copy())
        with self._on_gpu():
            own = own.to("cpu" if "cpu" in self.backends() else "cuda")
            parts = [self.torch.empty_like(own) for _ in range(self.size)]
            self._distributed.all_gather(parts, own, group=self.group)
            found: np.ndarray[Any, Any] = self.torch.stack(parts).cpu().numpy()
        return found

    def from_root(self, value: T | None, step: str) -> T:
        """Return on all ranks the value of rank 0."""
        parts: list[Any] = [value]
        source = self.global_rank(0)
        with self._on_gpu():
            self._distributed.broadcast_object_list(parts, src=source, group=self.group)
        found: T = parts[0]
        return found

    def share(self, memory: np.ndarray[Any, Any], bounds: Sequence[int], step: str) -> None:
        """Complete bytes in host memory on all ranks, each of which has filled its own share."""
        whole = self.torch.from_numpy(memory)
        for root in range(self.size):
            part = whole[bounds[root] : bounds[root + 1]]
            if part.numel():
                source = self.global_rank(root)
                self._distributed.broadcast(part, src=source, group=self.group)

    def check_host_memory(self) -> None:
        """Raise an error if :meth:`share` is not possible."""
        found = self.backends()
        if "cpu" not in found:
            raise UnavailableError(
                f"the process group has no backend for host memory, only {found}",
                remedy='init_process_group("cpu:gloo,cuda:nccl")',
            )

    def global_rank(self, rank: int) -> int:
        """Return the rank in the default group of a rank of this one."""
        return int(self._distributed.get_global_rank(self.group, rank))

    def backends(self) -> dict[str, str]:
        """Return the backend for each type of device, such as ``{"cuda": "nccl"}``."""
        text = str(self._distributed.get_backend_config(self.group))
        pairs = (pair.partition(":") for pair in text.split(",") if ":" in pair)
        return {device: backend for device, _, backend in pairs}

    def has_nccl(self) -> bool:
        """Whether NCCL moves GPU memory for this group."""
        return self.backends().get("cuda") == "nccl"

    def current_gpu(self) -> int | None:
        """Return the ordinal of torch's current GPU; ``None`` if torch has none."""
        cuda = self.torch.cuda
        return int(cuda.current_device()) if cuda.is_available() else None
