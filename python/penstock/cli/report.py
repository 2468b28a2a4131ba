"""`penstock report`: what this machine offers, and what each fact means for I/O."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

import penstock
from penstock.cli.output import AsJson, plain, print_json, results
from penstock.cli.units import size

Row = tuple[str, str, str]


def report(
    path: Annotated[
        Path | None, typer.Argument(help="A file or folder whose file system is described.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show GPU, driver, cuFile, io_uring, file system and Python packages as they are found."""
    facts: dict[str, Any] = dict(penstock.describe(path))
    facts["python"] = _python_facts()
    if as_json:
        print_json(facts)
        return
    table = Table(title=f"Penstock {facts['version']} on this machine", title_justify="left")
    table.add_column("What", no_wrap=True)
    table.add_column("Found", overflow="fold")
    table.add_column("What this means", overflow="fold")
    for section in (_host_rows, _gpu_rows, _cufile_rows, _file_system_rows, _python_rows):
        for row in section(facts):
            table.add_row(*plain(*row))
        table.add_section()
    results.print(table)
    if path is None:
        results.print("Give a path to see the file system that holds it: penstock report PATH")


def _python_facts() -> dict[str, Any]:
    import h5py

    return {
        "version": platform.python_version(),
        "h5py": h5py.version.version,
        "hdf5": h5py.version.hdf5_version,
        # Read from the metadata: importing torch only to name its version takes seconds.
        **{name: _installed_version(name) for name in ("numpy", "torch", "cupy", "jax")},
    }


def _installed_version(name: str) -> str | None:
    # CuPy's wheels carry the CUDA line in their name.
    names = [name, "cupy-cuda13x", "cupy-cuda12x"] if name == "cupy" else [name]
    for candidate in names:
        try:
            return importlib.metadata.version(candidate)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _yes(value: object) -> str:
    return "yes" if value else "no"


def _host_rows(facts: dict[str, Any]) -> Iterator[Row]:
    cpu, memory, uring = facts["cpu"], facts["memory"], facts["io_uring"]
    yield (
        "CPU",
        f"{cpu['cores']} cores, {cpu['numa_nodes']} NUMA node(s)",
        "Workers copy out of the page cache: more cores, more bytes per second.",
    )
    yield (
        "Page size",
        size(memory["page_size"]),
        "The unit in which the mapped route pins cached pages.",
    )
    limit = memory["memlock_limit"]
    yield (
        "Memory that may be locked",
        "no limit" if limit is None else size(limit),
        "A low limit may refuse io_uring its registered buffers; it does not bind CUDA.",
    )
    yield (
        "Kernel",
        facts["kernel"],
        "cachestat(2) tells which pages of a file are cached."
        if facts["cachestat"]
        else "Without cachestat(2), from Linux 6.5 on, mincore(2) tells which pages are cached.",
    )
    yield (
        "io_uring",
        _yes(uring["available"]),
        "Reads and writes can be queued without a thread each."
        if uring["available"]
        else f"{uring['reason']}; worker threads read and write instead.",
    )


def _gpu_rows(facts: dict[str, Any]) -> Iterator[Row]:
    cuda = facts["cuda"]
    if not cuda["available"]:
        yield (
            "CUDA driver",
            "no",
            f"{cuda['reason']}; arrays are read into host memory.",
        )
        return
    yield (
        "CUDA driver",
        f"{cuda['driver_version']} ({cuda['library']})",
        "The newest CUDA that this driver serves.",
    )
    for device in cuda["devices"]:
        node = device["numa_node"]
        yield (
            f"cuda:{device['ordinal']}",
            f"{device['name']}, {size(device['memory_bytes'])}, "
            f"compute {device['compute_capability']}, PCI {device['pci_bus_id']}",
            "Its NUMA node is unknown, so pinned memory is placed by the kernel."
            if node is None or node < 0
            else f"Pinned memory for it is taken from NUMA node {node}.",
        )


_CUFILE_MODES = {
    "p2p": "Storage and GPU exchange data directly over PCIe.",
    "nvfs": "Data travels directly, by way of the nvidia-fs kernel module.",
    "compat": "cuFile itself reads through host memory here: this is not GPUDirect.",
}


def _cufile_rows(facts: dict[str, Any]) -> Iterator[Row]:
    cufile = facts["cufile"]
    if not cufile["available"]:
        yield "cuFile", "no", f"{cufile['reason']}; the gds route cannot be taken."
        return
    yield (
        "cuFile",
        f"{cufile['version'] or 'unknown version'} ({cufile['library']})",
        "The library behind the gds route.",
    )
    if not cufile["starts"]:
        yield "cuFile starts", "no", f"{cufile['reason']}; the gds route cannot be taken."
        return
    yield (
        "cuFile mode",
        cufile["mode"] or "unknown",
        _CUFILE_MODES.get(
            cufile["mode"], cufile["reason"] or "It does not tell which way it takes."
        ),
    )


def _file_system_rows(facts: dict[str, Any]) -> Iterator[Row]:
    system = facts["file_system"]
    if system is None:
        return
    yield (
        "File system",
        f"{system['type']} ({system['magic']}) at {system['path']}",
        f"Blocks line up with its stripes of {size(system['stripe_size'])}."
        if system["stripe_size"]
        else "It tells of no stripes to line blocks up with.",
    )
    if system["direct_io"]:
        memory, offset = system["memory_alignment"], system["offset_alignment"]
        known = memory is not None and offset is not None
        yield (
            "Direct I/O",
            f"memory {memory} B, offset {offset} B" if known else "yes, alignment not told",
            "Data that is not cached can bypass the page cache; Penstock sees to the alignment.",
        )
    else:
        reason = system["reason"] or "The file system refuses O_DIRECT"
        yield "Direct I/O", "no", f"{reason}; all reads and writes go through the page cache."


def _python_rows(facts: dict[str, Any]) -> Iterator[Row]:
    python = facts["python"]
    yield "Python", python["version"], f"NumPy {python['numpy']} holds arrays in host memory."
    yield (
        "h5py",
        f"{python['h5py']} with HDF5 {python['hdf5']}",
        "Penstock takes this HDF5 as it is, and brings none of its own.",
    )
    arrays = [f"{name} {python[name]}" for name in ("torch", "cupy", "jax") if python[name]]
    if python["torch"]:
        meaning = 'device="cuda" gives torch tensors.'
    elif python["cupy"]:
        meaning = 'device="cuda" gives CuPy arrays.'
    else:
        meaning = 'device="cuda" gives penstock.DeviceArray, which speaks DLPack.'
    yield "GPU arrays", ", ".join(arrays) or "none of torch, CuPy, JAX", meaning
