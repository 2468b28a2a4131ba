"""HDF5's driver ``penstock`` in h5py: ``h5py.File(name, driver="penstock", threads=8)``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock._native import lib
from penstock.errors import InvalidError, check
from penstock.hdf5.library import lock

NAME = "penstock"
"""The driver's name in HDF5 and in h5py."""


def configuration(options: Mapping[str, Any]) -> str:
    """Return options in the form of HDF5_DRIVER_CONFIG.

    Raises:
        InvalidError: A key is unknown, or a value is invalid. The message names it.
    """
    text = ";".join(f"{key}={_text(key, value)}" for key, value in options.items())
    check(lib.penstock_hdf5_check_options(text.encode()))
    return text


def _text(key: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = str(value)
    if ";" in text or "\0" in text:
        raise InvalidError(f"option {key} has a bad value {text!r}")
    return text


def set_fapl(fapl: Any, **options: Any) -> None:
    """Set the driver in a file access property list, as h5py asks of a registered driver.

    Args:
        fapl: The property list, an ``h5py.h5p.PropFAID``.
        **options: The keyword arguments of ``h5py.File`` that are not its own. ``driver_mode`` is
            the driver's option ``mode``: ``mode`` is an argument of ``h5py.File`` itself.
    """
    if "driver_mode" in options:
        options["mode"] = options.pop("driver_mode")
    text = configuration({key: value for key, value in options.items() if value is not None})
    with lock():
        check(lib.penstock_fapl_set(fapl.id, text.encode()))
