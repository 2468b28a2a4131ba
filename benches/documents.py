"""Writes results as documents: `python -m benches.documents RESULT.json ... [--into PATH]`.

Into a folder, each result is written as a page of its own, which is replaced as a whole; the pages
of other benchmarks stay. In a file, the results replace the part between the two marks of a block.
Without --into, they are printed. With --merge, the results are written to one file, which is also
accepted as input. With --figures, their figures are drawn again; --data keeps what that needs.

    python -m benches.documents docs/figures/data/*.json --figures docs/figures    # in another look
"""

from __future__ import annotations

import argparse
import json
import math
import os
from pathlib import Path
from typing import Any

from penstock.bench import figures, machine
from penstock.bench.tables import Table

from .names import NAMES
from .run import TARGETS

_MOST_ROWS = 60
"""The most rows of a table on a page; of a longer one, the page has only notes and figures."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benches.documents", description=__doc__)
    add = parser.add_argument
    add("results", nargs="+", type=Path, help="files that --json has written")
    add("--into", type=Path, metavar="PATH", help="a folder for pages, or a file")
    add("--block", default="results", help="the name in the marks of a file")
    add("--merge", type=Path, metavar="FILE", help="put the results into FILE")
    add("--figures", type=Path, metavar="FOLDER", help="draw the figures there")
    add("--data", type=Path, metavar="FOLDER", help="keep the figures' values there")
    given = parser.parse_args()
    results = [result for path in given.results for result in read(path)]
    results.sort(key=lambda result: (*NAMES, result["benchmark"]).index(result["benchmark"]))
    if given.merge:
        given.merge.write_text(json.dumps(results, indent=1) + "\n")
    for result in results:
        if given.figures:
            draw(result, given.figures)
        if given.data:
            keep(result, given.data)
    if given.into and given.into.suffix != ".md":
        given.into.mkdir(parents=True, exist_ok=True)
        for result in results:
            text = page(result, given.into, given.figures)
            (given.into / f"{file_name(result)}.md").write_text(text)
    elif given.into:
        given.into.write_text(with_block(given.into.read_text(), report(results), given.block))
    elif not given.figures:
        print(report(results))


def read(path: Path) -> list[dict[str, Any]]:
    """Return the results of a file, which has one or several."""
    found = json.loads(path.read_text())
    return found if isinstance(found, list) else [found]


def command(result: dict[str, Any]) -> str:
    # Only the benchmarks of this folder have this setting; names such as `vfd` are in both.
    program = "python -m benches" if "quick" in result.get("settings", {}) else "penstock bench"
    return result.get("command") or f"{program} {result['benchmark']}"


def file_name(result: dict[str, Any]) -> str:
    """Return the name of a page or figure: `plotfile-shared` for `plotfile --shared`."""
    name: str = result["benchmark"]
    return name.replace(" --", "-").replace("_", "-")


def figure_name(result: dict[str, Any], figure: dict[str, Any]) -> str:
    return f"{file_name(result)}-{figure['name']}.svg"


def draw(result: dict[str, Any], folder: Path) -> None:
    machine_of = result["environment"]
    where = f"{command(result)}; {machine_of['gpu'] or 'no GPU'}, {machine_of['date']}"
    for found in result["figures"]:
        path = folder / figure_name(result, found)
        figures.draw([figures.from_json(found)], path, where)


def keep(result: dict[str, Any], folder: Path) -> None:
    """Write the values of the figures, in four digits that count, and where they were measured."""

    def in_digits(found: Any) -> Any:
        if isinstance(found, dict):
            return {key: in_digits(value) for key, value in found.items()}
        if isinstance(found, list):
            return [in_digits(value) for value in found]
        return float(f"{found:.4g}") if isinstance(found, float) else found

    kept = {
        "benchmark": result["benchmark"],
        "command": command(result),
        "environment": {key: result["environment"][key] for key in ("gpu", "date")},
        "figures": in_digits(result["figures"]),
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{file_name(result)}.json").write_text(json.dumps(kept, indent=1) + "\n")


def page(result: dict[str, Any], into: Path, drawn: Path | None) -> str:
    """Return the page of a result that goes to the folder `into`; its figures are in `drawn`."""
    where = machine.in_words(result["environment"])
    lines = [f"# `{command(result)}`", "", f"{where}.", *body(result, result["tables"], _MOST_ROWS)]
    if drawn:
        folder = os.path.relpath(drawn, into)
        for found in result["figures"]:
            lines += ["", f"![{found['title']}]({folder}/{figure_name(result, found)})"]
    return "\n".join([*lines, ""])


def body(result: dict[str, Any], tables: list[dict[str, Any]], most_rows: float) -> list[str]:
    """Return the lines of the tables, the sentences, and what was not measured."""
    lines = []
    for found in tables:
        table = Table(**{**found, "details": tuple(found["details"])})
        lines += ["", f"**{table.title}**", ""]
        is_short = len(table.rows) <= most_rows
        lines += [table.as_markdown() if is_short else f"{len(table.rows)} rows: see the figure."]
        lines += ["", *table.notes] if table.notes else []
    words = [sentence for sentence in result["words"] if not sentence.startswith("Same by")]
    lines += ["", *(f"- {sentence}" for sentence in words)] if words else []
    if result["absent"]:
        lines += ["", *(f"- Not measured: {name}." for name in result["absent"])]
    return lines


def report(results: list[dict[str, Any]]) -> str:
    """Return the machine, the targets of all results in one table, then each result."""
    lines = list(dict.fromkeys(f"{machine.in_words(it['environment'])}." for it in results))
    targets = Table("", TARGETS)
    for result in results:
        for found in result["tables"]:
            targets.rows += found["rows"] if found["columns"] == TARGETS else []
    lines += ["", targets.as_markdown()] if targets.rows else []
    for result in results:
        tables = [found for found in result["tables"] if found["columns"] != TARGETS]
        lines += body(result, tables, math.inf)
    return "\n".join(lines)


def with_block(document: str, text: str, name: str) -> str:
    """Return the document with the text between the two marks of a block."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found_begin, rest = document.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise SystemExit(f"the document has no block between {begin} and {end}")
    return f"{before}{begin}\n{text.strip()}\n{end}{after}"


if __name__ == "__main__":
    main()
