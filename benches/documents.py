"""Writes results of `penstock bench` as pages: `python -m benches.documents RESULT.json ...`.

Each benchmark has a page of its own in a folder, which is replaced as a whole, and its figures are
drawn again. The pages of other benchmarks stay.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from penstock.bench import figures, machine
from penstock.bench.tables import Table

_MOST_ROWS = 60
"""The most rows of a table on a page; of a longer one, the page has only notes and figures."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benches.documents", description=__doc__)
    parser.add_argument("results", nargs="+", type=Path, help="files that --json has written")
    parser.add_argument("--into", type=Path, required=True, metavar="FOLDER", help="of the pages")
    parser.add_argument("--figures", type=Path, required=True, metavar="FOLDER")
    given = parser.parse_args()
    given.into.mkdir(parents=True, exist_ok=True)
    for path in given.results:
        result = json.loads(path.read_text())
        (given.into / f"{file_name(result)}.md").write_text(page(result, given.into, given.figures))


def file_name(result: dict[str, Any]) -> str:
    """Return the name of a page or figure: `plotfile-shared` for `plotfile --shared`."""
    name: str = result["benchmark"]
    return name.replace(" --", "-")


def page(result: dict[str, Any], into: Path, drawn: Path) -> str:
    """Return the page of a result that goes to the folder `into`; its figures go to `drawn`."""
    environment = result["environment"]
    lines = [f"# `penstock bench {result['benchmark']}`", "", f"{machine.in_words(environment)}."]
    for found in result["tables"]:
        table = Table(**{**found, "details": tuple(found["details"])})
        lines += ["", f"**{table.title}**", ""]
        if len(table.rows) <= _MOST_ROWS:
            lines += [table.as_markdown()]
        else:
            lines += [f"{len(table.rows)} rows: see the figure."]
        lines += ["", *table.notes] if table.notes else []
    words = [sentence for sentence in result["words"] if not sentence.startswith("Same by")]
    lines += ["", *(f"- {sentence}" for sentence in words)] if words else []
    if result["absent"]:
        lines += ["", *(f"- Not measured: {name}." for name in result["absent"])]
    date = environment["date"]
    place = Path(os.path.relpath(drawn, into))
    for found in result["figures"]:
        figure = figures.from_json(found)
        name = f"{file_name(result)}-{figure.name}.svg"
        figures.draw([figure], drawn / name, f"{environment['gpu'] or 'no GPU'}, {date}")
        lines += ["", f"![{figure.title}]({place / name})"]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
