"""NVIDIA's driver and the GPUs, from procfs, sysfs and NVML."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.diagnosis.facts import nvml
from penstock.diagnosis.system import System

_PCI = "/sys/bus/pci/devices"
_NVIDIA = 0x10DE
_DISPLAY = 0x03
_MEMORY_BARS = 6
_IORESOURCE_MEM = 0x200  # linux/ioport.h

GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""The PCI Express generation by gigatransfers per second of a lane."""


def driver(system: System) -> dict[str, Any]:
    """Return the kernel module's version, whether it is the open one, and its registry keys."""
    about = system.text("/proc/driver/nvidia/version")
    # "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build ..."
    version = re.search(r"^NVRM version:.*?\s(\d+(?:\.\d+)+)\s", f"{about}\n", re.MULTILINE)
    parameters = system.text("/proc/driver/nvidia/params")
    return {
        "loaded": about is not None or system.exists("/sys/module/nvidia"),
        "version": version[1] if version else system.text("/sys/module/nvidia/version"),
        "open_module": None if about is None else "Open Kernel Module" in about,
        "registry": None if parameters is None else _registry(parameters),
    }


def _registry(parameters: str) -> dict[str, str]:
    """Parse the keys in ``RegistryDwords: "A=1;B=0x2"``."""
    found = re.search(r'^RegistryDwords:\s*"?([^"\n]*)"?$', parameters, re.MULTILINE)
    assignments = (found[1] if found else "").split(";")
    pairs = (assignment.partition("=") for assignment in assignments)
    return {key.strip(): value.strip() for key, equals, value in pairs if equals and key.strip()}


def devices(system: System, cuda: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the GPUs that CUDA reports, and those on the bus that it does not."""
    known = {device["pci_bus_id"]: device for device in cuda if device["pci_bus_id"]}
    others = [name for name in _on_the_bus(system) if name not in known]
    managed = nvml.query([*known, *others], system)
    return [
        _device(system, name, known.get(name), managed.get(name, {})) for name in [*known, *others]
    ]


def _on_the_bus(system: System) -> list[str]:
    def is_gpu(name: str) -> bool:
        kind = system.number(f"{_PCI}/{name}/class")
        vendor = system.number(f"{_PCI}/{name}/vendor")
        return vendor == _NVIDIA and kind is not None and kind >> 16 == _DISPLAY

    return [name for name in system.names(_PCI) if is_gpu(name)]


def _device(
    system: System, name: str, cuda: Mapping[str, Any] | None, managed: Mapping[str, Any]
) -> dict[str, Any]:
    here = f"{_PCI}/{name}"
    group = system.target(f"{here}/iommu_group")
    return {
        "pci_bus_id": name,
        "ordinal": cuda["ordinal"] if cuda else None,
        "name": cuda["name"] if cuda else managed.get("name"),
        "memory_bytes": cuda["memory_bytes"] if cuda else None,
        "compute_capability": cuda["compute_capability"] if cuda else None,
        "numa_node": _node(system, here),
        "sysfs": system.target(here),
        "bar1_bytes": _first(managed.get("bar1_bytes"), _largest_bar(system, here)),
        "persistence": managed.get("persistence"),
        "link": {
            **link(system, name, managed),
            "max_generation": _first(managed.get("max_generation"), _speed(system, here, "max")),
            "max_width": _first(managed.get("max_width"), _width(system, here, "max")),
        },
        "p2pmem_bytes": system.number(f"{here}/p2pmem/size"),
        "iommu_type": None if group is None else system.text(f"{group}/type"),
        "iommu_group": None if group is None else group.rsplit("/", 1)[1],
    }


def link(system: System, name: str, managed: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the present speed of a GPU's PCIe link. An idle link may run slower."""
    managed = nvml.query([name], system).get(name, {}) if managed is None else managed
    here = f"{_PCI}/{name}"
    return {
        "generation": _first(managed.get("generation"), _speed(system, here, "current")),
        "width": _first(managed.get("width"), _width(system, here, "current")),
    }


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _node(system: System, here: str) -> int | None:
    node = system.number(f"{here}/numa_node")
    # -1 means that the firmware does not report it.
    return None if node is None or node < 0 else node


def _largest_bar(system: System, here: str) -> int | None:
    """Return the bytes of the largest memory BAR.

    It maps the GPU's memory. NVIDIA calls it BAR1, whatever its number on the bus.
    """
    sizes = []
    for line in (system.text(f"{here}/resource") or "").splitlines()[:_MEMORY_BARS]:
        try:
            start, end, flags = (int(word, 16) for word in line.split())
        except ValueError:
            continue
        if flags & _IORESOURCE_MEM and end > start:
            sizes.append(end - start + 1)
    return max(sizes, default=None)


def _speed(system: System, here: str, which: str) -> int | None:
    """Return the generation for a speed such as "32.0 GT/s PCIe"."""
    found = re.match(r"(\d+(?:\.\d+)?) GT/s", system.text(f"{here}/{which}_link_speed") or "")
    return GENERATIONS.get(float(found[1])) if found else None


def _width(system: System, here: str, which: str) -> int | None:
    lanes = system.number(f"{here}/{which}_link_width")
    # Bridges of virtual machines report 0, and a missing register reads as 63.
    return lanes if lanes is not None and 1 <= lanes <= 32 else None
