"""The HDF5 libraries, and whether Penstock's plugins load into them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.diagnosis.line import Line, Section

_SECTION = Section("HDF5")


def lines(facts: Mapping[str, Any]) -> Iterator[Line]:
    python = facts["python"]
    yield _SECTION.ok(
        "h5py",
        f"{python['h5py']} with HDF5 {python['hdf5']}",
        "Penstock uses this HDF5, and brings none of its own.",
    )
    if not facts["hdf5"]:
        yield _SECTION.unknown(
            "HDF5 library",
            "no library file was found: h5py may contain HDF5 itself",
            "Name the folder of another one in LD_LIBRARY_PATH or HDF5_DIR.",
        )
    for library in facts["hdf5"]:
        yield from _library(library)


def _library(library: Mapping[str, Any]) -> Iterator[Line]:
    what, where = f"HDF5: {library['found']}", library["path"]
    if not library["asked"]:
        yield _SECTION.unknown(
            what,
            f"{where}: not queried, because too many libraries were found",
            "Name its folder in HDF5_DIR.",
        )
        return
    if library["version"] is None:
        yield _SECTION.warn(
            what,
            f"{where}: {library['reason']}",
            "It does not answer.",
            "Reinstall it with the libraries that it needs: ldd shows missing ones.",
        )
        return
    safe = {True: "thread-safe", False: "not thread-safe", None: "thread-safety unknown"}
    yield _SECTION.ok(
        what,
        f"{library['version']}, {safe[library['thread_safe']]}, {where}",
        "" if library["thread_safe"] else "Penstock does not need a thread-safe one.",
    )
    for kind in ("driver", "connector"):
        yield _plugin(kind, library)


def _plugin(kind: str, library: Mapping[str, Any]) -> Line:
    what, answer = f"Penstock's {kind} in it", library[kind]
    if answer is None:
        return _SECTION.no(
            what,
            str(library["reason"] or "no answer"),
            "It cannot be used with this library.",
            "Reinstall penstock; if that does not help, report a defect with this line.",
        )
    if answer["loads"]:
        return _SECTION.ok(what, "loads")
    if "or later" in str(answer["reason"]):
        return _SECTION.warn(
            what,
            str(answer["reason"]),
            "Programs on this library cannot use it.",
            "Build them with HDF5 1.14 or later.",
        )
    return _SECTION.no(
        what,
        str(answer["reason"]),
        "Programs on this library cannot use it.",
        "Check that the folder that penstock --plugin-dir prints is readable, or reinstall "
        "penstock.",
    )
