"""The cufile.json in force, key by key.

Defaults are those that gdscheck prints for cuFile 1.11 to 1.15. The advice for large HDF5 datasets
is that of Legate's page "Using GPUDirect Storage to perform HDF5 file I/O".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.diagnosis.line import Line, Section, version_of
from penstock.units import size

_SECTION = Section("cufile.json")

_LARGEST = (1 << 63) - 1


@dataclass(frozen=True)
class _Key:
    """A key that affects speed."""

    name: str
    default: Any
    is_good: Callable[[Any], bool]
    """Whether a value of the default's type is good."""
    meaning: str
    advice: str
    """The value to recommend otherwise, as JSON."""

    @property
    def short(self) -> str:
        return self.name.rsplit(".", 1)[1]

    def takes(self, value: Any) -> bool:
        """Whether a value is of the right type. A bool is not a number here."""
        if isinstance(self.default, bool) or isinstance(value, bool):
            return isinstance(value, bool) and isinstance(self.default, bool)
        return isinstance(value, type(self.default)) and -_LARGEST <= value <= _LARGEST


def _least(name: str, default: int, least: int, meaning: str, advice: str = "") -> _Key:
    return _Key(name, default, lambda value: value >= least, meaning, advice or str(least))


def _switch(name: str, good: bool, meaning: str) -> _Key:
    """Return a switch whose default is good."""
    return _Key(name, good, lambda value: value is good, meaning, _json(good))


def _json(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_SPLIT = "execution.min_io_threshold_size_kb"
_KEYS = (
    _switch("execution.parallel_io", True, "Several threads serve parts of a large request."),
    _least("execution.max_io_threads", 4, 8, "Threads per GPU that serve such requests."),
    _least(
        "execution.max_request_parallelism",
        *(4, 8, "Parts of one request that are in flight together."),
    ),
    _Key(_SPLIT, 8192, lambda n: 0 < n <= 8192, "KiB from which a request is split.", "8192"),
    _least("execution.max_io_queue_depth", 128, 128, "The most requests that can be queued."),
    _least(
        "properties.per_buffer_cache_size_kb",
        *(1024, 16384, "KiB of bounce buffer on the GPU that a transfer uses at a time."),
    ),
    _least(
        "properties.max_device_cache_size_kb",
        *(131072, 131072, "KiB of bounce buffers on the GPU in all."),
    ),
    _least(
        "properties.max_direct_io_size_kb",
        *(16384, 1024, "KiB of the largest request that nvidia-fs gets at a time.", "16384"),
    ),
    _least(
        "properties.max_device_pinned_mem_size_kb",
        *(33554432, 33554432, "KiB of GPU memory that may be registered."),
    ),
    _switch(
        "properties.use_poll_mode", False, "Polling helps requests of a few KiB, and costs a core."
    ),
    _switch("profile.nvtx", False, "Ranges for NVIDIA's profilers; each call pays for them."),
)

_COMPAT = "properties.allow_compat_mode"
# The libraries up to 1.16 contain the variable's name, and later ones do not.
_WITHOUT_VARIABLE = (1, 17)
_FORCED = "properties.force_compat_mode"
_LEVEL = "logging.level"


def lines(facts: Mapping[str, Any]) -> Iterator[Line]:
    config = facts["cufile_json"]
    if not config["exists"] and config["reason"] is None and not facts["cufile"]["available"]:
        return
    yield _file(config)
    if config["misnamed_by"]:
        yield _SECTION.warn(
            config["misnamed_by"],
            "set",
            "cuFile does not read this variable.",
            "Set CUFILE_ENV_PATH_JSON to the path of the file.",
        )
    if config["reason"] is not None:
        return
    if _ignores(config, facts["cufile"]):
        yield _SECTION.warn(
            "CUFILE_ALLOW_COMPAT_MODE",
            "set",
            f"cuFile {facts['cufile']['version']} no longer reads this variable.",
            f'Set "properties": {{"allow_compat_mode": ...}} in {config["path"]}.',
        )
        read = {key: value for key, value in config["overrides"].items() if key != _COMPAT}
        config = {**config, "overrides": read}
    for key in _KEYS:
        yield _line(key, config)
    yield _bounce(config)
    yield _compat(config, facts["cufile"])
    yield _log(config)


def _ignores(config: Mapping[str, Any], cufile: Mapping[str, Any]) -> bool:
    """Whether the variable for compatibility mode is set, but this cuFile does not read it."""
    version = version_of(cufile["version"])
    return _COMPAT in config["overrides"] and version is not None and version >= _WITHOUT_VARIABLE


def _file(config: Mapping[str, Any]) -> Line:
    path = config["path"]
    by = f", named by {config['named_by']}" if config["named_by"] else ""
    if config["reason"] is not None:
        return _SECTION.no(
            "File",
            f"{path} {config['reason']}{by}",
            "cuFile does not start with it, or uses its defaults.",
            "Fix it: JSON with // comments, and no comma before a closing brace.",
        )
    if config["exists"]:
        return _SECTION.ok("File", f"{path}{by}, {len(config['keys'])} keys")
    return _SECTION.ok("File", f"no {path}", "cuFile uses its defaults.")


def _value(config: Mapping[str, Any], name: str) -> Any:
    return config["overrides"].get(name, config["keys"].get(name))


def _line(key: _Key, config: Mapping[str, Any]) -> Line:
    value = _value(config, key.name)
    found = f"not set, {_json(key.default)} by default" if value is None else _json(value)
    section, short = key.name.rsplit(".", 1)
    remedy = f'"{section}": {{"{short}": {key.advice}}} in {config["path"]}.'
    if value is not None and not key.takes(value):
        why = f"{found}: not of the type of {_json(key.default)}"
        return _SECTION.no(key.short, why, key.meaning, f"Set {remedy}")
    if key.is_good(key.default if value is None else value):
        return _SECTION.ok(key.short, found, key.meaning)
    return _SECTION.warn(key.short, found, key.meaning, f"For large datasets, set {remedy}")


def _bounce(config: Mapping[str, Any]) -> Line:
    """Check the two sizes together: NVIDIA's guide recommends room for many bounce buffers."""
    what = "Bounce buffers"

    def number(name: str, default: int) -> int | None:
        value = _value(config, name)
        value = default if value is None else value
        return value if type(value) is int and 0 <= value <= _LARGEST else None

    each = number("properties.per_buffer_cache_size_kb", 1024)
    all_of_them = number("properties.max_device_cache_size_kb", 131072)
    threads = number("execution.max_io_threads", 4)
    if not each or all_of_them is None or threads is None:
        return _SECTION.unknown(what, "their sizes are not numbers", "Fix the keys above.")
    count = all_of_them // each
    found = f"{count} of {size(each << 10)}"
    if count >= threads:
        return _SECTION.ok(what, found, "One for each thread, or more.")
    return _SECTION.warn(
        what,
        found,
        f"{threads} threads share them.",
        f'Set "properties": {{"max_device_cache_size_kb": {each * threads}}} in {config["path"]}.',
    )


def _compat(config: Mapping[str, Any], cufile: Mapping[str, Any]) -> Line:
    forced, allowed = _value(config, _FORCED), _value(config, _COMPAT)
    direct = cufile["mode"] in ("p2p", "nvfs")
    if forced is True:
        return _SECTION.warn(
            "allow_compat_mode",
            "forced by force_compat_mode",
            "cuFile reads through host memory even where GPUDirect could be used.",
            f'Set "properties": {{"force_compat_mode": false}} in {config["path"]}, and unset '
            "CUFILE_FORCE_COMPAT_MODE.",
        )
    if allowed is False and cufile["available"] and not direct:
        return _SECTION.no(
            "allow_compat_mode",
            "false, and GPUDirect is not available",
            "cuFile refuses every file.",
            f'Set "properties": {{"allow_compat_mode": true}} in {config["path"]}, or meet the '
            "conditions of GPUDirect.",
        )
    found = "not set, true by default" if allowed is None else _json(allowed)
    meaning = (
        "Where GPUDirect cannot be used, cuFile fails."
        if allowed is False
        else "Where GPUDirect cannot be used, cuFile reads through host memory."
    )
    return _SECTION.ok("allow_compat_mode", found, meaning)


def _log(config: Mapping[str, Any]) -> Line:
    level = _value(config, _LEVEL)
    if str(level).upper() in ("DEBUG", "TRACE"):
        return _SECTION.warn(
            "logging.level",
            str(level),
            "cuFile writes lines for each request.",
            f'Set "logging": {{"level": "ERROR"}} in {config["path"]}.',
        )
    return _SECTION.ok(
        "logging.level", "not set, ERROR by default" if level is None else str(level)
    )
