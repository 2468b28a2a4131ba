"""The GPUs, their driver and their links."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.diagnosis.line import Line, Section, cause_and_remedy
from penstock.units import size

_SECTION = Section("GPU")

# Gigabytes per second of one lane in one direction, net of its encoding, by generation: PCI Express
# Base Specification, 8b/10b up to generation 2, 128b/130b up to 5, flits after that.
_LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}

# Headers and flow control take a tenth to a seventh of that. A much lower rate has another cause.
_LEAST_SHARE = 0.75


def lines(facts: Mapping[str, Any]) -> Iterator[Line]:
    cuda = facts["cuda"]
    if cuda["available"]:
        yield _SECTION.ok(
            "CUDA driver",
            f"{cuda['driver_version']} ({cuda['library']})",
            "The newest CUDA version that this driver supports.",
        )
    else:
        cause, remedy = cause_and_remedy(cuda["reason"])
        yield _SECTION.no(
            "CUDA driver",
            cause,
            "Arrays are read into host memory.",
            f"{remedy or 'Install the NVIDIA driver'}; give a container the GPU (--gpus all).",
        )
    if facts["gpus"] or facts["nvidia"]["loaded"]:
        yield _kernel_module(facts["nvidia"])
    for gpu in facts["gpus"]:
        yield from _device(gpu, facts)


def name(gpu: Mapping[str, Any]) -> str:
    return gpu["pci_bus_id"] if gpu["ordinal"] is None else f"cuda:{gpu['ordinal']}"


def _kernel_module(driver: Mapping[str, Any]) -> Line:
    what, version = "Kernel module", driver["version"] or "version unknown"
    if driver["open_module"] is None:
        return _SECTION.unknown(
            what,
            "/proc/driver/nvidia/version cannot be read",
            "Look outside the container, or load the driver: modprobe nvidia.",
        )
    if driver["open_module"]:
        return _SECTION.ok(what, f"{version}, open", "GPUDirect Storage needs the open module.")
    return _SECTION.warn(
        what,
        f"{version}, proprietary",
        "GPUDirect Storage needs the open module.",
        "Install the open kernel module of the same driver (package nvidia-open).",
    )


def _device(gpu: Mapping[str, Any], facts: Mapping[str, Any]) -> Iterator[Line]:
    if gpu["ordinal"] is None:
        yield _SECTION.no(
            name(gpu),
            gpu["name"] or "an NVIDIA GPU on the bus",
            "CUDA does not offer it to this process.",
            "Look at CUDA_VISIBLE_DEVICES and nvidia-smi; another driver (vfio-pci, nouveau) may "
            "hold it.",
        )
        return
    yield _SECTION.ok(
        name(gpu),
        f"{gpu['name']}, {size(gpu['memory_bytes'] or 0)}, "
        f"compute {gpu['compute_capability']}, PCI {gpu['pci_bus_id']}",
    )
    yield _bar1(gpu)
    yield _link(gpu)
    if facts.get("link_rates") is not None:
        yield _rate(gpu, facts["link_rates"].get(gpu["pci_bus_id"]))
    yield _node(gpu, facts)
    yield _persistence(gpu)


def _bar1(gpu: Mapping[str, Any]) -> Line:
    what, bar, memory = f"{name(gpu)} BAR1", gpu["bar1_bytes"], gpu["memory_bytes"]
    if bar is None:
        return _SECTION.unknown(
            what, "neither NVML nor sysfs shows its size", "Run nvidia-smi -q -d MEMORY."
        )
    if memory is None or bar >= memory:
        return _SECTION.ok(what, size(bar), "Storage can reach all of the GPU's memory at once.")
    return _SECTION.warn(
        what,
        f"{size(bar)} of {size(memory)}",
        "Storage reaches only this much of the GPU's memory at a time, and static BAR1 cannot be "
        "used.",
        "Enable Above 4G Decoding and Resizable BAR in the firmware, if the GPU has them.",
    )


def _link(gpu: Mapping[str, Any]) -> Line:
    what, link = f"{name(gpu)} PCIe link", gpu["link"]
    most = link["max_generation"], link["max_width"]
    now = link["generation"], link["width"]
    if None in now or None in most:
        return _SECTION.unknown(
            what,
            "neither NVML nor sysfs shows its speed, as in many virtual machines",
            "Measure it: penstock report --measure.",
        )
    found = f"generation {now[0]} x{now[1]} now, {most[0]} x{most[1]} at most"
    if now[1] < most[1]:
        return _SECTION.warn(
            what,
            found,
            "The link lacks lanes, and so bandwidth.",
            "Reseat the card, and look for a slot with all lanes.",
        )
    if now[0] < most[0]:
        return _SECTION.ok(what, found, "An idle link slows down; --measure checks it under load.")
    return _SECTION.ok(
        what, found, f"{_capacity(*most):.0f} GB/s in each direction, before overhead."
    )


def _capacity(generation: int, width: int) -> float:
    return _LANE.get(generation, 0.0) * width


def _rate(gpu: Mapping[str, Any], rates: Mapping[str, Any] | None) -> Line:
    what, link = f"{name(gpu)} link rate", gpu["link"]
    if rates is None or rates["reason"] is not None:
        why = "it was not measured" if rates is None else str(rates["reason"])
        return _SECTION.unknown(what, why, "Free GPU and host memory, and measure again.")
    there, back = rates["to_gpu"] / 1e9, rates["from_gpu"] / 1e9
    found = (
        f"{there:.1f} GB/s to the GPU, {back:.1f} GB/s from it "
        f"(pinned memory, {size(rates['bytes'])} per copy)"
    )
    if rates["generation"] and rates["width"]:
        found += f", at generation {rates['generation']} x{rates['width']}"
    capacity = _capacity(link["max_generation"] or 0, link["max_width"] or 0)
    if not capacity:
        return _SECTION.ok(what, found, "No route can exceed this.")
    if min(there, back) >= _LEAST_SHARE * capacity:
        return _SECTION.ok(
            what, found, f"No route can exceed this; the link has {capacity:.0f} GB/s."
        )
    return _SECTION.warn(
        what,
        found,
        f"The link has {capacity:.0f} GB/s in each direction.",
        "Run it on the GPU's NUMA node (numactl --cpunodebind), with nothing else on the link; "
        "if that does not help, check the slot's generation and lanes.",
    )


def _node(gpu: Mapping[str, Any], facts: Mapping[str, Any]) -> Line:
    what, node = f"{name(gpu)} NUMA node", gpu["numa_node"]
    if node is not None:
        return _SECTION.ok(what, str(node), "Pinned memory for the GPU is allocated there.")
    if facts["cpu"]["numa_nodes"] == 1:
        return _SECTION.ok(what, "the only one")
    return _SECTION.unknown(
        what,
        "the firmware does not report it, so the kernel places pinned memory",
        "Bind processes by hand: nvidia-smi topo -m shows the nearest cores.",
    )


def _persistence(gpu: Mapping[str, Any]) -> Line:
    what, on = f"{name(gpu)} persistence mode", gpu["persistence"]
    if on is None:
        return _SECTION.unknown(
            what,
            "NVML (libnvidia-ml.so.1) does not report it",
            "Run nvidia-smi --query-gpu=persistence_mode --format=csv.",
        )
    if on:
        return _SECTION.ok(what, "on", "The GPU stays initialised between processes.")
    return _SECTION.warn(
        what,
        "off",
        "The first process on an idle GPU waits, for up to seconds, until it is initialised.",
        "Start nvidia-persistenced, or run nvidia-smi -pm 1 as root.",
    )
