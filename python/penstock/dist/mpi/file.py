"""An HDF5 file that ranks open together."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from penstock.dist.description import Description
from penstock.dist.gathering import RankError
from penstock.dist.launched import Launched
from penstock.dist.mpi import parts
from penstock.dist.mpi.dataset import Dataset
from penstock.dist.mpi.divided import DividedDataset, Plan, names_along
from penstock.dist.mpi.ranks import DEFAULT_TIMEOUT, Ranks
from penstock.dist.mpi.shared import Shared
from penstock.dist.mpi.written import WrittenDataset
from penstock.dist.storage import Storage, has_filters
from penstock.dtypes import element_type, numpy_dtype
from penstock.errors import IncompatibleError, InvalidError, UnavailableError
from penstock.files import READ, NativeFile, Path, encode, path_of_new
from penstock.hdf5.library import creation_property
from penstock.shapes import Shape, lengths_of

T = TypeVar("T")

_READS = ("r",)
_WRITES = ("w", "w-", "x")
_LAYOUTS = ("shared", "file-per-rank")


class File:
    """An HDF5 file that the ranks of a communicator read or write together. Collective.

    Args:
        path: The file, the same on all ranks, on a file system that all hosts share.
        comm: An ``mpi4py.MPI.Comm``.
        mode: ``"r"``, or ``"w"`` for a new file that replaces one at the path when it is closed;
            ``"x"`` or ``"w-"`` if there must be none.
        timeout: Seconds that a rank waits for the slowest one, in any call. A rank that was killed
            or that does something else is an error on all others after that time and a few seconds
            more; most launchers end the program sooner.
        durable: Whether a new file is on stable storage when it is closed.
        libver: The oldest versions of HDF5 that must read a new file, as for ``h5py.File``. Before
            ``"v110"``, HDF5 lists every chunk of a dataset in a tree, which takes longer.
        alignment: Bytes to a multiple of which HDF5 aligns the storage of large objects in a new
            file, such as the stripe of the file system.
        layout: Where a new file has the elements: with ``"shared"`` in itself, with
            ``"file-per-rank"`` in a file for each rank, which the HDF5 of that rank writes. These
            files are in a folder beside the new one, whose virtual datasets refer to them by
            relative paths.

    Use it in a ``with`` block: an exception on one rank then ends the call in which the others
    wait. After an error, a new file cannot be completed; one that is read remains usable if all
    ranks continue. Until :meth:`close` returns, the new file has a temporary name, which ends in
    ``.unfinished``, and the file at the path is what it was before.

    >>> with mpi.File("run.h5", comm) as f:
    ...     x = f["rho"].read(parts[comm.rank], device="cuda")
    """

    def __init__(
        self,
        path: Path,
        comm: Any,
        mode: str = "r",
        *,
        timeout: float = DEFAULT_TIMEOUT,
        durable: bool = False,
        libver: Any = "v110",
        alignment: int | None = None,
        layout: str = "shared",
    ) -> None:
        self._ranks = Ranks(comm, timeout)
        self._mode = mode
        self._durable = durable
        self._storage: Storage | None = None
        self._folder: parts.Folder | None = None
        self._part: parts.Part | None = None
        self._plans: list[Plan] = []
        self._root: Any = None
        self._shared: Shared[Ranks]
        error: Exception | None = None
        try:
            is_new = mode in _WRITES
            name = os.path.abspath(path_of_new(path) if is_new else os.fsdecode(encode(path)))
        except Exception as raised:  # reported to the other ranks in the first step
            name, error = repr(path), raised
        settings: dict[str, Any] = {"libver": libver}
        if alignment is not None:
            settings |= {"alignment_threshold": alignment, "alignment_interval": alignment}
        step = f"File({name!r}, mode={mode!r}, durable={durable}, {settings}, layout={layout!r})"

        def open_on_root() -> tuple[str, tuple[int, ...], str | None]:
            if layout not in _LAYOUTS:
                raise InvalidError(f"the layout {layout!r} is not one of {', '.join(_LAYOUTS)}")
            if mode in _READS:
                return (*self._open(name), None)
            if mode in _WRITES:
                return self._make(name, settings, divided=layout == "file-per-rank")
            raise InvalidError(
                f"the mode {mode!r} is not one of {', '.join((*_READS, *_WRITES))}",
                remedy='open existing files with "r", or write a new file',
            )

        try:
            found, identity, folder = self._ranks.broadcast(step, open_on_root, error)
            if folder is not None:
                self._part = parts.Part(folder, self._ranks.rank, settings)
            local = Launched.by().local_rank
            if self._ranks.maximum(int(local is None), step):
                local = self._ranks.local_rank()
            writes = mode in _WRITES
            self._shared = Shared(
                self._ranks, found, identity, writes=writes, local_rank=local or 0
            )
            if writes:
                self._shared.together(f"{step} (open)", self._see)
        except BaseException:
            self._abandon()
            raise

    @property
    def path(self) -> str:
        """The file that is read, or the temporary name of the one that is written."""
        return self._shared.path

    def __getitem__(self, name: str) -> Dataset:
        """Return a dataset to read. Collective: rank 0 describes it to all others."""
        self._check(_READS)

        def describe() -> tuple[Any, Description | None]:
            import h5py

            dataset = self._root[name]
            if not isinstance(dataset, h5py.Dataset):
                raise InvalidError(f"{name} is a {type(dataset).__name__}, not a dataset")
            if dataset.shape is None:
                raise InvalidError(f"{name} has no elements (it has a null dataspace)")
            chunks = creation_property(dataset, "chunks")
            about = (tuple(dataset.shape), np.dtype(dataset.dtype), chunks)
            if h5py.h5f.get_name(dataset.id) != h5py.h5f.get_name(self._root.id):
                return about, None  # an external link leads to another file
            try:
                return about, Description.of(dataset)
            except UnavailableError:
                return about, None

        about, description = self._ranks.broadcast(f"[{name!r}]", describe)
        return Dataset(self._shared, name, about, description)

    def create(
        self,
        name: str | bytes,
        shape: Shape,
        dtype: Any = "f4",
        *,
        chunks: Any = None,
        attrs: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> WrittenDataset | DividedDataset:
        """Create a dataset in a new file. Collective.

        With a file per rank, the file has it from :meth:`close` on, and ``maxshape`` and
        ``track_times`` are not possible.

        Args:
            name: The path of the dataset. Groups on the way are created.
            shape: The lengths of the dimensions.
            dtype: The type of the elements.
            chunks: The shape of a chunk, ``True`` for one that h5py chooses, ``None`` for
                contiguous storage.
            attrs: Attributes of the dataset.
            **arguments: ``compression``, ``compression_opts``, ``shuffle``, ``fletcher32``,
                ``scaleoffset``, ``fillvalue``, ``maxshape`` and ``track_times`` as for
                ``h5py.Group.create_dataset``.

        Raises:
            RankError: Ranks disagree on an argument, or HDF5 refuses one.
            InvalidError: The name has a zero byte.
        """
        self._check(_WRITES)
        if not isinstance(name, str | bytes):
            raise IncompatibleError(f"{name!r} is not the name of a dataset")
        name = os.fsdecode(name)
        if "\0" in name:
            raise InvalidError(f"the name {name!r} has a zero byte, at which HDF5 would end it")
        sides = lengths_of(shape)
        element = numpy_dtype(element_type(dtype))
        compression = arguments.get("compression")
        if isinstance(compression, Mapping):  # of hdf5plugin
            arguments = {**arguments, **compression}
        if has_filters(arguments):
            chunks = True if chunks is None else chunks
        arguments |= {"shape": sides, "dtype": element, "chunks": chunks}
        words = ", ".join(f"{key}={value!r}" for key, value in sorted(arguments.items()))
        step = f"create({name!r}, {words}, attrs={sorted(attrs or {})})"
        if self._part is not None:
            plan = self._ranks.broadcast(step, lambda: self._plan(name, arguments, attrs or {}))
            return DividedDataset(self._shared, self._part, plan)
        made: list[Any] = []

        def create_on_root() -> Description:
            assert self._storage is not None
            dataset, description = self._storage.create(name, arguments)
            for key, value in (attrs or {}).items():
                dataset.attrs[key] = value
            made.append(dataset)
            return description

        description = self._ranks.broadcast(step, create_on_root)
        storage = None if self._storage is None else (self._storage, made[0])
        return WrittenDataset(self._shared, description, storage)

    def on_root(self, call: Callable[[Any], T]) -> T:
        """Return on all ranks what a function returns on rank 0 for the ``h5py.File``. Collective.

        Use it for small data: attributes, names, groups, small datasets. In a new file it must not
        write elements of datasets of :meth:`create`.

        >>> f.on_root(lambda file: dict(file["rho"].attrs))
        """
        self._check((*_READS, *_WRITES))
        return self._ranks.broadcast("on_root", lambda: call(self._root))

    def close(self) -> None:
        """Close the file; a new one then replaces what was at the path. Collective.

        Raises:
            RankError: A rank has failed. The file at the path is what it was before, unless the
                message says that the new one is in place.
        """
        if not self._is_open:
            return
        try:
            self._shared.together("close", self._flush)
            self._ranks.broadcast("close (rename)", self._finish)
        except BaseException:
            self._abandon()
            raise
        self._shared.is_open = False
        self._ranks.free()

    def __enter__(self) -> File:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if error is None or not self._is_open:
            self.close()
            return
        failure = self._ranks.failure
        is_known = error is failure or (failure is not None and self._mode in _WRITES)
        try:
            # The other ranks get the error in their present step, unless it is their own, too.
            if not is_known and not self._ranks.is_broken:
                self._ranks.agree("with", error)
        except RankError:
            pass
        finally:
            self._abandon()

    def _open(self, path: str) -> tuple[str, tuple[int, ...]]:
        import h5py

        with NativeFile(path, READ) as file:
            identity = file.identity()
        self._root = h5py.File(path, "r")
        return path, identity

    def _make(
        self, path: str, settings: dict[str, Any], *, divided: bool
    ) -> tuple[str, tuple[int, ...], str | None]:
        if self._mode != "w" and os.path.lexists(path):
            raise InvalidError(f"{path} exists, and the mode is {self._mode!r}", path=path)
        from pathlib import Path as FilePath

        self._storage = Storage(FilePath(path), settings, replaces=self._mode == "w")
        self._root = self._storage.file
        temporary = str(self._storage.temporary)
        if divided:
            self._folder = parts.Folder(self._storage.path)
        folder = None if self._folder is None else str(self._folder.path)
        return temporary, (os.stat(temporary).st_ino,), folder

    def _see(self) -> None:
        """Make sure that this rank sees what rank 0 has made."""
        self._shared.native()
        if self._part is not None and not self._part.has_folder:
            raise self._shared.not_shared("the folder of the files of the ranks is not there")

    def _plan(self, name: str, arguments: dict[str, Any], attrs: Mapping[str, Any]) -> Plan:
        plan = Plan.checked(self._root, name, arguments, attrs)
        names = [names_along(other.name) for other in self._plans]
        own = names_along(name)
        for other in names:
            length = min(len(other), len(own))
            # The same, or one is a group in the path of the other.
            if other[:length] == own[:length]:
                raise InvalidError(f"{name} exists already, or {'/'.join(other)} conflicts with it")
        self._plans.append(plan)
        return plan

    def _flush(self) -> None:
        if self._part is not None:
            self._part.close(self._durable)
        if self._durable:
            self._shared.sync()
        self._shared.close()

    def _finish(self) -> None:
        if self._storage is None:
            self._root.close()
            return
        before = parts.folders_of(self._storage.path)
        if self._folder is not None:
            for plan in self._plans:
                plan.create(self._root, self._folder)
            self._folder.finish(self._durable)
        try:
            self._storage.finish(self._durable)
        finally:
            if self._folder is not None and self._storage.has_name:
                self._folder.keep()
        for folder in before:
            parts.remove(folder)

    def _abandon(self) -> None:
        """Close what this rank has, after a failure, and remove an unfinished file."""
        with contextlib.ExitStack() as last:  # calls all, even if one fails
            last.callback(self._ranks.free)
            if self._folder is not None:
                last.callback(self._folder.discard)
            if self._part is not None:
                last.callback(self._part.discard)
            if self._storage is not None:
                last.callback(self._storage.discard)
            elif self._root is not None:
                last.callback(self._root.close)
            if hasattr(self, "_shared"):
                self._shared.is_open = False
                last.callback(self._shared.close)

    @property
    def _is_open(self) -> bool:
        return hasattr(self, "_shared") and self._shared.is_open

    def _check(self, modes: tuple[str, ...]) -> None:
        if not self._is_open:
            raise InvalidError("the file is closed")
        if self._mode not in modes:
            raise InvalidError(
                f"the file is open with the mode {self._mode!r}, not {' or '.join(modes)}"
            )
        self._shared.check()

    def __repr__(self) -> str:
        if not hasattr(self, "_shared"):
            return "<mpi.File, not opened>"
        state = f"mode {self._mode!r}" if self._is_open else "closed"
        return f"<mpi.File {self._shared.path}, {state}, rank {self._ranks.rank}>"
