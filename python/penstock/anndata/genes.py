"""The genes of several files, aligned by name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from penstock.errors import IncompatibleError, InvalidError

Join: TypeAlias = Literal["outer", "inner"]


class Genes(NamedTuple):
    """The columns of the result, and where those of each file go."""

    names: Any
    """The names of the columns, a ``pandas.Index``."""
    places: list[NDArray[np.int32] | None]
    """By file, the column of the result for each of the file, -1 for none. ``None`` if the columns
    are the same."""

    @property
    def is_same(self) -> bool:
        """Whether all files have the same columns in the same order."""
        return all(places is None for places in self.places)

    @property
    def drops(self) -> bool:
        """Whether a file has columns that the result lacks."""
        return any(places is not None and (places < 0).any() for places in self.places)


def aligned(names: Sequence[Any], join: Join, paths: Sequence[str]) -> Genes:
    """Align columns as ``anndata.concat`` does.

    Raises:
        InvalidError: A file names a gene twice, or ``join`` has an invalid value.
        IncompatibleError: The files have no gene in common, for an inner join.
    """
    if join not in ("outer", "inner"):
        raise InvalidError(f"join={join!r}", remedy='give "outer" or "inner"')
    first = names[0]
    if all(first.equals(other) for other in names[1:]):
        return Genes(first, [None] * len(names))
    for index, path in zip(names, paths, strict=True):
        if not index.is_unique:
            twice = index[index.duplicated()][0]
            raise InvalidError(
                f"{path} has the gene {twice!r} twice, so that genes cannot be aligned by name",
                path=path,
                remedy="call var_names_make_unique() and write the file again",
            )
    combine = first.__class__.union if join == "outer" else first.__class__.intersection
    joined = reduce(combine, names)
    if not len(joined):
        raise IncompatibleError("the files have no gene in common", remedy='give join="outer"')
    places = [
        None if index.equals(joined) else joined.get_indexer(index).astype(np.int32)
        for index in names
    ]
    return Genes(joined, places)
