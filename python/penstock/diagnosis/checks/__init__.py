"""Judges the facts: one line per condition, with a remedy if the condition does not hold.

The functions are pure. A condition that the facts do not decide is unknown, never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.diagnosis.checks import cufile, cufile_json, gpu, hdf5, host, p2pdma, packages, path
from penstock.diagnosis.line import Line, readable

_SECTIONS = (gpu, host, path, cufile, p2pdma, cufile_json, hdf5, packages)


def judge(facts: Mapping[str, Any]) -> list[Line]:
    """Return the lines of the report, section by section."""
    return [
        replace(
            line,
            name=readable(line.name),
            found=readable(line.found),
            meaning=readable(line.meaning),
            remedy=readable(line.remedy),
        )
        for section in _SECTIONS
        for line in section.lines(facts)
    ]
