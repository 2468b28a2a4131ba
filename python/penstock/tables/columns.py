"""Tables by column: compound datasets, PyTables' tables, and the frames of pandas."""

from __future__ import annotations

import math
import pickle
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import ExitStack
from importlib import import_module
from itertools import chain, count
from pickletools import genops
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock import arrays, frameworks, staging, transfer
from penstock._options import OptionKeys
from penstock.device_array import DeviceArray
from penstock.dtypes import element_type
from penstock.errors import IncompatibleError, InvalidError
from penstock.hdf5.blocks import blocks
from penstock.hdf5.many import read_many, start_into
from penstock.hdf5.memory_types import with_formats
from penstock.hdf5.source import split
from penstock.placement import (
    HOST,
    HOST_DEVICE,
    Device,
    Library,
    Placement,
    allocate,
    parse_device,
    place_changed,
)
from penstock.tables import times

if TYPE_CHECKING:
    from typing_extensions import Unpack

_BLOCK = 64 << 20
"""The bytes of records that are read at a time."""


def read_columns(
    table: Any,
    columns: Iterable[str] | None = None,
    *,
    device: Device = None,
    like: Library | None = None,
    **options: Unpack[OptionKeys],
) -> dict[str, Any]:
    """Read a table as a dictionary of columns, in one pass over the file.

    Blocks of records are read and divided into columns where the columns go, while the next block
    is read. A read of each column by itself decodes all chunks once for each. Columns go to a GPU
    one by one if neither torch nor CuPy is there.

    Args:
        table: A compound dataset, such as a table of PyTables, or a group that ``HDFStore`` of
            pandas has written, in the format ``"table"`` or ``"fixed"``: of this package, of h5py,
            or ``"file.h5:name"``.
        columns: The names of the columns; all by default.
        device: Where columns go, as for :func:`penstock.read`.
        like: The library, as there.
        **options: See :class:`penstock.OptionKeys`.

    Returns:
        The columns by name. A field that is itself an array has further dimensions. The index of a
        frame of pandas is the column ``"index"``, or ``"level_0"`` beside a column of that name.
        Its times have their own type on the host, and are integers on a GPU. Truth values of pandas
        and PyTables are booleans in every memory.

    Raises:
        KeyError: There is no column of a name.
        InvalidError: This is not a table.
        IncompatibleError: A column has elements of variable length, such as strings that pandas
            stores by pickle, or, for a GPU, elements that are not numbers. Or no columns are named,
            and the frame has an index of several levels. Or its columns have several levels.

    >>> columns = ps.read_columns("events.h5:events", ["energy", "time"], device="cuda")
    """
    import h5py

    where = place_changed(device, like)
    with ExitStack() as opened:
        if isinstance(table, str):
            path, name = split(table)
            table = opened.enter_context(h5py.File(path, "r"))[name or "/"]
        if not isinstance(table, h5py.Group):
            return _fields(table, columns, where, options)
        if isinstance(table.get("table"), h5py.Dataset):
            return _appended(table["table"], columns, where, options)
        return _fixed(table, columns, where, options)


def _fields(
    dataset: Any, columns: Iterable[str] | None, where: Device, options: OptionKeys
) -> dict[str, Any]:
    """Read fields of a compound dataset. In tables of PyTables, bytes of bits are truth values."""
    read = _stored_fields(dataset, columns, where, options)
    if times.is_of_pytables(dataset):
        for name, kind in _members(dataset.id.get_type()):
            if name in read and isinstance(read[name], np.ndarray):
                read[name] = read[name].view(_with_truth(kind, read[name].dtype))
            elif name in read and _is_bits(kind):
                read[name] = _as_truth(read[name])
    return read


def _members(kind: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names of the members of a compound type, and the types of their elements."""
    import h5py

    for at in range(kind.get_nmembers()):
        one = kind.get_member_type(at)
        is_array = one.get_class() == h5py.h5t.ARRAY
        yield kind.get_member_name(at).decode(), one.get_super() if is_array else one


def _is_bits(kind: Any) -> bool:
    """Whether elements are bits of one byte."""
    import h5py

    return bool(kind.get_class() == h5py.h5t.BITFIELD and kind.get_size() == 1)


def _with_truth(kind: Any, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a type in which bits of one byte, also those of nested columns, are truth values."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.dtype((_with_truth(kind, base), shape))
    if dtype.names is None:
        return np.dtype("?") if _is_bits(kind) else dtype
    kinds = dict(_members(kind))
    return with_formats(dtype, [_with_truth(kinds[name], dtype[name]) for name in dtype.names])


def _as_truth(column: Any) -> Any:
    """Return a column of bytes as one of truth values, in its memory."""
    if isinstance(column, DeviceArray):
        return column.part(0, column.shape, element_type("?"))
    return column.view(import_module("torch").bool if frameworks.is_torch(column) else bool)


def _stored_fields(
    dataset: Any, columns: Iterable[str] | None, where: Device, options: OptionKeys
) -> dict[str, Any]:
    """Read fields of a compound dataset as h5py does."""
    stored = times.record_type(dataset)
    if stored is None:
        return _fields_with_times(dataset, columns, where)
    if stored.names is None or not dataset.shape:
        raise _no_records(dataset)
    names = _known(dataset, columns, stored.names)
    for name in names:
        if stored[name].hasobject:
            raise _unreadable(dataset, name, "elements of variable length")
    on_host = parse_device(where) == HOST
    made = {name: _new(dataset, name, where) for name in names}
    is_divided = on_host or any(not isinstance(array, DeviceArray) for array in made.values())
    if stored.hasobject or not is_divided:
        start_into([dataset] * len(names), names, list(made.values()), options).wait()
        return made
    rows = max(_BLOCK // max(stored.itemsize * math.prod(dataset.shape[1:]), 1), 1)
    if dataset.chunks:
        rows = -(-rows // dataset.chunks[0]) * dataset.chunks[0]
    keys: Any = {} if on_host else {"device": _ordinal(made, where), "like": "device"}
    for (part, *_), records in blocks(dataset, rows, prefetch=1, reuse=True, **keys, **options):
        for name in names:
            target = made[name][part.start : part.stop]
            target[...] = _column(records, stored, name, target)
        if not on_host:
            _finish(made)  # the next block goes into the same memory
    return made


def _fields_with_times(
    dataset: Any, columns: Iterable[str] | None, where: Device
) -> dict[str, Any]:
    """Read fields of a compound dataset that h5py has no type for."""
    fields = times.fields(dataset)
    if not fields or not dataset.shape:
        raise _no_records(dataset)
    names = _known(dataset, columns, list(fields))
    for name in names:
        if fields[name].dtype is None:
            raise _unreadable(dataset, name, "elements that NumPy has no type of a fixed size for")
    read = times.read(dataset, fields, names)
    return {name: _placed(read[name], None, where, dataset, name) for name in names}


def _no_records(dataset: Any) -> InvalidError:
    return InvalidError(
        f"{dataset.name} of {dataset.file.filename} has no records with fields",
        remedy="name a compound dataset or a frame of pandas, or use penstock.read",
    )


def _known(dataset: Any, columns: Iterable[str] | None, names: Sequence[str]) -> list[str]:
    if columns is None:
        return list(names)
    wanted = [columns] if isinstance(columns, str) else list(dict.fromkeys(columns))
    for name in wanted:
        if name not in names:
            where = f"{dataset.name} of {dataset.file.filename}"
            raise KeyError(f"{where} has no column {name!r}; it has {', '.join(names)}")
    return wanted


def _new(dataset: Any, name: str, where: Device) -> Any:
    """Return a new array for a column."""
    base, inner = dataset.dtype[name].subdtype or (dataset.dtype[name], ())
    shape = dataset.shape + inner
    if parse_device(where) == HOST and not isinstance(where, Placement):
        return np.empty(shape, base)
    if base.kind not in "biufc":
        raise _unreadable(dataset, name, f"elements of type {base}, which are not numbers")
    return allocate(shape, element_type(base.newbyteorder("=")), where)


def _unreadable(dataset: Any, name: str, what: str) -> IncompatibleError:
    return IncompatibleError(
        f"column {name} of {dataset.name} has {what}",
        path=dataset.file.filename,
        remedy='name other columns, or read it by dataset.fields("name")[:]',
    )


def _ordinal(made: dict[str, Any], where: Device) -> int:
    """Return the GPU of the columns."""
    ordinal = parse_device(where)
    if ordinal is None:
        first = next(iter(made.values()))
        ordinal = first.device.index if frameworks.is_torch(first) else first.device.id
    return int(ordinal)


def _column(records: Any, stored: np.dtype[Any], name: str, target: Any) -> Any:
    """Return a field of records, in the shape and the library of the column."""
    if isinstance(records, np.ndarray):
        found = records[name]
        if isinstance(target, np.ndarray):
            return found
        native = found.astype(found.dtype.newbyteorder("="), order="C")
        return import_module("torch").from_numpy(native)
    assert stored.fields is not None
    # The records have the byte order of the machine, and the layout of the file.
    at, count = stored.fields[name][1], math.prod(records.shape)
    given = records.part(0, (count, stored.itemsize), element_type("u1"))
    if frameworks.is_torch(target):
        torch = import_module("torch")
        one = torch.from_dlpack(given)[:, at : at + stored[name].itemsize]
        one = one.clone(memory_format=torch.contiguous_format)  # a single row may be unaligned
        return one.reshape(-1).view(target.dtype).reshape(target.shape)
    cupy = import_module("cupy")
    one = cupy.asarray(given)[:, at : at + stored[name].itemsize].copy()
    return one.reshape(-1).view(target.dtype).reshape(target.shape)


def _finish(made: dict[str, Any]) -> None:
    """Wait for the work that is queued on the current stream."""
    first = next(iter(made.values()))
    if frameworks.is_torch(first):
        import_module("torch").cuda.current_stream(first.device).synchronize()
    else:
        import_module("cupy").cuda.get_current_stream().synchronize()


# -- frames of pandas ------------------------------------------------------------------------------


def _appended(
    dataset: Any, columns: Iterable[str] | None, where: Device, options: OptionKeys
) -> dict[str, Any]:
    """Read a frame of the format ``"table"``: blocks of columns of one type are fields."""
    places: dict[str, tuple[str, int | None]] = {}
    fields = dataset.dtype.names or ()
    for field in fields:
        names = _names(dataset, f"{field}_kind")
        if names is not None and field.startswith("values_block_"):
            places |= {name: (field, at) for at, name in enumerate(names)}
        elif field != "index":
            places[field] = field, None
    if "index" in fields:
        places = {_index_name(places): ("index", None), **places}
    wanted = _known(dataset, columns, list(places))
    fields = list(dict.fromkeys(places[name][0] for name in wanted))
    read = _fields(dataset, fields, _where_divided(where), options)
    made = {}
    for name in wanted:
        field, at = places[name]
        column = read[field] if at is None else read[field][:, at]
        if at is not None and read[field].shape[1] > 1:
            column = _contiguous(column)
        kind = "index_kind" if field == "index" else f"{field}_dtype"
        made[name] = _placed(column, dataset.attrs.get(kind), where, dataset, name)
    return made


def _fixed(
    group: Any, columns: Iterable[str] | None, where: Device, options: OptionKeys
) -> dict[str, Any]:
    """Read a frame of the format ``"fixed"``: columns of one type are a dataset."""
    import h5py

    places: dict[str, tuple[str, int | None]] = {}
    index = "axis1" if _has_index(group, "axis1") else "index"
    if index == "axis1":
        for number in range(int(group.attrs.get("nblocks", 0))):
            items = group.get(f"block{number}_items")
            if items is None:
                raise IncompatibleError(
                    f"the columns of {group.name} of {group.file.filename} have several levels",
                    path=group.file.filename,
                    remedy="read it by pandas.read_hdf, or write it with columns of one level",
                )
            if items.dtype.hasobject:
                raise _unreadable(group, str(number), "names that pandas has stored by pickle")
            names = items[:]
            for at, name in enumerate(names.tolist()):
                text = name.decode() if isinstance(name, bytes) else str(name)
                places[text] = f"block{number}_values", at
    elif _has_index(group, index) and isinstance(group.get("values"), h5py.Dataset):
        places = {"values": ("values", None)}
    else:
        raise InvalidError(
            f"{group.name} of {group.file.filename} is not a pandas data frame",
            remedy="name a compound dataset, or a group that pandas.HDFStore has written",
        )
    if isinstance(group.get(index), h5py.Dataset):
        places = {_index_name(places): (index, None), **places}
    elif columns is None:
        raise IncompatibleError(
            f"{group.name} of {group.file.filename} has an index of several levels",
            path=group.file.filename,
            remedy=f'name columns ({", ".join(places)}), or write it with format="table"',
        )
    wanted = _known(group, columns, list(places))
    for name in wanted:
        if group[places[name][0]].dtype.hasobject:
            raise _unreadable(group, name, "elements that pandas has stored by pickle")
    paths = list(dict.fromkeys(places[name][0] for name in wanted))
    filled = [path for path in paths if not _is_empty(group[path])]
    read = read_many([group[path] for path in filled], device=_where_divided(where), **options)
    found = dict(zip(filled, read, strict=True))
    made = {}
    for name in wanted:
        path, one = places[name]
        dataset = group[path]
        kind = dataset.attrs.get("value_type", dataset.attrs.get("kind"))
        if dataset.id.get_type().get_class() == h5py.h5t.BITFIELD:
            kind = "bool"
        if path not in found:
            column = np.empty(0, _stored_type(_text(kind), dataset.dtype))
        else:
            column = found[path] if one is None else _contiguous(found[path][:, one])
        made[name] = _placed(column, kind, where, group, name)
    return made


def _has_index(group: Any, name: str) -> bool:
    """Whether a frame or series has an index of this name, of one level or of several."""
    return name in group or f"{name}_nlevels" in group.attrs


def _index_name(columns: Container[str]) -> str:
    """Return the name of the index beside columns: that which ``reset_index`` of pandas gives."""
    names = chain(["index"], map("level_{}".format, count()))
    return next(name for name in names if name not in columns)


def _is_empty(dataset: Any) -> bool:
    """Whether an array of pandas has no elements: it stores one, and the shape as an attribute."""
    return "shape" in dataset.attrs or 0 in dataset.shape


def _stored_type(kind: str, stored: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of elements that pandas would have stored, by the name of their own."""
    if kind.startswith(("datetime64", "timedelta64")):
        return np.dtype("i8")
    try:
        found = np.dtype(kind)
    except (TypeError, ValueError):
        return stored
    return np.dtype("u1") if found.kind == "b" else found


def _where_divided(where: Device) -> Device:
    """Return where blocks of columns are divided: on the host, if no library does it on the GPU."""
    if parse_device(where) == HOST:
        return where
    is_plain = isinstance(allocate((1,), element_type("u1"), where), DeviceArray)
    return HOST_DEVICE if is_plain else where


def _placed(column: Any, kind: Any, where: Device, table: Any, name: str) -> Any:
    """Return a column that was read, in its type and where it goes."""
    if _text(kind) == "bool" and column.dtype.itemsize == 1:
        column = _as_truth(column)
    if not isinstance(column, np.ndarray):
        return column
    if parse_device(where) == HOST and not isinstance(where, Placement):
        return _typed(column, kind)
    return _moved(column, where, table, name)


def _moved(column: Any, where: Device, table: Any, name: str) -> Any:
    """Copy a column of NumPy to a new array where columns go."""
    if column.dtype.kind not in "biufc":
        raise _unreadable(table, name, f"elements of type {column.dtype}, which are not numbers")
    made = allocate(column.shape, element_type(column.dtype.newbyteorder("=")), where)
    view, copy_back = arrays.destination(made)
    if column.size:
        staging.from_host(view, column)
    transfer.complete(view, copy_back)
    return made


def _contiguous(column: Any) -> Any:
    if isinstance(column, np.ndarray):
        return np.ascontiguousarray(column)
    return column.contiguous() if frameworks.is_torch(column) else column.copy()


def _typed(column: Any, kind: Any) -> Any:
    """Return a column of NumPy in the type of pandas, of which the file has the name."""
    text = _text(kind)
    if isinstance(column, np.ndarray) and text.startswith(("datetime64", "timedelta64")):
        return column.view(text if "[" in text else f"{text}[ns]")
    return column


def _text(kind: Any) -> str:
    return kind.decode() if isinstance(kind, bytes) else str(kind)


def _names(dataset: Any, attribute: str) -> list[str] | None:
    """Return a list of names that PyTables has pickled; ``None`` if it is something else."""
    given = dataset.attrs.get(attribute)
    try:
        pickled = bytes(given)
        if not all(
            _is_harmless(code.name, value, len(pickled)) for code, value, _ in genops(pickled)
        ):
            return None
        found = pickle.loads(pickled)
    except Exception:  # whatever damaged bytes raise
        return None
    if isinstance(found, list) and all(isinstance(name, (str, int)) for name in found):
        return [str(name) for name in found]
    return None


_LISTS = {"EMPTY_LIST", "MARK", "LIST", "APPEND", "APPENDS", "PROTO", "FRAME", "STOP"}
_TEXT = {
    *("UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
    *("STRING", "SHORT_BINSTRING", "BINSTRING"),  # of Python 2
}
_NUMBERS = {"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1"}
_MEMORY = {"PUT", "BINPUT", "LONG_BINPUT", "GET", "BINGET", "LONG_BINGET", "MEMOIZE"}


def _is_harmless(code: str, value: Any, length: int) -> bool:
    """Whether an instruction of a pickle of some bytes can only be that of a list of names.

    The memory of a pickle is as long as its largest number in it.
    """
    if code in _MEMORY:
        return value is None or 0 <= int(value) < length
    return code in _LISTS | _TEXT | _NUMBERS
