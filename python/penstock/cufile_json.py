"""The configuration of cuFile, cufile.json: JSON with comments."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from penstock.errors import InvalidError

VARIABLE = "CUFILE_ENV_PATH_JSON"
DEFAULT = "/etc/cufile.json"

# A string, which is kept, or a comment of either kind.
_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


def parse(text: str) -> dict[str, Any]:
    """Parse a configuration.

    Raises:
        ValueError: The text is not valid; the message has line and column.
    """

    # Comments become spaces, so that lines and columns stay the same.
    def blank(match: re.Match[str]) -> str:
        found = match[0]
        return found if found.startswith('"') else re.sub(r"[^\n]", " ", found)

    try:
        value = json.loads(_COMMENT.sub(blank, text))
    except json.JSONDecodeError as error:
        raise ValueError(
            f"is invalid at line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    except RecursionError:
        raise ValueError("is invalid: it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("is invalid: it is not an object")
    return value


def in_force() -> tuple[Path, dict[str, Any]]:
    """Return the path and the contents of the configuration that cuFile reads in this environment.

    Both are empty if there is no configuration and the environment names none.

    Raises:
        InvalidError: It cannot be read, or is not valid.
    """
    named = os.environ.get(VARIABLE)
    path = Path(named or DEFAULT)
    if not named and not path.exists():
        return path, {}
    if not path.exists():
        raise invalid(path, f"does not exist, but {VARIABLE} names it")
    if not path.is_file():
        raise invalid(path, "is invalid: it is not a regular file")
    try:
        return path, parse(path.read_text("utf-8"))
    except UnicodeDecodeError as error:
        raise invalid(path, f"is not UTF-8: byte {error.start}") from None
    except OSError as error:
        raise invalid(path, f"cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise invalid(path, str(error)) from None


def invalid(path: Path, why: str) -> InvalidError:
    return InvalidError(f"{path} {why}", remedy=f"correct it, or unset {VARIABLE}")
