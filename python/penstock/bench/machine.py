"""The machine and the versions with which a result was measured."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
from contextlib import suppress
from pathlib import Path
from typing import Any

import penstock as ps

_DISTRIBUTIONS = {
    "torch": ("torch",),
    "KvikIO": ("kvikio-cu13", "kvikio-cu12", "kvikio"),
    "h5py": ("h5py",),
    "hdf5plugin": ("hdf5plugin",),
    "nvCOMP": ("nvidia-libnvcomp-cu13", "nvidia-libnvcomp-cu12"),
    "NumPy": ("numpy",),
}


def environment(folder: Path) -> dict[str, Any]:
    found = ps.describe(folder)
    devices = found["cuda"]["devices"]
    versions = {"Penstock": ps.__version__, "Python": platform.python_version()}
    for name, distributions in _DISTRIBUTIONS.items():
        for distribution in reversed(distributions):
            with suppress(importlib.metadata.PackageNotFoundError):
                versions[name] = importlib.metadata.version(distribution)
    models = [line for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return {
        "gpu": devices[0]["name"] if devices else None,
        "driver": next(iter(_lines("/sys/module/nvidia/version")), found["cuda"]["driver_version"]),
        "cpu": models[0].partition(":")[2].strip() if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "file_system": found["file_system"]["type"],
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "date": datetime.date.today().isoformat(),
        "versions": versions,
    }


def in_words(environment: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in environment["versions"].items())
    gpu = f"{environment['gpu']}, driver {environment['driver']}, " if environment["gpu"] else ""
    return (
        f"{gpu}{environment['cores']} cores of "
        f"{environment['cpu']}, kernel {environment['kernel']}, {environment['file_system']}, "
        f"{environment['date']}; {versions}"
    )


def _lines(path: str) -> list[str]:
    """Return the lines of a file of the kernel; none if it is not there."""
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
