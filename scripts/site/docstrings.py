"""An extension of Griffe: the roles and examples of docstrings become Markdown."""

from __future__ import annotations

import re
from itertools import accumulate
from pathlib import Path
from typing import Any

import griffe

_PAGES = Path(__file__).parents[2] / "docs" / "reference" / "api"
_SHOWN = {
    name
    for page in _PAGES.glob("*.md")
    for name in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)
}
"""The objects that have an entry on a page."""

_ROLE = re.compile(r":\w+:`~?([^`]+)`")
_EXAMPLE = re.compile(r"^(?P<indent> *)>>> .*(?:\n(?P=indent)\S.*)*", re.MULTILINE)


class MarkdownDocstrings(griffe.Extension):
    """Rewrites each docstring before its sections are read."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = _ROLE.sub(lambda role: _reference(role[1], obj), obj.docstring.value)
            text = re.sub(r"``(.+?)``", r"`\1`", text)
            obj.docstring.value = _EXAMPLE.sub(r"\g<indent>```pycon\n\g<0>\n\g<indent>```", text)


def _reference(name: str, obj: griffe.Object) -> str:
    """Return a link to what a docstring names, if it has an entry, or else its name as code."""
    around = list(accumulate(obj.path.split("."), "{}.{}".format))
    for full in [*(f"{outer}.{name}" for outer in reversed(around)), name]:
        if full in _SHOWN:
            return f"[`{name}`][{full}]"
    return f"`{name}`"
