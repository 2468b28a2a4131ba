"""Turns results into Markdown: `python -m benches.table RESULT.json ... [--into FILE]`.

With --into, it replaces the part of FILE between the two marks of a block. With --merge, it writes
the results to one file, which it also accepts as input. With --figures, it draws the figures of the
results, which the machine that was measured may not be able to do.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from penstock.bench import figures, machine
from penstock.bench.result import report

ORDER = (
    "link",
    "cached_read",
    "sizes",
    "random_read",
    "cold_read",
    "write_durable",
    "overhead",
    "hdf5_gzip",
    "hdf5_few",
    "hdf5_codecs",
    "hdf5_plain",
    "hdf5_strided",
    "hdf5_write",
    "hdf5_host",
    "hdf5_small",
    "hdf5_sizes",
    "vfd",
    "vfd_write",
    "vfd_durable",
    "vfd_attributes",
    "vfd_small",
    "async_submit",
    "async_small",
    "async_plotfile",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benches.table", description=__doc__)
    parser.add_argument("results", nargs="+", type=Path, help="JSON files of the benchmarks")
    parser.add_argument("--into", type=Path, metavar="FILE", help="put the tables into FILE")
    parser.add_argument("--block", default="results", help="name of the block's marks in FILE")
    parser.add_argument("--merge", type=Path, metavar="FILE", help="put the results into FILE")
    parser.add_argument("--figures", type=Path, metavar="FOLDER", help="draw the figures there")
    given = parser.parse_args()
    results = [result for path in given.results for result in read(path)]
    results.sort(key=lambda result: ORDER.index(result["benchmark"]))
    if given.merge:
        given.merge.write_text(json.dumps(results, indent=1) + "\n")
    if given.figures:
        draw(results, given.figures)
    text = report(results)
    if given.into:
        given.into.write_text(replace_block(given.into.read_text(), text, given.block))
    else:
        print(text)


def read(path: Path) -> list[dict[str, Any]]:
    """Return the results of a file, which has one or several."""
    found = json.loads(path.read_text())
    return found if isinstance(found, list) else [found]


def draw(results: list[dict[str, Any]], folder: Path) -> None:
    for result in results:
        where = machine.in_words(result["environment"])
        for found in result.get("figures", []):
            figure = figures.from_json(found)
            name = f"{result['benchmark'].replace('_', '-')}-{figure.name}.svg"
            figures.draw([figure], folder / name, where)


def replace_block(document: str, text: str, name: str) -> str:
    before, _, after = around_block(document, name)
    begin, end = marks(name)
    return f"{before}{begin}\n{text.strip()}\n{end}{after}"


def around_block(document: str, name: str) -> tuple[str, str, str]:
    """Return what is before a block, in it and after it, without its marks."""
    begin, end = marks(name)
    before, found_begin, rest = document.partition(begin)
    text, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise SystemExit(f"the document has no block between {begin} and {end}")
    return before, text, after


def marks(name: str) -> tuple[str, str]:
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


if __name__ == "__main__":
    main()
