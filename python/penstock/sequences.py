"""Lists that callers give, checked so that an error says what is expected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from typing import Any

from penstock.errors import IncompatibleError


def listed(items: Any, what: str, form: str) -> list[Any]:
    """Return items as a list.

    Raises:
        IncompatibleError: The items are one string, a mapping, or not iterable.
    """
    if isinstance(items, (str, bytes, Mapping)) or not isinstance(items, Iterable):
        raise IncompatibleError(
            f"{what} is {described(items)}, not a list", remedy=f"give a list of {form}"
        )
    return list(items)


def check_indexed(items: Any, what: str, form: str) -> None:
    """Raise IncompatibleError unless the items have a length and can be indexed by number."""
    is_indexed = isinstance(items, Sized) and hasattr(items, "__getitem__")
    if isinstance(items, (str, bytes, Mapping)) or not is_indexed:
        raise IncompatibleError(f"{what} is {described(items)}, not a list", remedy=f"give {form}")


def described(items: Any) -> str:
    """Return a short description of an argument, for error messages."""
    if isinstance(items, tuple):
        return f"a tuple of {len(items)}"
    is_short = items is None or isinstance(items, (str, bytes, int, float))
    return repr(items) if is_short else f"a {type(items).__name__}"
