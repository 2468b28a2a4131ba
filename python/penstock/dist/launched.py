"""Rank, size and local rank of a process, from the environment variables of its launcher.

This module alone has the names of the variables.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "LEGATE_RANK")
"""The rank: Open MPI; PMIx; MPICH and Intel MPI; Slurm; Legate."""
MPI_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMIX_SIZE", "PMI_SIZE")
"""The number of ranks, by launchers that only start ranks; Slurm's is set in allocations, too."""
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
    """The values that a launcher has set; ``None`` for a missing one."""

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
        value = environment.get(name, "")
        if value.isdecimal():
            return int(value)
    return None
