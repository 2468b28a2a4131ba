"""The environment in which a program's HDF5 finds and uses Penstock's driver and connector."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from penstock import paths
from penstock.cli import connecting
from penstock.cli.ending import refusing
from penstock.hdf5.plugins import DRIVER, SHARED, driver_configuration

# Where HDF5 looks for plugins as long as HDF5_PLUGIN_PATH is not set.
_DEFAULT_FOLDERS = ("/usr/local/hdf5/lib/plugin", "/usr/local/lib/plugin")

_LEGATE_SWITCH = "LEGATE_IO_USE_VFD_GDS"


def assignments(given: Mapping[str, Any], more: Iterable[str], hint: str) -> dict[str, str]:
    """Merge options that have a flag of their own with those given as KEY=VALUE."""
    keys = {key: str(value) for key, value in given.items() if value is not None}
    for assignment in more:
        key, equals, value = assignment.partition("=")
        if not equals:
            raise typer.BadParameter(f"{assignment!r} is not KEY=VALUE", param_hint=hint)
        if key in keys:
            raise typer.BadParameter(f"{key} is given twice", param_hint=hint)
        keys[key] = value
    return keys


@dataclass(frozen=True)
class Options:
    """The command line's options of driver and connector."""

    keys: dict[str, str]
    """Options of the driver."""
    use_gds: bool | None
    """Legate's switch; ``None`` if it was not given."""
    legate: bool
    """Whether to replace Legate's own driver."""
    connector: dict[str, str] | None
    """Options of the connector, including those it shares with the driver; ``None`` without it."""

    @classmethod
    def of(
        cls,
        given: Mapping[str, Any],
        more: Iterable[str],
        use_gds: bool | None,
        legate: bool,
        connector: Mapping[str, str] | None = None,
    ) -> Options:
        keys = assignments(given, more, "--option")
        if connector is not None:
            connector = {key: keys[key] for key in keys if key in SHARED} | dict(connector)
        if use_gds is not None and "mode" in keys:
            raise typer.BadParameter(
                "--io-use-vfd-gds and --no-io-use-vfd-gds select a mode: omit them or --mode",
                param_hint="--mode",
            )
        return cls(keys, use_gds, legate, connector)


def environment(options: Options, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the command: the inherited one and what the plugins need.

    It keeps the user's own settings of cuFile.
    """
    wanted = dict(inherited)
    wanted.pop("HDF5_DRIVER_CONFIG", None)
    return wanted | settings(options, inherited)


@refusing()
def settings(options: Options, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the plugins need, also those that are inherited as they are."""
    plugins = [paths.PLUGIN] if options.connector is None else [paths.PLUGIN, paths.CONNECTOR]
    wanted = {"HDF5_PLUGIN_PATH": _plugin_path(plugins, inherited), "HDF5_DRIVER": DRIVER}
    config = _configuration(options, inherited)
    if config:
        wanted["HDF5_DRIVER_CONFIG"] = config
    if options.connector is not None:
        wanted[connecting.VARIABLE] = connecting.variable(options.connector, inherited)
    # Without nvidia-fs, cuFile starts only if compatibility mode is allowed. From CUDA 12.9 on,
    # Penstock allows it by a call; an older cuFile reads only this variable. Statistics need no
    # variable, because Penstock switches them on by a call. A cufile.json from Penstock would hide
    # the administrator's settings in /etc/cufile.json.
    if "CUFILE_ENV_PATH_JSON" not in inherited:
        wanted["CUFILE_ALLOW_COMPAT_MODE"] = inherited.get("CUFILE_ALLOW_COMPAT_MODE", "true")
    if options.legate:
        wanted |= _for_legate(options, inherited)
    return wanted


def replaced(inherited: Mapping[str, str]) -> str | None:
    """Return a note on the user's settings that Penstock's driver replaces, or ``None``."""
    if _is_ours(inherited):
        return None
    names = [name for name in ("HDF5_DRIVER", "HDF5_DRIVER_CONFIG") if inherited.get(name)]
    settings = " and ".join(f"{name}={inherited[name]}" for name in names)
    return f"{settings} of the environment: replaced, because the command runs on {DRIVER}'s driver"


def _is_ours(inherited: Mapping[str, str]) -> bool:
    """Whether HDF5_DRIVER_CONFIG has options for Penstock: no other driver is set."""
    return (inherited.get("HDF5_DRIVER") or DRIVER) == DRIVER


def _plugin_path(plugins: Iterable[str], inherited: Mapping[str, str]) -> str:
    if inherited.get("HDF5_PLUGIN_PRELOAD") == "::":
        raise typer.BadParameter(
            "HDF5_PLUGIN_PRELOAD=:: forbids all plugins of HDF5, including the driver: unset it"
        )
    folder = paths.plugin_dir()
    for plugin in plugins:
        if not (folder / plugin).exists():
            raise typer.BadParameter(f"{folder / plugin} is missing: reinstall penstock")
    before = inherited.get("HDF5_PLUGIN_PATH")
    folders = [before] if before else [name for name in _DEFAULT_FOLDERS if Path(name).is_dir()]
    return ":".join([str(folder), *folders])


def _configuration(options: Options, inherited: Mapping[str, str]) -> str:
    """Return the driver's options: the command line overrides the environment."""
    keys: dict[str, str] = {}
    if _is_ours(inherited):
        for item in inherited.get("HDF5_DRIVER_CONFIG", "").split(";"):
            if item.strip():
                key, _, value = item.partition("=")
                keys[key.strip()] = value.strip()
    switch = inherited.get(_LEGATE_SWITCH)
    use_gds = options.use_gds
    if use_gds is None and switch is not None:
        use_gds = switch not in ("", "0")
    if use_gds is not None:
        keys["mode"] = "auto" if use_gds else "posix-mt"
    return driver_configuration(keys | options.keys)


def _for_legate(options: Options, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which Penstock replaces Legate's own driver."""
    library = paths.legate_library()
    if not library.exists():
        raise typer.BadParameter(f"{library} is missing: reinstall penstock")
    if set(str(library)) & set(": "):
        raise typer.BadParameter(
            f"the loader cannot preload {library}: install penstock in a folder whose path has "
            "no spaces or colons"
        )
    preload = ":".join(filter(None, [str(library), inherited.get("LD_PRELOAD")]))
    # Without this variable, Legate copies GPU data to host memory before it calls HDF5.
    switch = inherited.get(_LEGATE_SWITCH, "1")
    if options.use_gds is not None:
        switch = str(int(options.use_gds))
    return {"LD_PRELOAD": preload, _LEGATE_SWITCH: switch}
