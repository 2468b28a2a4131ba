"""A machine in files: /proc, /sys, /etc and /run of a computer on which all conditions hold."""

from __future__ import annotations

import copy
import functools
import json
import os
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

from penstock import diagnosis
from penstock.diagnosis import Line, Status, System
from penstock.diagnosis.facts import hdf5

GPU = "0000:18:00.0"
RELEASE = "6.8.0-60-generic"
PORT = "/sys/devices/pci0000:15/0000:15:01.0"
DRIVE = f"{PORT}/0000:17:00.0/nvme/nvme0/nvme0n1"
NUMBER = "259:1"

DESCRIBED: dict[str, Any] = {
    "version": "0.1.0",
    "api_version": 1,
    "cpu": {"cores": 96, "numa_nodes": 2},
    "memory": {"page_size": 4096, "memlock_limit": None},
    "kernel": RELEASE,
    "cuda": {
        "available": True,
        "library": "libcuda.so.1",
        "driver_version": "13.0",
        "reason": None,
        "devices": [
            {
                "ordinal": 0,
                "name": "NVIDIA H200",
                "memory_bytes": 150 << 30,
                "compute_capability": "9.0",
                "pci_bus_id": GPU,
                "numa_node": 0,
            }
        ],
    },
    "cufile": {
        "available": True,
        "library": "libcufile.so.0",
        "version": "1.15",
        "starts": True,
        "mode": "p2p",
        "reason": None,
    },
    "io_uring": {"available": True, "reason": None},
    "cachestat": True,
    "file_system": {
        "path": "",
        "type": "ext4",
        "magic": "0xEF53",
        "direct_io": True,
        "memory_alignment": 4,
        "offset_alignment": 512,
        "stripe_size": None,
        "layout": [],
        "file_bytes": 1 << 30,
        "cached": 0.25,
        "reason": None,
    },
    "tuning": {
        "off": False,
        "profiles": [
            {"device": 0, "state": "used", "made": "2026-11-22", "reason": None},
            {"device": -1, "state": "none", "made": None, "reason": None},
        ],
    },
    "options": {},
}

CUFILE_JSON = """\
{
    // what Legate's page advises for large datasets
    "logging": { "level": "ERROR" /* "TRACE" */ },
    "execution": {
        "max_io_threads": 8,
        "parallel_io": true,
        "max_request_parallelism": 8
    },
    "properties": {
        "use_pci_p2pdma": true,
        "per_buffer_cache_size_kb": 16384,
        "allow_compat_mode": true,
        "note": "http://not-a-comment"
    }
}
"""

_FILES = {
    "/proc/driver/nvidia/version": (
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n"
        "GCC version:  gcc version 13.3.0\n"
    ),
    "/proc/driver/nvidia/params": (
        'EnableResizableBar: 1\nRegistryDwords: "RMForceStaticBar1=1;RmForceDisableIomapWC=1;"\n'
        'RegistryDwordsPerDevice: ""\n'
    ),
    "/proc/cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro intel_iommu=off\n",
    "/proc/meminfo": (
        "HugePages_Total:     512\nHugePages_Free:      500\nHugepagesize:       2048 kB\n"
    ),
    "/proc/self/status": "Name:\tpython\nCapEff:\t0000000000000000\n",
    "/proc/sys/kernel/io_uring_disabled": "0\n",
    "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    f"/boot/config-{RELEASE}": "CONFIG_PCI=y\nCONFIG_PCI_P2PDMA=y\n",
    "/sys/class/iommu/": "",
    "/sys/kernel/iommu_groups/": "",
    "/sys/module/nvidia/version": "580.65.06\n",
    "/sys/module/nvme_core/parameters/multipath": "N\n",
    "/sys/devices/system/node/node0/distance": "10 21\n",
    "/sys/devices/system/node/node1/distance": "21 10\n",
    f"{PORT}/{GPU}/class": "0x030200\n",
    f"{PORT}/{GPU}/vendor": "0x10de\n",
    f"{PORT}/{GPU}/numa_node": "0\n",
    f"{PORT}/{GPU}/current_link_speed": "32.0 GT/s PCIe\n",
    f"{PORT}/{GPU}/current_link_width": "16\n",
    f"{PORT}/{GPU}/max_link_speed": "32.0 GT/s PCIe\n",
    f"{PORT}/{GPU}/max_link_width": "16\n",
    f"{PORT}/{GPU}/p2pmem/size": f"{256 << 30}\n",
    f"{PORT}/{GPU}/resource": (
        "0x00000000b0000000 0x00000000b0ffffff 0x000000000014220c\n"
        "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
        "0x0000024000000000 0x0000027fffffffff 0x000000000014220c\n"
    ),
    f"{PORT}/0000:17:00.0/numa_node": "0\n",
    f"{PORT}/0000:17:00.0/nvme/nvme0/transport": "pcie\n",
    f"{DRIVE}/size": "7501476528\n",
    f"{DRIVE}/nvme0n1p1/partition": "1\n",
    "/run/udev/data/b259:1": (
        "V:1\nE:DEVTYPE=partition\nE:ID_FS_TYPE=ext4\nE:ID_FS_USAGE=filesystem\n"
    ),
    "/etc/cufile.json": CUFILE_JSON,
}

_LINKS = {
    f"/sys/bus/pci/devices/{GPU}": f"{PORT}/{GPU}",
    "/sys/class/nvme/nvme0": f"{PORT}/0000:17:00.0/nvme/nvme0",
    f"/sys/dev/block/{NUMBER}": f"{DRIVE}/nvme0n1p1",
}


@functools.cache
def _libraries() -> list[dict[str, Any]]:
    """The HDF5 libraries of the machine that runs the tests; a query starts processes."""
    return hdf5.libraries(os.environ)


class Machine:
    """The files under ``root``, and the result of ``penstock.describe`` there."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.data = folder / "data"
        self.data.mkdir(parents=True)
        self.described = copy.deepcopy(DESCRIBED)
        self.environment: dict[str, str] = {}
        self.nvml: dict[str, Any] = {"persistence": True}
        self.processor = "x86_64"
        for path, contents in _FILES.items():
            self.write(path, contents)
        for path, target in _LINKS.items():
            self.link(path, target)
        self.mount("ext4", "/dev/nvme0n1p1", "rw,data=ordered")

    def _at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def write(self, path: str, contents: str | bytes) -> None:
        """A file, or with a slash at the end a folder."""
        at = self._at(path)
        if path.endswith("/"):
            at.mkdir(parents=True, exist_ok=True)
            return
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_bytes(contents if isinstance(contents, bytes) else contents.encode())

    def link(self, path: str, target: str) -> None:
        """A link from one path of the machine to another, relative as those of sysfs are."""
        at = self._at(path)
        at.parent.mkdir(parents=True, exist_ok=True)
        at.unlink(missing_ok=True)
        at.symlink_to("../" * (len(at.relative_to(self.root).parts) - 1) + target.lstrip("/"))

    def remove(self, path: str) -> None:
        at = self._at(path)
        if at.is_dir() and not at.is_symlink():
            shutil.rmtree(at)
        else:
            at.unlink()

    def mount(self, kind: str, source: str, options: str, number: str = NUMBER) -> None:
        """Mount a file system at the folder of the data."""
        point = str(self.data.resolve()).replace(" ", "\\040")
        self.write(
            "/proc/self/mountinfo",
            f"22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
            f"99 22 {number} / {point} rw,noatime shared:7 - {kind} {source} {options}\n",
        )

    def facts(self, path: bool = True) -> dict[str, Any]:
        """Return the gathered facts; those of h5py, HDF5 and packages are this machine's."""
        with mock.patch.object(hdf5, "libraries", return_value=_libraries()):
            facts = diagnosis.gather(
                self.described if path else self.described | {"file_system": None},
                self.data if path else None,
                System(self.root, self.processor),
                self.environment,
            )
        for gpu in facts["gpus"]:
            gpu.update({key: self.nvml[key] for key in ("persistence",) if key in self.nvml})
        # Facts can be JSON, whatever was found.
        return json.loads(json.dumps(facts))

    def lines(self, path: bool = True, **more: Any) -> list[Line]:
        return diagnosis.judge(self.facts(path) | more)

    def line(self, name: str, section: str | None = None, **more: Any) -> Line:
        """The one line of this name."""
        found = [
            line
            for line in self.lines(**more)
            if line.name == name and section in (None, line.section)
        ]
        assert len(found) == 1, (name, found)
        return found[0]

    def not_ok(self, **more: Any) -> list[Line]:
        return [line for line in self.lines(**more) if line.status is not Status.OK]


def is_remedied(line: Line, status: Status, remedy: str) -> None:
    """Fail unless a line has a status and, in its remedy, some words."""
    assert line.status is status, line
    assert remedy in line.remedy, line
