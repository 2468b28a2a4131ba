"""The binary interface of libpenstock.so as text.

python -m tests.packaging.abi > tests/packaging/abi.txt
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import penstock
from penstock._declarations import ffi

COMMITTED = Path(__file__).with_suffix(".txt")


def lines() -> Iterator[str]:
    """Describe the constants, the functions and the types of the headers, one in each line."""
    library = ffi.dlopen(str(penstock.library()))
    for name in sorted(dir(library)):
        # Releases change the version without changing the interface.
        if name.startswith("PENSTOCK_VERSION_"):
            continue
        value = getattr(library, name)
        yield (
            f"{name} = {value}" if isinstance(value, int) else f"{name}: {ffi.typeof(value).cname}"
        )
    for name in sorted(ffi.list_types()[0]):
        yield from of_type(name, ffi.typeof(name))


def of_type(name: str, kind: ffi.CType) -> Iterator[str]:
    if kind.kind == "enum":
        yield f"{name}: enumeration of {ffi.sizeof(kind)} bytes"
    elif kind.kind != "struct":
        yield f"{name}: {kind.cname}"
    elif (size := size_of(kind)) is None:
        yield f"{name}: opaque"
    else:
        # The size is not part of it: a struct with `struct_size` may get more fields.
        for field, found in kind.fields:
            yield f"{name}.{field}: {found.type.cname} at {found.offset}"
        if kind.fields[0][0] != "struct_size":
            yield f"{name}: {size} bytes"


def size_of(kind: ffi.CType) -> int | None:
    try:
        return ffi.sizeof(kind)
    except ffi.error:
        return None


if __name__ == "__main__":
    print("\n".join(lines()))
