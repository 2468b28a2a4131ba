"""Draws the figures of a benchmark by matplotlib.

All have one look: panels below each other, as wide as a phone shows legibly, bars with their
values, Penstock in blue. An SVG has text instead of outlines, and a dark form for dark pages.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

from penstock import text_file

FORMATS = (".png", ".svg", ".pdf")

_WIDTH = 5.2
"""Inches of all figures, of which a phone shows two thirds."""
_PAPER, _INK, _SOFT, _GRID = "#ffffff", "#1f2328", "#59636e", "#d1d9e0"
_PENSTOCK = ["#0b5cad", "#54a0e8", "#0f8b8d", "#8fc7f5", "#26418f", "#7ad1c7"]
_OTHERS = ["#bc4c00", "#6e7781", "#8250df", "#1a7f37", "#b58900", "#bf3989", "#7d4e00", "#a0a8b0"]
_MARKERS = "osD^vPX*"
_DARK = {
    _PAPER: "#0d1117",
    _INK: "#e6edf3",
    _SOFT: "#9198a1",
    _GRID: "#3d444d",
    "#0b5cad": "#58a6ff",
    "#54a0e8": "#1f6feb",
    "#8fc7f5": "#a5d6ff",
    "#26418f": "#7d8ff0",
    "#0f8b8d": "#39c5cf",
    "#bc4c00": "#f0883e",
    "#8250df": "#bc8cff",
    "#1a7f37": "#56d364",
    "#b58900": "#e3b341",
    "#bf3989": "#ff7bbf",
    "#7d4e00": "#c69026",
}
"""The colour in a dark SVG for each colour in a light one; others stay."""


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
    """Panels below each other with a common scale."""

    name: str
    """A suffix for the file's name, if there are several figures."""
    title: str
    x: str
    y: str
    """What the values are. If it is empty, each panel has its own scale, which its title names."""
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
        text_file.write(target, _saved(figure, below, target.suffix))
        made.append(target)
    return made


def _saved(figure: Figure, below: str, suffix: str) -> bytes:
    from matplotlib import rc_context

    drawn = BytesIO()
    # The same figure has the same bytes.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "penstock"}):
        keys = {"metadata": {"Date": None, "Title": figure.title}} if suffix == ".svg" else {}
        canvas(figure, below).savefig(drawn, dpi=150, format=suffix[1:], **keys)
    return _with_dark_form(drawn.getvalue()) if suffix == ".svg" else drawn.getvalue()


def _with_dark_form(svg: bytes) -> bytes:
    """Add the colours for readers who prefer dark pages. The file has its own background."""
    rules = "".join(
        f'[style*="{key}: {light}"]{{{key}:{dark} !important}}'
        for light, dark in _DARK.items()
        for key in ("fill", "stroke")
    )
    style = f'<style type="text/css">@media (prefers-color-scheme: dark) {{{rules}}}</style>'
    text = svg.decode()
    # Fonts of the reader, after the one that the text was measured with.
    text = re.sub(r"'DejaVu Sans'(, [^;\"]*)?", "'DejaVu Sans', Verdana, sans-serif", text)
    return text.replace("</defs>", f"{style}</defs>", 1).encode()


def canvas(figure: Figure, below: str = "") -> Any:
    """Return matplotlib's figure."""
    from matplotlib.figure import Figure as Canvas
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    panels = [panel for panel in figure.panels if _has_values(panel)]
    draw_panel = _bars if figure.kind == "bars" else _lines
    longest = max((len(tick) for panel in panels for tick in panel.ticks), default=0)
    columns = 2 if len(panels) > 3 and longest < 12 and figure.y else 1
    names = dict.fromkeys(name for panel in panels for name in (*panel.series, *panel.overlay))
    bars = [tick for panel in panels for tick in panel.ticks] if "" in names else []
    # Bars then have the names beside them.
    is_named = figure.kind == "bars" and _is_one_group(panels)
    colours = _colours([*names, *bars], is_named)
    heights = [
        max(map(_height_of_bars if figure.kind == "bars" else _height_of_lines, line))
        for line in (panels[at : at + columns] for at in range(0, len(panels), columns))
    ] or [1.0]

    caption = textwrap.fill(below, 92)
    title = textwrap.fill(figure.title, 54)
    legend = [name for name in names if name]
    legend_lines = 0 if is_named else -(-len(legend) // _legend_columns(legend))
    top = 0.25 + 0.2 * len(title.splitlines()) + 0.2 * legend_lines
    bottom = 0.12 + 0.15 * len(caption.splitlines())
    total = sum(heights) + top + bottom
    engine = ConstrainedLayoutEngine(rect=(0, bottom / total, 1, sum(heights) / total))
    drawn = Canvas(figsize=(_WIDTH, total), layout=engine, facecolor=_PAPER)
    drawn.text(0.02, 1 - 0.1 / total, title, va="top", weight="bold", size=10.5, color=_INK)
    drawn.text(0.02, 0.06 / total, caption, va="bottom", size=7, color=_SOFT)
    is_bars = figure.kind == "bars"
    shared: dict[str, Any] = {
        "sharex": bool(figure.y) and is_bars,
        "sharey": bool(figure.y) and not is_bars,
    }
    size = (len(heights), columns)
    axes = drawn.subplots(*size, squeeze=False, height_ratios=heights, **shared)
    for at, place in enumerate(axes.flat):
        if at >= len(panels):
            place.set_axis_off()
            continue
        draw_panel(place, panels[at], colours)
        edges = {"is_left": at % columns == 0, "is_last": at >= len(panels) - columns}
        _frame(place, figure, panels[at], **edges)
    # All panels share one scale, so this comes after the last of them.
    for place in axes.flat if not figure.y else axes[0, :1]:
        if figure.scale == "log":
            (place.set_xscale if is_bars else place.set_yscale)("log")
        elif is_bars:
            place.set_xlim(0, place.get_xlim()[1] * 1.12)  # room for the values
        else:
            place.set_ylim(bottom=0)
    handles: dict[str, Any] = {}
    for place in axes.flat:
        for handle, label in zip(*place.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if handles and not is_named:
        where = (0.01, 1 - (0.12 + 0.2 * len(title.splitlines())) / total)
        keys = {"bbox_to_anchor": where, "ncols": _legend_columns(legend), **_LEGEND}
        drawn.legend(handles.values(), handles.keys(), loc="upper left", **keys)
    return drawn


_AT_THE_END: dict[str, Any] = {"xytext": (3, 0), "textcoords": "offset points"}
_AT_THE_END |= {"va": "center_baseline", "size": 8, "color": _INK}
_LEGEND: dict[str, Any] = {"frameon": False, "fontsize": 8.5, "labelcolor": _INK}
_LEGEND |= {"handlelength": 1.5, "columnspacing": 1.2, "borderpad": 0.2}


def _has_values(panel: Panel) -> bool:
    return any(value is not None for values in panel.series.values() for value in values)


def _is_one_group(panels: list[Panel]) -> bool:
    """Whether each panel has one tick, or one series without a name: a bar is a contestant."""
    return all(len(panel.ticks) == 1 or set(panel.series) == {""} for panel in panels) and not any(
        panel.overlay for panel in panels
    )


def _legend_columns(names: list[str]) -> int:
    longest = max(map(len, names), default=0)
    return 1 if longest > 34 else 2 if longest > 18 else 3


def _colours(names: list[str], is_named: bool) -> dict[str, str]:
    """Give Penstock the blue ones; a name has one colour in all panels.

    Bars with names beside them have two colours only.
    """
    colours: dict[str, str] = {}
    for name in dict.fromkeys(names):
        own = name.casefold().startswith("penstock")
        palette = _PENSTOCK if own else _OTHERS
        count = sum(it.casefold().startswith("penstock") == own for it in colours)
        at = (0 if own else 1) if is_named else count % len(palette)
        colours[name] = palette[at]
    return colours


_Group = tuple[str, list[tuple[str, float | None]]]
_LABEL = 30
"""Letters in a line of a bar's label."""


def _rows(panel: Panel) -> list[_Group]:
    """Return groups of bars: the label of a group, and the name and the value of each bar."""
    if _is_one_group([panel]):
        if len(panel.ticks) == 1 and set(panel.series) != {""}:
            return [(name, [(name, values[0])]) for name, values in panel.series.items()]
        return [(tick, [(tick, panel.series[""][at])]) for at, tick in enumerate(panel.ticks)]
    return [
        (tick, [(name, values[at]) for name, values in panel.series.items()])
        for at, tick in enumerate(panel.ticks)
    ]


def _height_of_bars(panel: Panel) -> float:
    rows = _rows(panel)
    return 0.55 + 0.17 * (_gap(rows) * len(rows) + sum(len(bars) for _, bars in rows))


def _gap(rows: list[_Group]) -> float:
    """Return the space between groups, in bars: a label of two lines needs more than one bar."""
    return 1.1 if any(len(label) > _LABEL and len(bars) == 1 for label, bars in rows) else 0.6


def _height_of_lines(panel: Panel) -> float:
    return 2.7 if _is_turned(panel) else 2.1


def _is_turned(panel: Panel) -> bool:
    """Whether the ticks of lines would touch each other in one row."""
    return sum(map(len, panel.ticks)) > 50


def _bars(place: Any, panel: Panel, colours: dict[str, str]) -> None:
    """Draw groups of bars from the top to the bottom, with the values at their ends."""
    rows = _rows(panel)
    at, centres, gap = 0.0, [], _gap(rows)
    placed: dict[str, list[tuple[float, float]]] = {}
    for _, bars in rows:
        centres.append(at + (len(bars) - 1) / 2)
        for number, (name, value) in enumerate(bars):
            if value is not None:
                placed.setdefault(name, []).append((at + number, value))
        at += len(bars) + gap
    for name, found in placed.items():
        lows, values = zip(*found, strict=True)
        place.barh(lows, values, 0.86, label=name, color=colours[name])
        for low, value in found:
            place.annotate(_in_digits(value), (value, low), **_AT_THE_END)
    for name, line in panel.overlay.items():
        for centre, (_, bars), value in zip(centres, rows, line, strict=True):
            if value is not None:
                ends = [centre - len(bars) / 2, centre + len(bars) / 2]
                label = name if centre == centres[0] else None
                place.plot([value] * 2, ends, "--", lw=1.5, color=colours[name], label=label)
    place.set_yticks(centres, [textwrap.fill(label, _LABEL) for label, _ in rows])
    place.set_ylim(at - gap - 0.4, -0.6)


def _lines(place: Any, panel: Panel, colours: dict[str, str]) -> None:
    for number, (name, values) in enumerate(panel.series.items()):
        marker = _MARKERS[number % len(_MARKERS)]
        _line(place, values, marker=marker, label=name, color=colours[name])
    own = list(panel.series)
    for number, (name, values) in enumerate(panel.overlay.items()):
        # Of several, each has the colour of the series at its place.
        colour = colours[name] if len(panel.overlay) == 1 else colours[own[number % len(own)]]
        _line(place, values, marker="x", linestyle="--", label=name, color=colour)
    place.set_xticks(range(len(panel.ticks)), panel.ticks)


def _line(place: Any, values: list[float | None], **style: Any) -> None:
    numbers = [float("nan") if value is None else value for value in values]
    place.plot(range(len(values)), numbers, markersize=4, linewidth=1.5, **style)


def _frame(place: Any, figure: Figure, panel: Panel, *, is_left: bool, is_last: bool) -> None:
    """Set titles, labels, and the lines around and behind the values."""
    across, along = (figure.y, figure.x) if figure.kind == "bars" else (figure.x, figure.y)
    place.set_title(panel.title, loc="left", size=9, color=_INK)
    if across and is_last:
        place.set_xlabel(across, size=8.5, color=_SOFT)
    if along and is_left and not (figure.kind == "bars" and _is_one_group([panel])):
        place.set_ylabel(along, size=8.5, color=_SOFT)
    place.tick_params(labelsize=8.5, length=0, labelcolor=_INK)
    if figure.kind == "bars":
        shown = is_last or not figure.y
        place.tick_params(axis="x", labelsize=7.5, labelcolor=_SOFT, labelbottom=shown)
    elif _is_turned(panel):
        place.tick_params(axis="x", labelrotation=45)
    place.grid(axis="x" if figure.kind == "bars" else "y", color=_GRID, linewidth=0.6)
    place.set_axisbelow(True)
    place.set_facecolor(_PAPER)
    for side, spine in place.spines.items():
        spine.set_visible(side == ("left" if figure.kind == "bars" else "bottom"))
        spine.set_color(_GRID)


def _in_digits(value: float) -> str:
    """Return three digits that count."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 0.001 else f"{value:.2g}"
