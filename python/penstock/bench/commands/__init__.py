"""The subcommands of ``penstock bench``, a module for each or for two."""

IN_OTHERS = {"vfd-threads": "vfd"}
"""The module of a command that has none of its own name."""
NAMES = (
    "hdf5-read",
    "hdf5-write",
    "vfd",
    "vfd-threads",
    "scaling",
    "memory",
    "tensor",
    "plotfile",
    "decode",
    "small",
    "weights",
    "batches",
    "cells",
    "checkpoint",
    "netcdf",
)
