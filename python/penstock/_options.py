"""Options of calls: keyword arguments override ``ps.options``, which overrides the library.

The library takes its own from the environment, then from the tuned profile, then its defaults.
"""

from __future__ import annotations

import os
import typing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

import numpy as np

from penstock._native import NULL, CData, ffi, lib, new_options
from penstock.errors import InvalidError, check

if TYPE_CHECKING:
    from typing_extensions import Unpack as Unpack
else:  # annotations are not evaluated
    Unpack = getattr(typing, "Unpack", None)


class OptionKeys(TypedDict, total=False):
    """The options of a call; a key that is missing or ``None`` comes from the next outer level."""

    threads: int | None
    """Workers that serve one request."""
    block: int | str | None
    """Bytes that a worker moves at a time: a number, or text such as ``"8MiB"``."""
    route: Literal["auto", "host", "staged", "mapped", "gds"] | None
    """How bytes travel between the file and GPU memory."""
    io: Literal["auto", "threads", "uring", "mmap"] | None
    """Which mechanism issues the reads and writes."""
    direct: bool | Literal["auto", "no", "yes"] | None
    """O_DIRECT: never, always, or only for pages that are not cached."""
    queue_depth: int | None
    """Reads or writes in flight per worker with io_uring."""
    slots: int | None
    """Pinned slots that each worker of the staged route cycles through; 2 by default."""
    durable: bool | Literal["no", "yes"] | None
    """Whether a write is done only when data and size are on the medium."""
    scratch: int | str | None
    """Bytes of GPU memory for the chunks of a dataset in flight; 1 GiB by default."""
    decode: Literal["auto", "cpu", "gpu"] | None
    """Which processor decodes and encodes the chunks of a dataset; by default, what is faster."""


_Items = tuple[tuple[str, str], ...]
_current: ContextVar[_Items] = ContextVar("penstock_options", default=())


@contextmanager
def options(**keys: Unpack[OptionKeys]) -> Iterator[None]:
    """Set options of all calls of this thread or asyncio task within a ``with`` block.

    The keys are those of :class:`OptionKeys`. Blocks nest, and the inner one wins key by key.
    An unknown key or a bad value raises :class:`InvalidError`.

    >>> with ps.options(threads=4, block="8MiB", route="staged"):
    ...     t = ps.load("w.bin", device="cuda")
    """
    merged = _merge(_current.get(), keys)
    _parse(merged)
    token = _current.set(merged)
    try:
        yield
    finally:
        _current.reset(token)


def resolve(keys: Mapping[str, Any]) -> CData:
    """Return the ``penstock_options *`` of a call with these keyword arguments; NULL for none."""
    items = _current.get()
    if keys:
        items = _merge(items, keys)
    return _parse(items) if items else NULL


current: Final = _current.get
"""Returns the options of the thread or task, as :func:`address_of` takes them."""


def address_of(items: _Items) -> tuple[int, CData]:
    """Return the address of the ``penstock_options`` for these, and what keeps it there."""
    parsed = _parse(items)
    return int(ffi.cast("uintptr_t", parsed)), parsed


def _merge(outer: _Items, keys: Mapping[str, Any]) -> _Items:
    inner = {key: _text(key, value) for key, value in keys.items() if value is not None}
    return tuple(sorted((dict(outer) | inner).items()))


def _text(key: str, value: object) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    text = str(value)
    if ";" in text:
        raise InvalidError(f"option {key} has a bad value {text!r}")
    return text


@lru_cache(maxsize=256)
def _parse(items: _Items) -> CData:
    """Have the library parse keys and values, so that one set of rules applies."""
    if not items:
        return NULL
    parsed = new_options()
    text = ";".join(f"{key}={value}" for key, value in items)
    check(lib.penstock_options_parse(os.fsencode(text), parsed))
    return parsed
