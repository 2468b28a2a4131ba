"""The command line options that all of ``penstock bench`` share."""

from __future__ import annotations

import inspect
import os
import typing
from collections.abc import Callable
from pathlib import Path
from tempfile import gettempdir
from typing import Annotated, Any

import typer

from penstock.units import parse_size

from . import ranks
from .files import DataFile, drop, warm
from .session import PEERS, Common, RefusedError, Session, measure

SIZE: dict[str, Any] = {"parser": parse_size, "metavar": "SIZE"}
"""The arguments of an option that is a number of bytes.

The option names its flag: typer 0.27 calls the flag of a parameter ``size`` "--SIZE".
"""


DIRECTIONS = ("write", "read")
Directions = Annotated[str, typer.Option(help="write, read or both, as a list.")]
Fsync = Annotated[
    bool, typer.Option("--fsync/--no-fsync", help="Time writes until they are on the medium.")
]
Cache = Annotated[str, typer.Option(help="The file's pages before each run: warm, cold or both.")]


def caches(text: str) -> dict[str, Callable[[DataFile], None]]:
    """Return functions that bring a file into each state, or raise an error if it does not stay."""
    known: dict[str, Callable[[DataFile], None]] = {"warm": warm, "cold": drop}
    if text == "both":
        return known
    if text not in known:
        raise RefusedError(f"there is no cache {text!r}: choose from warm, cold, both")
    return {text: known[text]}


def need_caches(session: Session, text: str, path: Path) -> None:
    """Refuse, before anything is measured, a state that this path's file system does not have."""
    if "cold" in caches(text):
        session.need_cold(path)


def sizes(text: str) -> list[int]:
    """Parse sizes such as "64KiB,1MiB", each greater than 0."""
    try:
        found = [parse_size(part) for part in words(text)]
    except typer.BadParameter as error:
        raise RefusedError(str(error)) from None
    if not found or min(found) < 1:
        raise RefusedError(
            f"{text!r} is not a list of sizes above 0: write, for example, 64MiB,1GiB"
        )
    return found


def words(text: str) -> list[str]:
    return [word for word in text.replace(",", " ").split() if word]


def numbers(text: str, what: str) -> list[int]:
    """Parse integers such as "1,2,4", each greater than 0."""
    try:
        found = [int(word) for word in words(text)]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise RefusedError(f"{text!r} is not a list of {what}: write, for example, 1,2,4")
    return found


def chosen(text: str, known: typing.Collection[str], what: str) -> list[str]:
    """Return the words of a list, in the user's order."""
    found = words(text)
    unknown = [word for word in found if word not in known]
    if unknown or not found:
        raise RefusedError(
            f"there is no {what} {', '.join(unknown) or text!r}: choose from {', '.join(known)}"
        )
    return found


def _option(kind: Any, default: Any, text: str, *names: str, metavar: str | None = None) -> Any:
    """Return type and default of a parameter."""
    return Annotated[kind, typer.Option(*names, help=text, metavar=metavar)], default


def _common(folder: tuple[str, ...]) -> dict[str, tuple[Any, Any]]:
    """Return type and default of each parameter."""
    where = "A folder on the file system to measure. The files go into a temporary folder in it."
    peers = f"'all', 'none' or a list of {', '.join(PEERS)}."
    once = "Run each contestant once before."
    processes = "Processes to start, which measure together."
    path = Path | None
    return {
        "folder": _option(path, None, where, *folder, metavar="PATH"),
        "iterations": _option(int, 5, "Timed runs; the median counts.", "--iterations", "-i"),
        "warm_up": _option(bool, True, once, "--warm-up/--no-warm-up"),
        "verify": _option(bool, True, "Compare the bytes.", "--verify/--no-verify"),
        "peers": _option(str, "all", peers, "--peers"),
        "n_rank": _option(int, 1, processes, "--n-rank", "--n_rank"),
        "profile": _option(
            bool, False, "Use the profiles of penstock tune.", "--profile/--no-profile"
        ),
        "json": _option(path, None, "Save the results here.", "--json"),
        "csv": _option(path, None, "Save the tables here.", "--csv"),
        "plot": _option(path, None, "Draw the figure: .png, .svg or .pdf.", "--plot"),
        "quiet": _option(bool, False, "Print no tables.", "--quiet", "-q"),
    }


def _start(count: int, _: dict[str, Any]) -> int:
    return ranks.start(count)


def benchmark(
    name: str,
    title: str,
    *,
    folder: tuple[str, ...] = ("--dir",),
    iterations: int = 5,
    in_folder: bool = True,
    start: Callable[[int, dict[str, Any]], int] = _start,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command from a function that takes a session and then its own options.

    All files that it reads are in the session's folder, unless ``in_folder`` is false. The command
    then itself finds out whether they can have the states of its option ``cache``. ``start`` starts
    ranks, given their number and the function's own options, and returns the exit status.
    """
    common = _common(folder)
    common["iterations"] = (common["iterations"][0], iterations)

    def made(work: Callable[..., None]) -> Callable[..., None]:
        types = typing.get_type_hints(work, include_extras=True)
        own = list(inspect.signature(work).parameters.values())[1:]

        def measured(session: Session, **given: Any) -> None:
            if in_folder and "cache" in given:
                need_caches(session, given["cache"], session.folder)
            work(session, **given)

        def command(**given: Any) -> None:
            shared = {key: given.pop(key) for key in common if key in given}
            raise typer.Exit(_run(name, title, measured, start, shared, given))

        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters = [p.replace(annotation=types[p.name], kind=keyword) for p in own]
        parameters += [
            inspect.Parameter(key, keyword, default=default, annotation=kind)
            for key, (kind, default) in common.items()
            if key not in types
        ]
        # Typer reads both.
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        command.__doc__ = work.__doc__
        command.__name__ = work.__name__
        return command

    return made


def _run(
    name: str,
    title: str,
    work: Callable[..., None],
    start: Callable[[int, dict[str, Any]], int],
    shared: dict[str, Any],
    own: dict[str, Any],
) -> int:
    try:
        here = ranks.here()
    except ranks.NoRanksError as error:
        return _refuse(str(error))
    wanted = shared.pop("n_rank")
    if not shared.pop("profile"):
        # Not too late: the engine reads it when it first needs a profile.
        os.environ["PENSTOCK_PROFILE"] = "off"
    if wanted < 1:
        return _refuse(f"--n_rank is {wanted}, but must be at least 1")
    if here.size > 1 and wanted > 1 and wanted != here.size:
        return _refuse(f"{here.size} ranks were launched, but --n_rank is {wanted}")
    try:
        if here.size == 1 and wanted > 1:
            return start(wanted, own)
        peers = _peers(shared.pop("peers"))
        shared["folder"] = shared["folder"] or Path(gettempdir())
        common = Common(**shared, peers=peers)
        return measure(name, title, common, here, lambda session: work(session, **own))
    except RefusedError as refused:
        return _refuse(str(refused)) if here.is_first else 2


def _refuse(why: str) -> int:
    typer.echo(f"penstock: {why}", err=True)
    return 2


def _peers(text: str) -> frozenset[str]:
    return {"all": frozenset(PEERS), "none": frozenset[str]()}.get(text, frozenset(words(text)))
