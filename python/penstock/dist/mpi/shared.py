"""The state of a shared file on one rank, which all its datasets use."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import penstock
from penstock.dist.gathering import Gathering, RankError
from penstock.errors import Error, InvalidError, IOFailure, NotFoundError, UnavailableError
from penstock.files import READ, WRITE, NativeFile
from penstock.machine import devices
from penstock.placement import Device, parse_device

T = TypeVar("T")
G = TypeVar("G", bound=Gathering)


class Shared(Generic[G]):
    """A file as one rank sees it.

    Args:
        ranks: All ranks.
        path: The file that is read or written, which may have a temporary name.
        identity: The inode that rank 0 found; for reading also length and time of change.
        writes: Whether it is open for writing.
        local_rank: The rank among those of this host.
    """

    def __init__(
        self, ranks: G, path: str, identity: tuple[int, ...], *, writes: bool, local_rank: int
    ) -> None:
        self.ranks = ranks
        self.path = path
        self._identity = identity
        self._writes = writes
        self._local_rank = local_rank
        self.is_open = True
        """Whether steps are possible: :class:`penstock.dist.mpi.File` is not closed."""
        self._native: NativeFile | None = None
        self._by_hdf5: Any = None

    def check(self) -> None:
        """Raise an error if the file is closed, or if a step has failed and it is a new one."""
        failure = self.ranks.failure
        if failure is not None and self._writes:
            raise RankError(f"an earlier step has failed: {failure}", rank=failure.rank)
        if not self.is_open:
            raise InvalidError("the file is closed")

    def together(self, step: str, do: Callable[[], T]) -> T:
        """Return what ``do`` returns on this rank, or raise on all ranks if it fails on one."""
        self.check()
        return self.ranks.made_by_all(step, do)

    def native(self) -> NativeFile:
        """Return the file, which the first call opens.

        Raises:
            IOFailure: It is another file than that of rank 0.
        """
        if self._native is None:
            try:
                opened = NativeFile(self.path, WRITE if self._writes else READ)
            except NotFoundError as error:
                raise self.not_shared("there is no such file here") from error
            self._require_same(opened, opened)
            self._native = opened
        return self._native

    def _require_same(self, file: NativeFile, opened: NativeFile | penstock.File) -> None:
        """Close ``opened`` and raise an error if the file is not that of rank 0."""
        if file.identity()[: len(self._identity)] != self._identity:
            opened.close()
            raise self.not_shared("here it is another file, or it has changed since")

    def device(self, device: Device) -> Device:
        """Return the device of a call, with this rank's own GPU for ``"cuda"``."""
        if parse_device(device) is not None:
            return device
        count = len(devices())
        if not count:
            raise UnavailableError(f"there is no GPU on {socket.gethostname()}")
        return f"cuda:{self._local_rank % count}"

    def by_hdf5(self, name: str) -> Any:
        """Return a dataset that only HDF5 reads, in a file that this rank opens by HDF5.

        Raises:
            IOFailure: It is another file than that of rank 0.
        """
        if self._by_hdf5 is None:
            opened = penstock.File(self.path, "r")
            with NativeFile(self.path, READ) as now:
                self._require_same(now, opened)
            self._by_hdf5 = opened
        return self._by_hdf5[name]

    def sync(self) -> None:
        """Flush what this rank has written to the medium."""
        if self._native is not None:
            self._native.sync()

    def close(self) -> None:
        """Close what this rank has opened."""
        if self._native is not None:
            self._native.close()
            self._native = None
        if self._by_hdf5 is not None:
            self._by_hdf5.close()
            self._by_hdf5 = None

    def not_shared(self, what: str) -> Error:
        """Return the error of a rank that does not see what rank 0 has made."""
        host = socket.gethostname()
        return IOFailure(
            f"{self.path}: rank 0 has opened it, but on {host} {what}",
            path=self.path,
            errno=errno.ESTALE,
            remedy="use a path on a file system that all hosts share",
        )
