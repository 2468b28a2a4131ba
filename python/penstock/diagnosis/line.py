"""A line of the report."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum


class Status(str, Enum):
    """The state of a condition."""

    OK = "OK"
    WARN = "WARN"
    """It works, but slowly or with a risk."""
    NO = "NO"
    """Something cannot be used."""
    UNKNOWN = "unknown"
    """The machine does not report it."""


# All control characters but the newline.
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class Line:
    """A condition, what was found, and what to do about it."""

    section: str
    name: str
    status: Status
    found: str
    meaning: str = ""
    """The consequence for I/O."""
    remedy: str = ""
    """What to do; empty only if there is nothing to do."""


def readable(text: str) -> str:
    """Escape bytes that are not UTF-8, as in paths, and control characters, as in files."""
    shown = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    return shown.encode("utf-8", "backslashreplace").decode("utf-8")


def version_of(text: str | None) -> tuple[int, int] | None:
    """Return major and minor of the version that a text begins with."""
    found = re.match(r"(\d+)\.(\d+)", text or "")
    return (int(found[1]), int(found[2])) if found else None


def cause_and_remedy(reason: object) -> tuple[str, str]:
    """Split the library's reason for a failure into cause and remedy, which may be empty."""
    cause, _, remedy = str(reason).partition("; remedy: ")
    return cause, remedy[:1].upper() + remedy[1:]


@dataclass(frozen=True)
class Section:
    """Makes the lines of one section."""

    title: str

    def ok(self, name: str, found: str, meaning: str = "") -> Line:
        return Line(self.title, name, Status.OK, found, meaning)

    def warn(self, name: str, found: str, meaning: str, remedy: str) -> Line:
        return Line(self.title, name, Status.WARN, found, meaning, remedy)

    def no(self, name: str, found: str, meaning: str, remedy: str) -> Line:
        return Line(self.title, name, Status.NO, found, meaning, remedy)

    def unknown(self, name: str, why: str, remedy: str) -> Line:
        return Line(self.title, name, Status.UNKNOWN, why, "", remedy)
