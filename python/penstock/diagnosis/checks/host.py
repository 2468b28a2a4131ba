"""The host: cores, memory, limits and io_uring."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.diagnosis.line import Line, Section, cause_and_remedy
from penstock.units import size

_SECTION = Section("Host")

# The pinned memory of eight workers with two slots of 4 MiB each.
_ENOUGH_LOCKED = 64 << 20


def lines(facts: Mapping[str, Any]) -> Iterator[Line]:
    cpu, host = facts["cpu"], facts["host"]
    yield _SECTION.ok(
        "CPU",
        f"{cpu['cores']} cores, {cpu['numa_nodes']} NUMA node(s), {facts['machine']}",
        "Workers copy from the page cache, faster with more cores.",
    )
    yield _kernel(facts)
    yield _SECTION.ok(
        "Page size",
        size(facts["memory"]["page_size"]),
        "The unit in which the mapped route pins cached pages.",
    )
    yield _transparent_huge_pages(host["transparent_huge_pages"])
    yield _huge_pages(host)
    yield _locked(facts["memory"]["memlock_limit"], host["may_lock_memory"])
    yield _io_uring(facts["io_uring"], host["io_uring_disabled"])


def _kernel(facts: Mapping[str, Any]) -> Line:
    if facts["cachestat"]:
        return _SECTION.ok(
            "Kernel", facts["kernel"], "cachestat(2) shows how much of a file is cached."
        )
    return _SECTION.warn(
        "Kernel",
        f"{facts['kernel']}, without cachestat(2)",
        "Penstock calls mincore(2) instead, for samples of a large file.",
        "Linux 6.5 or later has cachestat(2); a container may have to allow the call.",
    )


def _transparent_huge_pages(mode: str | None) -> Line:
    what = "Transparent huge pages"
    if mode is None:
        return _SECTION.unknown(
            what,
            "/sys/kernel/mm/transparent_hugepage/enabled cannot be read",
            "A kernel without CONFIG_TRANSPARENT_HUGEPAGE has none.",
        )
    if mode == "never":
        return _SECTION.warn(
            what,
            mode,
            "Staging memory consists of small pages, which take longer to pin.",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, as root.",
        )
    return _SECTION.ok(what, mode, "Staging memory requests them by madvise(2).")


def _huge_pages(host: Mapping[str, Any]) -> Line:
    what = "Huge pages reserved"
    if host["huge_pages"] is None:
        return _SECTION.unknown(
            what, "/proc/meminfo does not list them", "The kernel may be built without them."
        )
    if host["huge_pages"] == 0:
        return _SECTION.ok(what, "none", "Penstock needs none; vm.nr_hugepages reserves them.")
    return _SECTION.ok(
        what,
        f"{host['huge_pages']} of {size(host['huge_page_bytes'] or 0)}, {host['huge_pages_free']} "
        "free",
        "They serve programs that use MAP_HUGETLB.",
    )


def _locked(limit: int | None, privileged: bool | None) -> Line:
    what = "Memory that may be locked"
    if limit is None:
        return _SECTION.ok(what, "no limit")
    if privileged:
        return _SECTION.ok(what, f"{size(limit)}, which CAP_IPC_LOCK lifts")
    if limit >= _ENOUGH_LOCKED:
        return _SECTION.ok(what, size(limit))
    return _SECTION.warn(
        what,
        size(limit),
        "io_uring may be unable to register buffers. The limit does not apply to CUDA.",
        "ulimit -l unlimited: set memlock in /etc/security/limits.conf, or LimitMEMLOCK of a "
        "service.",
    )


def _io_uring(uring: Mapping[str, Any], disabled: int | None) -> Line:
    what = "io_uring"
    if uring["available"]:
        return _SECTION.ok(
            what, "available", "Reads and writes can be queued without a thread for each."
        )
    remedy = (
        f"sysctl kernel.io_uring_disabled=0: it is {disabled}."
        if disabled
        else "Allow io_uring_setup(2) in the container's seccomp profile, or use a newer kernel."
    )
    return _SECTION.warn(
        what, cause_and_remedy(uring["reason"])[0], "Worker threads read and write instead.", remedy
    )
