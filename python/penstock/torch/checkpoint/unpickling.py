"""What pickles of untrusted files get for the names in them.

The instruction BUILD sets attributes of whatever the pickle has put on its stack: also those of a
class or function, of which the whole process has only one.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Callable
from enum import Enum
from typing import Any, NoReturn

from penstock._collector import paused_collector


class Refused(pickle.UnpicklingError):
    """A pickle does what only a trusted one may do."""


def _refuse_change() -> NoReturn:
    raise Refused("the pickle changes a class, a function or a constant")


class Named:
    """A function that a pickle can call but not change."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *args: Any) -> Any:
        return self._function(*args)

    def __setstate__(self, _: Any) -> None:
        _refuse_change()


class Inert:
    """What a pickle makes of every class and function, so that none is called."""

    __slots__ = ()

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    __setstate__: Callable[..., Any] = id  # it takes any object, and is fast

    def __setitem__(self, _: Any, __: Any) -> None:
        pass

    def append(self, _: Any) -> None:
        """Take an element, as a list does."""

    def extend(self, _: Any) -> None:
        """Take elements, as a list does."""

    def add(self, _: Any) -> None:
        """Take an element, as a set does."""


class _InertClass(type):
    """The class of what stands for a class or function: BUILD finds its ``__setstate__`` first."""

    def __getattribute__(cls, name: str) -> Any:
        if name == "__setstate__":
            _refuse_change()
        return super().__getattribute__(name)


class _Made(Inert, metaclass=_InertClass):
    """Stands for an object that the pickle makes."""

    __slots__ = ()


class _Constant(Inert, metaclass=_InertClass):
    """Stands for a member of an enumeration, which exists once."""

    __slots__ = ()

    def __setstate__(self, _: Any) -> None:
        _refuse_change()


_LENGTHS = [0] * 256
"""Of the argument of each instruction; below 0, as ``pickletools`` encodes a variable length."""
for _opcode in pickletools.opcodes:
    if _opcode.arg is not None:
        _LENGTHS[ord(_opcode.code)] = _opcode.arg.n
_LENGTH_FIELDS = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
_TWO_LINES = pickle.GLOBAL + pickle.INST
_STOP, _PUT, _LONG_BINPUT = pickle.STOP[0], pickle.PUT[0], pickle.LONG_BINPUT[0]


def checked(pickled: bytes) -> io.BytesIO:
    """Return a pickle as a file, unless it numbers an object higher than a pickle of its size can.

    Python's unpickler allocates memory for all lower numbers: one wrong bit makes that gigabytes.

    Raises:
        pickle.UnpicklingError: There is such a number.
    """
    at, end = 0, len(pickled)
    while at < end:
        code = pickled[at]
        length, at = _LENGTHS[code], at + 1
        if length == pickletools.UP_TO_NEWLINE:
            begin, at = at, pickled.find(b"\n", at) + 1 or end
            if code in _TWO_LINES:
                at = pickled.find(b"\n", at) + 1 or end
            if code == _PUT and at - begin > len(str(end)) + 1:
                raise pickle.UnpicklingError("the pickle numbers an object too high")
        elif length < 0:
            field = _LENGTH_FIELDS[length]
            at += field + int.from_bytes(pickled[at : at + field], "little")
        else:
            if code == _LONG_BINPUT and int.from_bytes(pickled[at : at + 4], "little") > end:
                raise pickle.UnpicklingError("the pickle numbers an object too high")
            at += length
        if code == _STOP:
            break
    return io.BytesIO(pickled)


def load(pickled: bytes, find_class: Callable[[str, str], Any]) -> Any:
    """Unpickle an object. The pickle can change only the objects that it makes itself.

    A first pass makes inert objects only, and refuses BUILD of anything else. Which instruction
    works on which object does not depend on the objects, so that the second pass does the same.

    Args:
        pickled: The pickle.
        find_class: Returns the class or function of this module and name, or raises an exception.
            What it returns must be safe to call with any arguments.

    Raises:
        Refused: The pickle changes something else.
        Exception: The pickle is damaged.
    """
    with paused_collector():
        _Rehearsal(pickled, find_class).load()
        return _Unpickler(pickled, find_class).load()


class _Unpickler(pickle.Unpickler):
    def __init__(self, pickled: bytes, find_class: Callable[[str, str], Any]) -> None:
        super().__init__(checked(pickled))
        self._find_class = find_class

    def find_class(self, module: str, name: str) -> Any:
        return self._find_class(module, name)


class _Rehearsal(_Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        found = self._find_class(module, name)
        return _Constant if isinstance(found, type) and issubclass(found, Enum) else _Made
