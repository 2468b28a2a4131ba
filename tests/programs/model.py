"""A model of the datasets, in which all operations happen one after the other."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import kinds
from .selection import Picked
from .values import convert

Array = np.ndarray[Any, Any]
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

    def part(self, index: Any) -> Expected:
        """The allowed results of a read of a part."""
        doubts = [(where[index], older[index]) for where, older in self.doubts]
        unknown = None if self.unknown is None else self.unknown[index]
        return Expected(self.values[index], doubts, unknown)

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
    """A dataset that shows others, one after the other along the first dimension."""

    def __init__(self, sources: list[Dataset], kind: dict[str, Any]) -> None:
        self._sources = sources
        self.kind = kind
        self.fill = 0

    @property
    def shape(self) -> tuple[int, ...]:
        rows = sum(source.shape[0] for source in self._sources)
        return (rows, *self._sources[0].shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._sources[0].dtype

    def expected(self, picked: Picked) -> Expected:
        whole = [Picked(source.shape, None) for source in self._sources]
        parts = [s.expected(every) for s, every in zip(self._sources, whole, strict=True)]
        values = picked.of(np.concatenate([part.values for part in parts]))
        doubts = []
        start = 0
        for part in parts:
            stop = start + len(part.values)
            for where, older in part.doubts:
                all_where, all_older = np.zeros(self.shape, bool), np.zeros(self.shape, self.dtype)
                all_where[start:stop], all_older[start:stop] = where, older
                doubts.append((picked.of(all_where), picked.of(all_older)))
            start = stop
        if all(part.unknown is None for part in parts):
            return Expected(values, doubts)
        flags = kinds.flags(self.dtype)
        unknown = [
            np.zeros(part.values.shape, flags) if part.unknown is None else part.unknown
            for part in parts
        ]
        return Expected(values, doubts, picked.of(np.concatenate(unknown)))

    def write(self, picked: Picked, values: Array, doubtful: int | None = None) -> None:
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
