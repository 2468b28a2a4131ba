"""Executes the examples of a page of the manual, in order, in the working folder.

The fenced blocks of a page are one program: Python blocks share their names, and each `sh` block is
a script of bash. A block with a title is written to the file of that name. A `text` block that
directly follows an example is its output, in which `...` means anything, and durations and rates
are not compared. Comments before a block say where it applies:

    <!-- needs: torch, mpirun -->        modules, programs, `gpu` or `hdf5` (its headers)
    <!-- without a GPU -->               the output, if there is no GPU
    <!-- not run: REASON -->             an excerpt
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import shutil
import subprocess
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import penstock as ps

_FENCE = re.compile(
    r"((?:^<!-- .*? -->\n+)*)^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_MEASURED = re.compile(r"(?<![\w.])[\d,]+(?:\.\d+)? ?(?:ns|us|ms|s|[KMG]B/s)\b")
_FRAMES = re.compile("[\u2500-\u257f]+")
"""The lines of tables, which are as long as their columns."""
_RUN = ("python", "sh")


@dataclass(frozen=True)
class Block:
    line: int
    language: str
    title: str | None
    code: str
    comments: tuple[str, ...]
    follows: bool
    """Whether nothing but blank lines and comments is between this block and the one before."""


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    end = -1
    for found in _FENCE.finditer(text):
        comments, language, title, code = found.groups()
        line = text.count("\n", 0, found.start(2)) + 1
        gap = text[end : found.start()]
        end = found.end()
        notes = tuple(re.findall(r"<!-- (.*?) -->", comments))
        yield Block(line, language, title, code, notes, not gap.strip())


def missing(comments: tuple[str, ...]) -> str | None:
    """Return why a block with these comments is not executed, or `None`."""
    for comment in comments:
        kind, _, value = comment.partition(": ")
        if kind == "not run":
            return value
        if kind == "needs":
            for name in value.split(", "):
                if not _is_there(name):
                    return f"{name} is not there"
    return None


def _is_there(name: str) -> bool:
    if name == "gpu":
        return bool(ps.devices())
    if name == "hdf5":
        return "HDF5_ROOT" in os.environ
    return importlib.util.find_spec(name) is not None or shutil.which(name) is not None


class FailedError(Exception):
    pass


def execute(block: Block, page: Path, names: dict[str, object]) -> str:
    """Return what an example prints."""
    if block.language == "sh":
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.code],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=200,
        )
        if done.returncode:
            raise FailedError(f"status {done.returncode}\n{done.stdout}")
        return done.stdout
    output = io.StringIO()
    code = compile("\n" * block.line + block.code, str(page), "exec")
    try:
        with contextlib.redirect_stdout(output):
            exec(code, names)
    except BaseException:
        raise FailedError(f"{traceback.format_exc()}\n{output.getvalue()}") from None
    return output.getvalue()


def fits(expected: str, printed: str) -> bool:
    def words(text: str) -> str:
        return " ".join(_MEASURED.sub("TIME", _FRAMES.sub(" ", text)).split())

    pattern = ".*".join(map(re.escape, words(expected).split("...")))
    return re.fullmatch(pattern, words(printed)) is not None


def run(page: Path) -> tuple[int, list[str]]:
    """Return the number of examples executed, and why others were not."""
    names: dict[str, object] = {"__name__": "__main__"}
    executed = 0
    skipped: list[str] = []
    printed: str | None = None
    for block in blocks(page):
        reason = missing(block.comments)
        where = f"{page}:{block.line}"
        if block.title:
            if reason is None:
                Path(block.title).write_text(block.code)
            printed = None
        elif block.language in _RUN:
            printed = None
            if reason is None:
                try:
                    printed = execute(block, page, names)
                except FailedError as error:
                    pytest.fail(f"{where}: {error}", pytrace=False)
                executed += 1
            else:
                skipped.append(reason)
        elif block.language == "text" and block.follows and printed is not None:
            if "without a GPU" in block.comments and ps.devices():
                continue
            if not fits(block.code, printed):
                pytest.fail(f"{where}: the page shows\n{block.code}\nnot\n{printed}", pytrace=False)
            printed = None
    return executed, skipped
