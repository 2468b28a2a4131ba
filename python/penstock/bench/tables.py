"""Tables of a benchmark: for the terminal, as CSV and as JSON."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

from rich.table import Table as RichTable
from rich.text import Text

from .measure import OURS, Row

Cell = str | int | float | None


def columns(text: str) -> list[str]:
    """Return the columns that a text such as "Size|GB/s" names."""
    return text.split("|")


@dataclass
class Table:
    """Rows of cells. The heading of a column has the unit, so that its cells are numbers."""

    title: str
    columns: list[str]
    rows: list[list[Cell]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Sentences below the table."""
    details: tuple[str, ...] = ()
    """Columns that a terminal shows only if it is wide enough."""

    def add(self, *cells: Cell) -> None:
        assert len(cells) == len(self.columns)
        self.rows.append(list(cells))

    def result(self, row: Row, known: Sequence[Cell], *more: Cell) -> None:
        """Add what is known of a row, its value with the spread, more cells and its detail.

        In place of all but the first, the row of a failure has its error.
        """
        if row.value is None or row.spread is None:
            left = len(self.columns) - len(known) - 1
            self.add(*known, *[None] * left, f"failed: {row.error}")
        else:
            self.add(*known, row.value, *row.spread, *more, row.detail)

    def as_json(self) -> dict[str, Any]:
        return dict(vars(self))

    def as_rich(self, width: int) -> RichTable:
        shown = list(range(len(self.columns)))
        if self._width(shown) > width:
            shown = [at for at in shown if self.columns[at] not in self.details]
        made = RichTable(title=self.title, title_justify="left")
        for at in shown:
            numbers = all(_is_number(row[at]) for row in self.rows)
            name = Text(self.columns[at])
            made.add_column(name, justify="right" if numbers else "left", overflow="fold")
        for row in self.rows:
            made.add_row(*(Text(in_words(row[at])) for at in shown))
        if len(shown) < len(self.columns):
            left = ", ".join(self.details)
            made.caption = f"Columns omitted for lack of width, see --csv: {left}"
        return made

    def _width(self, shown: list[int]) -> int:
        """Return the characters of a line if nothing is folded."""
        rows = [self.columns, *([in_words(cell) for cell in row] for row in self.rows)]
        return sum(max(len(row[at]) for row in rows) + 3 for at in shown) + 1

    def as_csv(self) -> str:
        text = StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(["" if cell is None else cell for cell in row] for row in self.rows)
        return text.getvalue()

    def as_markdown(self) -> str:
        def line(cells: list[str]) -> str:
            return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"

        rule = "|" + "---|" * len(self.columns)
        body = [line([in_words(cell) for cell in row]) for row in self.rows]
        return "\n".join([line(self.columns), rule, *body])


def of_rows(title: str, rows: list[Row], first: str = "What") -> Table:
    """Return one line per contestant, compared with the first one of Penstock in its group."""
    unit = rows[0].unit if rows else "GB/s"
    heading = f"{first}|Contestant|Setting|{unit}|worst|best|Penstock is (x)|Detail"
    table = Table(title, columns(heading))
    ours: dict[str, Row] = {}
    for row in rows:
        if row.name.startswith(OURS):
            ours.setdefault(row.group, row)
    for row in rows:
        known = (row.group, row.name, row.setting)
        table.result(row, known, ours.get(row.group, row).beats(row))
    return table


def _is_number(cell: Cell) -> bool:
    """Whether a cell is a number, or the reason why it has none."""
    return not isinstance(cell, str) or cell.startswith(("NA", "absent", "failed"))


def in_words(cell: Cell) -> str:
    if cell is None:
        return ""
    if not isinstance(cell, float):
        return str(cell)
    if abs(cell) >= 1000:
        return f"{cell:,.0f}"
    if abs(cell) >= 1:
        return f"{cell:.2f}"
    return f"{cell:.3f}" if abs(cell) >= 0.01 else f"{cell:.3g}"
