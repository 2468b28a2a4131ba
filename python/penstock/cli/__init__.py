"""The `penstock` command. Each subcommand has a module of its own."""

from __future__ import annotations

import sys
from typing import Any

import typer
from typer.core import TyperGroup

from penstock import Error
from penstock.cli import bench, demo, install, read, report, run, tune, verify


class _Commands(TyperGroup):
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


app = typer.Typer(
    cls=_Commands,
    help="Move arrays between files and GPU memory.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.callback(invoke_without_command=True)(install.answer)
app.add_typer(bench.app, name="bench")
app.command("demo")(demo.demo)
app.command("read")(read.read)
app.command("report")(report.report)
app.command("run", context_settings=run.CONTEXT)(run.run)
app.command("tune")(tune.tune)
app.command("verify")(verify.verify)


def main() -> None:
    app(prog_name="penstock")
