"""Output of the commands: results to standard output, all else to standard error."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

_TABLE_WIDTH = 80

# A log has no width, and tables folded at 80 columns are harder to read.
results = Console(width=None if sys.stdout.isatty() else 132)
messages = Console(stderr=True, width=None if sys.stderr.isatty() else 132)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def plain(*texts: str) -> list[Text]:
    """Return table cells with foreign text, in which brackets are not markup."""
    return [Text(text) for text in texts]


def say(text: str) -> None:
    """Print a message without markup, in one line."""
    messages.print(text, markup=False, highlight=False, soft_wrap=True)


def print_table(table: Table) -> None:
    """Print a table at 80 columns or more. In a narrower terminal, rich would omit contents."""
    wide = results if results.width >= _TABLE_WIDTH else Console(width=_TABLE_WIDTH)
    wide.print(table)


def print_json(value: Any) -> None:
    """Print JSON without rich, which would fold long lines."""
    typer.echo(json.dumps(value, indent=2))
