"""GPUDirect Storage without nvidia-fs: one line for each condition of PCI P2PDMA.

The conditions are those of NVIDIA's "GDS Support for NVMe Drives Using Linux PCI P2PDMA" and of
chapter 14, "NVMe P2PDMA Troubleshooting", of its installation and troubleshooting guide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.diagnosis.checks.gpu import name
from penstock.diagnosis.line import Line, Section, version_of
from penstock.units import size

_SECTION = Section("P2PDMA")

_KERNEL = (6, 2)
_DRIVER = 565
_AMPERE = 8
# The libraries of 1.11 do not know the key use_pci_p2pdma; NVIDIA's guide shows it with 1.12.
_CUFILE = (1, 12)
_REGISTRY = 'options nvidia NVreg_RegistryDwords="RMForceStaticBar1=1;RmForceDisableIomapWC=1;"'
_RELOAD = "in /etc/modprobe.d/nvidia-p2pdma.conf; then rebuild the initramfs, and reboot."

# Since a commit of May 2026 ("md: propagate BLK_FEAT_PCI_P2PDMA"), arrays of these levels support
# P2PDMA if their members do; arrays with parity never do.
_ARRAY_SWITCHES = {"raid0": "raid", "raid1": "raid1", "raid10": "raid10"}
"""The section of cufile.json with the switch of each level, from cuFile 1.16 on."""


def lines(facts: Mapping[str, Any]) -> Iterator[Line]:
    if not facts["gpus"]:
        yield _SECTION.no(
            "P2PDMA",
            "no GPU",
            "There is no GPU to exchange data with.",
            "Run the report where the GPU is.",
        )
        return
    yield from _kernel(facts)
    yield _driver(facts["nvidia"])
    if facts["machine"] == "x86_64":
        yield from _registry(facts["nvidia"]["registry"])
    for gpu in facts["gpus"]:
        yield from _gpu(gpu, facts["machine"])
    yield _iommu(facts)
    yield from _nvme(facts["nvme"])
    if facts["storage"] is not None and facts["storage"]["layers"]:
        yield _drives(facts["storage"])
    yield _cufile(facts["cufile"]["version"])
    yield _switch(facts["cufile_json"])


def _kernel(facts: Mapping[str, Any]) -> Iterator[Line]:
    kernel, least = facts["pci_p2pdma"], ".".join(map(str, _KERNEL))
    version = kernel["kernel_version"]
    if version is None:
        yield _SECTION.unknown(
            "Kernel version",
            f"{facts['kernel']!r} is not a version",
            f"P2PDMA needs Linux {least} or later.",
        )
    elif tuple(version) >= _KERNEL:
        yield _SECTION.ok("Kernel version", facts["kernel"])
    else:
        yield _SECTION.no(
            "Kernel version",
            facts["kernel"],
            f"User memory can take part in P2PDMA from Linux {least} on.",
            f"Boot Linux {least} or later, or use nvidia-fs.",
        )
    if kernel["built"] is None:
        yield _SECTION.unknown(
            "CONFIG_PCI_P2PDMA",
            "neither /proc/config.gz nor /boot nor /proc/kallsyms shows it",
            f"Run grep CONFIG_PCI_P2PDMA /boot/config-{facts['kernel']} on the host.",
        )
    elif kernel["built"]:
        yield _SECTION.ok("CONFIG_PCI_P2PDMA", f"set, according to {kernel['source']}")
    else:
        yield _SECTION.no(
            "CONFIG_PCI_P2PDMA",
            f"not set, according to {kernel['source']}",
            "The kernel does not support P2PDMA.",
            "Boot a kernel with CONFIG_PCI_P2PDMA=y, or use nvidia-fs.",
        )


def _driver(driver: Mapping[str, Any]) -> Line:
    what, version = "NVIDIA driver", driver["version"]
    major = int(version.split(".")[0]) if version and version.split(".")[0].isdigit() else None
    if major is None or driver["open_module"] is None:
        return _SECTION.unknown(
            what,
            "/proc/driver/nvidia/version cannot be read",
            f"P2PDMA needs the open kernel module {_DRIVER} or later.",
        )
    if major >= _DRIVER and driver["open_module"]:
        return _SECTION.ok(what, f"{version}, open")
    return _SECTION.no(
        what,
        f"{version}, {'open' if driver['open_module'] else 'proprietary'}",
        f"P2PDMA needs the open kernel module {_DRIVER} or later.",
        f"Install nvidia-open {_DRIVER} or later.",
    )


def _registry(keys: Mapping[str, str] | None) -> Iterator[Line]:
    if keys is None:
        yield _SECTION.unknown(
            "Driver registry",
            "/proc/driver/nvidia/params cannot be read",
            f"Put the line {_REGISTRY} {_RELOAD}",
        )
        return
    # The driver compares the names case-insensitively.
    given = {key.lower(): value for key, value in keys.items()}
    for key, good, why in (
        # 2 lets the driver decide by the size of BAR1.
        (
            "RMForceStaticBar1",
            ("1", "0x1", "2", "0x2"),
            "BAR1 must map all GPU memory permanently.",
        ),
        (
            "RmForceDisableIomapWC",
            ("1", "0x1"),
            "The driver does not register BAR1 if it is write-combined.",
        ),
    ):
        value = given.get(key.lower())
        if value in good:
            yield _SECTION.ok(key, str(value))
        else:
            found = "not set" if value is None else str(value)
            yield _SECTION.no(key, found, why, f"Put the line {_REGISTRY} {_RELOAD}")
    peers = given.get("forcep2p")
    if peers not in (None, "0", "0x0"):
        yield _SECTION.warn(
            "ForceP2P",
            str(peers),
            "NVIDIA requires 0 for P2PDMA with storage.",
            f"Remove ForceP2P from NVreg_RegistryDwords {_RELOAD}",
        )


def _gpu(gpu: Mapping[str, Any], machine: str) -> Iterator[Line]:
    capability = gpu["compute_capability"]
    if capability is not None:
        what = f"{name(gpu)} generation"
        if int(capability.split(".")[0]) >= _AMPERE:
            yield _SECTION.ok(what, f"compute {capability}")
        else:
            yield _SECTION.no(
                what,
                f"compute {capability}",
                "P2PDMA needs a data-centre GPU of Ampere (8.0) or later.",
                "Use nvidia-fs.",
            )
    if machine != "x86_64":
        return
    what, pool = f"{name(gpu)} registered", gpu["p2pmem_bytes"]
    if pool:
        yield _SECTION.ok(what, f"{size(pool)} of BAR1", "It is registered as peer memory.")
    else:
        yield _SECTION.no(
            what,
            "no p2pmem in sysfs" if pool is None else "p2pmem is empty",
            "The GPU's memory is not registered as peer memory.",
            "Meet the conditions above, and run a CUDA program, so that the driver registers it.",
        )


def _iommu(facts: Mapping[str, Any]) -> Line:
    what, found = "IOMMU", facts["iommu"]
    if not found["known"]:
        return _SECTION.unknown(
            what, "sysfs does not show it", "Run dmesg | grep -i iommu on the host."
        )
    kinds = sorted({gpu["iommu_type"] for gpu in facts["gpus"] if gpu["iommu_type"]})
    asked = f" ({' '.join(found['command_line'])})" if found["command_line"] else ""
    on = bool(found["units"] or found["groups"])
    mode = "off" if not on else f"on, {', '.join(kinds) or 'mode unknown'}"
    translates = on and any(kind != "identity" for kind in kinds)
    if facts["machine"] == "aarch64":
        if translates:
            return _SECTION.ok(what, f"{mode}{asked}", "Grace requires this.")
        return _SECTION.warn(
            what,
            f"{mode}{asked}",
            "On Grace, GPUDirect needs the IOMMU on and without passthrough.",
            "Boot with iommu.passthrough=0.",
        )
    if not on:
        return _SECTION.ok(what, f"off{asked}")
    if translates or not kinds:
        return _SECTION.warn(
            what,
            f"{mode}{asked}",
            "The IOMMU translates peer traffic, which is slow and fails on some platforms.",
            "Boot with amd_iommu=off or intel_iommu=off, or at least with iommu=pt.",
        )
    return _SECTION.warn(
        what,
        f"passthrough{asked}",
        "NVIDIA supports it on some platforms, such as DGX; elsewhere, off is best.",
        "Boot with amd_iommu=off or intel_iommu=off if virtual machines do not need it.",
    )


def _nvme(nvme: Mapping[str, Any]) -> Iterator[Line]:
    local = [name for name, transport in nvme["controllers"].items() if transport == "pcie"]
    if not local:
        others = ", ".join(
            f"{name} ({transport or 'transport unknown'})"
            for name, transport in nvme["controllers"].items()
        )
        yield _SECTION.no(
            "NVMe drives",
            others or "none",
            "P2PDMA works between GPUs and NVMe drives on PCIe.",
            "Use a machine with such drives; for others, GPUDirect needs nvidia-fs or RDMA.",
        )
    else:
        yield _SECTION.ok("NVMe drives", ", ".join(local))
    if not nvme["driver"]:
        return
    multipath = nvme["multipath"]
    if multipath in ("N", "0"):
        yield _SECTION.ok("NVMe multipath", "off")
    elif multipath is None:
        yield _SECTION.ok("NVMe multipath", "not in this driver")
    else:
        yield _SECTION.no(
            "NVMe multipath",
            f"on ({multipath})",
            "Drives behind NVMe multipath do not support peer memory.",
            "Put options nvme_core multipath=N in /etc/modprobe.d/nvme.conf; then rebuild the "
            "initramfs, and reboot.",
        )


def _drives(storage: Mapping[str, Any]) -> Line:
    what = "Drives under the path"
    arrays = [layer for layer in storage["layers"] if layer["kind"] == "md"]
    for array in arrays:
        level = array["raid_level"] or "unknown level"
        found = f"{array['name']}, {level}"
        if level in _ARRAY_SWITCHES:
            return _SECTION.warn(
                what,
                found,
                "Kernels before May 2026 pass no peer memory through md, and NVIDIA does not "
                "support it.",
                "Use a single drive, or nvidia-fs; with a later kernel, try "
                f"block.{_ARRAY_SWITCHES[level]}.use_pci_p2pdma in cufile.json.",
            )
        return _SECTION.no(
            what,
            found,
            "The CPU computes parity, so data cannot bypass it.",
            "Use a single drive, or raid0 with nvidia-fs.",
        )
    others = [
        layer["name"]
        for layer in storage["layers"]
        if not layer["below"] and not (layer["kind"] == "nvme" and layer["transport"] == "pcie")
    ]
    if others:
        return _SECTION.no(
            what,
            ", ".join(others),
            "P2PDMA works between GPUs and NVMe drives on PCIe.",
            "Put the data on a local NVMe drive.",
        )
    mapped = [layer["name"] for layer in storage["layers"] if layer["kind"] == "dm"]
    if mapped:
        return _SECTION.warn(
            what,
            ", ".join(mapped),
            "Whether the device mapper passes peer memory depends on its target.",
            "Use the drive or a partition of it.",
        )
    return _SECTION.ok(what, " on ".join(layer["name"] for layer in storage["layers"]))


def _cufile(version: str | None) -> Line:
    what, least = "cuFile version", ".".join(map(str, _CUFILE))
    remedy = f"Install cuFile {least} or later: CUDA 12.8 has it, and pip install nvidia-cufile."
    numbers = version_of(version)
    if version is None or numbers is None:
        return _SECTION.unknown(what, "no cuFile reports it", remedy)
    if numbers >= _CUFILE:
        return _SECTION.ok(what, version)
    return _SECTION.no(what, version, "It does not support P2PDMA.", remedy)


# cuFile 1.16 and later have a key for each kind of device.
_NVME_SWITCH = "block.nvme.use_pci_p2pdma"


def _switch(config: Mapping[str, Any]) -> Line:
    what = "use_pci_p2pdma"
    key = "properties.use_pci_p2pdma"
    if config["overrides"].get(key) is True:
        return _SECTION.ok(what, "true, set by CUFILE_USE_PCIP2PDMA")
    if config["reason"] is not None:
        return _SECTION.unknown(what, f"{config['path']} {config['reason']}", "Fix the file.")
    value = config["overrides"].get(key, config["keys"].get(key))
    if value is True and config["keys"].get(_NVME_SWITCH) is False:
        return _SECTION.no(
            what,
            f"{_NVME_SWITCH} is false",
            "It excludes NVMe drives.",
            f'Set "block": {{"nvme": {{"use_pci_p2pdma": true}}}} in {config["path"]}.',
        )
    if value is True:
        return _SECTION.ok(what, f"true, set by {config['path']}")
    return _SECTION.no(
        what,
        "not set" if value is None else str(value).lower(),
        "cuFile does not try P2PDMA.",
        f'Set "properties": {{"use_pci_p2pdma": true}} in {config["path"]}, or set '
        "CUFILE_USE_PCIP2PDMA=true.",
    )
