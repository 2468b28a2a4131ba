"""cuFile, and the kernel module behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.diagnosis.checks import p2pdma
from penstock.diagnosis.line import Line, Section, Status, cause_and_remedy

_SECTION = Section("cuFile")


def lines(facts: Mapping[str, Any]) -> Iterator[Line]:
    cufile = facts["cufile"]
    if not cufile["available"]:
        yield _SECTION.no(
            "cuFile",
            cause_and_remedy(cufile["reason"])[0],
            "The gds route cannot be used.",
            "pip install nvidia-cufile (nvidia-cufile-cu12 for CUDA 12), or install the package "
            "gds-tools; PENSTOCK_CUFILE_LIBRARY can name the library.",
        )
        return
    yield _SECTION.ok(
        "cuFile",
        f"{cufile['version'] or 'version unknown'} ({cufile['library']})",
        "The library behind the gds route.",
    )
    yield from _state(facts, cufile)
    yield _nvidia_fs(facts)


def _state(facts: Mapping[str, Any], cufile: Mapping[str, Any]) -> Iterator[Line]:
    if not cufile["starts"]:
        cause, remedy = cause_and_remedy(cufile["reason"])
        yield _SECTION.no(
            "cuFile starts",
            cause,
            "The gds route cannot be used.",
            remedy or "See cufile.log in the working folder, and the lines on GPU and cufile.json.",
        )
        return
    yield _SECTION.ok("cuFile starts", "yes")
    here = "" if facts["storage"] is None else " here"
    if cufile["mode"] in ("p2p", "nvfs"):
        by = "PCI P2PDMA" if cufile["mode"] == "p2p" else "nvidia-fs"
        yield _SECTION.ok(
            f"GPUDirect{here}", f"by {by}", "Storage and GPU exchange data without the host."
        )
    elif cufile["mode"] == "compat":
        yield _SECTION.warn(
            f"GPUDirect{here}",
            "no: compatibility mode",
            "cuFile itself reads through host memory, as the staged route does.",
            "Meet the conditions of nvidia-fs or P2PDMA below, and those of the path.",
        )
    elif cufile["reason"]:
        yield _SECTION.no(
            f"GPUDirect{here}",
            f"cuFile refuses the path: {cause_and_remedy(cufile['reason'])[0]}",
            "The gds route cannot be used here.",
            "Fix what is not OK under Path: udev entry, file system, mount options.",
        )
    else:
        yield _SECTION.unknown(
            f"GPUDirect{here}",
            "cuFile does not report which path it takes",
            "Reports of transfers count the bytes as gds_unproven.",
        )


def _nvidia_fs(facts: Mapping[str, Any]) -> Line:
    module = facts["nvidia_fs"]
    if module["loaded"]:
        return _SECTION.ok("nvidia-fs", f"loaded, {module['version'] or 'version unknown'}")
    if all(line.status is Status.OK for line in p2pdma.lines(facts)):
        return _SECTION.ok("nvidia-fs", "not loaded", "P2PDMA does not need it.")
    return _SECTION.warn(
        "nvidia-fs",
        "not loaded",
        "Without it, GPUDirect Storage needs all conditions of P2PDMA.",
        "modprobe nvidia-fs (package nvidia-fs or nvidia-fs-dkms), or meet those conditions.",
    )
