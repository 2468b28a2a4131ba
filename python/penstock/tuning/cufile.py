"""Tunes cuFile's configuration: finds the values of its keys that are fastest here.

cuFile reads its configuration when its driver is opened, so each setting needs a new process.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock import cufile_json
from penstock.cufile_json import VARIABLE
from penstock.errors import Error
from penstock.tuning.measure import AbsentError, Workers
from penstock.tuning.race import Outcome, RefusedError, Setting, race
from penstock.tuning.rows import LARGE_FROM, Row

_VALUES = {
    "properties.max_direct_io_size_kb": ("16384", "1024", "4096"),
    "properties.per_buffer_cache_size_kb": ("1024", "4096", "16384"),
    "execution.parallel_io": ("true", "false"),
    "execution.max_io_threads": ("4", "0", "8", "16"),
    "execution.max_request_parallelism": ("4", "0", "8"),
    "execution.min_io_threshold_size_kb": ("8192", "1024"),
}
"""The usual value of each key, and others, of which each is tried with the usual ones."""
_GDS: Setting = (("block", "16MiB"), ("route", "gds"), ("threads", "4"))
_REPEATS = 3


def in_force() -> dict[str, Any]:
    """Return the configuration that cuFile reads in this environment; empty if there is none.

    Raises:
        InvalidError: It is not valid, or cannot be written with other keys.
    """
    path, found = cufile_json.in_force()
    try:
        json.dumps(found, indent=4, allow_nan=False)  # as it will be written
    except ValueError as error:
        raise cufile_json.invalid(path, f"is invalid: {error}") from None
    except RecursionError:
        raise cufile_json.invalid(path, "is invalid: it is nested too deeply") from None
    for section in sorted({name.split(".")[0] for name in _VALUES}):
        if not isinstance(found.get(section, {}), dict):
            raise cufile_json.invalid(path, f"is invalid: {section} is not an object")
    return found


def merged(base: dict[str, Any], setting: Setting) -> dict[str, Any]:
    """Return a configuration with the keys of a setting, such as "execution.parallel_io"."""
    config: dict[str, Any] = json.loads(json.dumps(base))
    for name, value in setting:
        section, key = name.split(".")
        config.setdefault(section, {})[key] = json.loads(value)
    return config


def best(
    path: Path, nbytes: int, device: int, left: Callable[[], float]
) -> tuple[Outcome, dict[str, Any]]:
    """Return the best keys for an existing file, and the whole configuration with them."""
    base = in_force()
    rows = [Row("read", "large", "storage"), Row("read", "large", "cache")]

    def rate(workers: Workers) -> float:
        workers.run(rows[0], _GDS, LARGE_FROM, check="windows")
        return statistics.median(
            workers.run(rows[0], _GDS, LARGE_FROM).rate for _ in range(_REPEATS)
        )

    def measure(setting: Setting) -> float:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(merged(base, setting), file)
            file.flush()
            try:
                with Workers([(path, device)], nbytes, {VARIABLE: file.name}) as workers:
                    try:
                        return rate(workers)
                    except AbsentError:
                        del rows[0]
                        return rate(workers)
            except Error as error:
                raise RefusedError(str(error)) from None

    usual = {name: values[0] for name, values in _VALUES.items()}
    settings = [usual] + [
        usual | {name: value} for name, values in _VALUES.items() for value in values[1:]
    ]
    outcome = race([tuple(sorted(one.items())) for one in settings], measure, left)
    return outcome, merged(base, outcome.best)
