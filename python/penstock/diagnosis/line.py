"""A line of the report."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum


class Status(str, Enum):
    """How a condition stands."""

    OK = "OK"
    WARN = "WARN"
    """It works, but slower, or with a risk."""
    NO = "NO"
    """Something cannot be used."""
    UNKNOWN = "unknown"
    """The machine does not tell."""


# All but the end of a line.
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class Line:
    """A condition, what was found of it, and what to do about it."""

    section: str
    name: str
    status: Status
    found: str
    meaning: str = ""
    """What follows from it for I/O."""
    remedy: str = ""
    """What to do; empty only where nothing is to be done."""


def readable(text: str) -> str:
    """Text of which each character can be shown: a path may hold bytes that are no UTF-8, and a
    file characters that a terminal obeys."""
    shown = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    return shown.encode("utf-8", "backslashreplace").decode("utf-8")


def version_of(text: str | None) -> tuple[int, int] | None:
    """Major and minor of a version that a text begins with."""
    found = re.match(r"(\d+)\.(\d+)", text or "")
    return (int(found[1]), int(found[2])) if found else None


def cause_and_remedy(reason: object) -> tuple[str, str]:
    """The two parts of what the library says of a failure; the second may be empty."""
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
