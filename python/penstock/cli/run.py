"""`penstock run`: a program whose HDF5 reads and writes by Penstock, unchanged."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any

import typer
from rich.table import Table

from penstock.cli import accounts, launch
from penstock.cli.environment import Options, environment
from penstock.cli.output import messages, plain
from penstock.cli.units import rate, size

CONTEXT = {"allow_interspersed_args": False}
"""Options after the command are the command's, with or without `--` before it."""


def run(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND...", help="The program and its arguments.")
    ],
    report: Annotated[
        bool,
        typer.Option(
            "--report",
            help="When the command has ended, show calls, bytes and time of each file and path.",
        ),
    ] = False,
    report_to: Annotated[
        Path | None, typer.Option(help="Write the report to this file, as JSON.")
    ] = None,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            help="Name the way of GPU data, a line for each process that had any.",
        ),
    ] = False,
    mode: Annotated[
        str | None,
        typer.Option(
            help="auto, gds (cuFile or an error), posix-mt, or for comparison sec2, direct, "
            "sec2+pinned, direct+pinned."
        ),
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Workers that serve one call.")] = None,
    block: Annotated[
        str | None, typer.Option(help="Bytes that a worker moves at a time: 4MiB.")
    ] = None,
    route: Annotated[str | None, typer.Option(help="auto, host, staged, mapped or gds.")] = None,
    direct: Annotated[
        str | None, typer.Option(help="Bypass the page cache: auto, no or yes.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Any other option of the driver. Repeatable."),
    ] = None,
    io_use_vfd_gds: Annotated[
        bool | None,
        typer.Option(
            help="Legate's switch: cuFile where it is best (mode auto), or never (mode posix-mt). "
            "The environment variable LEGATE_IO_USE_VFD_GDS does the same."
        ),
    ] = None,
    legate: Annotated[
        bool,
        typer.Option("--legate", help="Stand in for the driver that Legate brings for itself."),
    ] = False,
) -> None:
    """Run a program with Penstock as the driver of its HDF5.

    The command's exit status is passed on; 127 means that it was not found and 126 that it cannot
    be executed.
    """
    given = {"mode": mode, "threads": threads, "block": block, "route": route, "direct": direct}
    options = Options.of(given, option or (), io_use_vfd_gds, legate)
    try:
        if not (report or report_to or verbose):
            launch.replace(command, environment(options, os.environ))
        status = _watch(command, options, os.environ, report, report_to, verbose)
    except launch.CannotRunError as error:
        print(f"penstock: {error}", file=sys.stderr)
        status = error.status
    raise typer.Exit(status)


def _watch(
    command: list[str],
    options: Options,
    inherited: Mapping[str, str],
    report: bool,
    report_to: Path | None,
    verbose: bool,
) -> int:
    if report_to is not None:
        # Where it cannot be written, that is told now and not after hours.
        report_to.open("a", encoding="utf-8").close()
    with tempfile.TemporaryDirectory(prefix="penstock-run-") as folder:
        wanted = environment(options, inherited) | {accounts.FOLDER_VARIABLE: folder}
        start = time.monotonic()
        status = launch.watch(command, wanted)
        seconds = time.monotonic() - start
        processes = accounts.read(Path(folder))
    if report:
        _show(command, status, seconds, processes)
    if verbose:
        for process in processes:
            print(f"IO MODE : {process.mode}", file=sys.stderr)
    if report_to is not None:
        _write(report_to, command, status, seconds, processes)
    return status


def _show(
    command: list[str], status: int, seconds: float, processes: list[accounts.Process]
) -> None:
    summary = f"{shorten(shlex.join(command), 80)}: status {status}, {seconds:.2f} s, "
    summary += f"{len(processes)} process(es) with HDF5 files"
    messages.print(summary, markup=False, highlight=False, soft_wrap=True)
    table = Table()
    for heading in ("File", "", "Path"):
        table.add_column(heading, overflow="fold")
    for heading in ("Calls", "Bytes", "Time", "Rate"):
        table.add_column(heading, justify="right", no_wrap=True)
    previous = ""
    for flow in accounts.total(processes):
        if previous not in ("", flow.file):
            table.add_section()
        name = "" if flow.file == previous else flow.file
        previous = flow.file
        took = flow.ns / 1e9
        row = (f"{flow.calls:,}", size(flow.bytes), f"{took * 1e3:,.2f} ms", rate(flow.bytes, took))
        table.add_row(*plain(name, flow.operation, flow.path, *row))
    if table.row_count:
        messages.print(table)
    for note in accounts.notes(processes):
        messages.print(f"Note: {note}", markup=False, highlight=False, soft_wrap=True)


def _write(
    file: Path, command: list[str], status: int, seconds: float, processes: list[accounts.Process]
) -> None:
    contents: dict[str, Any] = {
        "command": command,
        "status": status,
        "seconds": seconds,
        "flows": [asdict(flow) for flow in accounts.total(processes)],
        "notes": accounts.notes(processes),
        "processes": [asdict(process) | {"mode": process.mode} for process in processes],
    }
    file.write_text(json.dumps(contents, indent=2) + "\n", encoding="utf-8")
