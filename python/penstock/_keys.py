"""Keyword arguments that several functions share, as types of their ``**keys``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, SupportsIndex

from penstock._options import OptionKeys
from penstock.placement import Device, Library

if TYPE_CHECKING:
    from penstock.hdf5.cf import Decoding


class ArrayKeys(OptionKeys, total=False):
    """The arguments of functions that make arrays; :func:`penstock.load` describes them."""

    device: Device
    stream: Any
    like: Library | None
    pin: bool


class ReadKeys(ArrayKeys, total=False):
    """The arguments of functions that read datasets; :func:`penstock.read` describes them."""

    out: Any
    dtype: Any
    cf: bool | Decoding


class BlockKeys(OptionKeys, total=False):
    """The arguments of :meth:`penstock.Dataset.blocks`."""

    prefetch: SupportsIndex
    device: Device
    dtype: Any
    reuse: bool
    like: Library | None
    pin: bool
    cf: bool | Decoding
