"""The results of a benchmark (rows, targets and the machine), as JSON and as Markdown."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock import text_file

from . import machine
from .figures import Figure
from .measure import DURATIONS, Row


@dataclass
class Target:
    """A goal, and the value measured for it."""

    text: str
    unit: str
    wanted: float
    seen: float | None
    at_most: bool = False

    @property
    def holds(self) -> bool | None:
        """Whether the goal was met; ``None`` if one side of the comparison failed."""
        if self.seen is None:
            return None
        return self.seen <= self.wanted if self.at_most else self.seen >= self.wanted

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "holds": self.holds}


@dataclass
class Result:
    benchmark: str
    title: str
    rows: list[Row]
    targets: list[Target]
    environment: dict[str, Any]
    screening: list[Row] = field(default_factory=list)
    """Runs of all settings of a contestant, from which those in ``rows`` were chosen."""
    quick: bool = False
    """Whether the sizes are small, only to check that the benchmark runs."""
    figures: list[Figure] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {
            "benchmark": self.benchmark,
            "title": self.title,
            "environment": self.environment,
            "quick": self.quick,
            "targets": [target.as_json() for target in self.targets],
            "rows": [row.as_json() for row in self.rows],
            "screening": [row.as_json() for row in self.screening],
            "figures": [asdict(figure) for figure in self.figures],
        }

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        text_file.write(path, json.dumps(self.as_json(), indent=1) + "\n")


def targets_table(results: list[dict[str, Any]]) -> list[str]:
    lines = ["| Target | Wanted | Seen | Holds |", "|---|---:|---:|---|"]
    for result in results:
        for target in result["targets"]:
            unit = {"": "", "x": "x"}.get(target["unit"], f" {_unit(target['unit'])}")
            bound = "at most" if target["at_most"] else "at least"
            seen = "failed" if target["seen"] is None else f"{_number(target['seen'])}{unit}"
            verdict = {True: "yes", False: "**no**", None: "not compared"}[target["holds"]]
            wanted = f"{bound} {target['wanted']:g}{unit}"
            lines.append(f"| {target['text']} | {wanted} | {seen} | {verdict} |")
    return lines


def rows_table(rows: list[dict[str, Any]]) -> list[str]:
    """Return one line per contestant; its last number says how many times better Penstock is."""
    grouped = any(row["group"] for row in rows)
    unit = _unit(rows[0]["unit"]) if rows else ""
    heading = ["What"] * grouped + ["Contestant", "Setting", unit, "Penstock is", "Detail"]
    rule = ["---"] * grouped + ["---", "---", "---:", "---:", "---"]
    lines = [_line(heading), f"|{'|'.join(rule)}|"]
    for row in rows:
        ours = next(
            (r for r in rows if r["group"] == row["group"] and r["name"].startswith("Penstock")),
            None,
        )
        value = "failed" if row["value"] is None else _number(row["value"])
        cells = [row["group"]] * grouped + [row["name"], row["setting"], value]
        lines.append(_line([*cells, _times(ours, row), row["error"] or row["detail"]]))
    return lines


def markdown(result: dict[str, Any]) -> str:
    """Return the section of one benchmark."""
    lines = [f"### {result['title']}", ""]
    if result["quick"]:
        lines += ["Small sizes: these figures say nothing about speed.", ""]
    lines += rows_table(result["rows"])
    return "\n".join(lines) + "\n"


def report(results: list[dict[str, Any]]) -> str:
    """Return all sections: the machine, the targets, then each benchmark."""
    if not results:
        return ""
    environments = dict.fromkeys(machine.in_words(result["environment"]) for result in results)
    parts = [*(f"{environment}.\n" for environment in environments)]
    parts.append("\n".join(targets_table(results)) + "\n")
    parts += [markdown(result) for result in results]
    return "\n".join(parts)


def _times(ours: dict[str, Any] | None, row: dict[str, Any]) -> str:
    if ours is None or ours is row or not ours["value"] or not row["value"]:
        return ""
    ratio = ours["value"] / row["value"]
    return f"{1 / ratio if row['unit'] in DURATIONS else ratio:.2f}x"


def _number(value: float) -> str:
    return (
        f"{value:,.0f}"
        if abs(value) >= 1000
        else f"{value:.3f}"
        if 0 < value < 1
        else f"{value:.2f}"
    )


def _unit(unit: str) -> str:
    return "µs" if unit == "us" else unit


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
