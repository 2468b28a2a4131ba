"""The subcommands of ``penstock bench``, one module for each."""

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
    "checkpoint",
    "netcdf",
)
