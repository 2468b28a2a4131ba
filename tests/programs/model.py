"""A model of the datasets, in which all operations happen one after the other."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import kinds
from .selection import Picked
from .values import convert

Array = np.ndarray[Any, Any]
HDF5S = ("BZip2",)
"""Filters that only HDF5 applies, by their plugins."""
_LARGEST_HALF = float(np.finfo(np.float16).max)


class WrongError(AssertionError):
    """Penstock violated a guarantee."""


@dataclass
class Doubt:
    """A write that may not have taken place: elements may have their older values."""

    number: int
    where: Array
    older: Array
    members: tuple[str, ...] = ()
    """The members of records that it writes; empty if it writes whole elements."""


@dataclass
class Expected:
    """The allowed results of a read: the values or, in doubtful elements, the older ones."""

    values: Array
    doubts: list[tuple[Array, Array]] = field(default_factory=list)
    unknown: Array | None = None
    """Elements without any value, not even a fill value: see ``kinds.flags``."""
    may_fail: bool = False
    """Whether an error is right as well: see :class:`Virtual`."""
    missing: Array | None = None
    """Elements for which only an error is right."""

    def part(self, index: Any) -> Expected:
        """The allowed results of a read of a part."""
        doubts = [(where[index], older[index]) for where, older in self.doubts]
        unknown = None if self.unknown is None else self.unknown[index]
        missing = None if self.missing is None else self.missing[index]
        return Expected(self.values[index], doubts, unknown, self.may_fail, missing)

    def fields(self, wanted: np.dtype[Any]) -> Expected:
        """The allowed results of a read of some members of records."""
        doubts = [(where, kinds.pick_fields(older, wanted)) for where, older in self.doubts]
        unknown = self.unknown
        if unknown is not None:
            unknown = kinds.pick_fields(unknown, kinds.flags(wanted))
        return Expected(kinds.pick_fields(self.values, wanted), doubts, unknown)

    def check(self, found: Array, about: str) -> None:
        wanted = self._wanted(self.values, found)
        if found.shape != wanted.shape:
            raise WrongError(f"{about}: shape {found.shape} instead of {wanted.shape}")
        right = self._agrees(found, self.values)
        for where, older in self.doubts:
            right |= where & self._agrees(found, older)
        if not right.all():
            right |= self._torn(found)
        if self.missing is not None:
            right &= ~self.missing
        if not right.all():
            bad = np.argwhere(~right)
            first = tuple(int(index) for index in bad[0])[: found.ndim]
            raise WrongError(
                f"{about}: {len(bad)} of {right.size} elements are wrong, the first at {first}: "
                f"{found[first]} instead of {wanted[first]}"
            )

    @staticmethod
    def _wanted(values: Array, found: Array) -> Array:
        return values if values.dtype.names else convert(values, found.dtype)

    def _agrees(self, found: Array, values: Array) -> Array:
        """Whether each element may have been read from these values."""
        wanted = self._wanted(values, found)
        right: Array = self._known(found, wanted) == wanted
        if found.dtype == np.float16 and values.dtype.kind in "iuf":
            # HDF5 2.0 itself makes the largest of them, infinity or no number of what is beyond.
            right |= np.abs(values.astype("f8")) > _LARGEST_HALF
        return right

    def _known(self, found: Array, values: Array) -> Array:
        """The result of a read, with the expected values in unknown elements."""
        if self.unknown is None:
            return found
        made = np.array(found)
        if self.unknown.dtype.names is None:
            made[self.unknown] = values[self.unknown]
        for name in self.unknown.dtype.names or ():
            unknown = self.unknown[name]
            made[name][unknown] = values[name][unknown]
        return made

    def _torn(self, found: Array) -> Array:
        """Whether each element consists of bytes of several allowed values.

        A write that is cancelled may have written any part of its bytes: an element may lie across
        two of the blocks in which it goes to the file, of which one is written.
        """
        torn = np.zeros(found.shape, bool)
        if found.dtype.hasobject:  # Only members are written one by one.
            return self._of_several(found, torn) if found.dtype.names else torn
        if not np.can_cast(self.values.dtype, found.dtype, "safe"):
            return torn  # The bytes of the file do not follow from what was found.
        found = found.astype(self.values.dtype)
        may_be = _bytes(self._known(found, self.values)) == _bytes(self.values)
        may_be |= _padding(found.dtype)
        for where, older in self.doubts:
            torn |= where
            may_be |= where[..., None] & (_bytes(self._known(found, older)) == _bytes(older))
        return torn & may_be.all(axis=-1)

    def _of_several(self, found: Array, mixed: Array) -> Array:
        """Whether each record has members of several allowed values."""
        may_be = np.ones(found.shape, bool)
        known = self._known(found, self.values)
        names = found.dtype.names or ()
        right = {name: _is_same(known[name], self.values[name], found.shape) for name in names}
        for where, older in self.doubts:
            mixed |= where
            known = self._known(found, older)
            for name in right:
                right[name] |= where & _is_same(known[name], older[name], found.shape)
        for each in right.values():
            may_be &= each
        return mixed & may_be


def _is_same(member: Array, other: Array, shape: tuple[int, ...]) -> Array:
    """Whether each record has an equal member, which may itself be an array."""
    same: Array = (member == other).reshape(*shape, -1).all(axis=-1)
    return same


def _bytes(values: Array) -> Array:
    """The bytes of each element, in a dimension of their own."""
    return np.ascontiguousarray(values)[..., None].view(np.uint8)


def _padding(dtype: np.dtype[Any]) -> Array:
    """Whether each byte of an element lies between its members. NumPy does not copy these bytes."""
    between = np.full(dtype.itemsize, dtype.names is not None)
    for member, start, *_ in (dtype.fields or {}).values():
        between[start : start + member.itemsize] = False
    return between


class Dataset:
    """A dataset that holds its own values."""

    def __init__(self, values: Array, fill: Any, kind: dict[str, Any]) -> None:
        self.values = values
        self.fill = fill
        self.kind = kind
        self._doubts: list[Doubt] = []
        self.unknown: Array | None = None
        """Elements without any value, not even a fill value: see :class:`Expected`."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values.dtype

    def expected(self, picked: Picked) -> Expected:
        doubts = [(picked.of(doubt.where), picked.of(doubt.older)) for doubt in self._doubts]
        unknown = None if self.unknown is None else picked.of(self.unknown)
        return Expected(picked.of(self.values), doubts, unknown)

    def write(self, picked: Picked, values: Array, doubtful: int | None = None) -> None:
        members: tuple[str, ...] = ()
        if self.unknown is not None and doubtful is None:
            names = values.dtype.names
            for flags in [self.unknown[name] for name in names] if names else [self.unknown]:
                picked.put(flags, False)
        if values.dtype != self.dtype:  # some members of records
            if doubtful is None:  # what is doubtful of the others stays so
                for older in [self.values, *(doubt.older for doubt in self._doubts)]:
                    picked.put(older, _with_members(picked.of(older), values))
                return
            members = values.dtype.names or ()
            values = _with_members(picked.of(self.values), values)
        if doubtful is None and not self._doubts:
            picked.put(self.values, values)
            return
        where, new = np.zeros(self.shape, bool), np.zeros_like(self.values)
        picked.put(where, True)
        picked.put(new, values)
        self.write_where(where, new, doubtful, members)

    def write_where(
        self, where: Array, new: Array, doubtful: int | None, members: tuple[str, ...] = ()
    ) -> None:
        if doubtful is None:
            self._sure(where, self._doubts)
        else:
            self._doubts.append(Doubt(doubtful, where.copy(), self.values.copy(), members))
        np.copyto(self.values, new, where=where)

    def took_place(self, number: int) -> None:
        """Record that a doubtful write took place: older values are no longer allowed."""
        for place, doubt in enumerate(self._doubts):
            if doubt.number == number:
                before = self._doubts[:place]
                if doubt.members:
                    # The next write found what this one wrote.
                    after = self._doubts[place + 1 :]
                    written = after[0].older if after else self.values
                    for other, name in itertools.product(before, doubt.members):
                        other.older[name][doubt.where] = written[name][doubt.where]
                else:
                    self._sure(doubt.where, before)
                self._doubts = [other for other in self._doubts if other is not doubt]
                return

    def _sure(self, where: Array, doubts: list[Doubt]) -> None:
        for doubt in doubts:
            doubt.where &= ~where
        self._doubts = [doubt for doubt in self._doubts if doubt.where.any()]

    def copy(self, name: str) -> Dataset:
        made = Dataset(self.values.copy(), self.fill, self.kind | {"name": name})
        made._doubts = [
            Doubt(d.number, d.where.copy(), d.older.copy(), d.members) for d in self._doubts
        ]
        made.unknown = None if self.unknown is None else self.unknown.copy()
        return made

    def resize(self, shape: tuple[int, ...]) -> None:
        self.values = _resized(self.values, shape, self.fill)
        if self.unknown is not None:
            self.unknown = _resized(self.unknown, shape, True)
        for doubt in self._doubts:
            doubt.where = _resized(doubt.where, shape, False)
            doubt.older = _resized(doubt.older, shape, self.fill)


class Virtual:
    """A dataset that shows others, one after the other along the first dimension.

    A source may get another shape than its mapping has. Its elements stay at their coordinates, or
    in order if there are as many. If it lost some that are mapped, a read gives the elements that
    are left, or an error. If only HDF5 applies its filters, an error is right as well.
    """

    def __init__(self, sources: list[Dataset], kind: dict[str, Any]) -> None:
        self._sources = sources
        self._mapped = [source.shape for source in sources]
        self.kind = kind
        self.fill = 0

    @property
    def shape(self) -> tuple[int, ...]:
        return (sum(rows for rows, *_ in self._mapped), *self._mapped[0][1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._sources[0].dtype

    @property
    def is_as_mapped(self) -> bool:
        """Whether each source has the shape of its mapping."""
        return [source.shape for source in self._sources] == self._mapped

    def replace(self, source: Dataset) -> None:
        """Map a new source in place of the one with its name."""
        place = self.kind["sources"].index(source.kind["name"])
        self._sources[place] = source

    def _spread(self, parts: list[Array | None], dtype: Any, beyond: Any = 0) -> Array:
        """What the sources have, at its place in an array of the dataset's shape."""
        made = np.zeros(self.shape, dtype)
        start = 0
        for part, (rows, *rest) in zip(parts, self._mapped, strict=True):
            if part is not None and part.size == math.prod((rows, *rest)):
                made[start : start + rows] = part.reshape(rows, *rest)
            elif part is not None:
                made[start : start + rows] = _resized(part, (rows, *rest), beyond)
            start += rows
        return made

    def expected(self, picked: Picked) -> Expected:
        parts = [source.expected(Picked(source.shape, None)) for source in self._sources]
        made = Expected(picked.of(self._spread([part.values for part in parts], self.dtype)))
        for place, part in enumerate(parts):

            def alone(array: Array, place: int = place) -> list[Array | None]:
                return [array if other == place else None for other in range(len(parts))]

            for where, older in part.doubts:
                all_where = self._spread(alone(where), bool, False)
                all_older = self._spread(alone(older), self.dtype)
                made.doubts.append((picked.of(all_where), picked.of(all_older)))
        if any(part.unknown is not None for part in parts):
            flags = kinds.flags(self.dtype)
            made.unknown = picked.of(self._spread([part.unknown for part in parts], flags, False))
        if not self.is_as_mapped:
            there: list[Array | None] = [np.ones(source.shape, bool) for source in self._sources]
            all_there = self._spread(there, bool, False)
            names = [name for source in self._sources for name in source.kind.get("filters", ())]
            by_hdf5 = any(name.removesuffix("?") in HDF5S for name in names)
            made.may_fail = by_hdf5 or not all_there.all()
            made.missing = ~picked.of(all_there)
        return made

    def write(self, picked: Picked, values: Array, doubtful: int | None = None) -> None:
        assert self.is_as_mapped
        where, new = np.zeros(self.shape, bool), np.zeros(self.shape, self.dtype)
        picked.put(where, True)
        picked.put(new, values)
        start = 0
        for source in self._sources:
            stop = start + source.shape[0]
            source.write_where(where[start:stop], new[start:stop], doubtful)
            start = stop

    def took_place(self, number: int) -> None:
        for source in self._sources:
            source.took_place(number)


def _with_members(whole: Array, values: Array) -> Array:
    for name in values.dtype.names or ():
        whole[name] = values[name]
    return whole


def _resized(values: Array, shape: tuple[int, ...], fill: Any) -> Array:
    is_mask = isinstance(fill, bool)
    made = (np.full if is_mask else kinds.filled)(shape, fill, values.dtype)
    common = tuple(slice(min(a, b)) for a, b in zip(shape, values.shape, strict=True))
    made[common] = values[common]
    return made
