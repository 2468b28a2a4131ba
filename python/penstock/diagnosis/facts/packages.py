"""Versions of Python packages, from their metadata: importing torch would take seconds."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping
from typing import Any

from penstock.hdf5.library import nvcomp_libraries

# The distributions of each package; some have the CUDA version in their names.
_NAMES = {
    "numpy": ("numpy",),
    "torch": ("torch",),
    "cupy": ("cupy", "cupy-cuda13x", "cupy-cuda12x"),
    "jax": ("jax",),
    "nvcomp": (
        "nvidia-libnvcomp-cu13",
        "nvidia-libnvcomp-cu12",
        "nvidia-nvcomp-cu13",
        "nvidia-nvcomp-cu12",
    ),
    "deepspeed": ("deepspeed",),
    "kvikio": ("kvikio", "kvikio-cu13", "kvikio-cu12"),
}


def read() -> dict[str, Any]:
    """Return the versions; ``None`` for what is not installed."""
    import h5py

    return {
        "version": platform.python_version(),
        "h5py": h5py.version.version,
        "hdf5": h5py.version.hdf5_version,
        **{name: _installed(distributions) for name, distributions in _NAMES.items()},
    }


def _installed(distributions: tuple[str, ...]) -> str | None:
    for distribution in distributions:
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def nvcomp(environment: Mapping[str, str]) -> str | None:
    """Return nvCOMP's library if the variable or a wheel names one. The loader may find another."""
    named = environment.get("PENSTOCK_NVCOMP_LIBRARY")
    return named or next((str(path) for path in nvcomp_libraries()), None)
