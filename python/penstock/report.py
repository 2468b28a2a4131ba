"""Reports of finished transfers: the bytes that each path carried, and the time."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from typing import TypeAlias

from penstock._core import Report as SmallReport
from penstock._native import CData, ffi, lib, text

_ROUTES = {
    lib.PENSTOCK_ROUTE_DEFAULT: "auto",
    lib.PENSTOCK_ROUTE_AUTO: "auto",
    lib.PENSTOCK_ROUTE_HOST: "host",
    lib.PENSTOCK_ROUTE_STAGED: "staged",
    lib.PENSTOCK_ROUTE_MAPPED: "mapped",
    lib.PENSTOCK_ROUTE_GDS: "gds",
    lib.PENSTOCK_ROUTE_HDF5: "hdf5",
}
_SUMS = ("bytes", "io_calls", "copies", "chunks", "stored", "decoded_cpu", "decoded_gpu")
_MOST = ("block", "threads", "queue_depth")


@dataclass(frozen=True)
class Report:
    """The report of one finished transfer. Byte counts are of the caller's bytes.

    >>> x = ps.load("w.bin", device="cuda")
    >>> report = ps.last_report()
    >>> report.route, report.paths, report.gbps
    ('mapped', {'mapped': 67108864}, 31.4)
    """

    route: str
    """The route that carried the most bytes: host, staged, mapped, gds or hdf5."""
    device: int = -1
    """The CUDA ordinal of the memory, -1 for host memory."""
    bytes: int = 0
    """Bytes moved for the caller."""
    host_buffered: int = 0
    """Bytes between the page cache and host memory."""
    host_direct: int = 0
    """Bytes between the medium and host memory (O_DIRECT)."""
    staged_buffered: int = 0
    """Bytes between the page cache, a pinned slot and the GPU."""
    staged_direct: int = 0
    """Bytes between the medium, a pinned slot and the GPU (O_DIRECT)."""
    mapped: int = 0
    """Bytes that the GPU copied from pinned pages of the page cache."""
    gds_p2p: int = 0
    """Bytes that cuFile moved by PCIe peer-to-peer, according to its statistics."""
    gds_nvfs: int = 0
    """Bytes that cuFile moved through the nvidia-fs kernel module, according to its statistics."""
    gds_posix: int = 0
    """Bytes that cuFile moved through host memory, its fallback, according to its statistics."""
    gds_unproven: int = 0
    """Bytes that cuFile moved by a path that its statistics do not show."""
    hdf5: int = 0
    """Bytes that HDF5 itself moved through host memory."""
    elapsed_ns: int = 0
    """Nanoseconds from submission to completion."""
    io_calls: int = 0
    """Reads, writes, mappings or cuFile calls issued."""
    copies: int = 0
    """DMA or memory copies issued."""
    block: int = 0
    """Bytes that a worker moved at a time."""
    threads: int = 0
    """Workers that took part."""
    queue_depth: int = 0
    """The greatest number of reads or writes that one worker had in flight."""
    chunks: int = 0
    """Chunks of an HDF5 dataset that were read or written."""
    stored: int = 0
    """Bytes that these chunks occupy in the file."""
    decoded_cpu: int = 0
    """Bytes of chunks, as they are in memory, that the CPU decoded or encoded."""
    decoded_gpu: int = 0
    """Bytes of chunks, as they are in memory, that the GPU decoded or encoded."""
    tuned: str = ""
    """Options that came from the tuned profile, such as ``"threads=12;block=4MiB"``."""
    note: str = ""
    """Why the transfer did not take the direct path, or why the tuned profile was not used."""

    @property
    def paths(self) -> dict[str, int]:
        """Bytes by path, without the paths that carried none."""
        return {name: count for name in _PATHS if (count := getattr(self, name))}

    @property
    def decoder(self) -> str:
        """What decoded or encoded the chunks: "CPU", "GPU", "GPU 70 %, CPU 30 %" or "none"."""
        total = self.decoded_cpu + self.decoded_gpu
        if not total:
            return "none"
        if not self.decoded_gpu or not self.decoded_cpu:
            return "GPU" if self.decoded_gpu else "CPU"
        share = round(100 * self.decoded_gpu / total)
        return f"GPU {share} %, CPU {100 - share} %"

    @property
    def seconds(self) -> float:
        """Seconds from submission to completion."""
        return self.elapsed_ns / 1e9

    @property
    def gbps(self) -> float:
        """Gigabytes (10**9 bytes) per second; 0.0 if no time was measured."""
        return self.bytes / self.elapsed_ns if self.elapsed_ns else 0.0

    def __str__(self) -> str:
        where = "host memory" if self.device < 0 else f"cuda:{self.device}"
        words = [
            f"{self.bytes:,} bytes in {self.seconds * 1e3:.2f} ms ({self.gbps:.2f} GB/s)",
            f"{where}, route {self.route}",
        ]
        if self.chunks:
            words.append(f"{self.chunks:,} chunks of {self.stored:,} bytes in the file")
        if self.decoder != "none":
            words.append(f"decoded by {self.decoder}")
        return ", ".join(words) + (f" ({self.note})" if self.note else "")


_NUMBERS = [field.name for field in fields(Report) if field.type == "int"]
_PATHS = _NUMBERS[_NUMBERS.index("host_buffered") : _NUMBERS.index("hdf5") + 1]

# A native report becomes a Report when the caller asks for it. This saves time for small reads.
_Kept: TypeAlias = "Report | SmallReport | CData | tuple[int, int, str]"
_last: ContextVar[_Kept | None] = ContextVar("penstock_last_report", default=None)

THROUGH_HDF5 = "through HDF5 in host memory"


def last_report() -> Report | None:
    """Return the report of the last synchronous transfer of this thread or asyncio task.

    Return ``None`` if there was none. Requests have their own: :attr:`penstock.Request.report`.
    """
    last = _last.get()
    if last is None or isinstance(last, Report):
        return last
    if isinstance(last, tuple):
        nbytes, elapsed, reason = last
        note = f"{THROUGH_HDF5}: {reason}"
        report = Report("hdf5", bytes=nbytes, hdf5=nbytes, elapsed_ns=elapsed, threads=1, note=note)
    elif isinstance(last, SmallReport):
        report = from_native(ffi.cast("penstock_report *", last.address))
    else:
        report = from_native(last)
    _last.set(report)
    return report


remember = _last.set
"""Make this the last report of the thread or task.

A small read by h5py passes bytes, nanoseconds and reason, which takes less time than a report.
"""


last_account = _last.get
"""Return the last report of the thread or task as it is stored."""


def remember_note(note: str) -> None:
    """Add to the last report why its transfer did not take the direct path."""
    last = last_report()
    if last is not None:
        _last.set(with_note(last, note))


def with_note(report: Report, note: str) -> Report:
    """Return a report with one more reason why the transfer did not take the direct path."""
    return replace(report, note=f"{report.note}; {note}" if report.note else note)


def together(parts: Sequence[Report], device: int, elapsed_ns: int, note: str) -> Report:
    """Return one report of transfers of one call that filled memory of one device.

    Args:
        parts: Their reports.
        device: The CUDA ordinal, -1 for host memory.
        elapsed_ns: Nanoseconds of the call.
        note: The text before the notes of the parts.
    """
    counts = {name: sum(getattr(part, name) for part in parts) for name in (*_PATHS, *_SUMS)}
    most = {name: max((getattr(part, name) for part in parts), default=0) for name in _MOST}
    largest = max(parts, key=lambda part: part.bytes, default=Report("auto"))
    notes = dict.fromkeys(filter(None, [note, *(part.note for part in parts)]))
    return Report(
        largest.route,
        device,
        elapsed_ns=elapsed_ns,
        tuned=largest.tuned,
        note="; ".join(notes),
        **counts,
        **most,
    )


def from_native(native: CData) -> Report:
    """Return the Report with the contents of a ``penstock_report``."""
    return Report(
        route=_ROUTES.get(native.route, "unknown"),
        tuned=text(ffi.cast("char *", native.tuned)),
        note=text(ffi.cast("char *", native.note)),
        **{name: getattr(native, name) for name in _NUMBERS},
    )
