"""Kinds of memory, and copies between any two of them."""

from __future__ import annotations

from penstock._native import ffi, lib, pointer
from penstock.errors import check

HOST = lib.PENSTOCK_MEMORY_HOST
KINDS = {
    HOST: "host",
    lib.PENSTOCK_MEMORY_PINNED: "pinned",
    lib.PENSTOCK_MEMORY_MANAGED: "managed",
    lib.PENSTOCK_MEMORY_DEVICE: "device",
}


def kind_of(address: int) -> tuple[int, int]:
    """Return the ``penstock_memory`` of an address and its CUDA ordinal, -1 for pageable memory."""
    kind, device = ffi.new("int *"), ffi.new("int *")
    check(lib.penstock_memory_kind(pointer(address), kind, device))
    return kind[0], device[0]


def copy_bytes(destination: int, source: int, nbytes: int) -> None:
    """Copy between two addresses, and return when the copy is complete."""
    if nbytes:
        check(lib.penstock_copy(pointer(destination), pointer(source), nbytes))
