"""The root options, which print the paths of library, headers and configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

import penstock
from penstock import paths


def _print_and_stop(answer: str | Path) -> Callable[[bool], None]:
    def callback(is_set: bool) -> None:
        if is_set:
            typer.echo(answer)
            raise typer.Exit

    return callback


def _question(flag: str, answer: str | Path, help_text: str) -> object:
    """Return an option that prints one line and ends the command, as `--version` usually does."""
    return typer.Option(flag, callback=_print_and_stop(answer), is_eager=True, help=help_text)


def answer(
    version: Annotated[
        bool, _question("--version", penstock.__version__, "Print Penstock's version.")
    ] = False,
    library: Annotated[
        bool, _question("--library", paths.library(), "Print the path of the library.")
    ] = False,
    include_dir: Annotated[
        bool, _question("--include-dir", paths.include_dir(), "Print the folder of penstock.h.")
    ] = False,
    plugin_dir: Annotated[
        bool,
        _question(
            "--plugin-dir", paths.plugin_dir(), "Print the folder to add to HDF5_PLUGIN_PATH."
        ),
    ] = False,
    cmake_dir: Annotated[
        bool,
        _question(
            "--cmake-dir", paths.cmake_dir(), "Print the folder to give CMake as penstock_DIR."
        ),
    ] = False,
    pkg_config_dir: Annotated[
        bool,
        _question(
            "--pkg-config-dir",
            paths.pkg_config_dir(),
            "Print the folder to add to PKG_CONFIG_PATH.",
        ),
    ] = False,
) -> None:
    """Move arrays between files and GPU memory."""
