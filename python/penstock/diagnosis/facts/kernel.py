"""The kernel's support for DMA between two PCI devices."""

from __future__ import annotations

import gzip
import re
import zlib
from typing import Any

from penstock.diagnosis.system import System

_OPTION = "CONFIG_PCI_P2PDMA"


def p2pdma(system: System, release: str) -> dict[str, Any]:
    """Return whether the kernel is built with PCI P2PDMA, and the source of the answer."""
    version = re.match(r"(\d+)\.(\d+)", release)
    built, source = _built(system, release)
    return {
        "kernel_version": [int(version[1]), int(version[2])] if version else None,
        "built": built,
        "source": source,
    }


def _built(system: System, release: str) -> tuple[bool | None, str | None]:
    for path in (
        "/proc/config.gz",
        f"/boot/config-{release}",
        f"/lib/modules/{release}/config",
        f"/usr/lib/modules/{release}/config",
    ):
        contents = system.bytes(path)
        if contents is None:
            continue
        if path.endswith(".gz"):
            try:
                contents = gzip.decompress(contents)
            except (OSError, EOFError, zlib.error):
                continue
        return f"\n{_OPTION}=y".encode() in b"\n" + contents, path
    # The symbol that NVIDIA's guide looks for. Every user can read the names in this list.
    symbols = system.bytes("/proc/kallsyms")
    if symbols:
        return b" p2pdma_pgmap_ops" in symbols, "/proc/kallsyms"
    return None, None


def iommu(system: System) -> dict[str, Any]:
    """Return the IOMMUs in use, and their options on the kernel's command line."""
    line = system.text("/proc/cmdline")
    asked = [] if line is None else re.findall(r"(?:^|\s)((?:\w+_)?iommu\S*)", line)
    groups = system.names("/sys/kernel/iommu_groups")
    return {
        "units": system.names("/sys/class/iommu"),
        "groups": len(groups),
        "known": system.exists("/sys/class/iommu") or system.exists("/sys/kernel/iommu_groups"),
        "command_line": asked,
    }


def nvme(system: System) -> dict[str, Any]:
    """Return the NVMe controllers, and the settings of their driver."""
    controllers = [name for name in system.names("/sys/class/nvme") if re.match(r"nvme\d+$", name)]
    return {
        "controllers": {
            name: system.text(f"/sys/class/nvme/{name}/transport") for name in controllers
        },
        "driver": system.exists("/sys/module/nvme_core"),
        "multipath": system.text("/sys/module/nvme_core/parameters/multipath"),
    }
