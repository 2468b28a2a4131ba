"""`penstock bench`: one subcommand a benchmark, loaded when it is asked for."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from penstock.bench.commands import NAMES

# What typer raises for arguments that it cannot take. It has no public name of its own.
_UsageError: Any = typer.BadParameter.__mro__[1]


class _Spaced(TyperCommand):
    """Takes lists with spaces, ``--sizes 1 2 3``, as programs based on argparse do."""

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
        module = import_module(f"penstock.bench.commands.{function}")
        single = typer.Typer(
            add_completion=False,
            pretty_exceptions_enable=False,
            context_settings={"help_option_names": ["-h", "--help"]},
        )
        single.command(cmd_name, cls=_Spaced)(getattr(module, function))
        return get_command(single)


app = typer.Typer(
    cls=_Benchmarks,
    help="Measure I/O: Penstock, and the peers that are installed, in one run.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def bench() -> None:
    """Measure I/O: Penstock, and the peers that are installed, in one run."""
