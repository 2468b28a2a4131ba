"""What launchers of parallel programs tell a process in its environment: rank, size, local rank.

This is the only place that knows the names of their variables.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "LEGATE_RANK")
"""The rank: Open MPI; PMIx; MPICH and Intel MPI; Slurm; Legate."""
MPI_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMIX_SIZE", "PMI_SIZE")
"""The number of ranks, from those who start nothing but ranks: Slurm's is set in an allocation,
too."""
SIZES = (*MPI_SIZES, "SLURM_NTASKS", "LEGATE_SIZE")
"""The number of ranks, in the order of :data:`RANKS`."""
LOCAL_RANKS = (
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "PALS_LOCAL_RANKID",
    "SLURM_LOCALID",
    "LEGATE_LOCAL_RANK",
)
"""The rank among those of one host: Open MPI; MVAPICH; MPICH and Intel MPI; Cray; Slurm; Legate."""


class Launched(NamedTuple):
    """What a launcher has told; ``None`` where it did not."""

    rank: int | None
    size: int | None
    local_rank: int | None

    @classmethod
    def by(cls, environment: Mapping[str, str] | None = None) -> Launched:
        """Read an environment, that of this process by default."""
        given = os.environ if environment is None else environment
        return cls(_first(given, RANKS), _first(given, SIZES), _first(given, LOCAL_RANKS))


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        told = environment.get(name, "")
        if told.isdecimal():
            return int(told)
    return None
