"""The nvidia-fs module, and the configuration that cuFile reads."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from penstock import cufile_json
from penstock.cufile_json import DEFAULT, VARIABLE
from penstock.diagnosis.system import System

MISNOMER = "CUFILE_CONFIG_FILE"
"""The name that the text of Legate's page gives the variable; no cuFile reads it."""

OVERRIDES = {
    "CUFILE_ALLOW_COMPAT_MODE": "properties.allow_compat_mode",
    "CUFILE_FORCE_COMPAT_MODE": "properties.force_compat_mode",
    "CUFILE_USE_PCIP2PDMA": "properties.use_pci_p2pdma",
}
"""Environment variables that override the file."""


def nvidia_fs(system: System) -> dict[str, Any]:
    """Return the state of the kernel module of GPUDirect Storage."""
    text = system.text("/proc/driver/nvidia-fs/version") or ""
    version = re.search(r"\d+(?:\.\d+)+", text)
    return {
        "loaded": system.exists("/sys/module/nvidia_fs") or bool(text),
        "version": version[0] if version else system.text("/sys/module/nvidia_fs/version"),
    }


def configuration(system: System, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the cufile.json in force: its path, the variable that names it, its keys (such as
    "execution.parallel_io") or why it is invalid, and the variables that override it."""
    named = environment.get(VARIABLE) or None
    path = os.path.abspath(named) if named else DEFAULT
    contents = system.bytes(path)
    keys: dict[str, Any] = {}
    reason = None
    if contents is not None:
        try:
            keys = parse(contents.decode("utf-8"))
        except UnicodeDecodeError as error:
            reason = f"is not UTF-8: byte {error.start}"
        except ValueError as error:
            reason = str(error)
    elif not system.is_missing(path):
        reason = "cannot be read: no permission, or no file"
    elif named:
        reason = "does not exist"
    return {
        "path": path,
        "named_by": VARIABLE if named else None,
        "exists": contents is not None,
        "reason": reason,
        "keys": keys,
        "overrides": {
            key: _switch(environment[variable])
            for variable, key in OVERRIDES.items()
            if environment.get(variable)
        },
        "misnamed_by": MISNOMER if environment.get(MISNOMER) else None,
    }


def parse(text: str) -> dict[str, Any]:
    """Parse JSON with comments; return its keys, prefixed with their sections.

    Raises:
        ValueError: The text is not valid; the message has line and column.
    """
    try:
        return dict(_flat(cufile_json.parse(text), ""))
    except RecursionError:
        raise ValueError("is invalid: it is nested too deeply") from None


def _flat(value: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    pairs = []
    for key, inner in value.items():
        name = f"{prefix}{key}"
        pairs += _flat(inner, f"{name}.") if isinstance(inner, dict) else [(name, inner)]
    return pairs


def _switch(text: str) -> bool | str:
    return {"true": True, "1": True, "false": False, "0": False}.get(text.strip().lower(), text)
