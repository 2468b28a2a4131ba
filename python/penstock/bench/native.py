"""Penstock's C API by cffi, with a file that is opened once, as by the peers."""

from __future__ import annotations

import os
from typing import Any

import penstock as ps
from penstock._native import NULL, ffi, lib, new_report, pointer
from penstock._options import resolve
from penstock.errors import check
from penstock.files import NativeFile
from penstock.report import Report, from_native

READ: int = lib.PENSTOCK_READ
CREATED: int = lib.PENSTOCK_WRITE | lib.PENSTOCK_CREATE
NEW_FILE: int = lib.PENSTOCK_WRITE | lib.PENSTOCK_CREATE | lib.PENSTOCK_TRUNCATE


class Submitted:
    """A request of the C API."""

    def __init__(self) -> None:
        self.request = ffi.new("penstock_request **")

    def wait(self) -> None:
        try:
            check(lib.penstock_request_wait(self.request[0], -1))
        finally:
            self.free()

    def free(self) -> None:
        """Free the request. An unfinished one is waited for."""
        request, self.request[0] = self.request[0], NULL
        lib.penstock_request_free(request)


class OpenFile:
    """A file and the report of its last transfer."""

    def __init__(self, path: os.PathLike[str], flags: int = READ, **options: Any) -> None:
        self._file = NativeFile(path, flags)
        self.handle = self._file.handle
        self.options = resolve(options)
        self._report = new_report()

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def read(self, address: int, nbytes: int, offset: int) -> None:
        buffer = pointer(address)
        check(lib.penstock_read(self.handle, buffer, nbytes, offset, self.options, self._report))

    def read_piece(self, piece: Any) -> None:
        """Read one ``penstock_range``."""
        where, what = piece.offset, piece.length
        check(lib.penstock_read(self.handle, piece.buffer, what, where, self.options, self._report))

    def read_ranges(self, ranges: Any) -> None:
        check(lib.penstock_readv(self.handle, ranges, len(ranges), self.options, self._report))

    def submit(self, piece: Any) -> Submitted:
        """Start to read one range. The memory must stay valid until the read is finished."""
        made = Submitted()
        read: int = lib.PENSTOCK_OP_READ
        check(lib.penstock_submit(self.handle, read, piece, 1, self.options, NULL, 0, made.request))
        return made

    def write(self, address: int, nbytes: int, offset: int = 0) -> None:
        buffer = pointer(address)
        check(lib.penstock_write(self.handle, buffer, nbytes, offset, self.options, self._report))

    @property
    def report(self) -> Report:
        return from_native(self._report)

    def describe(self) -> str:
        return describe(self.report)


def ranges(pieces: list[tuple[int, int, int]]) -> Any:
    """Return an array of ``penstock_range`` from (offset in the file, length, address)."""
    return ffi.new("penstock_range[]", [(o, n, pointer(address)) for o, n, address in pieces])


def paths(report: Report | None) -> str:
    """Name the paths that carried the bytes."""
    return "" if report is None else ", ".join(report.paths).replace("_", ", ")


def describe(report: Report | None) -> str:
    """Describe a report in a few words, for a table."""
    if report is None:
        return ""
    plural = "" if report.threads == 1 else "s"
    text = f"{paths(report)}; {report.threads} thread{plural}"
    if report.block:
        text += f", block {report.block >> 10} KiB"
    decoded = report.decoded_cpu + report.decoded_gpu
    if decoded and report.device >= 0:
        text += f"; chunks {report.decoded_gpu / decoded:.0%} by the GPU"
    return f"{text}; {report.note}" if report.note else text


def last() -> str:
    """Describe the facade's last transfer in a few words."""
    return describe(ps.last_report())
