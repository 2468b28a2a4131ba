"""Penstock as a connector of HDF5's: ``penstock.File(name, connector="penstock_async")``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from inspect import signature
from typing import Any

from penstock._native import lib
from penstock.errors import InvalidError, check

NAME = "penstock_async"
"""The connector's name, to HDF5 and to h5py."""

SHARED = frozenset({"threads", "block", "route", "direct", "io", "queue_depth", "slots", "durable"})
"""The options that driver and connector both have: how the engine moves bytes."""


def configuration(options: Mapping[str, Any]) -> str:
    """Options as they stand after the connector's name; an unknown key or a bad value raises
    :class:`InvalidError`, naming it."""
    text = ";".join(f"{key}={_text(key, value)}" for key, value in options.items())
    check(lib.penstock_hdf5_check_connector_options(text.encode()))
    return text


def _text(key: str, value: object) -> str:
    if isinstance(value, bool):
        return str(int(value)) if key == "implicit" else "yes" if value else "no"
    text = os.fspath(value) if isinstance(value, os.PathLike) else str(value)
    # HDF5 reads up to the end of the line, and the connector up to a semicolon outside of braces.
    if set(";{}\0\n\r") & set(text):
        raise InvalidError(f"option {key} has a bad value {text!r}")
    return text


def open_file(
    name: Any,
    mode: str,
    connector: str | None,
    options: Mapping[str, Any] | None,
    arguments: dict[str, Any],
) -> Any:
    """An ``h5py.File`` that is opened by the connector, or by none in particular."""
    import h5py

    if connector is None:
        if options:
            raise InvalidError("connector_options without a connector")
        return h5py.File(name, mode, **arguments)
    if connector != NAME:
        raise InvalidError(f"no connector {connector!r}: there is {NAME!r}")
    # What h5py does not know itself belongs to the driver, which the file has besides.
    own = signature(h5py.File.__init__).parameters
    for_driver = {key: arguments.pop(key) for key in set(arguments) - set(own)}
    driver = arguments.pop("driver", None)
    return h5py.File(
        name,
        mode,
        driver=NAME,
        file_driver=driver,
        driver_options=for_driver,
        connector_options=options,
        **arguments,
    )


def set_fapl(
    fapl: Any,
    file_driver: str | None = None,
    driver_options: Mapping[str, Any] | None = None,
    connector_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """What h5py calls for ``h5py.File(name, driver="penstock_async", copy="never")``.

    h5py has a place for drivers only. The connector is none: the file has a driver besides.
    """
    from penstock.hdf5 import library as hdf5_library

    options |= connector_options or {}
    text = configuration({key: value for key, value in options.items() if value is not None})
    _set_driver(fapl, file_driver, dict(driver_options or {}))
    with hdf5_library.lock():
        check(lib.penstock_fapl_set_connector(fapl.id, text.encode()))


def _set_driver(fapl: Any, driver: str | None, options: dict[str, Any]) -> None:
    from h5py._hl import files

    if driver is None:
        if options:  # as h5py says it
            raise TypeError(f"{next(iter(options))!r} is an invalid keyword argument")
    elif driver not in files.registered_drivers():
        raise ValueError(f"Unknown driver type {driver!r}")
    else:
        files._drivers[driver](fapl, **options)
