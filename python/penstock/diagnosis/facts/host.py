"""Memory and limits of the host, from procfs and sysfs."""

from __future__ import annotations

import re
from typing import Any

from penstock.diagnosis.system import System

_CAP_IPC_LOCK = 14  # linux/capability.h


def read(system: System) -> dict[str, Any]:
    status = system.text("/proc/self/status") or ""
    memory = system.text("/proc/meminfo") or ""
    effective = re.search(r"^CapEff:\s*([0-9a-fA-F]+)$", status, re.MULTILINE)
    pages = re.search(r"^HugePages_Total:\s*(\d+)$", memory, re.MULTILINE)
    free = re.search(r"^HugePages_Free:\s*(\d+)$", memory, re.MULTILINE)
    size = re.search(r"^Hugepagesize:\s*(\d+) kB$", memory, re.MULTILINE)
    return {
        "may_lock_memory": (
            None if effective is None else bool(int(effective[1], 16) >> _CAP_IPC_LOCK & 1)
        ),
        "transparent_huge_pages": _chosen(
            system.text("/sys/kernel/mm/transparent_hugepage/enabled")
        ),
        "huge_pages": None if pages is None else int(pages[1]),
        "huge_pages_free": None if free is None else int(free[1]),
        "huge_page_bytes": None if size is None else int(size[1]) << 10,
        "io_uring_disabled": system.number("/proc/sys/kernel/io_uring_disabled"),
    }


def _chosen(text: str | None) -> str | None:
    """Return the word in brackets of "always [madvise] never"."""
    found = re.search(r"\[(\w+)\]", text or "")
    return found[1] if found else None
