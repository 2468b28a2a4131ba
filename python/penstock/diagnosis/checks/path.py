"""The path: its file system, its drives, and whether cuFile supports them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from penstock.diagnosis.checks.gpu import name
from penstock.diagnosis.line import Line, Section
from penstock.units import size

_SECTION = Section("Path")

LOCAL = ("ext4", "xfs")
"""File systems on block devices for which NVIDIA supports GPUDirect Storage."""

_DISTRIBUTED = ("lustre", "gpfs", "wekafs", "beegfs", "fhgfs", "virtiofs", "panfs", "scatefs")
_LITTLE = 0.05


def lines(facts: Mapping[str, Any]) -> Iterator[Line]:
    storage, system = facts["storage"], facts["file_system"]
    if storage is None or system is None:
        return
    yield _file_system(storage, system)
    yield _direct(system)
    yield from _stripes(system)
    yield _free(storage)
    if system["file_bytes"] is not None:
        yield _cached(facts, system)
    yield from _tuned(facts["tuning"])
    yield from _for_cufile(storage)
    yield _allowed(storage, facts["cufile_json"])
    for distance, drives in _grouped(storage["distances"]):
        yield _distance(distance, drives, facts)


def _kind(storage: Mapping[str, Any]) -> str | None:
    return storage["mount"]["type"] if storage["mount"] else None


def _file_system(storage: Mapping[str, Any], system: Mapping[str, Any]) -> Line:
    mount = storage["mount"]
    drives = " on ".join(
        layer["name"] + (f" ({layer['raid_level']})" if layer["raid_level"] else "")
        for layer in storage["layers"]
    )
    where = f"{mount['source']} at {mount['point']}" if mount else f"at {system['path']}"
    return _SECTION.ok(
        "File system",
        f"{mount['type'] if mount else system['type']}, {where}"
        + (f"; {drives}" if drives else "; no block device known"),
    )


def _direct(system: Mapping[str, Any]) -> Line:
    if not system["direct_io"]:
        return _SECTION.warn(
            "Direct I/O",
            system["reason"] or "the file system refuses O_DIRECT",
            "All reads and writes go through the page cache.",
            "Give a writable path on a file system with direct I/O: ext4, XFS, Lustre.",
        )
    memory, offset = system["memory_alignment"], system["offset_alignment"]
    return _SECTION.ok(
        "Direct I/O",
        f"memory {memory} B, offset {offset} B",
        "Data that is not cached can bypass the page cache; Penstock aligns the requests.",
    )


def _stripes(system: Mapping[str, Any]) -> Iterator[Line]:
    if system["type"] != "lustre":
        return
    if not system["layout"]:
        yield _SECTION.unknown(
            "Stripes",
            "the attribute lustre.lov cannot be read",
            "Run lfs getstripe; the client may have to be mounted with user_xattr.",
        )
    for part in system["layout"]:
        yield _part(part)


def _part(part: Mapping[str, Any]) -> Line:
    end = "end of file" if part["end"] is None else size(part["end"])
    what = "Stripes" if (part["start"], part["end"]) == (0, None) else f"Stripes to {end}"
    if part["stale"]:
        return _SECTION.warn(
            what, "a stale mirror", "Lustre does not read it.", "Run lfs mirror resync FILE."
        )
    if part["stripe_size"] is None:
        return _SECTION.ok(what, "on the metadata server", "It is fast for small files.")
    count = part["stripe_count"]
    found = (
        f"{'all targets' if count is None else f'{count} target(s)'}, {size(part['stripe_size'])}"
    )
    if part["targets"]:
        found += f", on {', '.join(map(str, part['targets']))}"
    if count == 1:
        return _SECTION.warn(
            what,
            found,
            "One storage target carries all of it.",
            "For large files: lfs setstripe -c -1 -S 16M FOLDER, then rewrite them.",
        )
    return _SECTION.ok(what, found, "Blocks line up with the stripes.")


def _free(storage: Mapping[str, Any]) -> Line:
    free, total = storage["free_bytes"], storage["total_bytes"]
    if not total:
        return _SECTION.unknown("Free space", "the file system does not report it", "Run df.")
    found = f"{size(free)} of {size(total)}"
    mount = storage["mount"]
    if mount and "ro" in mount["options"]:
        return _SECTION.warn(
            "Free space",
            f"{found}, mounted read-only",
            "Nothing can be written.",
            f"mount -o remount,rw {mount['point']}, if the storage allows it.",
        )
    if free == 0:
        return _SECTION.no(
            "Free space", found, "Nothing can be written.", "Delete files, or give another path."
        )
    if free < _LITTLE * total:
        return _SECTION.warn(
            "Free space", found, "A full file system writes slower.", "Delete or move files."
        )
    return _SECTION.ok("Free space", found)


def _cached(facts: Mapping[str, Any], system: Mapping[str, Any]) -> Line:
    share, length = system["cached"], size(system["file_bytes"])
    if share is None:
        return _SECTION.unknown(
            "In the page cache", "neither cachestat(2) nor mincore(2) works", "Allow cachestat(2)."
        )
    of = f"of {length}" if facts["cachestat"] else f"of samples of {length}"
    return _SECTION.ok(
        "In the page cache",
        f"{share:.0%} {of}",
        "Cached data is copied or mapped; the rest is read from storage.",
    )


def _tuned(tuning: Mapping[str, Any]) -> Iterator[Line]:
    for profile in tuning["profiles"] or ():
        name = (
            "Tuned for the host" if profile["device"] < 0 else f"Tuned for cuda:{profile['device']}"
        )
        if tuning["off"]:
            yield _SECTION.ok(name, "switched off by PENSTOCK_PROFILE")
        elif profile["state"] == "used":
            yield _SECTION.ok(
                name, profile["made"], "Options that are not set explicitly come from the profile."
            )
        elif profile["state"] == "none":
            yield _SECTION.ok(name, "no", "penstock tune finds the best options and stores them.")
        else:
            yield _SECTION.warn(
                name,
                f"the profile is ignored: {profile['reason']}",
                "Penstock uses its defaults instead.",
                "Run penstock tune again, or remove it by penstock tune --clear.",
            )


def _for_cufile(storage: Mapping[str, Any]) -> Iterator[Line]:
    kind = _kind(storage)
    if kind is None:
        yield _SECTION.unknown(
            "Known to GPUDirect", "/proc/self/mountinfo does not name the mount", "Mount /proc."
        )
        return
    yield _supported(storage, kind)
    if storage["data_mode"] is not None:
        yield _data_mode(storage["data_mode"])
    if storage["layers"]:
        yield _udev(storage, kind)


def _supported(storage: Mapping[str, Any], kind: str) -> Line:
    what = "Known to GPUDirect"
    if kind in LOCAL or kind in _DISTRIBUTED:
        return _SECTION.ok(what, kind)
    if kind.startswith("nfs"):
        options = storage["mount"]["options"]
        if "proto=rdma" in options:
            return _SECTION.ok(what, f"{kind} over RDMA")
        return _SECTION.no(
            what,
            f"{kind} without RDMA",
            "cuFile reads it through host memory, or refuses it.",
            "Mount it with -o proto=rdma, from a server that has RDMA.",
        )
    return _SECTION.no(
        what,
        kind,
        "cuFile reads it through host memory, or refuses it.",
        "Put the data on ext4 or XFS on NVMe, or on Lustre, NFS over RDMA, WekaFS, GPFS, BeeGFS.",
    )


def _data_mode(data: Mapping[str, Any]) -> Line:
    what, mode = "ext4 data mode", data["mode"]
    remedy = "Mount it with -o data=ordered, and check that /proc/mounts shows it."
    if mode is None:
        return _SECTION.unknown(what, "neither the mount table nor /proc/fs/ext4 shows it", remedy)
    if mode != "ordered":
        return _SECTION.no(
            what, f"data={mode}", "cuFile supports ext4 in ordered mode only.", remedy
        )
    if data["in_mount_table"]:
        return _SECTION.ok(what, "data=ordered")
    return _SECTION.warn(
        what,
        "data=ordered, by default",
        "cuFile cannot verify the mode, because the mount table does not show it.",
        remedy,
    )


def _allowed(storage: Mapping[str, Any], config: Mapping[str, Any]) -> Line:
    """Check whether the denylist of cufile.json has the file system, mount or device."""
    mount = storage["mount"] or {"type": None, "point": None, "source": None}
    drives = [f"/dev/{layer['name']}" for layer in storage["layers"]]
    for key, present in (
        ("filesystems", [mount["type"]]),
        ("mounts", [mount["point"]]),
        ("devices", [mount["source"], *drives]),
    ):
        listed = config["keys"].get(f"denylist.{key}")
        denied = [entry for entry in listed if entry in present] if type(listed) is list else []
        if denied:
            return _SECTION.no(
                "cuFile's denylist",
                f"denylist.{key} in {config['path']} lists {denied[0]}",
                "cuFile takes no direct path here.",
                "Remove it from the list.",
            )
    return _SECTION.ok("cuFile's denylist", "does not list it")


def _udev(storage: Mapping[str, Any], kind: str) -> Line:
    what, entry, place = "udev's entry", storage["udev"], storage["udev_path"]
    if entry is None:
        return _SECTION.no(
            what,
            f"no {place}",
            "cuFile refuses files here: it reads the file system of the device from udev.",
            f"Run systemd-udevd; in a container, mount the host's /run/udev, or write {place} with "
            f"the lines E:ID_FS_TYPE={kind} and E:ID_FS_USAGE=filesystem.",
        )
    missing = [key for key in ("ID_FS_TYPE", "ID_FS_USAGE") if not entry.get(key)]
    if missing:
        return _SECTION.no(
            what,
            f"{place} without {' and '.join(missing)}",
            "cuFile refuses files here: it reads the file system of the device from udev.",
            f"Run udevadm trigger --action=change /dev/{storage['device']}.",
        )
    if entry["ID_FS_USAGE"] != "filesystem":
        return _SECTION.no(
            what,
            f"ID_FS_USAGE={entry['ID_FS_USAGE']}",
            "cuFile takes the device for something other than a file system.",
            "Look for old signatures with wipefs; then run udevadm trigger "
            f"/dev/{storage['device']}.",
        )
    return _SECTION.ok(what, f"{entry['ID_FS_TYPE']}, {entry['ID_FS_USAGE']}")


_NEAR = {
    "switch": "below the same port of the processor",
    "host bridge": "at the same host bridge",
    "nothing": "at different host bridges",
}


def _grouped(
    distances: Iterable[Mapping[str, Any]],
) -> Iterator[tuple[Mapping[str, Any], list[str]]]:
    """Group the drives at the same distance from a GPU: an array may have dozens."""
    groups: dict[str, tuple[Mapping[str, Any], list[str]]] = {}
    for distance in distances:
        same = repr([distance[key] for key in ("gpu", "nodes", "numa_distance", "common")])
        groups.setdefault(same, (distance, []))[1].append(distance["drive"])
    yield from groups.values()


def _distance(distance: Mapping[str, Any], drives: list[str], facts: Mapping[str, Any]) -> Line:
    gpu = next(g for g in facts["gpus"] if g["pci_bus_id"] == distance["gpu"])
    what = f"{name(gpu)} to {', '.join(drives)}"
    nodes, far, common = distance["nodes"], distance["numa_distance"], distance["common"]
    one_node = facts["cpu"]["numa_nodes"] == 1
    if None in nodes and not one_node:
        return _SECTION.unknown(
            what, "NUMA nodes are unknown", "nvidia-smi topo -m shows the driver's view."
        )
    if one_node:
        found = "one NUMA node"
    else:
        found = f"NUMA nodes {nodes[0]} and {nodes[1]}"
        found += f", distance {far}" if far is not None else ", distance unknown"
    if common is not None:
        found += f"; {_NEAR[common]}"
    if not one_node and nodes[0] != nodes[1]:
        return _SECTION.warn(
            what,
            found,
            "Data crosses from one processor socket to the other.",
            "Use the GPU or the drive of the same node, or move the card.",
        )
    return _SECTION.ok(what, found)
