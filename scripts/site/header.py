"""The reference of the C API: the comments and declarations of a header, as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from textwrap import dedent

_SECTION = re.compile(r"/\* -- (.+?) -+ \*/")
_FUNCTION = re.compile(r"^PENSTOCK_API[^(;]*?\b(penstock_\w+)\(", re.MULTILINE)
_TYPE = re.compile(r"^(?:\} |typedef .*[ *])(\w+);", re.MULTILINE)
_MACRO = re.compile(r"^#define (\w+)", re.MULTILINE)
_MEMBER = re.compile(r"\b(PENSTOCK_[A-Z0-9_]+) =")
_NAME = re.compile(r"`[^`]+`|\b(?:penstock|PENSTOCK|HDF5|H5)\w*(?:\(\))?")


@dataclass
class _Entry:
    """A comment, and the declarations that follow it without an empty line."""

    comment: str = ""
    lines: list[str] = field(default_factory=list)

    @property
    def code(self) -> str:
        return "\n".join(self.lines)

    def title(self) -> list[str]:
        """The functions that it declares, or else its types, or else its macros."""
        found = (pattern.findall(self.code) for pattern in (_FUNCTION, _TYPE, _MACRO))
        return next(filter(None, found), [])

    def names(self) -> list[str]:
        patterns = (_FUNCTION, _TYPE, _MACRO, _MEMBER)
        return [name for pattern in patterns for name in pattern.findall(self.code)]


def page(header: str, first: str) -> str:
    """Return the Markdown of a header: its first comment, then its sections.

    Args:
        header: The text of the header.
        first: The title of what comes before the first section.
    """
    introduction, body = _parts(header)
    parts = [first, *_entries(body)]
    entries = [part for part in parts if isinstance(part, _Entry)]
    anchors = {name: entry.title()[0] for entry in entries for name in entry.names()}
    written = [_prose(introduction, anchors)]
    for part in parts:
        if isinstance(part, str):
            written.append(f"## {part[:1].upper()}{part[1:]}")
        else:
            written += _written(part, anchors)
    return "\n\n".join(filter(None, written)) + "\n"


def _parts(header: str) -> tuple[str, str]:
    """Return the text of the first comment, and what lies between the guards for C++."""
    comment, _, rest = header.partition("*/")
    # After the sentence that names the header.
    introduction = _text(comment.partition("\n *\n")[2]).removeprefix("Conventions\n")
    body = rest.partition('extern "C" {\n#endif\n')[2]
    return dedent(introduction), body.rpartition("#ifdef __cplusplus")[0]


def _entries(body: str) -> Iterator[str | _Entry]:
    """Yield the titles of sections, and the entries of each."""
    for block in re.split(r"\n{2,}", body.strip()):
        if title := _SECTION.fullmatch(block):
            yield title[1]
            continue
        entry = _Entry()
        for part in re.split(r"^(/\*.*?\*/\n?)", block, flags=re.MULTILINE | re.DOTALL):
            if part.startswith("/*"):
                if entry.lines:
                    yield entry
                entry = _Entry(_text(part.strip()[2:-2]))
            elif part.strip():
                entry.lines.append(part.rstrip())
        yield entry


def _text(comment: str) -> str:
    """Return the text of a comment without its stars."""
    lines = [re.sub(r"^ ?\* ?", "", line) for line in comment.strip().split("\n")]
    return "\n".join(lines).strip("\n")


def _written(entry: _Entry, anchors: dict[str, str]) -> Iterator[str]:
    """Yield heading, text and code of an entry."""
    if title := entry.title():
        yield f"### {', '.join(f'`{name}`' for name in title)} {{ #{title[0]} }}"
    yield _prose(entry.comment, anchors)
    if title:
        macro = "PENSTOCK_API "
        # The continuation lines of a function are aligned behind the macro.
        code = re.sub(rf"^ {{{len(macro)}}}(?= {{8}})", "", entry.code, flags=re.MULTILINE)
        yield f"```c\n{code.replace(macro, '')}\n```"


def _prose(text: str, anchors: dict[str, str]) -> str:
    """Return a text in which names are code, and those of this header links."""

    def name(found: re.Match[str]) -> str:
        word = found[0].strip("`")
        if "_" not in word and not re.match("H5[A-Z]+[a-z]", word):
            return found[0]
        anchor = anchors.get(word.removesuffix("()"))
        return f"[`{word}`](#{anchor})" if anchor else f"`{word}`"

    lines = []
    for line in text.split("\n"):
        # Markdown needs an empty line before a list, and before code.
        if lines and re.match("- |    ", line) and re.match(r"\w", lines[-1]):
            lines.append("")
        is_code = line.startswith("    ")
        lines.append(line if is_code else _NAME.sub(name, re.sub(r"[*<]", r"\\\g<0>", line)))
    return "\n".join(lines)
