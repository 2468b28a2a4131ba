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

FALLBACK_STATUSES: Final = (lib.PENSTOCK_PENDING, lib.PENSTOCK_ERR_FORKED)
"""What a reader returns for reads of another kind, and in a forked child that has no library."""
_OF_FILES: Final = ("open", "open_descriptor", "close", "read", "load", "save", "stream_query")
_STRUCTS: Final = ("penstock_axis", "penstock_selection", "penstock_array", "penstock_report")


@cache
def library() -> Library:
    """Return the library of this process."""
    return Library(
        read=address(lib.penstock_reader_read),
        start=address(lib.penstock_reader_start),
        write=address(lib.penstock_reader_write),
        shape=address(lib.penstock_reader_shape),
        files=tuple(address(getattr(lib, f"penstock_{name}")) for name in _OF_FILES),
        sizes=tuple(ffi.sizeof(name) for name in _STRUCTS),
        fallback=FALLBACK_STATUSES,
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
