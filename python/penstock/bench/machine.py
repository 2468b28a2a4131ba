"""The machine and the versions with which a result was measured."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import subprocess
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
    return {
        "gpu": devices[0]["name"] if devices else None,
        "driver": _driver() or found["cuda"]["driver_version"],
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "file_system": found["file_system"]["type"],
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "date": datetime.date.today().isoformat(),
        "versions": {
            "Penstock": ps.__version__,
            "Python": platform.python_version(),
            **{name: version for name in _DISTRIBUTIONS if (version := _version(name))},
        },
    }


def in_words(environment: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in environment["versions"].items())
    gpu = f"{environment['gpu']}, driver {environment['driver']}, " if environment["gpu"] else ""
    return (
        f"{gpu}{environment['cores']} cores of "
        f"{environment['cpu']}, kernel {environment['kernel']}, {environment['file_system']}, "
        f"{environment['date']}; {versions}"
    )


def _version(name: str) -> str | None:
    for distribution in _DISTRIBUTIONS[name]:
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _driver() -> str | None:
    try:
        answer = subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = answer.stdout.split()
    return lines[0] if answer.returncode == 0 and lines else None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
