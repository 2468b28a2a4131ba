"""Loads of a different plan by each rank of a process group. Each rank reads its own bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from penstock.dist.mpi.ranks import DEFAULT_TIMEOUT
from penstock.dist.replicated.join import joined
from penstock.dist.torch_group import TorchGroup
from penstock.errors import InvalidError
from penstock.placement import HOST
from penstock.torch.safetensors import frameworks
from penstock.torch.safetensors.replicated import refuse_map

_STEP = "load_file(plan=, group=)"

Identities: TypeAlias = dict[str, tuple[int, int, int]]
"""What identifies the contents of files, also on another host, by the files' names."""


def load_plans(
    load: Callable[[], tuple[dict[str, Any], Identities]],
    device: Any,
    device_map: object,
    group: Any,
) -> dict[str, Any]:
    """Load this rank's plan, while the other ranks load theirs. Collective.

    Args:
        load: Returns the tensors of this rank, and the identities of the files that it has read.
        device: The device of this rank.
        device_map: ``None``; anything else is refused.
        group: All ranks: a process group of torch.distributed, or a communicator of MPI.

    Raises:
        RankError: A rank has failed, or the ranks have read different files. All ranks get it.
    """
    with joined(group, DEFAULT_TIMEOUT) as members:
        found: dict[str, Any] = {}
        identities: Identities = {}
        error: Exception | None = None
        try:
            refuse_map(device_map)
            ordinal = frameworks.choose("pt", device).ordinal
            if isinstance(members, TorchGroup) and ordinal != HOST:
                members.use_gpu(ordinal)
            found, identities = load()
        except Exception as raised:  # reported to the other ranks
            error = raised
        _, of_ranks = members.broadcast_and_gather(_STEP, lambda: None, identities, error)
        first: Identities = {}
        for of_rank in of_ranks:
            for name, identity in of_rank.items():
                if first.setdefault(name, identity) != identity:
                    error = InvalidError(
                        f"{name} is not the same file on all ranks",
                        path=name,
                        remedy="load it again if it was replaced meanwhile",
                    )
        members.agree(_STEP, error)
    return found
