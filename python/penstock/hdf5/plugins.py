"""Penstock's plugins of HDF5 in h5py: the driver ``penstock``, the connector ``penstock_async``.

``h5py.File(name, driver="penstock", threads=8)`` selects the driver, and
``penstock.File(name, connector="penstock_async")`` the connector.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from inspect import signature
from typing import Any

from penstock._native import lib
from penstock.errors import InvalidError, check
from penstock.hdf5.library import lock

DRIVER = "penstock"
"""The driver's name in HDF5 and in h5py."""

CONNECTOR = "penstock_async"
"""The connector's name in HDF5 and in h5py."""

SHARED = frozenset({"threads", "block", "route", "direct", "io", "queue_depth", "slots", "durable"})
"""The options that driver and connector both have: how the engine moves bytes."""


def driver_configuration(options: Mapping[str, Any]) -> str:
    """Return options in the form of HDF5_DRIVER_CONFIG.

    Raises:
        InvalidError: A key is unknown, or a value is invalid. The message names it.
    """
    text = _joined(options, ";\0")
    check(lib.penstock_hdf5_check_options(text.encode()))
    return text


def connector_configuration(options: Mapping[str, Any]) -> str:
    """Return options in the form that follows the connector's name in HDF5_VOL_CONNECTOR.

    Raises:
        InvalidError: A key is unknown, or a value is invalid. The message names it.
    """
    # HDF5 reads to the end of the line, and the connector to a semicolon outside of braces.
    text = _joined(options, ";{}\0\n\r")
    check(lib.penstock_hdf5_check_connector_options(text.encode()))
    return text


def _joined(options: Mapping[str, Any], forbidden: str) -> str:
    """Return options, except those that are ``None``, as text without forbidden characters."""
    given = [(key, value) for key, value in options.items() if value is not None]
    return ";".join(f"{key}={_text(key, value, forbidden)}" for key, value in given)


def _text(key: str, value: object, forbidden: str) -> str:
    if isinstance(value, bool):
        return str(int(value)) if key == "implicit" else "yes" if value else "no"
    text = os.fspath(value) if isinstance(value, os.PathLike) else str(value)
    if set(forbidden) & set(text):
        raise InvalidError(f"option {key} has a bad value {text!r}")
    return text


def open_file(
    name: Any,
    mode: str,
    connector: str | None,
    options: Mapping[str, Any] | None,
    arguments: dict[str, Any],
) -> Any:
    """Open an ``h5py.File``, through the connector if it is named.

    Args:
        name: The path.
        mode: That of ``h5py.File``.
        connector: :data:`CONNECTOR`, or ``None`` for the connector that HDF5 uses by default.
        options: The connector's options.
        arguments: Further arguments of ``h5py.File``, options of its driver among them.
    """
    import h5py

    if connector is None:
        if options:
            raise InvalidError("connector_options without a connector")
        return h5py.File(name, mode, **arguments)
    if connector != CONNECTOR:
        raise InvalidError(f"unknown connector {connector!r}: the only one is {CONNECTOR!r}")
    # An argument that is not h5py's own is an option of the driver, which the file has as well.
    own = signature(h5py.File.__init__).parameters
    for_driver = {key: arguments.pop(key) for key in set(arguments) - set(own)}
    driver = arguments.pop("driver", None)
    return h5py.File(
        name,
        mode,
        driver=CONNECTOR,
        file_driver=driver,
        driver_options=for_driver,
        connector_options=options,
        **arguments,
    )


def set_driver(fapl: Any, **options: Any) -> None:
    """Set the driver in a file access property list, as h5py asks of a registered driver.

    Args:
        fapl: The property list, an ``h5py.h5p.PropFAID``.
        **options: The keyword arguments of ``h5py.File`` that are not its own. ``driver_mode`` is
            the driver's option ``mode``: ``mode`` is an argument of ``h5py.File`` itself.
    """
    if "driver_mode" in options:
        options["mode"] = options.pop("driver_mode")
    text = driver_configuration(options)
    with lock():
        check(lib.penstock_fapl_set(fapl.id, text.encode()))


def set_connector(
    fapl: Any,
    file_driver: str | None = None,
    driver_options: Mapping[str, Any] | None = None,
    connector_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """Set the connector in a file access property list, as h5py asks of a registered driver.

    h5py registers drivers only, so ``h5py.File(name, driver="penstock_async", copy="never")``
    selects the connector. The file has a driver as well.

    Args:
        fapl: The property list, an ``h5py.h5p.PropFAID``.
        file_driver: h5py's name of the file's driver; ``None`` for the default one.
        driver_options: The options of that driver.
        connector_options: The options of the connector.
        **options: More of these, by keyword.
    """
    options |= connector_options or {}
    text = connector_configuration(options)
    _set_file_driver(fapl, file_driver, dict(driver_options or {}))
    with lock():
        check(lib.penstock_fapl_set_connector(fapl.id, text.encode()))


def _set_file_driver(fapl: Any, driver: str | None, options: dict[str, Any]) -> None:
    from h5py._hl import files

    if driver is None:
        if options:  # the message is h5py's
            raise TypeError(f"{next(iter(options))!r} is an invalid keyword argument")
    elif driver not in files.registered_drivers():
        raise ValueError(f"Unknown driver type {driver!r}")
    else:
        files._drivers[driver](fapl, **options)
