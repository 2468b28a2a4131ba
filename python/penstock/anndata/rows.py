"""Rows of matrices of h5ad files, gathered by one plan."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from penstock._options import OptionKeys, Unpack, resolve
from penstock.anndata import frames, genes, stored
from penstock.anndata.genes import Join
from penstock.anndata.libraries import Maker, scipy_matrix
from penstock.anndata.reading import read_into
from penstock.anndata.stored import Matrix
from penstock.data.files import opened_again, opened_file, version_of
from penstock.data.order import Indices
from penstock.data.samples import FileSamples, counted
from penstock.data.started import Started
from penstock.dtypes import element_type
from penstock.errors import IncompatibleError, InvalidError
from penstock.hdf5.many import start_into
from penstock.hdf5.selection import Runs
from penstock.placement import Device, Library

T = TypeVar("T")

_ALIGNED = 64
"""Each batch of a read starts at a multiple of this number of elements, for kernels."""


class Rows(FileSamples):
    """The rows of a matrix of one h5ad file, or of several whose genes are aligned by name.

    ``rows[indices]`` reads the rows of all files that an index list names, in its order, by one
    plan: each chunk that has some of them is read and decoded once, by all cores or the GPU, and
    the pieces go straight to their places in the new matrix. A list may repeat rows. Rows of
    several files follow one another as the files do. The index pointers of the files stay in
    memory, and so do the files, open, as those of :class:`penstock.torch.HDF5Dataset`.

    Args:
        paths: A file or several.
        x: The matrix: ``"X"``, ``"layers/counts"``, ``"raw/X"``, ``"obsm/X_pca"``. CSR or dense.
            The genes of ``"raw/X"`` are those of ``raw/var``. A matrix stored by column (CSC),
            whose rows are spread over all of it, is read whole at first, and stays in host memory.
        device: Where matrices go, as for :func:`penstock.read`.
        like: The library: ``"numpy"`` (SciPy's sparse matrices; the default on the host),
            ``"torch"`` (``torch.sparse_csr``), ``"cupy"`` (``cupyx.scipy.sparse``), or
            ``"device"``: tuples ``(data, indices, indptr, shape)``. On a GPU, by default the first
            of torch, CuPy and ``"device"`` that is there.
        dtype: The type to which values are converted as they are read. By default, the one to
            which NumPy promotes those of all files: ``float64`` for ``int32`` and ``float32``.
        dense: Whether matrices are dense, also those of sparse files.
        join: With several files, ``"outer"``: all genes, or ``"inner"``: those that all files have,
            in the order of ``anndata.concat``.
        **options: Those of the reads, such as ``decode`` or ``threads``: see
            :class:`penstock.OptionKeys`.

    Raises:
        KeyError: A file lacks the matrix.
        InvalidError: A matrix is damaged, or a file names a gene twice.
        IncompatibleError: What is named is not a matrix, or those of the files do not fit together.
        OSError: A file cannot be opened.

    >>> rows = Rows(["a.h5ad", "b.h5ad"], x="layers/counts", device="cuda")
    >>> rows[[5, 70_000, 5]].shape
    """

    _var_names: Any = None
    _obs_names: Any = None

    def __init__(
        self,
        paths: Any,
        x: str = "X",
        *,
        device: Device = None,
        like: Library | None = None,
        dtype: Any = None,
        dense: bool = False,
        join: Join = "outer",
        **options: Unpack[OptionKeys],
    ) -> None:
        resolve(options)
        self._options = options
        self._maker = Maker(device, like)
        given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
        if not given:
            raise InvalidError("no file is given", remedy="give the path of one or of several")
        self.paths = [os.path.abspath(os.fsdecode(path)) for path in given]
        self.x = stored.normal(x)
        self._axes = stored.axes_of(self.x)
        self._held: dict[int, Any] = {}
        """By file that stores the matrix by column, its CSR in memory, with values as bits."""
        self._matrices = [self._described(number) for number in range(len(self.paths))]
        first = self._matrices[0]
        for matrix in self._matrices:
            _check(matrix, first)
        self._is_sparse = first.is_sparse
        self.dense = bool(dense) or not first.is_sparse
        if dtype is None:
            promoted = np.result_type(*(matrix.dtype for matrix in self._matrices))
            dtype = promoted.newbyteorder("=")
        self._element = element_type(dtype)
        is_of_scipy = self._maker.library == "numpy" or (self._maker.on_host and self.dense)
        if self._is_sparse and is_of_scipy and self._element.name == "float16":
            raise first.not_in_scipy('give dtype="float32"')
        for number, matrix in enumerate(self._matrices):
            if matrix.format == "csc":
                self._matrices[number] = self._hold(number, matrix)
        if len(self._matrices) == 1:
            self._genes = genes.Genes(None, [None])
            self._width = first.shape[1]
        elif self._axes.columns is not None:
            names = [self._column_names(number) for number in range(len(self.paths))]
            self._genes = genes.aligned(names, join, self.paths)
            self._width = len(self._genes.names)
        else:
            self._genes = genes.Genes(None, [None] * len(self.paths))
            self._width = _common_width(self._matrices)
        self._fill = self._fill_value()
        self._add_files([matrix.shape[0] for matrix in self._matrices])
        self._starts = np.concatenate([matrix.indptr[:-1] for matrix in self._matrices])
        self._lengths = np.concatenate([np.diff(matrix.indptr) for matrix in self._matrices])
        self._matrices = [matrix._replace(indptr=stored.NONE) for matrix in self._matrices]

    def __len__(self) -> int:
        """The number of rows of all files."""
        return int(self._ends[-1])

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows of all files, and of genes."""
        return len(self), self._width

    @property
    def device(self) -> Any:
        """Where matrices go."""
        return self._maker.where

    @property
    def is_on_host(self) -> bool:
        """Whether matrices are in host memory."""
        return self._maker.on_host

    # Not functools.cached_property: in Python 3.11, its lock and h5py's could wait for each other.
    @property
    def var_names(self) -> Any:
        """The names of the columns, a ``pandas.Index``: numbers if they are not genes."""
        if self._var_names is None:
            self._var_names = self._names_of_columns()
        return self._var_names

    def _names_of_columns(self) -> Any:
        if self._genes.names is not None:
            return self._genes.names
        if self._axes.columns is None:
            return import_module("pandas").RangeIndex(self._width)
        return self._column_names(0)

    @property
    def obs_names(self) -> Any:
        """The names of the rows of all files, a ``pandas.Index``."""
        if self._obs_names is None:
            axis, files = self._axes.rows, range(len(self.paths))
            first, *others = [self._names(number, axis, self._count(number)) for number in files]
            self._obs_names = first.append(others) if others else first
        return self._obs_names

    def obs(self, names: Sequence[str]) -> dict[str, Any]:
        """Return columns of the annotations of all rows, each as a ``pandas.Series``."""
        parts = [self._columns(number, names) for number in range(len(self.paths))]
        return _joined(parts, self.paths)

    def __getitem__(self, index: Any) -> Any:
        """Read rows: an integer, a slice, a list of integers, or a mask.

        The result is a matrix, also for an integer.

        Raises:
            IndexError: There is no such row.
            InvalidError: A file is damaged.
            Error: The read failed.
        """
        ((_, matrix),) = self.start([self.indices(index)]).wait()
        return matrix

    def start(self, batches: Sequence[Indices]) -> Started:
        """Start to read the rows of each batch, as one read, and return at once.

        ``wait()`` of the result returns an iterator over the rows and the matrix of each batch, the
        same one at each call. A matrix is made when it is asked for. On a GPU, the memory is that
        of the library's current stream, both times.

        Raises:
            IndexError: There is no such row.
            IncompatibleError: CuPy's indices are too short for the elements of a batch.
        """
        plan = _Plan.of(batches, self._starts, self._lengths)
        data = self._maker.empty(plan.length, self._element)
        kind, indices = np.dtype("i8"), None
        if self._is_sparse:
            kind = self._maker.index_type(plan.longest, self._width)
            indices = self._maker.empty(plan.length, kind)
        started = Started(lambda: self._made(plan.parts(kind), data, indices))
        numbers = self._files_of(plan.rows)
        present = np.unique(numbers).tolist()

        def read_group(group: Sequence[int]) -> None:
            for number in group:
                mine = slice(None) if len(present) == 1 else numbers == number
                arrays = [data] if indices is None else [data, indices]
                if number in self._held:
                    self._place(number, *plan.runs(mine), arrays)
                    continue
                runs = Runs(*plan.runs(mine))
                if not runs.count:
                    continue
                matrix = self._matrices[number]
                datasets = self._files.datasets(matrix.source, matrix.names, started)
                out = [self._maker.part(array, 0, runs.count) for array in arrays]
                started.add(start_into(datasets, [(runs,)] * len(out), out, self._options))

        return self._read(started, present, read_group)

    def nbytes_of_row(self) -> float:
        """Return the mean number of bytes of a row in memory."""
        size = self._element.itemsize + (4 if self._is_sparse else 0)
        return float(self._lengths.mean() if len(self) else 0) * size

    def __repr__(self) -> str:
        rows, columns = self.shape
        return f"<Rows of {self.x}, {rows} x {columns}, in {len(self.paths)} files>"

    def _described(self, number: int) -> Matrix:
        path = self.paths[number]
        version = version_of(path)
        with opened_file(path) as file:
            matrix = stored.described(file.h5py, path, self.x)
        return matrix._replace(source=matrix.source._replace(version=version))

    def _hold(self, number: int, matrix: Matrix) -> Matrix:
        """Read a matrix that is stored by column, and return the description of the one held.

        HDF5 converts its values, as those of other matrices. SciPy, which lacks some types, sorts
        them by row as integers of their size.
        """
        host = Maker("cpu", "torch" if self._maker.library == "torch" else None)
        data = host.empty(int(matrix.indptr[-1]), self._element)
        kind = host.index_type(len(data), matrix.minor)
        with opened_again(matrix.path, matrix.source.version) as file:
            indices = read_into(file.h5py[self.x], matrix, host, data, kind, self._options)
        values, rows = np.asarray(host.bits(data)), np.asarray(indices)
        pointers = matrix.indptr.astype(rows.dtype)
        held = scipy_matrix("csc", values, rows, pointers, matrix.shape).tocsr()
        self._held[number] = held
        return matrix._replace(format="csr", indptr=held.indptr.astype(np.int64))

    def _place(self, number: int, starts: Any, lengths: Any, positions: Any, arrays: Any) -> None:
        """Copy rows of a matrix that is in memory to their places in the arrays of a read."""
        maker, held = self._maker, self._held[number]
        source = Runs(starts, lengths).points
        target = maker.moved(Runs(positions, lengths).points)
        for array, values in zip(arrays, (held.data, held.indices), strict=False):
            maker.put(array, target, values[source])

    # -- what is read ------------------------------------------------------------------------------

    def _made(
        self, parts: Iterator[_Part], data: Any, indices: Any
    ) -> Iterator[tuple[Indices, Any]]:
        """Yield the rows and the matrices of the batches of a read that has ended."""
        for part in parts:
            with self._maker.on_device():
                matrix = self._matrix(part, data, indices)
            yield part.rows, matrix
            del matrix

    def _matrix(self, part: _Part, data: Any, indices: Any) -> Any:
        maker = self._maker
        shape = len(part.rows), self._width
        values = maker.part(data, part.begin, part.end)
        if not self._is_sparse:
            return self._aligned_dense(part, values)
        columns = maker.part(indices, part.begin, part.end)
        self._check_columns(part, columns)
        values, columns, pointers = self._aligned(part, values, columns)
        make = maker.dense if self.dense else maker.csr
        return make(values, columns, pointers, shape)

    def _check_columns(self, part: _Part, columns: Any) -> None:
        """Raise an error if a row has an index outside the matrix.

        Kernels do not check indices. Without a library, they are not checked in GPU memory.
        """
        if part.begin == part.end or self._maker.library == "device":
            return
        widths = [matrix.shape[1] for matrix in self._matrices]
        low, high = self._maker.bounds(columns)
        if low >= 0 and high < min(widths):
            return
        for number, rows in part.of_files(self._ends):
            for at in rows.tolist():
                own = self._maker.part(columns, int(part.pointers[at]), int(part.pointers[at + 1]))
                if not own.shape[0]:
                    continue
                low, high = self._maker.bounds(own)
                wrong = low if low < 0 else high
                if not 0 <= wrong < widths[number]:
                    row = int(part.rows[at] - self._begins[number])
                    raise self._matrices[number].invalid(
                        f"row {row} has the index {stored.text_of_index(wrong)}, and there are "
                        f"{widths[number]} columns"
                    )

    def _aligned(self, part: _Part, values: Any, columns: Any) -> tuple[Any, Any, NDArray[Any]]:
        """Return values, columns and index pointers in the columns of the result."""
        if self._genes.is_same:
            return values, columns, part.pointers
        maker = self._maker
        if maker.library == "device":
            raise IncompatibleError(
                "no library aligns genes in GPU memory", remedy="install torch or CuPy"
            )
        for number, rows in part.of_files(self._ends):
            if (places := self._genes.places[number]) is None:
                continue
            moved = maker.moved(places.astype(part.pointers.dtype, copy=False))
            if len(rows) == len(part.rows):
                columns = maker.take(moved, columns)
                continue
            own = maker.moved(part.elements(rows))
            columns[own] = maker.take(moved, maker.take(columns, own))
        if not self._genes.drops:
            return values, columns, part.pointers
        kept = columns >= 0
        found = kept if maker.on_host else kept.cpu() if maker.library == "torch" else kept.get()
        ends = np.concatenate([[0], np.cumsum(np.asarray(found), dtype=np.int64)])
        return (
            maker.kept(values, kept),
            maker.kept(columns, kept),
            ends[part.pointers].astype(part.pointers.dtype),
        )

    def _aligned_dense(self, part: _Part, values: Any) -> Any:
        maker = self._maker
        rows = len(part.rows)
        if self._genes.is_same:
            if maker.library == "device":
                return values.part(0, (rows, self._width), self._element)
            return values.reshape(rows, self._width)
        made = maker.empty(rows * self._width, self._element).reshape(rows, self._width)
        made[...] = self._fill
        bits = maker.bits(made)
        for number, own in part.of_files(self._ends):
            width = self._matrices[number].shape[1]
            places = self._genes.places[number]
            places = np.arange(width, dtype=np.int32) if places is None else places
            at = maker.moved(part.elements(own))
            block = maker.take(values, at).reshape(len(own), width)
            kept = np.flatnonzero(places >= 0)
            block = maker.take(block, maker.moved(kept), 1)
            rows_and_columns = own[:, None], places[kept].astype(np.int64)
            bits[tuple(map(maker.moved, rows_and_columns))] = maker.bits(block)
        return made

    def _fill_value(self) -> float:
        """Return the value of a gene that a file lacks, which ``anndata.concat`` gives, too."""
        if self._is_sparse or self._genes.is_same:
            return 0
        places = (one for one in self._genes.places if one is not None)
        lacks = any((one >= 0).sum() < self._width for one in places)
        if lacks and self._element.numpy is not None and self._element.numpy.kind not in "fc":
            raise IncompatibleError(
                f"genes that a file lacks are NaN, and the values have type {self._element.name}",
                remedy='give dtype="float32" or join="inner"',
            )
        return float("nan") if lacks else 0

    def indices(self, index: Any) -> Indices:
        """Return the numbers of the rows that an index of ``rows[index]`` names."""
        count = len(self)
        if isinstance(index, slice):
            return np.arange(*index.indices(count))
        found = np.asarray(index)
        if found.dtype == bool:
            if found.shape != (count,):
                raise IndexError(f"a mask of shape {found.shape} is given for {count} rows")
            return np.flatnonzero(found)
        if found.ndim == 0:
            found = found.reshape(1)
        if found.size == 0:
            found = found.astype(np.int64)
        if found.ndim != 1 or found.dtype.kind not in "iu":
            raise IndexError(f"{index!r} are not rows: give integers, a slice or a mask")
        return counted(found, count, _no_row)

    def _count(self, number: int) -> int:
        """Return the number of rows of a file."""
        return self._matrices[number].shape[0]

    def _column_names(self, number: int) -> Any:
        assert self._axes.columns is not None
        return self._names(number, self._axes.columns, self._matrices[number].shape[1])

    def _names(self, number: int, axis: str, count: int) -> Any:
        return self._with_file(number, lambda file, path: frames.names_of(file, path, axis, count))

    def _columns(self, number: int, names: Sequence[str]) -> dict[str, Any]:
        axis, count = self._axes.rows, self._count(number)
        return self._with_file(
            number, lambda file, path: frames.columns(file, path, axis, names, count)
        )

    def _with_file(self, number: int, do: Callable[[Any, str], T]) -> T:
        path = self.paths[number]
        with opened_again(path, self._matrices[number].source.version) as file:
            return do(file.h5py, path)


class _Part(NamedTuple):
    """A batch of a read."""

    rows: Indices
    begin: int
    """Its first element in the arrays of the read."""
    end: int
    pointers: NDArray[Any]
    """The first element of each row in the batch, and the end of the last one."""

    def of_files(self, ends: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Yield the number of each file and the rows of the batch that are of it."""
        numbers = np.searchsorted(ends, self.rows, side="right")
        for number in np.unique(numbers).tolist():
            yield number, np.flatnonzero(numbers == number)

    def elements(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places of the elements of some rows of the batch."""
        starts, lengths = self.pointers[rows], np.diff(self.pointers)[rows]
        return Runs(starts, lengths).points


class _Plan(NamedTuple):
    """Where the elements of the rows of some batches come from, and where they go."""

    rows: Indices
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    positions: NDArray[np.int64]
    firsts: list[int]
    """The first row of each batch, and the number of all rows."""
    length: int
    """The length of the arrays, with the gaps between batches."""
    longest: int
    """The most elements of a batch."""

    @classmethod
    def of(
        cls, batches: Sequence[Indices], starts: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> _Plan:
        rows = np.concatenate(batches) if len(batches) > 1 else batches[0]
        firsts = [0, *np.cumsum([len(batch) for batch in batches]).tolist()]
        counts = lengths[rows]
        positions = np.cumsum(counts) - counts
        shift = longest = 0
        for begin, end in pairwise(firsts):
            if begin < end:
                shift += -(int(positions[begin]) + shift) % _ALIGNED
                positions[begin:end] += shift
                longest = max(longest, int(positions[end - 1] + counts[end - 1] - positions[begin]))
        length = int(positions[-1] + counts[-1]) if len(rows) else 0
        return cls(rows, starts[rows], counts, positions, firsts, length, longest)

    def runs(self, which: Any) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        return self.starts[which], self.lengths[which], self.positions[which]

    def parts(self, kind: np.dtype[Any]) -> Iterator[_Part]:
        """Yield the batches, with index pointers of a type."""
        for begin, end in pairwise(self.firsts):
            pointers = np.zeros(end - begin + 1, np.int64)
            np.cumsum(self.lengths[begin:end], out=pointers[1:])
            first = int(self.positions[begin]) if begin < end else 0
            last = first + int(pointers[-1])
            yield _Part(self.rows[begin:end], first, last, pointers.astype(kind, copy=False))


def _no_row(row: int, count: int) -> IndexError:
    return IndexError(f"row {row} is out of range: there are {count} rows")


def _check(matrix: Matrix, first: Matrix) -> None:
    """Raise an error unless a matrix is dense if the first one is."""
    where = f"{matrix.name} of {matrix.path}"
    if matrix.is_sparse != first.is_sparse:
        kinds = ["dense", "sparse"]
        raise IncompatibleError(
            f"{where} is {kinds[matrix.is_sparse]}, and {first.name} of {first.path} is "
            f"{kinds[first.is_sparse]}",
            path=matrix.path,
            remedy="write one of them again in the format of the other",
        )


def _common_width(matrices: Sequence[Matrix]) -> int:
    first = matrices[0]
    for matrix in matrices:
        if matrix.shape[1] != first.shape[1]:
            raise IncompatibleError(
                f"{matrix.name} of {matrix.path} has {matrix.shape[1]} columns, and that of "
                f"{first.path} has {first.shape[1]}",
                path=matrix.path,
            )
    return first.shape[1]


def _joined(parts: list[dict[str, Any]], paths: Sequence[str]) -> dict[str, Any]:
    """Return columns of several files, one after the other; categories are united."""
    if len(parts) == 1:
        return parts[0]
    return {name: _concatenated(name, [part[name] for part in parts], paths) for name in parts[0]}


def _concatenated(name: str, columns: Sequence[Any], paths: Sequence[str]) -> Any:
    """Return a column of several files.

    Raises:
        IncompatibleError: It has text in one file and numbers in another, or categories of several
            types. A file that has only missing values fits all.
    """
    pandas = import_module("pandas")
    kinds: dict[Any, str] = {}
    is_categorical = [isinstance(column.dtype, pandas.CategoricalDtype) for column in columns]
    for column, is_category, path in zip(columns, is_categorical, paths, strict=True):
        if not column.isna().all():
            values = column.cat.categories if is_category else column
            is_text = pandas.api.types.is_string_dtype(values)
            kinds.setdefault("text" if is_text else values.dtype, path)
    if len(kinds) > 1 and ("text" in kinds or all(is_categorical)):
        described = ", and ".join(f"{kind} in {path}" for kind, path in kinds.items())
        raise IncompatibleError(
            f"the values of the column {name} are {described}",
            remedy="write the column in the files again with one type",
        )
    if all(is_categorical) and len({column.cat.categories.dtype for column in columns}) == 1:
        united = pandas.api.types.union_categoricals(columns, ignore_order=True)
        return pandas.Series(united)
    return pandas.concat(columns, ignore_index=True)
