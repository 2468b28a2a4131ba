"""An extension of Griffe: the docstrings' roles and examples become Markdown."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":\w+:`~?([^`]+)`")
_EXAMPLE = re.compile(r"^(?P<indent> *)>>> .*(?:\n(?P=indent)\S.*)*", re.MULTILINE)


class MarkdownDocstrings(griffe.Extension):
    """Rewrites each docstring before its sections are read."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = _ROLE.sub(r"`\1`", obj.docstring.value)
            text = re.sub(r"``(.+?)``", r"`\1`", text)
            obj.docstring.value = _EXAMPLE.sub(r"\g<indent>```pycon\n\g<0>\n\g<indent>```", text)
