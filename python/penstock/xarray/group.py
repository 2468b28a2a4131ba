"""Groups of HDF5 in the data model of netCDF-4: dimensions, variables and types.

The rules are those of the netCDF-4 format and of h5netcdf, which names dimensions that have no
dimension scale.
"""

from __future__ import annotations

import warnings
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import h5py
import numpy as np
from h5py import h5d, h5ds, h5g, h5o, h5r, h5s, h5t

from penstock.errors import InvalidError
from penstock.xarray.attributes import Attributes, type_of

_NOT_A_VARIABLE: Final = b"This is a netCDF dimension but not a netCDF variable."
_RENAMED: Final = "_nc4_non_coord_"
"""The prefix in HDF5 of a variable that has the name of a dimension, but is not a coordinate."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """A dimension of netCDF."""

    size: int
    is_unlimited: bool = False
    number: int = -1
    """The identifier by which ``_Netcdf4Coordinates`` names it."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A dataset that is a variable of netCDF."""

    name: str
    path: str
    dimensions: tuple[str, ...]
    shape: tuple[int, ...]
    """The sizes of the dimensions: unlimited ones may be longer than in the dataset."""
    extent: tuple[int, ...]
    """The shape of the dataset."""
    dtype: np.dtype[Any]
    """As h5py reads it."""
    attributes: dict[str, Any]
    enum_name: str | None
    chunks: tuple[int, ...] | None
    filters: dict[int, tuple[int, ...]]
    """The parameters of the filters by their numbers."""


class Numbering:
    """The numbers of a file's dimensions, in the order in which its groups are described.

    Dimensions without a name are numbered from 0 on; if the numbers are ``sorted``, after those
    with a name, as h5netcdf does.
    """

    def __init__(self, file: Any, *, is_sorted: bool) -> None:
        self._first = _last_number(file) + 1 if is_sorted else 0
        self._is_sorted = is_sorted
        self._named = 0
        self._phony = 0

    def next_number(self) -> int:
        """Return the number of the next named dimension of which the file has none."""
        self._named += 1
        return self._named - 1

    def next_name(self) -> str:
        """Return the name of the next dimension that has none."""
        number = self._first + self._phony + (self._named if self._is_sorted else 0)
        self._phony += 1
        return f"phony_dim_{number}"


@dataclass(frozen=True, slots=True)
class _Dataset:
    identifier: Any
    creation: Any
    """The list of creation properties."""
    shape: tuple[int, ...]
    attributes: Attributes
    is_scale: bool


@dataclass(slots=True)
class Group:
    """A group of an open ``h5py.File``, with what its parents define."""

    file: Any
    path: str
    parent: Group | None
    numbering: Numbering
    groups: list[str] = field(default_factory=list)
    dimensions: dict[str, Dimension] = field(default_factory=dict)
    _datasets: dict[str, _Dataset] = field(default_factory=dict)
    """The variables, by their names in HDF5."""
    _types: dict[str, Any] = field(default_factory=dict)
    _address: tuple[int, int] = (0, 0)
    _described: dict[str, Stored | TypeError | InvalidError] | None = None

    def __post_init__(self) -> None:

        identifier = h5o.open(self.file.id, self.path.encode("utf-8", "surrogateescape"))
        self._address = _address(identifier)
        unnamed: Counter[int] = Counter()
        for name in identifier:
            try:
                found = h5o.open(identifier, name)
            except (KeyError, OSError):  # a link that leads nowhere
                continue
            text = name.decode("utf-8", "surrogateescape")
            if isinstance(found, h5g.GroupID):
                if not self._is_inside(_address(found)):
                    self.groups.append(text)
            elif isinstance(found, h5t.TypeID):
                self._types[text] = found
            elif isinstance(found, h5d.DatasetID):
                self._add(text, found, unnamed)
        named = Counter(None if one.is_unlimited else one.size for one in self.dimensions.values())
        for size, count in unnamed.items():
            for _ in range(named[size], count):
                self.dimensions[self.numbering.next_name()] = Dimension(size)

    def _is_inside(self, address: tuple[int, int]) -> bool:
        """Whether this group or a parent is that of an address: a link that leads upwards."""
        is_same = self._address == address
        return is_same or (self.parent is not None and self.parent._is_inside(address))

    def child_path(self, name: str) -> str:
        """Return the path of a group of this one."""
        return f"{self.path.rstrip('/')}/{name}"

    @property
    def all_dimensions(self) -> dict[str, Dimension]:
        """The dimensions of this group and its parents."""
        return (self.parent.all_dimensions if self.parent else {}) | self.dimensions

    def attributes(self) -> dict[str, Any]:
        """Return the attributes that netCDF shows."""
        identifier = h5o.open(self.file.id, self.path.encode("utf-8", "surrogateescape"))
        return Attributes(identifier, identifier.get_create_plist()).visible()

    def variables(self, without: frozenset[str] = frozenset()) -> list[Stored]:
        """Return the variables. Those of some names need not be any of netCDF."""
        if self._described is None:
            known = self.all_dimensions
            self._described = {
                name.removeprefix(_RENAMED): self._outcome(name, dataset, known)
                for name, dataset in self._datasets.items()
            }
            # HDF5 would keep what it has read of open datasets, also for other objects of the file.
            self._datasets.clear()
        found = []
        for name, outcome in self._described.items():
            if isinstance(outcome, Stored):
                found.append(outcome)
            elif name in without:
                continue
            elif isinstance(outcome, InvalidError):
                raise outcome
            else:
                warnings.warn(
                    f"{self.child_path(name)} of {self.file.filename} is left out: {outcome}",
                    stacklevel=2,
                )
        return found

    def _outcome(
        self, name: str, dataset: _Dataset, known: dict[str, Dimension]
    ) -> Stored | TypeError | InvalidError:
        """Return a variable, or why there is none."""
        try:
            return self._variable(name, name.removeprefix(_RENAMED), dataset, known)
        except (TypeError, InvalidError) as error:
            return error

    def _add(self, name: str, identifier: Any, unnamed: Counter[int]) -> None:
        shape = identifier.shape
        if shape is None:  # a null dataspace
            return
        creation = identifier.get_create_plist()
        attributes = Attributes(identifier, creation)
        is_scale = h5ds.is_scale(identifier)
        dataset = _Dataset(identifier, creation, shape, attributes, is_scale)
        if is_scale:
            self.dimensions[name] = self._dimension(dataset)
        elif "_Netcdf4Coordinates" not in attributes and not _has_scales(dataset):
            unnamed |= Counter(dataset.shape)
        if not (is_scale and _NOT_A_VARIABLE in _bytes_of(attributes.elements("NAME"))):
            self._datasets[name] = dataset

    def _dimension(self, dataset: _Dataset) -> Dimension:

        given = dataset.attributes.integers("_Netcdf4Dimid")
        by_order = self.numbering.next_number()
        number = given[0] if given else by_order
        size = dataset.shape[0] if dataset.shape else 1
        longest = dataset.identifier.get_space().get_simple_extent_dims(True)
        if longest != (h5s.UNLIMITED,):
            return Dimension(size, number=number)
        # Variables may be shorter or longer along it than the scale is.
        references = dataset.attributes.elements("REFERENCE_LIST")
        for reference, axis in () if references is None else references.reshape(-1):
            with suppress(ValueError, OSError, RuntimeError, IndexError):
                size = max(size, h5r.dereference(reference, self.file.id).shape[axis])
        return Dimension(size, is_unlimited=True, number=number)

    def _variable(
        self, name: str, shown: str, dataset: _Dataset, known: dict[str, Dimension]
    ) -> Stored:
        kind = dataset.identifier.get_type()
        dtype = type_of(kind)
        dimensions = self._dimensions_of(name, dataset, known)
        creation = dataset.creation
        is_chunked = creation.get_layout() == h5d.CHUNKED
        filters = map(creation.get_filter, range(creation.get_nfilters()))
        return Stored(
            name=shown,
            path=self.child_path(name),
            dimensions=dimensions,
            shape=_sizes(dimensions, dataset.shape, known),
            extent=dataset.shape,
            dtype=dtype,
            attributes=dataset.attributes.visible(),
            enum_name=self._enum_name(kind, dtype),
            chunks=creation.get_chunk() if is_chunked else None,
            filters={number: values for number, _, values, _ in filters},
        )

    def _dimensions_of(
        self, name: str, dataset: _Dataset, known: dict[str, Dimension]
    ) -> tuple[str, ...]:
        numbers = dataset.attributes.integers("_Netcdf4Coordinates")
        if numbers is not None:
            by_number = {one.number: name for name, one in known.items()}
            named = tuple(by_number.get(number, "") for number in numbers)
            if all(named) and _fits(named, dataset.shape, known):
                return named
        if _has_scales(dataset):
            scales = self._scales_of(name, dataset)
            if all(scales):
                return tuple(scales)
            raise self._damaged(name, "some of its dimensions have no dimension scale")
        if dataset.is_scale and len(dataset.shape) == 1:
            return (name,)
        taken: Counter[int] = Counter()
        dimensions = []
        for size in dataset.shape:
            same = [one for one, known in self.dimensions.items() if known.size == size]
            if taken[size] >= len(same):
                raise self._damaged(name, "_Netcdf4Coordinates names an unknown dimension")
            dimensions.append(same[taken[size]])
            taken[size] += 1
        return tuple(dimensions)

    def _scales_of(self, name: str, dataset: _Dataset) -> list[str]:
        """Return the names of the scales of each dimension, empty for those without one.

        Of several scales of one dimension, netCDF takes the last.
        """
        try:
            lists: Any = dataset.attributes.elements("DIMENSION_LIST")
            last = [one[-1] if len(one) else None for one in lists]
            if len(last) != len(dataset.shape):
                raise ValueError(f"{len(last)} lists of {len(dataset.shape)} dimensions")
            paths = [one and h5r.get_name(one, self.file.id) for one in last]
        except (TypeError, ValueError, OSError, RuntimeError) as error:
            raise self._damaged(name, f"DIMENSION_LIST cannot be read ({error})") from error
        return [
            path.rpartition(b"/")[2].decode("utf-8", "surrogateescape") if path else ""
            for path in paths
        ]

    def _damaged(self, name: str, cause: str) -> InvalidError:
        return InvalidError(
            f"{self.file.filename}: {self.child_path(name)} is not a netCDF-4 variable: {cause}",
            path=str(self.file.filename),
            cause=cause,
            remedy="leave it out with drop_variables, or repair its dimension scales",
        )

    def _enum_name(self, kind: Any, dtype: np.dtype[Any]) -> str | None:
        """Return the name of the committed type of an enumeration."""
        if not dtype.metadata or "enum" not in dtype.metadata:
            return None
        group: Group | None = self
        while group is not None:
            for name, committed in group._types.items():
                if committed.equal(kind):
                    return name
            group = group.parent
        return None


def _has_scales(dataset: _Dataset) -> bool:
    """Whether the scales name the dimensions, or the list of scales is not such a list.

    The netCDF library asks for the scales of the first dimension. Without one, it names all
    dimensions by their sizes.
    """
    if "DIMENSION_LIST" not in dataset.attributes:
        return False
    try:
        lists: Any = dataset.attributes.elements("DIMENSION_LIST")
        return len(lists[0]) > 0
    except (TypeError, ValueError, IndexError, OSError, RuntimeError):
        return True


def _address(identifier: Any) -> tuple[int, int]:
    """Return what is the same for all names of an object."""
    information = h5o.get_info(identifier)
    return information.fileno, information.addr


def _fits(names: tuple[str, ...], extent: tuple[int, ...], known: dict[str, Dimension]) -> bool:
    """Whether a dataset of this shape can have these dimensions."""
    return len(names) == len(extent) and all(
        known[name].is_unlimited or known[name].size == length
        for name, length in zip(names, extent, strict=True)
    )


def _sizes(
    dimensions: tuple[str, ...], extent: tuple[int, ...], known: dict[str, Dimension]
) -> tuple[int, ...]:
    """Return the shape of a variable: along unlimited dimensions, it has the size of these."""
    sizes = []
    for name, length in zip(dimensions, extent, strict=True):
        dimension = known.get(name)
        is_longer = dimension is not None and dimension.is_unlimited
        sizes.append(max(length, dimension.size) if is_longer and dimension else length)
    return tuple(sizes)


def _bytes_of(values: Any) -> bytes:
    value = b"" if values is None or values.size != 1 else values.reshape(-1)[0]
    return value.encode() if isinstance(value, str) else bytes(value)


def _last_number(file: Any) -> int:
    """Return the highest number of the named dimensions of a file; -1 without any."""
    numbers = [-1]

    def note(_: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.attrs.get("CLASS") == b"DIMENSION_SCALE":
            numbers.append(int(item.attrs.get("_Netcdf4Dimid", -1)))

    file.visititems(note)
    return max(numbers)
