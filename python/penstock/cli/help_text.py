"""The help of the commands, whose text is the docstring of a function."""

from __future__ import annotations

import re
from typing import Any

import typer
from typer.main import get_command


def with_filled_help(group: typer.Typer) -> Any:
    """Return the command of a group, with a line for each paragraph of its help.

    Rich would keep the line breaks of the docstring.
    """
    command = get_command(group)
    if command.help:  # None with PYTHONOPTIMIZE=2
        command.help = re.sub(r"(?<=\S)\n(?=\S)", " ", command.help)
    return command
