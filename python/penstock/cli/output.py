"""Where a command's words go: results to standard output, all else to standard error."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

_TABLE_WIDTH = 80

# Logs have no width of their own: folding tables at 80 columns would only harm them.
results = Console(width=None if sys.stdout.isatty() else 132)
messages = Console(stderr=True, width=None if sys.stderr.isatty() else 132)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def plain(*texts: str) -> list[Text]:
    """Cells of a table whose text is not ours: a bracket in it is no markup."""
    return [Text(text) for text in texts]


def print_table(table: Table) -> None:
    """Print a table. A terminal that is too narrow for it breaks its lines: rich would leave out
    what has no room."""
    wide = results if results.width >= _TABLE_WIDTH else Console(width=_TABLE_WIDTH)
    wide.print(table)


def print_json(value: Any) -> None:
    """Print without rich, which would fold long lines."""
    typer.echo(json.dumps(value, indent=2))
