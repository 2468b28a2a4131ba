"""`penstock bench`: one subcommand for each benchmark, loaded on demand."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from penstock.bench.commands import IN_OTHERS, NAMES
from penstock.cli.help_text import new_group, with_whole_summary

# The class of typer's errors about arguments, which has no public name.
_UsageError: Any = typer.BadParameter.__mro__[1]


class _Spaced(TyperCommand):
    """Accepts lists with spaces, ``--sizes 1 2 3``, as programs based on argparse do."""

    lists = ("--sizes", "--dtypes", "--peers")

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        joined: list[str] = []
        for word in args:
            if len(joined) > 1 and joined[-2] in self.lists and not word.startswith("-"):
                joined[-1] += f",{word}"
            else:
                joined.append(word)
        try:
            return super().parse_args(ctx, joined)
        except _UsageError as error:
            print(f"penstock: {error.format_message()}", file=sys.stderr)
            raise typer.Exit(2) from None


class _Benchmarks(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return list(NAMES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in NAMES:
            return None
        function = cmd_name.replace("-", "_")
        module = import_module(f"penstock.bench.commands.{IN_OTHERS.get(cmd_name, function)}")
        single = new_group(add_completion=False)
        single.command(cmd_name, cls=_Spaced)(getattr(module, function))
        return with_whole_summary(single)


app = new_group(
    cls=_Benchmarks,
    help="Measure the I/O of Penstock and of installed peers in one run.",
    no_args_is_help=True,
    add_completion=False,
)


@app.callback()
def bench() -> None:
    """Measure the I/O of Penstock and of installed peers in one run."""
