"""The `penstock` command. Each subcommand has a module of its own."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from typer.core import TyperGroup

from penstock.cli import install, streams
from penstock.cli.ending import in_one_sentence
from penstock.cli.help_text import new_group, with_whole_summary
from penstock.signals import ended_by_signals

_NAMES = ("bench", "demo", "read", "report", "run", "tune", "verify")


class _Commands(TyperGroup):
    """Imports the module of a command on its first use; only help imports all."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_NAMES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return _command(cmd_name) if cmd_name in _NAMES else None

    def invoke(self, ctx: Any) -> Any:
        """Run the command; after a failure, end it with a one-sentence message.

        This must happen inside click's `main`, which takes an EOFError, and so an EndOfFileError,
        for the end of the user's input.
        """
        with in_one_sentence(), ended_by_signals():
            return super().invoke(ctx)


def _command(name: str) -> Any:
    """Return the command that a module holds: a function of its name, or a group, `app`."""
    module = import_module(f"penstock.cli.{name}")
    group = getattr(module, "app", None)
    if group is None:
        group = new_group(add_completion=False)
        group.command(context_settings=getattr(module, "CONTEXT", None))(getattr(module, name))
    made = with_whole_summary(group)
    made.name = name
    return made


app = new_group(
    cls=_Commands, help="Move arrays between files and GPU memory.", no_args_is_help=True
)
app.callback(invoke_without_command=True)(install.answer)


def main() -> None:
    streams.set_up()
    try:
        # Again, for what fails outside of a command: parsing, and the last write.
        with in_one_sentence():
            try:
                app(prog_name="penstock")
            finally:
                sys.stdout.flush()
    except streams.PipeClosed:
        streams.end_by_sigpipe()
