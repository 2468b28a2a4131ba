"""Comparison of what Penstock and h5py read from a dataset."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import penstock as ps
from penstock.cli import devices
from penstock.hdf5 import memory_types
from penstock.hdf5.blocks import Index, slabs
from penstock.hdf5.library import creation_properties, creation_property
from penstock.hdf5.selection import field_dtype, refuse_misread, split

if TYPE_CHECKING:
    import h5py

SLAB = 64 << 20
"""The most bytes compared at a time. A part of a larger dataset has at least one chunk."""

_SPARSE = 4
"""A part of which less than all, divided by this, is stored is compared by what is stored."""

_BLOCKS = 10_000
"""More blocks of a mapping are compared as one, with what is between them."""

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

    Of a large dataset, two parts are compared of what neither it nor a mapped source stores,
    which has the fill value.
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
        refuse_misread(dataset, ())
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
        memory_types.correct_lists(theirs.found, dataset.dtype)  # where h5py itself is wrong
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
    chunk, itemsize = creation_property(dataset, "chunks"), dataset.dtype.itemsize
    part = _part_shape(dataset.shape, chunk or (1,) * dataset.ndim, itemsize)
    stored = _stored(dataset)
    if stored is None or sum(map(_volume, stored)) * _SPARSE >= dataset.size:
        yield from slabs(dataset.shape, part)
        return
    by_slab: dict[tuple[int, ...], list[Index]] = {}
    for box in stored:
        for piece in [box] if chunk else _pieces(box, itemsize):
            at = tuple(side.start // n for side, n in zip(piece, part, strict=True))
            by_slab.setdefault(at, []).append(piece)
    for _, boxes in sorted(by_slab.items()):
        hull = tuple(
            slice(min(side.start for side in sides), max(side.stop for side in sides))
            for sides in zip(*boxes, strict=True)
        )
        if _volume(hull) <= min(sum(map(_volume, boxes)) * _SPARSE, math.prod(part)):
            yield hull
        else:
            yield from boxes
    yield from _fill(dataset.shape, stored, chunk if chunk and stored else part)


def _fill(shape: tuple[int, ...], stored: list[Index], most: tuple[int, ...]) -> Iterator[Index]:
    """Yield the first and the last part outside of some boxes, if there are any.

    The edges of the boxes cut the whole into cells, each of which is in a box or outside of all.
    """
    sides = zip(*stored, strict=True) if stored else [()] * len(shape)
    edges = [
        sorted({0, n, *(end for one in along for end in (one.start, one.stop))})
        for n, along in zip(shape, sides, strict=True)
    ]
    numbers = [{edge: number for number, edge in enumerate(along)} for along in edges]
    known = {
        cell
        for box in stored
        for cell in product(
            *(range(at[one.start], at[one.stop]) for at, one in zip(numbers, box, strict=True))
        )
    }
    counts = [len(along) - 1 for along in edges]
    total = math.prod(counts)
    for order, is_last in ((range(total), False), (range(total - 1, -1, -1), True)):
        outside = (cell for cell in (_unravel(n, counts) for n in order) if cell not in known)
        for cell in islice(outside, 1):
            ends = [(along[n], along[n + 1]) for along, n in zip(edges, cell, strict=True)]
            yield tuple(
                slice(max(start, stop - n), stop) if is_last else slice(start, min(start + n, stop))
                for (start, stop), n in zip(ends, most, strict=True)
            )


def _whole(shape: Sequence[int]) -> Index:
    return tuple(slice(0, n) for n in shape)


def _volume(box: Index) -> int:
    return math.prod(_lengths(box))


def _lengths(box: Index) -> tuple[int, ...]:
    return tuple(side.stop - side.start for side in box)


def _pieces(box: Index, itemsize: int) -> Iterator[Index]:
    lengths = _lengths(box)
    for piece in slabs(lengths, _part_shape(lengths, (1,) * len(box), itemsize)):
        yield _moved(piece, [side.start for side in box])


def _moved(box: Index, by: Sequence[int]) -> Index:
    return tuple(slice(one.start + n, one.stop + n) for one, n in zip(box, by, strict=True))


def _unravel(number: int, counts: Sequence[int]) -> tuple[int, ...]:
    """Return the index of an element, in C order; NumPy has no numbers beyond 64 bits."""
    index = []
    for count in reversed(counts):
        number, at = divmod(number, count)
        index.append(at)
    return tuple(reversed(index))


def _stored(dataset: h5py.Dataset) -> list[Index] | None:
    """Return boxes that hold what is stored: chunks, or parts that are mapped to sources.

    All other elements have the fill value.

    Returns:
        ``None`` for all, or where it is not known. A contiguous dataset may have no storage at all.
    """
    import h5py

    with creation_properties(dataset) as known:
        storage = known.id.get_create_plist().get_layout()
    if storage == h5py.h5d.CONTIGUOUS and not creation_property(dataset, "external"):
        return [] if dataset.id.get_offset() is None else None
    try:
        if storage == h5py.h5d.CHUNKED:
            firsts: list[tuple[int, ...]] = []
            dataset.id.chunk_iter(lambda chunk: firsts.append(chunk.chunk_offset))
            chunk = _whole(creation_property(dataset, "chunks"))
            return _inside((_moved(chunk, first) for first in firsts), _whole(dataset.shape))
        if storage == h5py.h5d.VIRTUAL:
            with creation_properties(dataset) as known:
                mappings = known.virtual_sources()
            return [box for mapping in mappings for box in _mapped(dataset, mapping)]
    except REFUSALS:
        pass
    return None


def _mapped(dataset: h5py.Dataset, mapping: Any) -> list[Index]:
    """Return boxes that hold the elements of a mapping that are stored."""
    boxes = _selected(mapping.vspace, dataset.shape)
    if len(boxes) != 1 or _volume(boxes[0]) * dataset.dtype.itemsize <= SLAB:
        return boxes
    with _source(dataset, mapping) as source:
        stored = None if source is None else _stored(source)
        if source is None or stored is None:
            return boxes
        taken = _selected(mapping.src_space, source.shape)
    (box,) = boxes
    if [_lengths(one) for one in taken] != [_lengths(box)]:
        return boxes
    moves = [to.start - of.start for to, of in zip(box, taken[0], strict=True)]
    return _inside((_moved(one, moves) for one in stored), box)


def _inside(boxes: Iterable[Index], whole: Index) -> list[Index]:
    """Return what of boxes is inside another one."""
    found = (
        tuple(
            slice(max(a.start, b.start), min(a.stop, b.stop))
            for a, b in zip(box, whole, strict=True)
        )
        for box in boxes
    )
    return [box for box in found if all(side.start < side.stop for side in box)]


@contextmanager
def _source(dataset: h5py.Dataset, mapping: Any) -> Iterator[h5py.Dataset | None]:
    """Yield the source of a mapping; ``None`` if HDF5 may look for it in several places."""
    import h5py

    path = Path(dataset.file.filename).absolute().parent / mapping.file_name
    if "%" in mapping.file_name + mapping.dset_name or "HDF5_VDS_PREFIX" in os.environ:
        yield None
    elif mapping.file_name == "." or path.exists():
        with nullcontext(dataset.file) if mapping.file_name == "." else h5py.File(path) as file:
            found = file[mapping.dset_name]
            yield found if isinstance(found, h5py.Dataset) else None
    else:
        yield None


def _selected(space: Any, shape: tuple[int, ...]) -> list[Index]:
    """Return boxes that hold the elements of a selection of a mapping, which may be unlimited."""
    import h5py

    whole = _whole(shape)
    if space.get_select_type() == h5py.h5s.SEL_ALL:
        return [whole]
    boxes: Iterable[Index]
    if space.is_regular_hyperslab():
        starts, blocks = [], []
        for start, stride, count, block, n in zip(
            *space.get_regular_hyperslab(), shape, strict=True
        ):
            end = min(start + (count - 1) * stride + block, n)
            if block * _SPARSE >= stride:
                stride = block = max(end - start, 1)
            starts.append(range(start, end, stride))
            blocks.append(block)
        if math.prod(map(len, starts)) > _BLOCKS:
            blocks = [at[-1] - at[0] + n for at, n in zip(starts, blocks, strict=True)]
            starts = [at[:1] for at in starts]
        boxes = (_moved(_whole(blocks), corner) for corner in product(*starts))
    else:
        corners = space.get_select_hyper_blocklist().tolist()
        boxes = (tuple(slice(a, b + 1) for a, b in zip(*two, strict=True)) for two in corners)
    return _inside(boxes, whole)


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
    unit = math.gcd(a.dtype.itemsize, 8)  # whole numbers are compared faster than bytes
    shape = (*a.shape, a.dtype.itemsize // unit)
    x, y = (np.ascontiguousarray(one).reshape(-1).view(f"u{unit}").reshape(shape) for one in (a, b))
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
