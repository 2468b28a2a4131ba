"""`penstock run`: run an unchanged program whose HDF5 reads and writes through Penstock."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any

import typer
from rich.table import Table

from penstock import text_file
from penstock.cli import accounts, connecting, launch, linked
from penstock.cli import calls as connector_calls
from penstock.cli.calls import Calls
from penstock.cli.environment import Options, assignments, environment, replaced, settings
from penstock.cli.launcher import Layout
from penstock.cli.output import messages, plain, say
from penstock.same_file import conflict
from penstock.signals import temporary_folder
from penstock.units import rate, size

CONTEXT = {"allow_interspersed_args": False}
"""Options after the command belong to it, with or without `--` before it."""


def run(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND...", help="The program and its arguments.")
    ],
    report: Annotated[
        bool,
        typer.Option(
            "--report",
            help="After the command has ended, show calls, bytes and time by file and path.",
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
            help="Print the path of GPU data, one line for each process with HDF5 files.",
        ),
    ] = False,
    mode: Annotated[
        str | None,
        typer.Option(
            help="auto, gds (cuFile or an error), posix-mt, or for comparison sec2, direct, "
            "sec2+pinned or direct+pinned."
        ),
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Workers that serve one call.")] = None,
    block: Annotated[
        str | None, typer.Option(help="Bytes that a worker moves at a time, such as 4MiB.")
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
            "The environment variable LEGATE_IO_USE_VFD_GDS has the same effect."
        ),
    ] = None,
    legate: Annotated[
        bool,
        typer.Option(
            "--legate",
            "--io-use-penstock",
            help="Replace the HDF5 driver that Legate brings, and set what a Legate program needs.",
        ),
    ] = False,
    launcher: Annotated[
        str, typer.Option(help="What starts the ranks: mpirun (Open MPI's), srun or none.")
    ] = "none",
    nodes: Annotated[int, typer.Option(help="Nodes of the job.")] = 1,
    ranks_per_node: Annotated[int, typer.Option(help="Ranks on each node.")] = 1,
    gpus: Annotated[
        int | None,
        typer.Option(
            help="GPUs of each rank, of those that CUDA_VISIBLE_DEVICES shows; it sees no others."
        ),
    ] = None,
    gpu_bind: Annotated[
        str | None,
        typer.Option(help="The GPUs of each rank of a node, such as 0/1/2/3 or 0,1/2,3."),
    ] = None,
    cpu_bind: Annotated[
        str | None,
        typer.Option(help="The cores of each rank of a node, such as 0-15/16-31, by numactl."),
    ] = None,
    mem_bind: Annotated[
        str | None,
        typer.Option(help="The NUMA nodes of each rank's memory, such as 0/1, by numactl."),
    ] = None,
    launcher_extra: Annotated[
        list[str] | None,
        typer.Option(metavar="ARGUMENTS", help="More arguments of the launcher. Repeatable."),
    ] = None,
    use_connector: Annotated[
        bool,
        typer.Option(
            "--async",
            help="Also use the connector: H5Dwrite_async and the like continue in the background. "
            "--threads, --block, --route and --direct apply to both.",
        ),
    ] = False,
    async_copy: Annotated[
        str | None,
        typer.Option(help="Whether such a write copies its data first: auto, always or never."),
    ] = None,
    async_max_mem_mb: Annotated[
        int | None, typer.Option(help="MiB that these copies may take at most.")
    ] = None,
    async_log: Annotated[
        Path | None, typer.Option(help="Add a line for each such call to this file.")
    ] = None,
    async_implicit: Annotated[
        bool | None,
        typer.Option(
            "--async-implicit/--no-async-implicit",
            help="Let plain H5Dwrite continue in the background, too, until the file is flushed or "
            "closed or the dataset is read.",
        ),
    ] = None,
    async_option: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Any other option of the connector. Repeatable."),
    ] = None,
) -> None:
    """Run a program with Penstock as its HDF5 driver and, with --async, as its HDF5 connector.

    With --launcher, --gpus or a binding, the line that starts all ranks is printed first. The exit
    status is the command's; 127 means that it was not found, and 126 that it cannot be executed.
    """
    given = {"mode": mode, "threads": threads, "block": block, "route": route, "direct": direct}
    named = {
        "copy": async_copy,
        "max_mem_mb": async_max_mem_mb,
        "log": None if async_log is None else async_log.absolute(),
        "implicit": None if async_implicit is None else int(async_implicit),
    }
    connector = assignments(named, async_option or (), "--async-option")
    if connector and not use_connector:
        raise typer.BadParameter("options of the connector need --async", param_hint="--async")
    options = Options.of(
        given, option or (), io_use_vfd_gds, legate, connector if use_connector else None
    )
    if not command[0]:
        raise typer.BadParameter("the name of the program is empty", param_hint="COMMAND")
    if report_to is not None:
        words = [shutil.which(command[0]), *command, named["log"]]
        inputs = [Path(str(word)) for word in words if word]
        if why := conflict(report_to, inputs):
            raise typer.BadParameter(why, param_hint="--report-to")
    bindings = {"--gpu-bind": gpu_bind, "--cpu-bind": cpu_bind, "--mem-bind": mem_bind}
    extra = _words(launcher_extra or (), "--launcher-extra")
    layout = Layout.of(launcher, nodes, ranks_per_node, gpus, bindings, extra)
    problems = dict(linked.problems(command, os.environ))
    for note in (replaced(os.environ), *problems.values()):
        if note is not None:
            say(f"penstock: {note}")
    if command[0] in problems:
        # Its HDF5 would say in many lines that it cannot load the connector.
        options = replace(options, connector=None)
    if not layout.is_plain:
        names = set(settings(options, os.environ))
        if report or report_to or verbose:
            names.add(accounts.FOLDER_VARIABLE)
        command = layout.line(command, names)
        say(f"penstock: {shlex.join(command)}")
    try:
        if not (report or report_to or verbose):
            launch.replace(command, environment(options, os.environ))
        status = _watch(command, options, os.environ, report, report_to, verbose)
    except launch.CannotRunError as error:
        print(f"penstock: {error}", file=sys.stderr)
        status = error.status
    raise typer.Exit(status)


_NOTHING = (
    "no process opened an HDF5 file by Penstock's driver: none was opened, or by an HDF5 older "
    "than 1.14, one that is linked statically, or an access list that sets another driver"
)


def _words(texts: Iterable[str], flag: str) -> list[str]:
    """Divide arguments as a shell does."""
    try:
        return [word for text in texts for word in shlex.split(text)]
    except ValueError as error:  # such as a quote that does not end
        raise typer.BadParameter(f"{' '.join(texts)!r}: {error}", param_hint=flag) from None


def _watch(
    command: list[str],
    options: Options,
    inherited: Mapping[str, str],
    report: bool,
    report_to: Path | None,
    verbose: bool,
) -> int:
    if report_to is not None:
        # Fail now if it cannot be written, not after the command has run.
        text_file.require_replaceable(report_to)
    with temporary_folder("penstock-run-") as folder:
        log = folder / "calls"
        if options.connector is not None:
            log = Path(connecting.log_of(options.connector, inherited) or log)
            options = replace(options, connector=options.connector | {"log": str(log)})
        logged = connector_calls.size(log)
        wanted = environment(options, inherited) | {accounts.FOLDER_VARIABLE: str(folder)}
        start = time.monotonic()
        status = launch.watch(command, wanted)
        seconds = time.monotonic() - start
        processes = accounts.read(folder)
        calls = connector_calls.read(log, logged)
        incomplete = connector_calls.why_incomplete(folder)
    if report:
        _show(command, status, seconds, processes)
        _show_calls(calls)
    if incomplete is not None:
        say(f"penstock: {log}: the log lacks calls, because it could not be written: {incomplete}")
    if not processes:
        say(f"penstock: {_NOTHING}")
    if verbose:
        for process in processes:
            print(f"IO MODE : {process.mode}", file=sys.stderr)
    if report_to is not None:
        _write(report_to, command, status, seconds, processes, calls)
    return status


def _show(
    command: list[str], status: int, seconds: float, processes: list[accounts.Process]
) -> None:
    summary = f"{shorten(shlex.join(command), 80)}: status {status}, {seconds:.2f} s, "
    summary += f"{len(processes)} process(es) with HDF5 files"
    say(summary)
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
        say(f"Note: {note}")


def _show_calls(calls: list[Calls]) -> None:
    table = Table()
    for heading in ("Call", "", "Why"):
        table.add_column(heading, overflow="fold")
    for heading in ("Calls", "Bytes"):
        table.add_column(heading, justify="right", no_wrap=True)
    for same in calls:
        row = (f"{same.count:,}", size(same.bytes) if same.bytes else "")
        table.add_row(*plain(same.name, same.manner, same.why, *row))
    if table.row_count:
        messages.print(table)


def _write(
    file: Path,
    command: list[str],
    status: int,
    seconds: float,
    processes: list[accounts.Process],
    calls: list[Calls],
) -> None:
    contents: dict[str, Any] = {
        "command": command,
        "status": status,
        "seconds": seconds,
        "flows": [asdict(flow) for flow in accounts.total(processes)],
        "notes": accounts.notes(processes),
        "calls": [asdict(same) for same in calls],
        "processes": [asdict(process) | {"mode": process.mode} for process in processes],
    }
    text_file.write(file, json.dumps(contents, indent=2) + "\n")
