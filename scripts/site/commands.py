"""Writes docs/reference/commands.md from the help of the commands.

.venv/bin/python scripts/site/commands.py
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any

from typer.main import get_command

from penstock.cli import app

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "commands.md"

_INTRODUCTION = """\
# Commands

`scripts/site/commands.py` makes this page of the texts of `--help`.

A failure is one line on standard error, with a remedy; the usage may precede it. The exit status
is 2 if the arguments are refused, and 1 for other failures, unless the section of a command names
others. It is 130 after Ctrl-C. A size is a number of bytes or a text such as `64KiB`, `1.5GiB` and
`1GB`. With `PYTHONOPTIMIZE=2`, Python strips docstrings, and so the texts of the commands from
`--help`.
"""
_ALL_BENCHMARKS = "Options of all benchmarks"


def page() -> str:
    """Return the text of the page."""
    top = get_command(app)
    written = [_INTRODUCTION, *_section("penstock", top, 2)]
    for name in top.list_commands(None):
        command = top.get_command(None, name)
        if not hasattr(command, "list_commands"):
            written += _section(f"penstock {name}", command, 2)
            continue
        written += _section(f"penstock {name}", command, 2)
        below = {below: command.get_command(None, below) for below in command.list_commands(None)}
        rows = [set(map(_row, command.params)) for command in below.values()]
        shared = set.intersection(*rows)
        first = next(iter(below.values()))
        written += [f"### {_ALL_BENCHMARKS}", _table(first.params, only=shared)]
        for name_below, command_below in below.items():
            written += _section(f"penstock {name} {name_below}", command_below, 3, without=shared)
    return "\n\n".join(filter(None, written)).replace("\n\n\n", "\n\n") + "\n"


def _section(name: str, command: Any, depth: int, without: Set[str] = frozenset()) -> Iterator[str]:
    """Yield heading, usage, text and options of a command."""
    yield f"{'#' * depth} {name}"
    arguments = [_metavar(p) for p in command.params if _is_argument(p)]
    rest = ["COMMAND ..."] if hasattr(command, "list_commands") else arguments
    yield f"```sh\n{' '.join([name, '[OPTIONS]', *rest])}\n```"
    yield _marked(command.help.strip())
    yield _table(command.params, without=without)


def _table(
    parameters: list[Any], without: Set[str] = frozenset(), only: Set[str] | None = None
) -> str:
    rows = [row for row in map(_row, parameters) if row not in without]
    rows = [row for row in rows if only is None or row in only]
    return "\n".join(["| Option | Meaning |", "|---|---|", *rows]) if rows else ""


def _row(parameter: Any) -> str:
    """Return the row of an option or an argument."""
    if _is_argument(parameter):
        names = f"`{_metavar(parameter)}`"
    else:
        value = "" if parameter.is_flag else f" {_metavar(parameter)}"
        spelled = [*parameter.opts, *parameter.secondary_opts]
        names = ", ".join(f"`{name}{value}`" for name in spelled)
    text = " ".join((parameter.help or "").split()).replace("|", "\\|")
    return f"| {names} | {_marked(text)}{_default(parameter)} |"


def _marked(text: str) -> str:
    """Return a text in which options and names are code, and documents links."""
    text = re.sub(r"docs/(\S+)/(\S+)\.md", r"[\2](../\1/\2.md)", text)
    return re.sub(r"(?<![\w`-])--?[a-zA-Z][\w-]*|\b\w+_\w+\b", r"`\g<0>`", text)


def _is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")


def _metavar(parameter: Any) -> str:
    if parameter.metavar:
        return str(parameter.metavar)
    if _is_argument(parameter):
        return str(parameter.name).upper()
    return "VALUE"


def _default(parameter: Any) -> str:
    value = parameter.default
    if value in (None, "", False) or _is_argument(parameter):
        return ""
    if value is True:
        return f" Default: `{parameter.opts[0]}`."
    if parameter.metavar == "SIZE":
        value = _size(value)
    return f" Default: `{value}`."


def _size(nbytes: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (10**9, "GB"), (10**6, "MB")):
        if nbytes % (unit // 10 if unit % 10 == 0 else unit) == 0:
            return f"{nbytes / unit:g}{name}"
    return str(nbytes)


if __name__ == "__main__":
    PAGE.write_text(page())
