"""Loads of a different plan by each rank of a process group. Each rank reads its own bytes."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from penstock.dist.mpi.ranks import DEFAULT_TIMEOUT
from penstock.dist.replicated.join import joined
from penstock.dist.torch_group import TorchGroup
from penstock.errors import InvalidError
from penstock.files import Path
from penstock.placement import HOST
from penstock.torch.safetensors import frameworks
from penstock.torch.safetensors.replicated import refuse_map
from penstock.torch.safetensors.sharded import files_of

_STEP = "load_file(plan=, group=)"


def load_plans(
    filename: Path,
    device: Any,
    device_map: object,
    group: Any,
    load: Callable[[], dict[str, Any]],
) -> dict[str, Any]:
    """Load this rank's plan by ``load``, while the other ranks load theirs. Collective.

    Args:
        filename: The file, index or folder.
        device: The device of this rank.
        device_map: ``None``; anything else is refused.
        group: All ranks: a process group of torch.distributed, or a communicator of MPI.
        load: Loads the tensors of this rank.

    Raises:
        RankError: A rank has failed. All ranks get it.
        InvalidError: The ranks have loaded different files.
    """
    with joined(group, DEFAULT_TIMEOUT) as members:
        found: dict[str, Any] = {}
        files: list[tuple[int, ...]] = []
        error: Exception | None = None
        try:
            refuse_map(device_map)
            ordinal = frameworks.choose("pt", device).ordinal
            if isinstance(members, TorchGroup) and ordinal != HOST:
                members.use_gpu(ordinal)
            files = [_identity(path) for path in files_of(filename)]
            found = load()
        except Exception as raised:  # reported to the other ranks
            error = raised
        _, of_ranks = members.broadcast_and_gather(_STEP, lambda: None, files, error)
    if any(files != of_ranks[0] for files in of_ranks):
        raise InvalidError(
            f"{os.fspath(filename)!r} is not the same file on all ranks",
            remedy="load it again if it was replaced meanwhile",
        )
    return found


def _identity(path: str) -> tuple[int, ...]:
    """Return numbers that identify the contents of a file, also on another host."""
    stat = os.stat(path)
    return stat.st_ino, stat.st_size, stat.st_mtime_ns
