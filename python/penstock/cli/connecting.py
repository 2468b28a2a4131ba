"""The value of HDF5_VOL_CONNECTOR that selects Penstock's connector, above any other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import typer

from penstock._native import lib
from penstock.errors import InvalidError, check
from penstock.hdf5.plugins import CONNECTOR, connector_configuration

VARIABLE = "HDF5_VOL_CONNECTOR"


def variable(options: Mapping[str, str], inherited: Mapping[str, str]) -> str:
    """Return the value of the variable.

    Settings of this connector in the inherited value are kept unless an option replaces them. If
    the inherited value selects another connector, that one goes below this one.
    """
    below, settings = _parts(inherited)
    own = connector_configuration(settings | dict(options))
    under = ";".join(f"{key}={value}" for key, value in below.items())
    try:
        check(lib.penstock_hdf5_check_connector_options(under.encode()))
    except InvalidError as error:
        before = inherited[VARIABLE]
        raise typer.BadParameter(
            f"{CONNECTOR} cannot lie above {VARIABLE}={before!r}: {error}"
        ) from None
    return ";".join(filter(None, [f"{CONNECTOR} {under}", own]))


def log_of(options: Mapping[str, str], inherited: Mapping[str, str]) -> str | None:
    """Return the path of the log that the connector will write."""
    return options.get("log") or _parts(inherited)[1].get("log")


def _parts(inherited: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the connector below, and the environment's settings of this one."""
    below = {"under_vol": "0", "under_info": "{}"}
    settings: dict[str, str] = {}
    # HDF5 reads a name, and takes the rest of the line as the connector's configuration.
    name, text = (*inherited.get(VARIABLE, "").split(None, 1), "", "")[:2]
    text = text.partition("\n")[0].strip()
    if name == CONNECTOR:
        for key, value in _items(text):
            (below if key in below else settings)[key] = value
    elif name:
        below = {"under_vol": name, "under_info": f"{{{text}}}"}
    return below, settings


def _items(text: str) -> Iterator[tuple[str, str]]:
    """Yield the assignments. Semicolons outside of braces separate them."""
    depth, items = 0, [""]
    for character in text:
        depth = max(depth + (character == "{") - (character == "}"), 0)
        if character == ";" and depth == 0:
            items.append("")
        else:
            items[-1] += character
    for item in filter(str.strip, items):
        key, _, value = item.partition("=")
        yield key.strip(), value.strip()
