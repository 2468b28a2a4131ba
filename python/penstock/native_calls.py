"""The library as ``penstock._core`` calls it: by the addresses of its functions."""

from __future__ import annotations

import os
from functools import cache
from typing import Final

from penstock import arrays, frameworks
from penstock._core import Library
from penstock._native import address, ffi, lib
from penstock._options import address_of, current
from penstock.device_array import DeviceArray
from penstock.errors import check
from penstock.report import remember

_READERS: Final = (
    *("open_decoded", "describe", "shape", "pieces", "read", "start", "write", "is_forgotten"),
    "close",
)
_FILES: Final = ("open", "open_descriptor", "close", "read", "load", "save", "stream_query")
_STRUCTS: Final = ("axis", "selection", "array", "reader_facts", "report")


@cache
def library() -> Library:
    """Return the library of this process.

    ``PENDING`` is the status of what a reader leaves to another way, ``ERR_FORKED`` that of all
    its calls in a forked child.
    """
    return Library(
        readers=tuple(address(getattr(lib, f"penstock_reader_{name}")) for name in _READERS),
        files=tuple(address(getattr(lib, f"penstock_{name}")) for name in _FILES),
        sizes=tuple(ffi.sizeof(f"penstock_{name}") for name in _STRUCTS),
        fallback=(lib.PENSTOCK_PENDING, lib.PENSTOCK_ERR_FORKED),
        options=current,
        parse=address_of,
        check=check,
        remember=remember,
        note_write=frameworks.note_write,
        torch_stream=frameworks.torch_stream,
        device_array=DeviceArray,
        view=arrays.View,
    )


os.register_at_fork(after_in_child=library.cache_clear)
