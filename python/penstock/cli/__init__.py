"""The `penstock` command. Each subcommand has a module of its own."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from penstock import Error
from penstock.cli import install

_NAMES = ("bench", "demo", "read", "report", "run", "tune", "verify")


class _Commands(TyperGroup):
    """Imports the module of a command when it is asked for that command: only help needs all."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_NAMES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return _command(cmd_name) if cmd_name in _NAMES else None

    def invoke(self, ctx: Any) -> Any:
        """Turn an error of Penstock into one message and exit status 1.

        This must happen inside click's `main`, which takes an EOFError, and so an EndOfFileError,
        for the end of the user's input.
        """
        try:
            return super().invoke(ctx)
        except (Error, OSError) as error:
            print(f"penstock: {error}", file=sys.stderr)
            raise typer.Exit(1) from None


def _command(name: str) -> Any:
    """Return the command that a module holds: a function of its name, or a group, `app`."""
    module = import_module(f"penstock.cli.{name}")
    group = getattr(module, "app", None)
    if group is None:
        group = typer.Typer(add_completion=False)
        group.command(context_settings=getattr(module, "CONTEXT", None))(getattr(module, name))
    made = get_command(group)
    made.name = name
    return made


app = typer.Typer(
    cls=_Commands,
    help="Move arrays between files and GPU memory.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.callback(invoke_without_command=True)(install.answer)


def main() -> None:
    app(prog_name="penstock")
