"""The annotations of cells and genes, which pandas holds on the host."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from operator import attrgetter
from typing import Any

from penstock.errors import InvalidError


def names_of(file: Any, path: str, axis: str, count: int) -> Any:
    """Return the names of cells or genes, a ``pandas.Index``.

    Args:
        file: The ``h5py.File``.
        path: Its path.
        axis: The dataframe: ``"obs"``, ``"var"`` or ``"raw/var"``.
        count: The number of names, as the matrix has it.

    Raises:
        KeyError: There is no such dataframe.
        InvalidError: There are fewer or more names.
    """
    pandas = import_module("pandas")
    frame = _frame(file, axis)
    if frame is None:
        names = _old(file, path, axis).index
    else:
        names = pandas.Index(import_module("anndata.io").read_elem(frame[frame.attrs["_index"]]))
    _check_length(len(names), count, f"{axis} of {path}", path)
    # As anndata does. Names of text and of numbers would not be found among each other.
    return names if pandas.api.types.is_string_dtype(names) else names.astype(str)


def columns(file: Any, path: str, axis: str, names: Iterable[str], count: int) -> dict[str, Any]:
    """Return columns, each as a ``pandas.Series``; only these are read.

    Raises:
        KeyError: There is no dataframe, or no column of a name.
        InvalidError: A column has another length than the matrix.
    """
    pandas = import_module("pandas")
    names = list(names)
    frame = _frame(file, axis)
    whole = None if frame is not None else _old(file, path, axis)
    known = list(frame.attrs["column-order"]) if whole is None else list(whole.columns)
    for name in names:
        if name not in known:
            raise KeyError(f"{axis} of {path} has no column {name!r}; it has {', '.join(known)}")
    read = import_module("anndata.io").read_elem
    found = {
        name: pandas.Series(read(frame[name])) if whole is None else whole[name] for name in names
    }
    for name, column in found.items():
        _check_length(len(column), count, f"column {name} of {axis} of {path}", path)
    return found


def _check_length(length: int, count: int, what: str, path: str) -> None:
    """Raise an error if names or a column do not fit the matrix: they would be those of others."""
    if length != count:
        raise InvalidError(
            f"{what} has the length {length}, and the matrix has {count}",
            path=path,
            remedy="write the file again: this one is damaged",
        )


def _frame(file: Any, axis: str) -> Any:
    """Return the group of a dataframe whose columns can be read alone; ``None`` for old files."""
    found = file.get(axis)
    version = None if found is None else found.attrs.get("encoding-version")
    kind = None if found is None else found.attrs.get("encoding-type")
    return found if (kind, version) == ("dataframe", "0.2.0") else None


def _old(file: Any, path: str, axis: str) -> Any:
    """Return a dataframe of an old file, which anndata reads."""
    if axis not in file and axis.replace("/", ".") not in file:
        raise KeyError(f"{path} has no {axis!r}; it has {', '.join(file)}")
    whole = import_module("anndata.io").read_h5ad(path, backed="r")
    return attrgetter(axis.replace("/", "."))(whole)
