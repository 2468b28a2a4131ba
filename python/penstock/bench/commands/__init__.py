"""One benchmark a module; each is a subcommand of ``penstock bench``."""

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
)
