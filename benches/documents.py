"""Puts results of `penstock bench` into a document: `python -m benches.documents RESULT.json ...`.

It replaces the sections of these benchmarks between the marks of a block and redraws their figures;
the sections of other benchmarks stay.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

from penstock.bench import figures, machine
from penstock.bench.commands import NAMES
from penstock.bench.tables import Table

from .table import around_block, replace_block

_MOST_ROWS = 60
"""The most rows of a table in the document; of a longer one, it gets only notes and figures."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benches.documents", description=__doc__)
    parser.add_argument("results", nargs="+", type=Path, help="files that --json has written")
    parser.add_argument("--into", type=Path, required=True, metavar="FILE")
    parser.add_argument("--block", default="documents", help="name of the block's marks in FILE")
    parser.add_argument("--figures", type=Path, required=True, metavar="FOLDER")
    given = parser.parse_args()
    place = given.figures.resolve().relative_to(given.into.resolve().parent)
    document = given.into.read_text()
    sections = sections_of(around_block(document, given.block)[1])
    for path in given.results:
        result = json.loads(path.read_text())
        sections[result["benchmark"]] = section(result, given.figures, place)
    # A name may have an option: `plotfile --shared`.
    order = sorted(sections, key=lambda name: (NAMES.index(name.split()[0]), name))
    text = "\n".join(sections[name] for name in order)
    given.into.write_text(replace_block(document, text, given.block))


def sections_of(text: str) -> dict[str, str]:
    """Return the sections of a block by the names of their benchmarks."""
    _, *parts = re.split(r"^(?=### `penstock bench )", text, flags=re.MULTILINE)
    return {
        part.split("`")[1].removeprefix("penstock bench "): part.rstrip() + "\n" for part in parts
    }


def section(result: dict[str, Any], folder: Path, place: Path) -> str:
    environment = result["environment"]
    lines = [f"### `penstock bench {result['benchmark']}`", "", f"{machine.in_words(environment)}."]
    for found in result["tables"]:
        table = Table(**{**found, "details": tuple(found["details"])})
        lines += ["", f"**{table.title}**", ""]
        if len(table.rows) <= _MOST_ROWS:
            lines += [table.as_markdown()]
        else:
            lines += [f"{len(table.rows)} rows: see the figure."]
        lines += ["", *table.notes] if table.notes else []
    told = [sentence for sentence in result["words"] if not sentence.startswith("Same by")]
    lines += ["", *(f"- {sentence}" for sentence in told)] if told else []
    if result["absent"]:
        lines += ["", *(f"- Not measured: {name}." for name in result["absent"])]
    date = environment["date"]
    for found in result["figures"]:
        figure = figures.from_json(found)
        name = f"{result['benchmark'].replace(' --', '-')}-{figure.name}.svg"
        figures.draw([figure], folder / name, f"{environment['gpu'] or 'no GPU'}, {date}")
        lines += ["", f"![{figure.title}]({place / name})"]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
