"""The file system and the drives under a path."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock.diagnosis.system import System

_DATA_MODE = re.compile(r"(?:^|[,\n])data=(\w+)")


def read(
    system: System, path: str | os.PathLike[str], gpus: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return mount, drives, udev entry, free space and distance to the GPUs of an existing path."""
    real = os.path.realpath(path)
    mount = _mount(system, real)
    number = mount["device"] if mount else None
    layers = [] if number is None else list(_layers(system, number))
    drives = [layer for layer in layers if not layer["below"]]
    room = _room(real)
    return {
        "path": real,
        "mount": mount,
        "data_mode": _data_mode(system, mount, layers),
        "device": layers[0]["name"] if layers else None,
        "layers": layers,
        "udev": None if not layers else _udev(system, number or ""),
        "udev_path": None if not layers else f"/run/udev/data/b{number}",
        "total_bytes": room[0],
        "free_bytes": room[1],
        "distances": [_distance(system, gpu, drive) for gpu in gpus for drive in drives],
    }


def _room(path: str) -> tuple[int | None, int | None]:
    """Return the total bytes, and those available to unprivileged users."""
    try:
        about = os.statvfs(path)
    except OSError:
        return None, None
    return about.f_blocks * about.f_frsize, about.f_bavail * about.f_frsize


def _mount(system: System, real: str) -> dict[str, Any] | None:
    """Return the mount that contains a path: proc_pid_mountinfo(5)."""
    best = None
    for line in (system.text("/proc/self/mountinfo") or "").splitlines():
        before, dash, after = line.partition(" - ")
        fields, rest = before.split(), after.split(" ", 2)
        if not dash or len(fields) < 6 or len(rest) < 3:
            continue
        point = _unescape(fields[4])
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        # Of two mounts at one point, the later hides the earlier.
        if inside and (best is None or len(point) >= len(best["point"])):
            best = {
                "point": point,
                "device": fields[2],
                "type": rest[0],
                "source": _unescape(rest[1]),
                "options": fields[5].split(",") + rest[2].strip().split(","),
            }
    return best


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _data_mode(
    system: System, mount: Mapping[str, Any] | None, layers: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """Return ext4's data mode, and whether the mount table shows it.

    The mount table shows only a mode that is not the default; ext4's own list of options shows any.
    """
    if mount is None or mount["type"] not in ("ext3", "ext4"):
        return None
    shown = _DATA_MODE.search(",".join(mount["options"]))
    if shown:
        return {"mode": shown[1], "in_mount_table": True}
    name = layers[0]["name"] if layers else None
    own = _DATA_MODE.search(system.text(f"/proc/fs/{mount['type']}/{name}/options") or "")
    return {"mode": own[1] if own else None, "in_mount_table": False}


def _layers(system: System, number: str) -> Iterator[dict[str, Any]]:
    """Yield a block device and, depth first, the devices below it, down to the drives."""
    place = system.target(f"/sys/dev/block/{number}")
    if place is None:
        return
    waiting, seen = [place], set()
    while waiting:
        place = waiting.pop(0)
        if place in seen:
            continue
        seen.add(place)
        partition = system.exists(f"{place}/partition")
        whole = place.rsplit("/", 1)[0] if partition else place
        below = [] if not partition else [whole]
        below += [
            target
            for name in system.names(f"{place}/slaves")
            if (target := system.target(f"{place}/slaves/{name}"))
        ]
        name = place.rsplit("/", 1)[1]
        controller = _controller(system, whole) if name.startswith("nvme") else None
        yield {
            "name": name,
            "kind": _kind(system, place, name, partition),
            "raid_level": system.text(f"{place}/md/level"),
            "transport": None if controller is None else system.text(f"{controller}/transport"),
            "sysfs": controller or place,
            "numa_node": _node(system, controller or place),
            "below": [target.rsplit("/", 1)[1] for target in below],
        }
        waiting = below + waiting


def _kind(system: System, place: str, name: str, partition: bool) -> str:
    if partition:
        return "partition"
    for kind in ("md", "dm"):
        if system.exists(f"{place}/{kind}"):
            return kind
    return "nvme" if name.startswith("nvme") else "disk"


def _controller(system: System, drive: str) -> str | None:
    """Return the controller of an NVMe drive.

    With multipath, the drive is below its subsystem, next to the controllers that lead to it.
    """
    above = drive.rsplit("/", 1)[0]
    if system.exists(f"{above}/transport"):
        return above
    beside = [name for name in system.names(above) if re.match(r"nvme\d+$", name)]
    return system.target(f"{above}/{beside[0]}") if beside else None


def _node(system: System, place: str) -> int | None:
    """Return the NUMA node of a device, or of its nearest parent that has one."""
    while place.startswith("/sys/devices/"):
        node = system.number(f"{place}/numa_node")
        if node is not None:
            return None if node < 0 else node
        place = place.rsplit("/", 1)[0]
    return None


def _udev(system: System, number: str) -> dict[str, str] | None:
    """Return a block device's properties in udev's database; ``None`` if it has no entry."""
    entry = system.text(f"/run/udev/data/b{number}")
    if entry is None:
        return None
    pairs = (line[2:].partition("=") for line in entry.splitlines() if line.startswith("E:"))
    return {key: value for key, _, value in pairs}


def _distance(system: System, gpu: Mapping[str, Any], drive: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a drive and a GPU have in common on the bus, and their NUMA distance."""
    nodes = gpu["numa_node"], drive["numa_node"]
    distance = None
    if None not in nodes:
        row = (system.text(f"/sys/devices/system/node/node{nodes[0]}/distance") or "").split()
        if nodes[1] < len(row) and row[nodes[1]].isdigit():
            distance = int(row[nodes[1]])
    return {
        "gpu": gpu["pci_bus_id"],
        "ordinal": gpu["ordinal"],
        "drive": drive["name"],
        "nodes": list(nodes),
        "numa_distance": distance,
        "common": _common(gpu["sysfs"], drive["sysfs"]),
    }


_PCI_FUNCTION = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")


def _common(one: str | None, other: str | None) -> str | None:
    """Return what two devices share on the bus: "switch", "host bridge" or "nothing".

    Return ``None`` if one of them is not on the PCI bus.
    """
    if one is None or other is None:
        return None
    roots = [re.search(r"/(pci[0-9a-f]+:[0-9a-f]+)/", f"{place}/") for place in (one, other)]
    if None in roots:
        return None
    if roots[0][1] != roots[1][1]:  # type: ignore[index]
        return "nothing"
    ways = [[p for p in place.split("/") if _PCI_FUNCTION.match(p)] for place in (one, other)]
    return "switch" if ways[0][0] == ways[1][0] else "host bridge"
