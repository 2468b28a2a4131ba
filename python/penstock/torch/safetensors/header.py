"""The header of a safetensors file: eight bytes of length, then JSON, then the tensors' bytes.

A header is accepted only if the tensors cover the rest of the file without gap or overlap. Unlike
the format's own library, which takes the last one, this refuses names that occur twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from fcntl import F_GETFL, fcntl
from functools import partial
from math import isinf
from operator import itemgetter
from stat import S_ISREG
from typing import Any, NamedTuple

import numpy as np

from penstock import transfer
from penstock._collector import paused_collector
from penstock._core import canonical_tensors
from penstock._native import NULL
from penstock.files import READ, NativeFile, Path
from penstock.torch.safetensors.errors import WeightsError, WeightsTypeError

LENGTH_BYTES = 8
LARGEST = 100_000_000
"""Bytes of JSON, at most."""
METADATA = "__metadata__"
SAVE = "penstock_save"
"""The key in the metadata of the identity of a save that has several files, the same in all."""
_ALIGNMENT = 8
_END = 1 << 64

BITS = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}
"""Bits of an element of each data type, in the order of alignment that the format defines."""

_RANKS = {dtype: rank for rank, dtype in enumerate(BITS)}


class Entry(NamedTuple):
    """A tensor of a file."""

    name: str
    dtype: str
    """The data type by the format's name, such as ``"BF16"``: a key of :data:`BITS`."""
    shape: tuple[int, ...]
    """The lengths in elements, also where an element is less than a byte."""
    begin: int
    """The offset in the file of the first byte."""
    end: int
    """The offset in the file behind the last byte."""

    @property
    def nbytes(self) -> int:
        """The length in bytes."""
        return self.end - self.begin


class Header(NamedTuple):
    """What a file says about its tensors."""

    entries: dict[str, Entry]
    """The tensors by name, in the order of their bytes."""
    metadata: dict[str, str] | None
    """Text that the writer has added; ``None`` if there is none."""
    begin: int
    """The offset in the file of the first tensor."""
    end: int
    """The offset in the file behind the last tensor: the length of the file."""

    @property
    def save(self) -> str | None:
        """The identity of the save that has written the file; ``None`` if it has none."""
        return (self.metadata or {}).get(SAVE)


def read_header(path: Path) -> Header:
    """Read and check the header of a file.

    Raises:
        NotFoundError: The file does not exist.
        WeightsError: It is not a valid safetensors file. The error is a ``SafetensorError`` and a
            ``ValueError``.
    """
    with NativeFile(path, READ) as file:
        return header_of(file, os.fsdecode(path))


def header_of(file: NativeFile, name: str) -> Header:
    """Read and check the header of an open file; ``name`` is its path in messages."""
    return _header(file.size(), name, partial(_read, file))


def header_at(descriptor: int, name: str) -> Header:
    """Read and check the header of a file by its descriptor; ``name`` is its path in messages."""
    status = os.fstat(descriptor)
    access = fcntl(descriptor, F_GETFL) & (os.O_ACCMODE | os.O_DIRECT)
    if not S_ISREG(status.st_mode) or access not in (os.O_RDONLY, os.O_RDWR):
        # A block device, a file with O_DIRECT, or what the library refuses.
        with NativeFile(descriptor, READ) as file:
            return header_of(file, name)
    size = status.st_size
    return _header(size, name, lambda begin, length: os.pread(descriptor, length, begin))


def header_in(data: bytes | bytearray | memoryview, name: str) -> Header:
    """Check the header of a whole file in memory; ``name`` is what messages call it."""
    return _header(len(data), name, lambda begin, length: bytes(data[begin : begin + length]))


def encode_header(
    tensors: Mapping[str, tuple[str, Sequence[int]]], metadata: Mapping[str, str] | None = None
) -> tuple[bytes, dict[str, Entry]]:
    """Return the header of a new file, and where its tensors go.

    The order is that of the format's own library: larger elements first, then names.

    Args:
        tensors: The data type, as in :data:`BITS`, and the shape in elements of each tensor.
        metadata: Text to add.

    Returns:
        The first bytes of the file, and the tensors in the order of their places behind them.

    Raises:
        WeightsError: A data type is unknown, a tensor does not fill whole bytes, or the header
            would be larger than readers accept.
        WeightsTypeError: Metadata is not text.
    """
    listed: dict[str, Any] = {}
    if metadata is not None:
        for key, value in metadata.items():
            if not isinstance(key, str) or not isinstance(value, str):
                raise WeightsTypeError(f"metadata {key!r} is not text", remedy="give strings alone")
        listed[METADATA] = dict(metadata)
    places: dict[str, tuple[int, int]] = {}
    at = 0
    for name in sorted(tensors, key=lambda name: (-_RANKS.get(tensors[name][0], 0), name)):
        dtype, shape = tensors[name]
        if name == METADATA:
            raise WeightsError(f"no tensor can have the name {METADATA}")
        try:
            end = at + _nbytes(dtype, shape)
        except ValueError as error:
            raise WeightsError(f"tensor {name!r}: {error}") from None
        listed[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, end]}
        places[name] = at, end
        at = end
    text = json.dumps(listed, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    if len(text) > LARGEST:
        raise WeightsError(f"header too large: {len(text)} bytes, and readers accept {LARGEST}")
    begin = LENGTH_BYTES + len(text)
    entries = {
        name: Entry(name, tensors[name][0], tuple(tensors[name][1]), begin + first, begin + last)
        for name, (first, last) in places.items()
    }
    return len(text).to_bytes(LENGTH_BYTES, "little") + text, entries


def _header(size: int, name: str, read: Callable[[int, int], bytes]) -> Header:
    """Read and check a header; ``read`` returns bytes of the file from an offset on."""
    if size < LENGTH_BYTES:
        raise _invalid(name, f"header too small: the file has {size} bytes, a header 8 or more")
    length = int.from_bytes(read(0, LENGTH_BYTES), "little")
    if length > LARGEST:
        raise _invalid(name, f"header too large: {length} bytes, and at most {LARGEST} are allowed")
    begin = LENGTH_BYTES + length
    if begin > size:
        raise _invalid(
            name, f"invalid header length: the header ends at byte {begin}, the file at byte {size}"
        )
    text = read(LENGTH_BYTES, length)
    with paused_collector():
        header = _canonical(text, begin) or _parsed(name, text, begin)
    if header.end != size:
        raise _invalid(
            name,
            f"incomplete metadata, file not fully covered: the tensors end at byte {header.end}, "
            f"the file at byte {size}",
        )
    return header


_WITH_METADATA = b'{"__metadata__":'


def _canonical(text: bytes, begin: int) -> Header | None:
    """Return a header in the form in which the format's own library writes it.

    It is the same as :func:`_parsed` returns, in a tenth of the time. ``None`` is returned for all
    other headers, valid or not.
    """
    start, metadata = 1, None
    if text.startswith(_WITH_METADATA):
        try:
            metadata, start = _metadata_at(text, len(_WITH_METADATA))
        except (ValueError, RecursionError):
            return None
    elif not text.startswith(b"{"):
        return None
    listed = canonical_tensors(text, start, begin, BITS)
    if not listed:
        return None
    entries = {tensor[0]: tensor for tensor in map(partial(tuple.__new__, Entry), listed)}
    if len(entries) != len(listed) or METADATA in entries:
        return None
    return Header(entries, metadata, begin, listed[-1][4])


def _metadata_at(text: bytes, at: int) -> tuple[dict[str, str], int]:
    """Return the metadata in a header from a byte on, and where the name behind them begins."""
    decoded = text[at:].decode()
    metadata, length = _DECODER.raw_decode(decoded)
    if not _is_text(metadata) or decoded[length : length + 1] != ",":
        raise ValueError("it is in another form")
    return metadata, at + len(decoded[: length + 1].encode())


def _parsed(name: str, text: bytes, begin: int) -> Header:
    """Check a header, and return what it lists."""
    listed = _parse(name, text)
    metadata = listed.pop(METADATA, None)
    if metadata is not None and not _is_text(metadata):
        raise _invalid(name, f"{METADATA} is not an object of strings")
    entries = []
    for tensor, value in listed.items():
        try:
            entries.append(_entry(tensor, value, begin))
        except ValueError as error:
            raise _invalid(name, f"tensor {tensor!r}: {error}") from None
    entries.sort(key=itemgetter(3, 4))
    end = begin
    for entry in entries:
        if entry.begin != end:
            raise _invalid(
                name,
                f"invalid offset for tensor `{entry.name}`: it begins at byte "
                f"{entry.begin - begin} of the data, and the one before it ends at {end - begin}",
            )
        end = entry.end
    return Header({entry.name: entry for entry in entries}, metadata, begin, end)


def _is_text(metadata: Any) -> bool:
    """Whether a value of JSON is an object of strings."""
    try:
        # JSON can have half a surrogate pair, text cannot.
        "".join([*metadata, *metadata.values()]).encode()
    except (AttributeError, TypeError, ValueError):
        return False
    return True


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if isinf(number):
        raise ValueError(f"number out of range: {text}")
    return number


def _parse(name: str, text: bytes) -> dict[str, Any]:
    """Return the JSON object of a header. JSON has no NaN, and here no object has a key twice."""
    try:
        listed = _DECODER.decode(text.decode())
    except (ValueError, RecursionError) as error:  # of UTF-8 and of JSON
        raise _invalid(name, f"invalid JSON in header: {error}") from None
    if not isinstance(listed, dict):
        raise _invalid(name, "invalid JSON in header: it is not an object")
    return listed


def _integer(text: str) -> int | float:
    """Return a number as the format's own library does, for which -0 is not an integer."""
    _finite(text)
    return -0.0 if text == "-0" else int(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"duplicate field `{twice}`")
    return made


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_no_constant, parse_float=_finite, parse_int=_integer
)


def _entry(name: str, value: Any, begin: int) -> Entry:
    if type(value) is not dict:
        raise ValueError("its description is not an object")
    try:
        dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    except KeyError as missing:
        raise ValueError(f"missing field {missing}") from None
    if type(shape) is not list or type(offsets) is not list or len(offsets) != 2:
        raise ValueError("shape is not an array, or data_offsets is not a pair")
    for number in (*shape, *offsets):
        if type(number) is not int or not 0 <= number < _END:
            raise ValueError(f"{number!r} is not a length or offset")
    first, last = offsets
    nbytes = _nbytes(dtype, shape)
    if last - first != nbytes:
        raise ValueError(
            f"invalid shape, data type, or offset for tensor: {dtype} of shape {shape} has "
            f"{nbytes} bytes, and data_offsets {offsets} span {last - first}"
        )
    name.encode()  # JSON can have half a surrogate pair, text cannot
    return Entry(name, dtype, tuple(shape), begin + first, begin + last)


def _nbytes(dtype: Any, shape: Sequence[int]) -> int:
    """Return the bytes of a tensor.

    Raises:
        ValueError: The type is unknown, or the length no number of bytes.
    """
    bits = BITS.get(dtype) if type(dtype) is str else None
    if bits is None:
        raise ValueError(f"unknown data type {dtype!r}, expected one of {', '.join(BITS)}")
    count = 1
    for length in shape:
        count *= length
        if count >= _END:
            break
    if count * bits >= _END:
        raise ValueError(f"overflow computing the size from {dtype} and shape {list(shape)}")
    if count * bits % 8:
        raise ValueError(f"{dtype} of shape {list(shape)} does not end at a byte boundary")
    return count * bits // 8


def _read(file: NativeFile, begin: int, length: int) -> bytes:
    buffer = np.empty(length, np.uint8)
    transfer.read_into(file, buffer, begin, NULL)
    return buffer.tobytes()


def _invalid(name: str, message: str) -> WeightsError:
    return WeightsError(
        f"{name}: {message}",
        path=name,
        cause=message,
        remedy="the file is damaged or no safetensors file: write or download it again",
    )
