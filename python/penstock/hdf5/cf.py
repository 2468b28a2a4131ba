"""The CF conventions for packed and missing values, as xarray (2026.9) applies them.

The rules are those of ``xarray.conventions.decode_cf_variable`` with ``mask_and_scale`` alone:
``_Unsigned`` first, then the choice of a float type, fill values become NaN, then the scale factor
and the offset, each rounded for itself. ``valid_range`` and units are not used.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from penstock._native import CData, ffi
from penstock.dtypes import ElementType, element_type
from penstock.errors import InvalidError
from penstock.hdf5 import memory_types

_RESULTS: Final = (np.dtype("f4"), np.dtype("f8"))
_MOST_FILLS: Final = 4

NAMES: Final = ("missing_value", "_FillValue", "_Unsigned", "scale_factor", "add_offset")
"""The attributes that a decoding consists of."""


class Decoding(NamedTuple):
    """How stored numbers become the numbers that they stand for."""

    scale_factor: Any
    """The factor, of the attribute's own type; ``None`` for none."""
    add_offset: Any
    """What is added after it; ``None`` for nothing."""
    fill_values: tuple[Any, ...]
    """Values that become NaN. They are compared with the elements as :attr:`dtype`."""
    unsigned: bool | None
    """Whether stored integers become unsigned (true) or signed ones (false) of their size first."""
    dtype: np.dtype[Any]
    """The type of the result, in the byte order of the machine."""

    def apply(self, stored: Any) -> np.ndarray[Any, Any]:
        """Return a new array of the decoded elements of an array in host memory."""
        stored = np.asarray(stored)
        if self.unsigned is not None:
            stored = np.asarray(stored, _with_sign(stored.dtype, self.unsigned))
        with np.errstate(all="ignore"):
            decoded = np.array(stored, self.dtype)
            if self.fill_values:
                is_missing = np.zeros(decoded.shape, bool)
                for value in self.fill_values:
                    is_missing |= decoded == value
                decoded[is_missing] = (
                    complex(np.nan, np.nan) if decoded.dtype.kind == "c" else np.nan
                )
            if self.scale_factor is not None:
                decoded *= self.scale_factor
            if self.add_offset is not None:
                decoded += self.add_offset
        return decoded

    def check_out(self, dtype: ElementType, dataset: Any) -> None:
        """Raise an error if an array of this type is given for an ``h5py.Dataset``."""
        if dtype != element_type(self.dtype):
            is_swapped = dtype.numpy is not None and not dtype.numpy.isnative
            order = " in the other byte order" if is_swapped else ""
            raise InvalidError(
                f"out has elements of type {dtype.name}{order}, and those of {dataset.name} are "
                f"decoded to {self.dtype}",
                path=dataset.file.filename,
                remedy="give an array of that type",
            )

    def rules(self, kind: Any) -> CData | None:
        """Return the ``penstock_decoding`` that does the same for elements of a stored type.

        ``None`` if the library has none: it computes as float32 and float64, with finite numbers,
        and takes numbers with the bits of NumPy's types. ``kind`` is the ``h5py.h5t.TypeID``.
        """
        stored = kind.dtype
        is_known = stored.kind in "iu" or stored.newbyteorder("=") in _RESULTS
        if self.dtype not in _RESULTS or not is_known or not memory_types.is_numpys(kind, stored):
            return None
        factors = [self._factor(self.scale_factor, 1.0), self._factor(self.add_offset, -0.0)]
        fills = self._fills()
        if fills is None or not all(np.isfinite(value) for value, _ in factors):
            return None
        if stored.kind == "f" and factors[0][0] == 0:  # infinity becomes the NaN of a processor
            return None
        has_factors = self.scale_factor is not None or self.add_offset is not None
        is_wide = any(kind != self.dtype for _, kind in factors)
        made = ffi.new("penstock_decoding *")
        made[0] = (
            ffi.sizeof("penstock_decoding"),
            {None: 0, True: 1, False: 2}[self.unsigned],
            (2 if is_wide else 1) if has_factors else 0,
            factors[0][0],
            factors[1][0],
            0,
            len(fills),
            fills,
        )
        return made

    def _factor(self, value: Any, neutral: float) -> tuple[float, np.dtype[Any]]:
        """Return a factor or an offset as it is used, and the type in which NumPy computes."""
        if value is None:
            return neutral, self.dtype
        kind = np.result_type(self.dtype, value)
        return (float(kind.type(value)) if kind in _RESULTS else np.nan), kind

    def _fills(self) -> list[float] | None:
        """Return the results that equal a fill value; ``None`` if only NumPy can compare them."""
        found = []
        for value in self.fill_values:
            if np.asarray(value).dtype.kind == "c":
                return None
            if np.asarray(value).dtype.kind in "biuf":
                with np.errstate(all="ignore"):
                    nearest = self.dtype.type(value)
                    if (np.array([nearest]) == value).all():
                        found.append(float(nearest))
        return found if len(found) <= _MOST_FILLS else None


def decoding(attributes: Mapping[Any, Any], stored: np.dtype[Any], *, name: str) -> Decoding | None:
    """Return the decoding that attributes describe; ``None`` if the elements stay as they are.

    Args:
        attributes: Those of the variable. An array of one element is not a number here: see
            :func:`attributes_of`.
        stored: The type of the stored elements.
        name: The name of the variable, for warnings.

    Raises:
        TypeError, ValueError, OverflowError, KeyError: What xarray raises for such attributes, also
            what it raises only when the elements are read.

    >>> d = decoding({"scale_factor": np.float32(0.5)}, np.dtype("int16"), name="t")
    >>> d.dtype
    dtype('float32')
    """
    if stored.kind not in "iufc":
        return None
    raw, fills = _fill_values(attributes, stored, name)
    dtype, unsigned = stored, None
    if attributes.get("_Unsigned") is not None or raw:
        unsigned = _unsigned(attributes.get("_Unsigned"), stored, raw.get("_FillValue"), fills)
        if unsigned is not None:
            dtype = _with_sign(stored, unsigned)
        elif attributes.get("_Unsigned") is not None and stored.kind not in "iu":
            _warn(f"variable {name!r} has _Unsigned attribute but is not of integer type.")
    is_packed = "scale_factor" in attributes or "add_offset" in attributes
    if is_packed and (fills or not raw):
        dtype = np.dtype(_float_type(dtype, attributes))
    elif fills:
        dtype = _with_nan(dtype)
    made = Decoding(
        _number(attributes.get("scale_factor")),
        _number(attributes.get("add_offset")),
        tuple(fills),
        unsigned,
        dtype.newbyteorder("="),
    )
    if not (fills or is_packed or made.dtype != stored):
        return None
    made.apply(np.zeros(1, stored))  # raises the errors of NumPy
    return made


def attributes_of(dataset: Any) -> dict[str, Any]:
    """Return the attributes of an ``h5py.Dataset`` that matter here, as netCDF's libraries do.

    An attribute of one element is that element, and text is a ``str``.
    """
    from penstock.hdf5.objects import Attributes

    found: dict[str, Any] = {}
    attributes = Attributes(dataset)
    for name in NAMES:
        if name not in attributes:
            continue
        value = attributes[name]
        if type(value).__name__ == "Empty":  # h5py's
            value = np.array([], value.dtype)
        if isinstance(value, np.ndarray) and value.size == 1 and value.ndim <= 1:
            value = value[()] if value.ndim == 0 else value[0]
        if isinstance(value, bytes) and name not in ("missing_value", "_FillValue"):
            value = value.decode("utf-8", "surrogateescape")
        found[name] = value
    return found


def decoding_of(dataset: Any) -> Decoding | None:
    """Return the decoding of an ``h5py.Dataset``; ``None`` if its elements stay as they are.

    Raises:
        InvalidError: Its attributes allow none.
    """
    if dataset.shape is None:
        return None
    stored = dataset.dtype.base
    try:
        return decoding(attributes_of(dataset), stored, name=dataset.name)
    except (TypeError, ValueError, OverflowError, KeyError) as error:
        raise InvalidError(
            f"the CF attributes of {dataset.name} cannot be applied: {error}",
            path=dataset.file.filename,
            cause=str(error),
            remedy="read it without cf=True, or correct its attributes",
        ) from error


def _fill_values(
    attributes: Mapping[Any, Any], stored: np.dtype[Any], name: str
) -> tuple[dict[str, Any], set[Any]]:
    """Return the attributes of fill values that count, and all values of them except NaN."""
    raw: dict[str, Any] = {}
    fills: set[Any] = set()
    for key in ("missing_value", "_FillValue"):
        value = attributes.get(key)
        if value is None:
            continue
        values = {one for one in np.ravel(value) if one is not None and one == one}
        if not values and stored.kind in "iu":
            _warn(
                f"variable {name!r} has non-conforming {key!r} {value!r} defined, "
                f"dropping {key!r} entirely."
            )
        else:
            raw[key] = value
            fills |= values
        if len(fills) > 1:
            _warn(
                f"variable {name!r} has multiple fill values {fills} defined, "
                "decoding all values to NaN."
            )
    return raw, fills


def _unsigned(text: Any, stored: np.dtype[Any], fill: Any, fills: set[Any]) -> bool | None:
    """Return what ``_Unsigned`` does, and replace the fill value by one of the other sign."""
    if stored.kind == "i" and text == "true":
        if fill is not None:
            same = np.array(fill, dtype=stored)
            fills.remove(fill)
            fills.add(same.view(_with_sign(stored, True)).item())
        return True
    if stored.kind == "u" and text == "false":
        if fill is not None:
            signed = _with_sign(stored, False).type(fill)
            fills.remove(fill)
            fills.add(signed)
        return False
    return None


def _with_sign(dtype: np.dtype[Any], unsigned: bool) -> np.dtype[Any]:
    """Return the integers of the same size with or without sign, in the machine's byte order."""
    return np.dtype(f"{'u' if unsigned else 'i'}{dtype.itemsize}")


def _float_type(dtype: np.dtype[Any], attributes: Mapping[Any, Any]) -> Any:
    """Return the type of unpacked elements, by the types of the factor and the offset."""
    scale, offset = attributes.get("scale_factor"), attributes.get("add_offset")
    if scale is not None or offset is not None:
        scale_type = None if scale is None else np.dtype(type(scale))
        offset_type = None if offset is None else np.dtype(type(offset))
        if offset_type is None:
            assert scale_type is not None
            return scale_type.type
        if offset_type == scale_type and scale_type in (np.float32, np.float64):
            is_wide = dtype.itemsize == 4 and dtype.kind in "iu"
            return np.float64 if is_wide else scale_type.type
        return np.float64
    is_narrow = (dtype.kind == "f" and dtype.itemsize <= 4) or (
        dtype.kind in "iu" and dtype.itemsize <= 2
    )
    return np.float32 if is_narrow else np.float64


def _with_nan(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of elements that may also be NaN."""
    if dtype.kind in "fc":
        return dtype
    return np.dtype(np.float32 if dtype.itemsize <= 2 else np.float64)


def _number(value: Any) -> Any:
    """Return the number of an attribute. An array of several has none, and raises an error."""
    return np.asarray(value).item() if np.ndim(value) > 0 else value


def _warn(message: str) -> None:
    """Warn as xarray does, by its own class if the program uses it."""
    kind = getattr(sys.modules.get("xarray"), "SerializationWarning", RuntimeWarning)
    warnings.warn(message, kind, stacklevel=4)
