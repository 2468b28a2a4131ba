"""`penstock verify`: read every dataset of HDF5 files by Penstock and h5py, and compare."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

import penstock as ps
from penstock.cli import comparison, devices
from penstock.cli.comparison import Outcome
from penstock.cli.ending import in_one_sentence
from penstock.cli.output import AsJson, messages, plain, print_json, results
from penstock.hdf5 import small
from penstock.units import size

DIFFERENT, UNREADABLE = 1, 2


def verify(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="HDF5 files.")],
    device: devices.Device = None,
    as_json: AsJson = False,
) -> None:
    """Read every dataset of HDF5 files by Penstock and by h5py, and compare them bit for bit.

    Elements of a dataset larger than 64 MiB that neither it nor a mapped source stores have a fill
    value; if they are most of it, two parts of them are compared.

    The exit status is 1 if a dataset differs, else 2 if a file cannot be read, or a dataset by
    neither, or if Penstock cannot read here at all.
    """
    with in_one_sentence(UNREADABLE):
        _verify_all(files, device, as_json)


def _verify_all(files: list[Path], device: str | None, as_json: bool) -> None:
    target = devices.choose(device)
    _require_working(target)
    small.LIMIT = 0  # otherwise h5py would read small datasets, and be compared with itself
    with suppress(ImportError):
        import_module("hdf5plugin")  # adds filters that h5py lacks
    reports = [_verify(path, target) for path in files]
    outcomes = [outcome for report in reports for outcome in report["outcomes"]]
    unreadable = [report for report in reports if report["error"]]
    summary = {
        "files": len(reports),
        "unreadable": len(unreadable),
        "datasets": len(outcomes),
        "same": _count(outcomes, "same"),
        "both_refuse": _count(outcomes, "both refuse"),
        "only_penstock": _count(outcomes, "only Penstock reads it"),
        "different": _count(outcomes, "different"),
    }
    if as_json:
        print_json({"device": target.device, **summary, "reports": _plain_reports(reports)})
    else:
        for report in reports:
            _print(report)
        _print_summary(summary, target)
    if summary["different"]:
        raise typer.Exit(DIFFERENT)
    if unreadable or summary["both_refuse"]:
        raise typer.Exit(UNREADABLE)


def _require_working(target: devices.Target) -> None:
    """Raise an error of options or device, which would otherwise be reported for each dataset."""
    with NamedTemporaryFile() as file:
        file.write(b"penstock")
        file.flush()
        ps.load(file.name, dtype="uint8", device=target.device)


def _verify(path: Path, target: devices.Target) -> dict[str, Any]:
    import h5py

    outcomes: list[Outcome] = []
    if path.exists() and not (path.is_file() or path.is_block_device()):
        error = "it is not a regular file"  # h5py would wait for the writer of a FIFO
        return {"file": path, "error": error, "outcomes": outcomes}
    try:
        with h5py.File(path, rdcc_nbytes=0) as file, messages.status("") as status:
            for name, dataset in comparison.datasets(file):
                status.update(Text(f"Reading {path}:{name}"))
                outcomes.append(comparison.compare(name, dataset, target.device))
    except OSError as error:
        return {"file": path, "error": str(error), "outcomes": outcomes}
    return {"file": path, "error": "", "outcomes": outcomes}


def _count(outcomes: list[Outcome], verdict: str) -> int:
    return sum(outcome.verdict == verdict for outcome in outcomes)


def _plain_reports(reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "file": str(report["file"]),
            "error": report["error"],
            "datasets": [
                {**asdict(outcome), "ratio": outcome.ratio} for outcome in report["outcomes"]
            ],
        }
        for report in reports
    ]


_COLOURS = {"same": "green", "different": "bold red", "both refuse": "bold yellow"}


def _print(report: dict[str, Any]) -> None:
    if report["error"]:
        messages.print(Text(f"{report['file']} cannot be read: {report['error']}"))
    if not report["outcomes"]:
        return
    table = Table(title=Text(str(report["file"])), title_justify="left")
    for heading in ("Dataset", "Layout", "Filters", "Type"):
        table.add_column(heading, overflow="fold")
    table.add_column("Size", justify="right")
    for heading in ("Route", "Decoded by"):
        table.add_column(heading)
    table.add_column("x h5py", justify="right")
    table.add_column("Verdict", overflow="fold")
    for outcome in report["outcomes"]:
        ratio = outcome.ratio
        cells = plain(
            outcome.dataset,
            outcome.layout,
            ", ".join(outcome.filters),
            outcome.dtype,
            size(outcome.bytes),
            outcome.route,
            "" if outcome.decoder == "none" else outcome.decoder,
            "" if ratio is None or not outcome.route else f"{ratio:.1f}",
        )
        verdict = Text(outcome.verdict, style=_COLOURS.get(outcome.verdict, ""))
        if outcome.detail:
            verdict.append(f": {outcome.detail}", style="dim")
        table.add_row(*cells, verdict)
    results.print(table)


def _print_summary(summary: dict[str, int], target: devices.Target) -> None:
    datasets = _counted(summary["datasets"], "dataset")
    words = [
        f"{datasets} of {_counted(summary['files'], 'file')} read into "
        f"{target.description}: {summary['same']} the same",
        f"{summary['different']} different",
    ]
    if summary["both_refuse"]:
        words.append(f"{summary['both_refuse']} not compared, because neither reads them")
    if summary["only_penstock"]:
        words.append(f"{summary['only_penstock']} that only Penstock reads")
    if summary["unreadable"]:
        words.append(f"{_counted(summary['unreadable'], 'file')} unreadable")
    results.print(Text(", ".join(words)))


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
