"""The form of ``--help``, without the frames of Rich, which cut names on narrow terminals."""

from __future__ import annotations

from typing import Any

import typer
from typer.main import get_command


def new_group(**settings: Any) -> typer.Typer:
    return typer.Typer(
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        **settings,
    )


def with_whole_summary(group: typer.Typer) -> Any:
    """Return the command of a group, whose first paragraph a list of commands has in full."""
    command = get_command(group)
    command.short_help = (command.help or "").partition("\n\n")[0]
    return command
