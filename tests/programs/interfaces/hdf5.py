"""Functions of the HDF5 that h5py links, called with any address."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import h5py
from h5py._hl import selections
from h5py._objects import phil

from .base import ManyRequest, TransferRequest

_ID = ctypes.c_int64
_PLACE = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint]
PLACE = (b"programs", b"transfer", 1)
FOREVER = 2**64 - 1

library = ctypes.CDLL(h5py.h5.__file__)
for _name, _arguments in {
    "H5Dread": [*[_ID] * 5, ctypes.c_void_p],
    "H5Dwrite": [*[_ID] * 5, ctypes.c_void_p],
    "H5Dread_async": [*_PLACE, *[_ID] * 5, ctypes.c_void_p, _ID],
    "H5Dwrite_async": [*_PLACE, *[_ID] * 5, ctypes.c_void_p, _ID],
    "H5Pset_fill_value": [_ID, _ID, ctypes.c_void_p],
    "H5Dread_multi": [ctypes.c_size_t, *[ctypes.c_void_p] * 4, _ID, ctypes.c_void_p],
    "H5Dread_multi_async": [
        *(*_PLACE, ctypes.c_size_t, *[ctypes.c_void_p] * 4, _ID, ctypes.c_void_p, _ID),
    ],
    "H5EScreate": [],
    "H5ESclose": [_ID],
    "H5ESwait": [_ID, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p],
    "H5EScancel": [_ID, ctypes.c_void_p, ctypes.c_void_p],
    "H5Eclear2": [_ID],
    "H5Ewalk2": [_ID, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p],
}.items():
    getattr(library, _name).argtypes = _arguments
library.H5EScreate.restype = _ID


class FailedError(Exception):
    """A function of HDF5 failed."""


class _Entry(ctypes.Structure):
    """``H5E_error2_t``."""

    _fields_ = (
        ("cls_id", _ID),
        ("maj_num", _ID),
        ("min_num", _ID),
        ("line", ctypes.c_uint),
        ("func_name", ctypes.c_char_p),
        ("file_name", ctypes.c_char_p),
        ("desc", ctypes.c_char_p),
    )


_WALK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint, ctypes.POINTER(_Entry), ctypes.c_void_p)


def check(status: int) -> int:
    if status >= 0:
        return status
    messages: list[str] = []

    def note(_: int, entry: Any, __: Any) -> int:
        messages.append((entry.contents.desc or b"").decode(errors="replace"))
        return 0

    library.H5Ewalk2(0, 0, _WALK(note), None)
    raise FailedError("; ".join(messages[:3]) or "no message")


def read_many(request: ManyRequest, *, in_background: bool) -> None:
    """Call H5Dread_multi, or H5Dread_multi_async and wait."""
    parts = request.parts
    with ExitStack() as stack:
        columns = zip(
            *(
                stack.enter_context(described(TransferRequest(request.file, *part)))
                for part in parts
            ),
            strict=True,
        )
        dataset, kind, flat, space, _, address = columns
        ids = [(_ID * len(parts))(*column) for column in (dataset, kind, flat, space)]
        addresses = (ctypes.c_void_p * len(parts))(*address)
        if not in_background:
            check(library.H5Dread_multi(len(parts), *ids, 0, addresses))
            return
        events = check(library.H5EScreate())
        left, failed = ctypes.c_size_t(), ctypes.c_bool()
        outcome = (ctypes.byref(left), ctypes.byref(failed))
        try:
            check(library.H5Dread_multi_async(*PLACE, len(parts), *ids, 0, addresses, events))
            check(library.H5ESwait(events, FOREVER, *outcome))
        finally:
            library.H5ESclose(events)
        if failed.value:
            raise FailedError("the event set has an error")


@contextmanager
def described(request: TransferRequest) -> Iterator[Any]:
    """Yield the six arguments of H5Dread and H5Dwrite, with h5py's lock held."""
    memory = request.given_memory
    with phil:
        library.H5Eclear2(0)
        dataset = request.file[request.name]
        space = selections.select(dataset.shape, request.picked.argument, dataset=dataset).id
        kind = h5py.h5t.py_create(memory.dtype)
        shape = request.picked.shape
        flat = h5py.h5s.create_simple(shape) if shape else h5py.h5s.create(h5py.h5s.SCALAR)
        yield (dataset.id.id, kind.id, flat.id, space.id, 0, memory.address)
