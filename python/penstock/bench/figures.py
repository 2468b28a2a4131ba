"""Draws the figures of a benchmark by matplotlib, in the form of the document that it follows."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

from penstock import text_file

FORMATS = (".png", ".svg", ".pdf")


@dataclass
class Panel:
    """Series over the same ticks. A missing value is a gap."""

    title: str
    ticks: list[str]
    series: dict[str, list[float | None]]
    """The series by name; one without a name is not in the legend."""
    overlay: dict[str, list[float | None]] = field(default_factory=dict)
    """Series that are drawn as dashed lines over the others, for comparison. A single one is black;
    of several, each has the colour of the series at its place."""


@dataclass
class Figure:
    """Panels side by side with a common scale."""

    name: str
    """A suffix for the file's name, if there are several figures."""
    title: str
    x: str
    y: str
    panels: list[Panel]
    kind: Literal["bars", "lines"] = "bars"
    scale: Literal["linear", "log"] = "linear"
    """The scale of the values. Ticks of equal ratios make the other axis logarithmic, too."""


def from_json(found: dict[str, Any]) -> Figure:
    """Return a figure from the JSON of a benchmark's result."""
    return Figure(**{**found, "panels": [Panel(**panel) for panel in found["panels"]]})


def missing() -> str | None:
    """Return why nothing can be drawn here; ``None`` if it can."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return "matplotlib is not installed: pip install 'penstock[plot]'"
    return None


def draw(figures: list[Figure], path: Path, below: str = "") -> list[Path]:
    """Save each figure, and return the paths. Several figures get suffixes to the file's name."""
    made = []
    for figure in figures:
        target = path
        if len(figures) > 1:
            target = path.with_name(f"{path.stem}-{figure.name}{path.suffix}")
        target.parent.mkdir(parents=True, exist_ok=True)
        drawn = BytesIO()
        canvas(figure, below).savefig(drawn, dpi=150, format=target.suffix[1:])
        text_file.write(target, drawn.getvalue())
        made.append(target)
    return made


def canvas(figure: Figure, below: str = "") -> Any:
    """Return matplotlib's figure."""
    from matplotlib.figure import Figure as Canvas

    count = len(figure.panels)
    columns = 2 if count == 4 else min(count, 3)
    lines = -(-count // columns)
    widest = max(len(panel.ticks) * max(len(panel.series), 1) for panel in figure.panels)
    width = max(4.5, min(8.0, 0.18 * widest + 2)) * columns + 2
    drawn = Canvas(figsize=(width, 3.6 * lines + 0.9), layout="constrained")
    drawn.suptitle(figure.title)
    names = dict.fromkeys(name for panel in figure.panels for name in panel.series)
    colours = {name: f"C{number % 10}" for number, name in enumerate(names)}
    axes = drawn.subplots(lines, columns, squeeze=False, sharey=True)
    for at, place in enumerate(axes.flat):
        if at >= count:
            place.set_axis_off()
            continue
        panel = figure.panels[at]
        (_bars if figure.kind == "bars" else _lines)(place, panel, colours)
        place.set_title(panel.title, fontsize="medium")
        place.set_xlabel(figure.x)
        turned = max(map(len, panel.ticks), default=0) * len(panel.ticks) > 40
        turn: dict[str, Any] = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"}
        place.set_xticks(range(len(panel.ticks)), panel.ticks, **(turn if turned else {}))
        place.grid(axis="y", alpha=0.3)
        place.set_axisbelow(True)
        if at % columns == 0:
            place.set_ylabel(figure.y)
    # All panels share one scale, so this comes after the last of them.
    if figure.scale == "linear":
        axes[0, 0].set_ylim(bottom=0)
    else:
        axes[0, 0].set_yscale("log")
    handles: dict[str, Any] = {}
    for place in axes.flat:
        for handle, label in zip(*place.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if any(handles):
        drawn.legend(handles.values(), handles.keys(), loc="outside right upper")
    if below:
        caption = textwrap.fill(below, int(width * 14))
        drawn.supxlabel(caption, fontsize="x-small", color="0.4")
    return drawn


def _bars(place: Any, panel: Panel, colours: dict[str, str]) -> None:
    count = len(panel.series)
    width = 0.8 / max(count, 1)
    for number, (name, values) in enumerate(panel.series.items()):
        shift = (number - (count - 1) / 2) * width
        at = [tick + shift for tick, value in enumerate(values) if value is not None]
        heights = [value for value in values if value is not None]
        place.bar(at, heights, width, label=name, color=colours[name])
    _overlay(place, panel)


def _lines(place: Any, panel: Panel, colours: dict[str, str]) -> None:
    for name, values in panel.series.items():
        numbers = [float("nan") if value is None else value for value in values]
        place.plot(
            range(len(values)), numbers, marker="o", markersize=4, label=name, color=colours[name]
        )
    _overlay(place, panel)


def _overlay(place: Any, panel: Panel) -> None:
    for number, (name, values) in enumerate(panel.overlay.items()):
        numbers = [float("nan") if value is None else value for value in values]
        colour = "k" if len(panel.overlay) == 1 else f"C{number % 10}"
        place.plot(
            range(len(values)), numbers, "--", color=colour, marker="x", markersize=4, label=name
        )
