"""A dataset whose slabs ranks write into files of their own; a virtual dataset joins them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock._options import OptionKeys, Unpack
from penstock.dist import transfers
from penstock.dist.mpi.parts import Folder, Part, file_of
from penstock.dist.mpi.ranks import Ranks
from penstock.dist.mpi.shared import Shared
from penstock.dist.mpi.slabs import refuse_overlap, row_of
from penstock.errors import InvalidError

_OF_PARTS = (
    *("dtype", "chunks", "compression", "compression_opts", "shuffle", "fletcher32"),
    *("scaleoffset", "fillvalue"),
)
"""Arguments of ``create_dataset`` that the datasets in the files of the ranks get."""


@dataclass
class Plan:
    """The plan of a virtual dataset, made when the file is closed. Only rank 0 has the slabs."""

    name: str
    shape: tuple[int, ...]
    arguments: dict[str, Any]
    attrs: Mapping[str, Any]
    slabs: list[np.ndarray[Any, Any]] = field(default_factory=list)
    """For each rank and write a row: the rank, the number of the write, start and stop of each
    dimension. The tables are in the order of the writes, each longer than the next."""

    @classmethod
    def checked(
        cls, file: Any, name: str, arguments: dict[str, Any], attrs: Mapping[str, Any]
    ) -> Plan:
        """Plan a dataset of a file, with arguments that HDF5 takes. ``chunks`` becomes a shape."""
        import h5py

        names = names_along(name)
        if not names or name in file:
            raise InvalidError(f"{name} exists already")
        for above in ("/".join(names[:at]) for at in range(1, len(names))):
            if above in file and not isinstance(file[above], h5py.Group):
                raise InvalidError(f"{name} cannot be created, because {above} is not a group")
        if not arguments["shape"]:
            raise InvalidError(
                f"{name} is a scalar, which is not divided", remedy="write it by on_root"
            )
        if others := sorted(key for key in arguments if key not in (*_OF_PARTS, "shape")):
            raise InvalidError(f"with a file per rank, there is no {', '.join(others)}")
        with h5py.File("checked", "w", driver="core", backing_store=False) as memory:
            made = memory.create_dataset("x", **arguments)
            shape, chunks = tuple(made.shape), made.chunks
            for key, value in attrs.items():
                made.attrs[key] = value
        of_parts = {key: value for key, value in arguments.items() if key in _OF_PARTS}
        # HDF5 makes no groups along a path with dots in it.
        return cls("/" + "/".join(names), shape, {**of_parts, "chunks": chunks}, attrs)

    def enter(self, tables: list[np.ndarray[Any, Any]]) -> None:
        """Add the slabs that ranks have written. Slabs that overlap are an error."""
        rows = np.concatenate(tables)
        refuse_overlap(self.name, rows, self.slabs)
        while self.slabs and len(self.slabs[-1]) <= len(rows):
            rows = np.concatenate([self.slabs.pop(), rows])
        self.slabs.append(rows)

    def create(self, file: Any, folder: Folder) -> None:
        """Create the virtual dataset, which refers to the folder by a relative path."""
        import h5py

        element, fill = self.arguments["dtype"], self.arguments.get("fillvalue")
        rows = [row for table in self.slabs for row in table.tolist()]
        if rows:
            layout = h5py.VirtualLayout(self.shape, element)
            for rank, number, *ends in rows:
                slab = tuple(slice(*pair) for pair in zip(ends[::2], ends[1::2], strict=True))
                path = _literal(f"{folder.name}/{file_of(rank)}")
                shape = tuple(part.stop - part.start for part in slab)
                source = h5py.VirtualSource(path, _literal(name_of(self.name, number)), shape)
                layout[slab] = source
            made = file.create_virtual_dataset(self.name, layout, fill)
        else:  # HDF5 has no virtual dataset of nothing
            made = file.create_dataset(self.name, self.shape, element, fillvalue=fill)
        for key, value in self.attrs.items():
            made.attrs[key] = value


def names_along(path: str) -> list[str]:
    """Return the names along a path within a file."""
    return [name for name in path.split("/") if name not in ("", ".")]


def name_of(dataset: str, number: int) -> str:
    """Return the name of the dataset of one write in a rank's file."""
    return f"{dataset}/{number}"


def _literal(name: str) -> str:
    """Escape a name for HDF5, which replaces ``%b`` by the number of a block."""
    return name.replace("%", "%%")


class DividedDataset:
    """A dataset to write, a file per rank. ``file.create`` makes it.

    Args:
        shared: The main file.
        part: The file of this rank.
        plan: What rank 0 has planned.
    """

    def __init__(self, shared: Shared[Ranks], part: Part, plan: Plan) -> None:
        self._shared = shared
        self._part = part
        self._plan = plan
        self._count = 0
        self.name = plan.name
        self.shape = plan.shape
        self.dtype: np.dtype[Any] = plan.arguments["dtype"]
        self.chunks: tuple[int, ...] | None = plan.arguments["chunks"]

    def write(
        self, array: Any, slab: Any = (), *, stream: Any = None, **options: Unpack[OptionKeys]
    ) -> None:
        """Write an array to this rank's slab of the dataset. Collective.

        Slabs may cut chunks: the chunks of each file start at its slabs. No element may be written
        twice.

        Args:
            array: Any array on the CPU or a GPU of the slab's shape, whose elements are converted
                to the type of the dataset.
            slab: A tuple of slices without steps, as :func:`penstock.dist.partition` returns them;
                the whole dataset by default. ``None`` writes nothing.
            stream: A CUDA stream whose queued work makes the array.
            **options: See :class:`penstock.OptionKeys`.

        Raises:
            RankError: A rank could not write its slab, or two slabs overlap. The file cannot be
                completed.
        """
        step = f"{self.name}.write"
        number, self._count = self._count, self._count + 1
        ranks = self._shared.ranks

        def put() -> np.ndarray[Any, Any]:
            ranges = None if slab is None else transfers.ranges_of(slab, self.shape)
            if ranges is None or not all(transfers.lengths(ranges)):
                return np.empty((0, 2 + 2 * len(self.shape)), np.int64)
            name = name_of(self.name, number)
            self._part.write(name, ranges, array, self._plan.arguments, stream, options)
            return row_of(ranks.rank, number, ranges)

        tables = ranks.gather(self._shared.together(step, put), step)
        ranks.broadcast(f"{step} (slabs)", lambda: self._plan.enter(tables))

    def __repr__(self) -> str:
        return f"<DividedDataset {self.name} of shape {self.shape}, {self.dtype}>"
