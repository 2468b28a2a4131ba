"""The annotations of cells and genes, which pandas holds on the host."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any


def names_of(file: Any, path: str, axis: str) -> Any:
    """Return the names of the cells (``"obs"``) or genes (``"var"``), a ``pandas.Index``."""
    pandas = import_module("pandas")
    frame = _frame(file, axis)
    if frame is None:
        return _old(path, axis).index
    index = import_module("anndata.io").read_elem(frame[frame.attrs["_index"]])
    return pandas.Index(index)


def columns(file: Any, path: str, axis: str, names: Iterable[str]) -> dict[str, Any]:
    """Return columns, each as a ``pandas.Series``; only these are read.

    Raises:
        KeyError: There is no column of a name.
    """
    pandas = import_module("pandas")
    names = list(names)
    frame = _frame(file, axis)
    whole = None if frame is not None else _old(path, axis)
    known = list(frame.attrs["column-order"]) if whole is None else list(whole.columns)
    for name in names:
        if name not in known:
            raise KeyError(f"{axis} of {path} has no column {name!r}; it has {', '.join(known)}")
    if whole is not None:
        return {name: whole[name] for name in names}
    read = import_module("anndata.io").read_elem
    return {name: pandas.Series(read(frame[name])) for name in names}


def _frame(file: Any, axis: str) -> Any:
    """Return the group of a dataframe whose columns can be read alone; ``None`` for old files."""
    found = file.get(axis)
    version = None if found is None else found.attrs.get("encoding-version")
    kind = None if found is None else found.attrs.get("encoding-type")
    return found if (kind, version) == ("dataframe", "0.2.0") else None


def _old(path: str, axis: str) -> Any:
    return getattr(import_module("anndata.io").read_h5ad(path, backed="r"), axis)
