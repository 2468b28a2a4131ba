"""Comparison of what Penstock and h5py read from a dataset."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import penstock as ps
from penstock.cli import devices
from penstock.hdf5 import varying, virtual
from penstock.hdf5.blocks import slabs
from penstock.hdf5.library import creation_properties, creation_property
from penstock.hdf5.selection import field_dtype, split

if TYPE_CHECKING:
    import h5py

SLAB = 64 << 20
"""The most bytes compared at a time. A part of a larger dataset has at least one chunk."""

_SPARSE = 4
"""A part with fewer stored chunks than all of its own, divided by this, is compared by chunks."""

_QUICK = 0.02
"""Seconds below which a single timing of a read is mostly noise."""

REFUSALS = (OSError, TypeError, ValueError, RuntimeError, KeyError, MemoryError)
"""What h5py raises for a dataset that it cannot read, as for lack of a filter or a type."""


@dataclass
class Outcome:
    """The result of reading one dataset by both libraries."""

    dataset: str
    layout: str
    filters: list[str]
    dtype: str
    shape: list[int] | None
    bytes: int
    verdict: str
    """same, different, both refuse, or only Penstock reads it."""
    detail: str = ""
    route: str = ""
    decoder: str = ""
    note: str = ""
    seconds: float = 0.0
    h5py_seconds: float = 0.0

    @property
    def ratio(self) -> float | None:
        """h5py's time divided by Penstock's."""
        return self.h5py_seconds / self.seconds if self.seconds and self.h5py_seconds else None


def datasets(file: h5py.File) -> Iterator[tuple[str, h5py.Dataset]]:
    """Yield each dataset of a file once, through links of every kind, cycles of links included."""
    import h5py

    seen = set()
    # A linked file that is closed and opened again would get another file number.
    kept_open: dict[Any, Any] = {}
    groups = [("", file)]
    while groups:
        path, group = groups.pop()
        for name in group:
            try:
                item = group[name]
            except (KeyError, OSError, RuntimeError):
                continue  # a dangling or cyclic link, or one to a missing file
            if not isinstance(item, (h5py.Group, h5py.Dataset)):
                continue
            about = h5py.h5o.get_info(item.id)
            if (about.fileno, about.addr) in seen:
                continue
            seen.add((about.fileno, about.addr))
            kept_open.setdefault(about.fileno, item)
            if isinstance(item, h5py.Dataset):
                yield f"{path}/{name}", item
            else:
                groups.append((f"{path}/{name}", item))


def layout(dataset: h5py.Dataset) -> str:
    """Return the layout: compact, contiguous, chunked, virtual or external."""
    import h5py

    with creation_properties(dataset):
        properties = dataset.id.get_create_plist()
    if properties.get_external_count():
        return "external"
    names = {
        h5py.h5d.COMPACT: "compact",
        h5py.h5d.CONTIGUOUS: "contiguous",
        h5py.h5d.CHUNKED: "chunked",
    }
    return names.get(properties.get_layout(), "virtual")


def filters(dataset: h5py.Dataset) -> list[str]:
    """Return the names of the filters, in the order in which a write applies them."""
    with creation_properties(dataset):
        properties = dataset.id.get_create_plist()
    found = [properties.get_filter(i) for i in range(properties.get_nfilters())]
    return [name.decode(errors="replace") or str(number) for number, _, _, name in found]


def compare(name: str, dataset: h5py.Dataset, device: str) -> Outcome:
    """Read a dataset by both libraries, in parts if it is large, and compare bit for bit.

    Of the parts that are not stored, which have the fill value, two are compared.
    """
    outcome = Outcome(name, layout(dataset), filters(dataset), "", None, 0, "same")
    try:
        outcome.dtype = str(dataset.dtype)
        outcome.shape = None if dataset.shape is None else list(dataset.shape)
        outcome.bytes = dataset.nbytes
        parts = list(_parts(dataset))
    except REFUSALS:
        parts = [()]  # NumPy lacks the type, so reading fails in the same way
    try:
        virtual.refuse_misread(dataset, ())
    except ps.Error as error:  # h5py would return other elements, or crash
        outcome.verdict, outcome.detail = "different", f"h5py is not asked: {error}"
    for part in parts:
        if outcome.verdict == "same":
            _compare_part(outcome, dataset, part, device)
        if outcome.verdict == "same":
            _compare_fields(outcome, dataset, part, device)
    return outcome


def _compare_part(outcome: Outcome, dataset: h5py.Dataset, part: Any, device: str) -> None:
    ours = _attempt(lambda: _read(dataset, part, device))
    theirs = _attempt(lambda: dataset[part])
    if theirs.refusal is None and dataset.dtype.hasobject:
        varying.correct(theirs.found, dataset.dtype)  # where h5py itself is wrong
    outcome.seconds += ours.seconds
    outcome.h5py_seconds += theirs.seconds
    if (report := ours.report) is not None:
        outcome.route, outcome.decoder, outcome.note = report.route, report.decoder, report.note
    if ours.refusal is not None and theirs.refusal is not None:
        outcome.verdict, outcome.detail = "both refuse", f"h5py: {theirs.refusal}"
        if str(ours.refusal) != str(theirs.refusal):
            # It names the damaged chunk.
            outcome.detail = f"{ours.refusal}; {outcome.detail}"
    elif ours.refusal is not None:
        outcome.verdict, outcome.detail = "different", f"only h5py reads it: {ours.refusal}"
    elif theirs.refusal is not None:
        outcome.verdict, outcome.detail = "only Penstock reads it", str(theirs.refusal)
    else:
        outcome.detail = _difference(ours.found, theirs.found)
        outcome.verdict = "different" if outcome.detail else "same"


def _compare_fields(outcome: Outcome, dataset: h5py.Dataset, part: Any, device: str) -> None:
    """Compare each field of records alone: it is read from its own offset in the stored record.

    Fields whose elements only h5py reads are left out.
    """
    if not dataset.shape:
        return
    for name in dataset.dtype.names or ():
        found = "" if dataset.dtype[name].hasobject else _field(dataset, (*part, name), device)
        if found:
            outcome.verdict, outcome.detail = "different", f"field {name}: {found}"
            return


def _field(dataset: h5py.Dataset, part: Any, device: str) -> str:
    """Describe how a field that Penstock reads differs from what h5py reads; "" if it does not."""
    theirs = _attempt(lambda: dataset[part])
    if theirs.refusal is not None:
        return ""
    ours = _attempt(lambda: _read(dataset, part, device))
    if ours.refusal is not None:
        return f"only h5py reads it: {ours.refusal}"
    return _difference(ours.found, theirs.found)


def _difference(ours: Any, theirs: Any) -> str:
    """Describe how what Penstock has read, perhaps to a GPU, differs from what h5py has read."""
    if isinstance(ours, ps.DeviceArray):
        return difference(devices.to_host(ours), devices.native(np.asarray(theirs)))
    return difference(ours, theirs)


def _parts(dataset: h5py.Dataset) -> Iterator[Any]:
    if not dataset.shape or dataset.nbytes <= SLAB:
        yield ()
        return
    chunk = creation_property(dataset, "chunks") or (1,) * dataset.ndim
    part = _part_shape(dataset.shape, chunk, dataset.dtype.itemsize)
    stored = _stored_chunks(dataset)
    if stored is None:
        yield from slabs(dataset.shape, part)
        return
    by_slab: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for first in stored:
        by_slab.setdefault(_number(first, part), []).append(first)
    most = math.prod(-(-n // side) for n, side in zip(part, chunk, strict=True))
    for at, chunks in sorted(by_slab.items()):
        if len(chunks) * _SPARSE >= most:
            yield _box(dataset.shape, at, part)
        else:
            for first in sorted(chunks):
                yield _box(dataset.shape, _number(first, chunk), chunk)
    side = chunk if stored else part
    known = {_number(first, side) for first in stored}
    counts = [-(-n // c) for n, c in zip(dataset.shape, side, strict=True)]
    total = math.prod(counts)
    for numbers in (range(total), range(total - 1, -1, -1)):
        empty = (at for at in (_unravel(n, counts) for n in numbers) if at not in known)
        if (found := next(empty, None)) is not None:
            yield _box(dataset.shape, found, side)


def _number(first: Sequence[int], side: Sequence[int]) -> tuple[int, ...]:
    """Return the number along each dimension of the part that has this index."""
    return tuple(n // length for n, length in zip(first, side, strict=True))


def _box(shape: tuple[int, ...], at: Sequence[int], side: Sequence[int]) -> tuple[slice, ...]:
    """Return the part of this number along each dimension."""
    return tuple(
        slice(n * length, min((n + 1) * length, end))
        for n, length, end in zip(at, side, shape, strict=True)
    )


def _unravel(number: int, counts: Sequence[int]) -> tuple[int, ...]:
    """Return the index of an element, in C order; NumPy has no numbers beyond 64 bits."""
    index = []
    for count in reversed(counts):
        number, at = divmod(number, count)
        index.append(at)
    return tuple(reversed(index))


def _stored_chunks(dataset: h5py.Dataset) -> list[tuple[int, ...]] | None:
    """Return the first index of each stored chunk; ``None`` for all, or where it is not known.

    A contiguous dataset may have no storage at all.
    """
    import h5py

    with creation_properties(dataset) as known:
        storage = known.id.get_create_plist().get_layout()
    if storage == h5py.h5d.CONTIGUOUS and not creation_property(dataset, "external"):
        return [] if dataset.id.get_offset() is None else None
    if storage != h5py.h5d.CHUNKED:
        return None
    found: list[tuple[int, ...]] = []
    try:
        dataset.id.chunk_iter(lambda chunk: found.append(chunk.chunk_offset))
    except REFUSALS:
        return None
    return found


def _part_shape(shape: tuple[int, ...], chunk: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the lengths of a part of whole chunks, which is longest along the last dimensions."""
    lengths = [min(side, length) for side, length in zip(chunk, shape, strict=True)]
    for at in reversed(range(len(shape))):
        row = math.prod(lengths[:at] + lengths[at + 1 :]) * itemsize * chunk[at]
        lengths[at] = min(max(SLAB // max(row, 1), 1) * chunk[at], shape[at])
        if lengths[at] < shape[at]:
            break
    return tuple(lengths)


def _read(dataset: h5py.Dataset, part: Any, device: str) -> Any:
    indices, names = split(part)
    stored = field_dtype(dataset.dtype, names) if names else dataset.dtype
    if device == "cpu" or not dataset.shape or stored.hasobject:
        return ps.read(dataset, part)
    base, inner = stored.subdtype or (stored, ())
    shape = tuple(index.stop - index.start for index in indices) or dataset.shape
    # A DeviceArray can hold elements of any type, unlike arrays of torch and CuPy.
    ordinal = int(device.partition(":")[2] or 0)
    out = ps.DeviceArray(shape + inner, base.newbyteorder("="), ordinal)
    return ps.read(dataset, part, out=out)


@dataclass
class _Attempt:
    """A read, repeated if it is quick. Only the first one surely decodes what the file has."""

    found: Any
    refusal: Exception | None
    report: ps.Report | None
    """Penstock's last report after the first read."""
    seconds: float
    """The time of the fastest read."""


def _attempt(read: Callable[[], Any]) -> _Attempt:
    """Read once, or up to three times if a read is quick."""
    first, report, best = None, None, math.inf
    for number in range(3):
        start = time.perf_counter()
        try:
            found = read()
        except (*REFUSALS, ps.Error) as error:
            return _Attempt(None, error, None, min(best, time.perf_counter() - start))
        best = min(best, time.perf_counter() - start)
        if number == 0:
            first, report = found, ps.last_report()
        if best > _QUICK:
            break
    return _Attempt(first, None, report, best)


def difference(ours: Any, theirs: Any) -> str:
    """Describe how two results differ, in a few words; "" if every bit is equal."""
    import h5py

    if isinstance(theirs, h5py.Empty):
        same = isinstance(ours, h5py.Empty) and ours.dtype == theirs.dtype
        return "" if same else "h5py finds no data"
    a, b = np.asarray(ours), np.asarray(theirs)
    if a.dtype != b.dtype:
        return f"type {a.dtype} instead of {b.dtype}"
    if a.shape != b.shape:
        return f"shape {a.shape} instead of {b.shape}"
    count = int(np.count_nonzero(_differing(a, b)))
    return f"{count:,} of {a.size:,} elements differ" if count else ""


def _differing(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which elements differ in a bit: NaN may equal itself, and 0.0 differs from -0.0."""
    if a.dtype.names is not None:  # field by field, because gaps between fields do not count
        different = np.zeros(a.shape, bool)
        for name in a.dtype.names:
            inner = tuple(range(a.ndim, a[name].ndim))
            different |= _differing(a[name], b[name]).any(axis=inner)
        return different
    if a.dtype.hasobject:
        pairs = zip(a.reshape(-1), b.reshape(-1), strict=True)
        unequal = [not _same_object(x, y) for x, y in pairs]
        return np.array(unequal, bool).reshape(a.shape)
    if a.dtype.itemsize == 0:
        return np.zeros(a.shape, bool)
    width = (a.dtype.itemsize,)
    x = np.ascontiguousarray(a).reshape(-1).view(np.uint8).reshape(a.shape + width)
    y = np.ascontiguousarray(b).reshape(-1).view(np.uint8).reshape(a.shape + width)
    return np.asarray((x != y).any(axis=-1))


def _same_object(x: Any, y: Any) -> bool:
    import h5py

    if type(x) is not type(y):
        return False
    if isinstance(x, (np.ndarray, np.generic)):
        return not difference(x, y)
    if isinstance(x, (h5py.Reference, h5py.RegionReference)):
        return bool(x) == bool(y)  # h5py cannot compare the targets of references
    return bool(x == y)
