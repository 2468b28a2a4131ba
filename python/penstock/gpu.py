"""Preparation of a GPU."""

from __future__ import annotations

from penstock._native import lib
from penstock.errors import check
from penstock.placement import Device, ordinal_of_gpu


def init(device: Device = "cuda") -> None:
    """Prepare a GPU for all later calls; without this, the first calls take longer.

    Penstock works in a CUDA context of its own, so as not to wait for streams of the program. The
    context takes about 330 MiB of GPU memory. Making it takes 0.2 s, and compiling the kernels
    some seconds, once for a machine.

    Args:
        device: ``"cuda"`` is the current GPU of torch or CuPy.

    Raises:
        GpuError: The GPU does not load the kernels.
        UnavailableError: There is no such GPU.
    """
    check(lib.penstock_init(ordinal_of_gpu(device)))
