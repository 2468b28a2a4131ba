"""`penstock tune`: find the best options on a file system, and store them in a profile."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

import penstock as ps
from penstock import cufile_json, text_file
from penstock.cli.ending import in_one_sentence
from penstock.cli.output import AsJson, messages, plain, print_json, print_table, results
from penstock.placement import HOST, parse_device
from penstock.same_file import conflict
from penstock.tuning import cufile, profiles, tuner
from penstock.tuning.measure import WrongBytesError
from penstock.tuning.rows import ROWS, Row, in_words
from penstock.tuning.tuner import Found, Plan
from penstock.units import rate

WRONG, REFUSED = 1, 2
_CUFILE_SHARE = 0.4


def tune(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", readable=False, help="A folder of the file system to tune for."
        ),
    ],
    budget: Annotated[
        str, typer.Option(metavar="TIME", help="Longest time to measure, such as 30s or 2m.")
    ] = "60s",
    device: Annotated[
        str | None, typer.Option(metavar="N", help="N, cuda:N or cpu; the first GPU by default.")
    ] = None,
    devices: Annotated[
        str | None, typer.Option(metavar="N,N", help="Several GPUs, tuned to work together.")
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Show the stored profiles, and measure nothing.")
    ] = False,
    clear: Annotated[
        bool,
        typer.Option("--clear", help="Remove the stored profiles and settings of staged reads."),
    ] = False,
    cufile_out: Annotated[
        Path | None,
        typer.Option(
            "--cufile",
            metavar="OUT.json",
            readable=False,
            help="Also find the best values of cufile.json, and write them to this file.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find the best options for reads and writes on a file system, and store them in a profile.

    New processes use the profile; options of calls, files and the environment override it. The
    command makes a temporary file for each device in PATH. See docs/how-to/tuning.md. The exit
    status is 1 if a read gave wrong bytes, and 2 for other failures.
    """
    with in_one_sentence(REFUSED), _finding_wrong_bytes():
        store = _store(path)
        if show and clear:
            _refuse("--show and --clear exclude each other")
        if show:
            _show(store, as_json)
        elif clear:
            _clear(store, path, as_json)
        else:
            seconds = parse_time(budget)
            ordinals = _ordinals(device, devices)
            if cufile_out is not None:
                _require_cufile(path, ordinals, cufile_out)
            store.require_writable()
            _tune(store, Plan(path, ordinals, seconds), cufile_out, as_json)


# -- arguments -----------------------------------------------------------------------------------


def parse_time(text: str) -> float:
    """Parse "60s", "1.5m" or a number of seconds greater than 0."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|)", text.strip())
    seconds = float(match[1]) * (60 if match[2] in ("m", "min") else 1) if match else 0.0
    if not 0 < seconds < 1e6:
        _refuse(f"--budget must be a time greater than 0, such as 60s or 2m, not {text!r}")
    return seconds


def _ordinals(device: str | None, devices: str | None) -> list[int]:
    if device is not None and devices is not None:
        _refuse("--device and --devices exclude each other")
    named = devices if devices is not None else device
    if named is None:
        return [0] if ps.describe(None)["cuda"]["devices"] else [HOST]
    ordinals = [_ordinal(word.strip()) for word in named.split(",")]
    if HOST in ordinals and len(ordinals) > 1:
        _refuse(f"several devices are GPUs, without the host: {named}")
    tuner.check_devices(ordinals)
    return ordinals


def _ordinal(word: str) -> int:
    """Return the ordinal of a device, which may be a number alone."""
    return parse_device(int(word) if word.isdecimal() else word) or 0


def _store(path: Path) -> profiles.Store:
    if not path.exists():
        _refuse(f"{path} does not exist: give a folder of the file system to tune for")
    if not path.is_dir():
        _refuse(f"{path} is not a folder: give a folder of the file system to tune for")
    return profiles.Store.of(path)


def _require_cufile(path: Path, ordinals: list[int], out: Path) -> None:
    if ordinals == [HOST]:
        _refuse("--cufile needs a GPU")
    found = ps.describe(path)["cufile"]
    if not found["starts"] or found["reason"]:
        _refuse(
            f"cuFile does not serve {path}, so none of its keys can be measured: {found['reason']}"
        )
    cufile.in_force()
    in_force, _ = cufile_json.in_force()
    if why := conflict(out, [in_force]):
        _refuse(why)
    try:
        text_file.require_replaceable(out)
    except OSError as error:
        _refuse(f"{out} cannot be written: {error.strerror}")


def _refuse(why: str) -> NoReturn:
    print(f"penstock: {why}", file=sys.stderr)
    raise typer.Exit(REFUSED)


@contextmanager
def _finding_wrong_bytes() -> Iterator[None]:
    """Turn this error into one line and exit status 1; all others have status 2."""
    try:
        yield
    except WrongBytesError as error:
        print(f"penstock: {error}", file=sys.stderr)
        raise typer.Exit(WRONG) from None


# -- tuning --------------------------------------------------------------------------------------


def _tune(store: profiles.Store, plan: Plan, cufile_out: Path | None, as_json: bool) -> None:
    began = time.monotonic()
    end = began + plan.seconds
    share = 1 - _CUFILE_SHARE if cufile_out else 1.0
    with _progress() as begun:
        found = list(tuner.tune(Plan(plan.folder, plan.devices, plan.seconds * share), begun))
    slots = [store.slot(device) for device in plan.devices]
    rows = [row.as_json() for row in found if row.outcome is not None]
    together = [slot.gpu["pci_bus_id"] for slot in slots if slot.gpu] if len(slots) > 1 else []
    # The results are shown even if they cannot be stored.
    failures: list[str] = []
    kept: list[Path] = []
    for slot in slots:
        with _noting(failures, slot.path):
            kept.append(store.keep(slot, rows, together))
    keys = None
    if cufile_out is not None:
        keys, text = _tune_cufile(plan, cufile_out, end)
        with _noting(failures, cufile_out):
            text_file.write(cufile_out, text)
    seconds = time.monotonic() - began
    if as_json:
        shown = {
            "path": os.fspath(plan.folder),
            "devices": list(plan.devices),
            "budget": plan.seconds,
            "seconds": round(seconds, 2),
            "rows": [
                {**row.as_json(), "why_not": row.why_not, "trials": row.trials_as_json()}
                for row in found
            ],
            "profiles": [os.fspath(path) for path in kept],
            "cufile": keys,
        }
        print_json(shown)
    else:
        print_table(_table(found, ", ".join(slot.name for slot in slots), seconds))
        for path in kept:
            results.print(Text(f"Stored in {path}"))
        if keys is not None:
            words = ", ".join(f"{key} = {value}" for key, value in keys["keys"].items())
            results.print(Text(f"{keys['path']}: {words or 'the present values are the best'}"))
        if store.is_off:
            results.print("Profiles are not used while PENSTOCK_PROFILE=off is set.")
    if failures:
        _refuse("; ".join(failures))


@contextmanager
def _noting(failures: list[str], path: Path) -> Iterator[None]:
    """Record that a file cannot be written, and continue."""
    try:
        yield
    except OSError as error:
        failures.append(f"{path} cannot be written: {error.strerror}")


@contextmanager
def _progress() -> Iterator[Callable[[Row], None]]:
    """Show a progress bar on a terminal; yield the function to call before each row."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    in_log = not sys.stderr.isatty()  # which would get an empty line
    with Progress(*columns, console=messages, transient=True, disable=in_log) as progress:
        task = progress.add_task("making files", total=len(ROWS) + 1)

        def begun(row: Row) -> None:
            progress.update(task, description=row.name, advance=1)

        yield begun


def _table(found: list[Found], target: str, seconds: float) -> Table:
    runs, settings = sum(row.runs for row in found), sum(row.settings for row in found)
    table = Table(
        title=Text(f"{target}: {settings} settings, {runs} measurements, {seconds:.0f} s"),
        title_justify="left",
    )
    table.add_column("What", no_wrap=True)
    for heading in ("Tried", "Default", "Tuned", "Gain"):
        table.add_column(heading, justify="right")
    table.add_column("Best options", overflow="fold")
    for row in found:
        cells = ["", "", "", "", f"not measured: {row.why_not}"]
        if row.outcome is not None:
            duel, best = row.outcome.duel, in_words(row.outcome.best)
            gain = f"{duel.gain:+.1%} ± {2 * duel.error:.1%}" if row.options and duel else "none"
            if row.alone:
                best += f"; one GPU alone {rate(row.alone[1], 1)} of {rate(row.alone[0], 1)}"
            rates = [rate(each, 1) for each in row.rates]
            cells = [str(row.settings), *rates, gain, best]
        table.add_row(*plain(row.row.name, *cells))
    return table


def _tune_cufile(plan: Plan, out: Path, end: float) -> tuple[dict[str, Any], str]:
    """Return the result, and the text of the configuration with it."""
    one = Plan(plan.folder, plan.devices[:1], plan.seconds * _CUFILE_SHARE)
    left = tuner.until(end - time.monotonic())
    with tuner.own_files(one) as paths:
        outcome, config = cufile.best(paths[0], one.file_size, one.devices[0], left)
    keys = {
        "path": os.fspath(out),
        "keys": {name: json.loads(value) for name, value in outcome.best},
        "gain": round(outcome.duel.gain, 4) if outcome.best and outcome.duel else 0.0,
        "settings": len(outcome.trials),
    }
    return keys, json.dumps(config, indent=4) + "\n"


# -- stored profiles -----------------------------------------------------------------------------


def _show(store: profiles.Store, as_json: bool) -> None:
    kept = [(slot, slot.contents()) for slot in store.slots() if slot.state != "none"]
    known = {slot.path for slot, _ in kept}
    others = [path for path in store.files() if path not in known]
    if as_json:
        names = ("device", "state", "reason")
        shown = [
            {
                "path": os.fspath(slot.path),
                **{name: getattr(slot, name) for name in names},
                "profile": profile,
            }
            for slot, profile in kept
        ]
        print_json({"off": store.is_off, "profiles": shown, "others": list(map(str, others))})
        return
    if store.is_off:
        results.print("Profiles are not used because PENSTOCK_PROFILE=off is set.")
    for slot, profile in kept:
        print_table(_shown(slot, profile))
    for path in others:
        results.print(Text(f"{path}: for a GPU that is not in this machine"))
    if not kept and not others:
        system = store.tuning["file_system"]
        where = f"{system['type']} on {system['mount_point']}"
        results.print(Text(f"There is no profile for {where}: penstock tune PATH makes one."))


def _shown(slot: profiles.Slot, profile: dict[str, Any] | None) -> Table:
    made = profile.get("made", "") if profile else ""
    state = slot.state if slot.state == "used" else f"ignored: {slot.reason}"
    table = Table(title=Text(f"{slot.name}, {made}, {state}\n{slot.path}"), title_justify="left")
    for heading in ("Operation", "Size", "Place"):
        table.add_column(heading)
    for heading in ("Default GB/s", "Tuned GB/s"):
        table.add_column(heading, justify="right")
    table.add_column("Options", overflow="fold")
    rows = profile.get("rows", []) if profile and slot.state == "used" else []
    for row in rows:
        keys = ("operation", "size", "place", "default_gbps", "tuned_gbps", "options")
        table.add_row(*plain(*(str(row.get(key, "")) for key in keys)))
    return table


def _clear(store: profiles.Store, path: Path, as_json: bool) -> None:
    removed = store.clear()
    if as_json:
        print_json({"removed": [os.fspath(name) for name in removed]})
        return
    for name in removed:
        results.print(Text(f"Removed {name}"))
    if not removed:
        results.print(Text(f"There is no profile for the file system of {path}."))
