"""The report as one self-contained HTML page, without scripts, fonts or images."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from html import escape
from itertools import groupby

from penstock.diagnosis.line import Line, Status

# Text and background have a contrast of 4.5 or more in both schemes.
_STYLE = """\
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --text: #1b1f24; --soft: #57606a; --rule: #d8dee4;
  --ok: #116329; --ok-back: #dafbe1; --warn: #7d4e00; --warn-back: #fff1c2;
  --no: #a40e26; --no-back: #ffe0e3; --unknown: #424a53; --unknown-back: #e4e8ec;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0d1117; --card: #161b22; --text: #e6edf3; --soft: #9ba6b2; --rule: #30363d;
    --ok: #7ee2a0; --ok-back: #12351f; --warn: #f2cc60; --warn-back: #3d2e00;
    --no: #ffa7ad; --no-back: #4c1219; --unknown: #c3ccd5; --unknown-back: #2a3038;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 72rem;
  background: var(--page); color: var(--text);
  font: 1rem/1.45 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}
h1 { font-size: 1.4rem; line-height: 1.25; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { margin: .25rem 0; color: var(--soft); }
.counts { display: flex; flex-wrap: wrap; gap: .5rem; margin: 1rem 0 0; padding: 0; }
.counts li { list-style: none; }
.status {
  display: inline-block; min-width: 4.4rem; padding: .1rem .5rem; border-radius: .4rem;
  text-align: center; font-size: .85rem; font-weight: 600; white-space: nowrap;
}
.OK { color: var(--ok); background: var(--ok-back); }
.WARN { color: var(--warn); background: var(--warn-back); }
.NO { color: var(--no); background: var(--no-back); }
.unknown { color: var(--unknown); background: var(--unknown-back); }
table {
  width: 100%; border-collapse: collapse; table-layout: fixed; background: var(--card);
  border: 1px solid var(--rule); border-radius: .5rem;
}
th, td {
  padding: .5rem .75rem; vertical-align: top; text-align: left; overflow-wrap: anywhere;
  border-top: 1px solid var(--rule);
}
thead th { border-top: 0; color: var(--soft); font-size: .85rem; font-weight: 600; }
tbody th { font-weight: 600; }
.name { width: 21%; } .state { width: 6.6rem; } .found { width: 33%; }
.remedy { display: block; font-weight: 600; }
.option { white-space: nowrap; }
nav ul { margin: 1rem 0 0; padding: 0; columns: 22rem; }
nav li {
  list-style: none; margin: 0 0 .35rem; break-inside: avoid;
  display: flex; gap: .5rem; align-items: baseline; overflow-wrap: anywhere;
}
.status { flex: none; }
a { color: inherit; }
tr:target { outline: 2px solid var(--soft); outline-offset: -2px; }
@media (max-width: 45rem) {
  thead { display: none; }
  table, tbody { display: block; }
  tr { display: grid; grid-template-columns: 1fr auto; padding: .6rem .75rem;
       border-top: 1px solid var(--rule); }
  tbody tr:first-child { border-top: 0; }
  tbody th, td { padding: .1rem 0; border: 0; }
  td.found, td.advice { grid-column: 1 / -1; width: auto; }
  th.name { width: auto; padding-right: .75rem; }
  td.state { grid-row: 1; grid-column: 2; width: auto; }
  td.advice { color: var(--soft); } td.advice:empty { display: none; }
  td.advice .remedy { color: var(--text); }
}
@media print { body { max-width: none; padding: 0; } table { break-inside: auto; } }
"""


def render(lines: Iterable[Line], title: str, when: datetime) -> str:
    """Return the page as text."""
    shown = list(lines)
    counts = "".join(
        f"<li>{_badge(status)} {sum(line.status is status for line in shown)}</li>"
        for status in Status
    )
    numbered = list(enumerate(shown))
    sections = "".join(
        _section(name, list(rows)) for name, rows in groupby(numbered, lambda row: row[1].section)
    )
    return f"""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>
{_STYLE}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
<p>penstock report, <time datetime="{when.isoformat(timespec="seconds")}">\
{when.strftime("%d %B %Y, %H:%M %Z")}</time></p>
<ul class="counts" aria-label="Lines by status">{counts}</ul>
{_contents(numbered)}</header>
<main>
{sections}</main>
</body>
</html>
"""


def _contents(numbered: Iterable[tuple[int, Line]]) -> str:
    """Return links to the lines that need attention, the worst first."""
    worst = (Status.NO, Status.WARN)
    found = [row for status in worst for row in numbered if row[1].status is status]
    if not found:
        return ""
    links = "".join(
        f'<li>{_badge(line.status)} <a href="#line-{number}">{escape(line.section)}: '
        f"{escape(line.name)}</a></li>"
        for number, line in found
    )
    return f'<nav aria-label="What is not OK"><ul>{links}</ul></nav>\n'


def _section(name: str, lines: Iterable[tuple[int, Line]]) -> str:
    rows = "".join(_row(number, line) for number, line in lines)
    return f"""\
<section>
<h2>{escape(name)}</h2>
<table>
<thead><tr><th class="name" scope="col">What</th><th class="state" scope="col">Status</th>\
<th class="found" scope="col">Found</th><th scope="col">What this means, and what to do</th></tr>\
</thead>
<tbody>
{rows}</tbody>
</table>
</section>
"""


def _row(number: int, line: Line) -> str:
    remedy = f'<span class="remedy">{_command(line.remedy)}</span>' if line.remedy else ""
    return (
        f'<tr id="line-{number}"><th class="name" scope="row">{escape(line.name)}</th>'
        f'<td class="state">{_badge(line.status)}</td>'
        f'<td class="found">{escape(line.found)}</td>'
        f'<td class="advice">{escape(line.meaning)}{remedy}</td></tr>\n'
    )


def _command(text: str) -> str:
    """Escape a text, and keep options of commands from breaking after their hyphens."""
    return re.sub(r"(?<!\S)-{1,2}[\w-]+", r'<span class="option">\g<0></span>', escape(text))


def _badge(status: Status) -> str:
    return f'<span class="status {status.value}">{status.value}</span>'
