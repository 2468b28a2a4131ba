"""`penstock report`: what this machine offers for I/O, and remedies for what it lacks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.table import Table
from rich.text import Text

import penstock
from penstock import diagnosis, text_file
from penstock.cli.output import AsJson, plain, print_json, print_table, results, say
from penstock.diagnosis import Line, Status, page
from penstock.same_file import conflict

_STYLES = {Status.OK: "green", Status.WARN: "yellow", Status.NO: "bold red", Status.UNKNOWN: "dim"}


def report(
    name: Annotated[
        str | None,
        typer.Argument(metavar="PATH", help="A file or folder whose file system to check, too."),
    ] = None,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure", help="Measure each GPU's link in both directions: a second per GPU."
        ),
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(readable=False, help="Write the report to this file, as one HTML page."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what GPUs, cuFile, storage and HDF5 offer here: OK, WARN or NO, with a remedy.

    The exit status is 2 if PATH does not exist, or the page cannot be written.
    """
    if name == "":
        _refuse("the path is empty")  # which pathlib takes for the working folder
    path = None if name is None else Path(name)
    if path is not None:
        _require(path)
    if html is not None:
        if path is not None and (why := conflict(html, [path])):
            _refuse(why)
        with _refusing(html):  # fail now, not after the checks
            text_file.require_replaceable(html)
    facts = diagnosis.gather(penstock.describe(path), path)
    facts["link_rates"] = _measure(facts) if measure else None
    lines = diagnosis.judge(facts)
    if html is not None:
        text = page.render(lines, _title(facts), datetime.now().astimezone())
        with _refusing(html):
            text_file.write(html, text)
        say(f"Written: {html}")
    if as_json:
        facts["checks"] = [asdict(line) for line in lines]
        print_json(facts)
    elif html is None:
        _show(lines, _title(facts))
        if path is None:
            results.print("To check the storage under a path: penstock report PATH")


def _require(path: Path) -> None:
    try:
        exists = path.exists()
    except OSError as error:  # a name that is too long, or a folder without search permission
        _refuse(f"{path}: {error.strerror}")
    if not exists:
        _refuse(f"{path} does not exist")


@contextmanager
def _refusing(html: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        _refuse(f"{html} cannot be written: {error.strerror}")


def _refuse(why: str) -> NoReturn:
    print(f"penstock report: {diagnosis.readable(why)}", file=sys.stderr)
    raise typer.Exit(2)


def _measure(facts: dict[str, Any]) -> dict[str, Any]:
    from penstock.diagnosis.facts import link

    return {
        gpu["pci_bus_id"]: link.measure(gpu["ordinal"], gpu["pci_bus_id"])
        for gpu in facts["gpus"]
        if gpu["ordinal"] is not None
    }


def _title(facts: dict[str, Any]) -> str:
    where = "" if facts["storage"] is None else f", {facts['storage']['path']}"
    return diagnosis.readable(f"Penstock {facts['version']} on this machine{where}")


def _show(lines: list[Line], title: str) -> None:
    # As Text, because brackets and colons in a path are not markup.
    table = Table(title=Text(title, style="table.title"), title_justify="left")
    table.add_column("What", overflow="fold", ratio=3)
    table.add_column("", no_wrap=True)
    table.add_column("Found", overflow="fold", ratio=6)
    table.add_column("What this means, and what to do", overflow="fold", ratio=7)
    section = None
    for line in lines:
        if line.section != section:
            table.add_section()
            table.add_row(Text(line.section, style="bold"))
            section = line.section
        name, found, advice = plain(line.name, line.found, line.meaning)
        if line.remedy:
            advice.append(("\n" if line.meaning else "") + line.remedy, style="bold")
        table.add_row(name, Text(line.status.value, style=_STYLES[line.status]), found, advice)
    print_table(table)
    results.print(", ".join(f"{count} {status.value}" for status, count in counts(lines).items()))


def counts(lines: list[Line]) -> dict[Status, int]:
    """Return the number of lines with each status."""
    return {status: sum(line.status is status for line in lines) for status in Status}
