"""HDF5's calls with an event set: with Penstock's connector, with another one, and without.

Another connector takes part if ``PENSTOCK_BENCH_CONNECTOR`` has the value for HDF5_VOL_CONNECTOR,
and ``PENSTOCK_BENCH_CONNECTOR_PATH`` the folder of its plugin. Its environment variables go into
``PENSTOCK_BENCH_CONNECTOR_VARIABLES``, as ``NAME=VALUE`` separated by spaces. Penstock's connector,
which reads some of the same variables, is measured without them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import byref, c_bool, c_size_t, c_void_p
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

import penstock as ps
from penstock.memory import copy_bytes

from . import gpu
from .libhdf5 import find_plugins, library

NONE = 0
"""``H5ES_NONE``: with it, a call is complete when it returns."""
_FOREVER = 2**64 - 1
_HERE = (b"benches", b"benches", 0)


@dataclass(frozen=True)
class Way:
    """How a program writes."""

    name: str
    setting: str
    connector: str = ""
    """The value for HDF5_VOL_CONNECTOR; if empty, HDF5's own connector."""
    has_events: bool = True
    takes_gpu_memory: bool = False
    """If not, the program copies to page-locked memory first."""
    variables: tuple[tuple[str, str], ...] = ()
    """Environment variables to set while files are accessed in this way."""


def penstock(options: str = "") -> Way:
    connector = f"penstock_async under_vol=0;under_info={{}};{options}"
    return Way("Penstock", options, connector, takes_gpu_memory=True)


ALONE = Way("HDF5 alone", "", has_events=False)


def peers() -> list[Way]:
    other = os.environ.get("PENSTOCK_BENCH_CONNECTOR")
    if not other:
        return []
    words = os.environ.get("PENSTOCK_BENCH_CONNECTOR_VARIABLES", "").split()
    variables = tuple((name, value) for name, _, value in (word.partition("=") for word in words))
    return [Way(f"connector {other.partition(' ')[0]}", "", other, variables=variables)]


@cache
def prepare() -> None:
    """Make a GPU current, and add the folders of the connectors to HDF5's search."""
    if ps.devices():
        gpu.make_current()
    find_plugins("PENSTOCK_BENCH_CONNECTOR_PATH")


def later(function: str) -> Callable[..., int]:
    """Return a function that takes an event set, with the arguments for the call site filled in."""
    call = getattr(library(), function)

    def from_here(*arguments: Any) -> int:
        status: int = call(*_HERE, *arguments)
        return status

    return from_here


@contextmanager
def access(way: Way) -> Iterator[int]:
    """Make a file access property list with the connector."""
    hdf5 = library()
    made = hdf5.H5Pcreate(hdf5.file_access)
    os.environ.update(way.variables)
    try:
        if way.connector:
            name, _, text = way.connector.partition(" ")
            connector, information = _registered(name), c_void_p()
            hdf5.H5VLconnector_str_to_info(text.encode(), connector, byref(information))
            hdf5.H5Pset_vol(made, connector, information)
            hdf5.H5VLfree_connector_info(connector, information)
        yield made
    finally:
        for name, _ in way.variables:
            del os.environ[name]
        hdf5.H5Pclose(made)


@cache
def _registered(name: str) -> int:
    """Register a connector and never close it: some cannot be initialised twice."""
    identifier: int = library().H5VLregister_connector_by_name(name.encode(), 0)
    return identifier


class Events:
    """An event set, or none for a way that has none."""

    def __init__(self, way: Way) -> None:
        self.id: int = library().H5EScreate() if way.has_events else NONE

    def wait(self, nanoseconds: int = _FOREVER) -> int:
        """Wait, and return the number of unfinished operations."""
        left, failed = c_size_t(), c_bool()
        if self.id != NONE:
            library().H5ESwait(self.id, nanoseconds, byref(left), byref(failed))
        if failed.value:
            raise RuntimeError("a background operation failed")
        return left.value

    def close(self) -> None:
        if self.id != NONE:
            self.wait()
            library().H5ESclose(self.id)


@dataclass
class Field:
    """The results of a program, in GPU memory or in host memory."""

    values: np.ndarray[Any, Any]
    on_gpu: bool

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    @cached_property
    def _buffer(self) -> gpu.Buffer:
        made = gpu.Buffer(self.nbytes)
        gpu.put(made.address, self.values)
        return made

    @cached_property
    def _pinned(self) -> gpu.Pinned:
        return gpu.Pinned(self.nbytes)

    def for_writing(self, way: Way) -> int:
        """Return an address that the way accepts, of a copy in host memory if it needs one."""
        if not self.on_gpu:
            return int(self.values.ctypes.data)
        if way.takes_gpu_memory:
            return self._buffer.address
        copy_bytes(self._pinned.address, self._buffer.address, self.nbytes)
        return self._pinned.address
