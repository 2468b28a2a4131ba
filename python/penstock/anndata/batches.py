"""Batches of cells for training."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.anndata.genes import Join
from penstock.anndata.rows import Rows
from penstock.data.epochs import Epochs, number
from penstock.data.order import Indices, Shuffle
from penstock.data.started import Started
from penstock.data.streams import HOST, Stream, stream_of
from penstock.errors import InvalidError
from penstock.placement import Device, Library
from penstock.request_group import RequestGroup

_WINDOW_ON_HOST, _WINDOW_ON_GPU = 256 << 20, 1 << 30
"""The bytes of a read of several batches of a full shuffle."""


class Batch(NamedTuple):
    """Some cells."""

    x: Any
    """The matrix: a row for each cell."""
    obs: dict[str, Any]
    """By name, the column of the cells: an array of numbers where ``x`` is. A category is a code,
    an index of ``Batches.categories``, -1 if missing."""
    rows: Indices
    """The numbers of the cells among those of all files."""


class Batches(Epochs):
    """The batches of cells of h5ad files, of which the next are read while one is used.

    Each iteration is an epoch. Order, ranks of ``torch.distributed``, ``state_dict`` and
    ``load_state_dict`` are those of :class:`penstock.torch.Batches`. Files are read as they are:
    CSR or dense, compressed or not.

    The batches of a full shuffle have cells of almost all chunks. Therefore one read has those of
    several batches, a *window*, and decodes each chunk once for all of them. The batches and their
    order do not depend on the window.

    On a GPU, the matrices are made on a stream of the batches. The stream that is current when a
    batch is taken waits for it. A batch stays valid as long as it is referenced. With CuPy, each
    read and each batch also wait for the work that is queued on the current stream before them.

    Args:
        paths: A file or several, whose genes are aligned by name. Or a :class:`Rows`, which has
            the arguments from ``x`` to ``join`` and the options of reads.
        batch_size: Cells of a batch of one rank.
        x: The matrix: ``"X"``, ``"layers/counts"`` and so on.
        obs: Columns of ``obs`` for each batch. They are read once, and stay in host memory.
        device: Where batches go, as for :class:`Rows`.
        like: The library, as there.
        dtype: The type to which values are converted as they are read, as there.
        dense: Whether ``batch.x`` is dense.
        join: How genes of several files are aligned, as there.
        mask: The cells that are used: a mask, or their numbers; all by default.
        shuffle: ``"full"``: all cells in random order. ``"blocks"``: blocks of consecutive cells
            in random order. ``False``: in order.
        seed: An integer. The order depends on it, the epoch and the number of cells.
        drop_last: Leave out the cells that do not fill a batch on all ranks.
        prefetch: The number of batches that are read while one is used, rounded up to windows.
        weights: A weight for each cell that is used. An epoch then draws as many cells as there
            are, with replacement, in proportion to the weights.
        block: Cells of a block of ``"blocks"``; 64 by default.
        mix: The number of blocks in turn whose cells are mixed.
        window: Batches of one read. By default as many as have 256 MiB on the host, or 1 GiB on a
            GPU, for a full shuffle, and 1 otherwise. Memory for the windows of ``prefetch`` and one
            more is in use, and a batch keeps that of its window.
        rank: The rank and the number of ranks, if they are not those of ``torch.distributed``:
        world_size: for example 0 and 1 to read the same batches on all ranks.

    Raises:
        KeyError: A file lacks the matrix or a column.
        InvalidError: An argument has an invalid value, or a file is damaged.
        IncompatibleError: The files do not fit together.

    >>> batches = Batches("cells.h5ad", 4096, obs=["cell_type"], device="cuda")
    >>> for batch in batches:
    ...     loss = step(batch.x, batch.obs["cell_type"])
    """

    def __init__(
        self,
        paths: Any,
        batch_size: int,
        *,
        x: str = "X",
        obs: Iterable[str] = (),
        device: Device = None,
        like: Library | None = None,
        dtype: Any = None,
        dense: bool = False,
        join: Join = "outer",
        mask: Any = None,
        shuffle: Shuffle = "full",
        seed: int = 0,
        drop_last: bool = False,
        prefetch: int = 3,
        weights: Any = None,
        block: int | None = None,
        mix: int = 4,
        window: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        if isinstance(paths, Rows):
            rows = paths
        else:
            rows = Rows(paths, x, device=device, like=like, dtype=dtype, dense=dense, join=join)
        self.rows = rows
        self._cells = _Cells(rows, mask)
        order = shuffle, seed, drop_last, prefetch, weights, block, mix, rank, world_size
        super().__init__(self._cells, batch_size, *order)
        self._window = None if window is None else number("window", window, 1)
        names = [obs] if isinstance(obs, str) else list(obs)
        self.categories: dict[str, Any] = {}
        """By name of a column of categories or strings, what its codes mean: a ``pandas.Index``."""
        self._obs: dict[str, NDArray[Any]] = {}
        for name, column in rows.obs(names).items() if names else ():
            self._obs[name], categories = _numbers(column)
            if categories is not None:
                self.categories[name] = categories
        self._follows = rows._maker.library == "cupy"

    def _at_once(self) -> int:
        if self._window is not None:
            return self._window
        if self.shuffle != "full":
            return 1
        most = _WINDOW_ON_HOST if self.rows.is_on_host else _WINDOW_ON_GPU
        nbytes = self.rows.nbytes_of_row() * self.batch_size
        return int(min(max(most // max(nbytes, 1), 1), max(len(self), 1)))

    def _stream(self) -> Stream:
        maker = self.rows._maker
        if maker.on_host or maker.library == "device":
            return HOST
        return stream_of(maker.library, maker.ordinal)

    def _start(self, batches: Sequence[Indices]) -> Started:
        return self.rows.start([self._cells.rows_of(batch) for batch in batches])

    def _parts(self, reads: RequestGroup[Started], taken: deque[Any]) -> Generator[Any, None, None]:
        stream = self._stream()
        with stream.current():
            found = reads.next()
        while True:
            yield self._next(found, stream, taken)

    def _next(
        self, found: Iterator[tuple[Indices, Any]], stream: Stream, taken: deque[Any]
    ) -> Batch:
        with stream.current():
            batch = self._batch(*next(found))
        if stream is not HOST:
            x = batch.x
            is_csr = self.rows._maker.library == "torch" and not self.rows.dense
            parts = (x.crow_indices(), x.col_indices(), x.values()) if is_csr else (x,)
            stream.hand_over((*parts, *batch.obs.values()), taken, self.prefetch)
        return batch

    def _batch(self, rows: Indices, x: Any) -> Batch:
        move = self.rows._maker.moved
        return Batch(x, {name: move(column[rows]) for name, column in self._obs.items()}, rows)


class _Cells:
    """The rows that are used."""

    def __init__(self, rows: Rows, mask: Any) -> None:
        self._rows = rows
        self._used = None if mask is None else rows.indices(mask)
        if self._used is not None and len(np.unique(self._used)) != len(self._used):
            raise InvalidError("mask names a cell twice", remedy="give weights to repeat cells")

    def __len__(self) -> int:
        return len(self._rows) if self._used is None else len(self._used)

    def rows_of(self, indices: Indices) -> Indices:
        return indices if self._used is None else self._used[indices]

    def blocks(self, length: int | None = None) -> Indices:
        if self._used is None:
            return self._rows.blocks(length)
        return np.arange(0, len(self._used), 64 if length is None else length)

    def __repr__(self) -> str:
        return repr(self._rows)


def _numbers(column: Any) -> tuple[NDArray[Any], Any]:
    """Return a column as numbers, and what its codes mean if it has categories or strings."""
    pandas = import_module("pandas")
    if isinstance(column.dtype, pandas.CategoricalDtype):
        return column.cat.codes.to_numpy().astype(np.int64), column.cat.categories
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biuf":
        return column.to_numpy(column.dtype.newbyteorder("=")), None
    if pandas.api.types.is_numeric_dtype(column.dtype):  # nullable
        if column.isna().any():
            return column.to_numpy("float64", na_value=np.nan), None
        return column.to_numpy(column.dtype.numpy_dtype), None
    codes, categories = pandas.factorize(column, sort=True)
    return codes.astype(np.int64), pandas.Index(categories)
