"""What pickles of untrusted files get for the names in them.

The instruction BUILD sets attributes of whatever the pickle has put on its stack: also those of a
class or function, of which the whole process has only one.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any


class Named:
    """A function that a pickle can call but not change."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *args: Any) -> Any:
        return self._function(*args)

    def __setstate__(self, _: Any) -> None:
        raise pickle.UnpicklingError("the pickle changes a function")
