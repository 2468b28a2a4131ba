"""The header of a safetensors file: what is accepted, and what is refused."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.torch.safetensors.errors import SafetensorError, WeightsError, WeightsTypeError
from penstock.torch.safetensors.header import BITS, encode_header, header_in, read_header

SCALAR = '{"dtype":"F32","shape":[],"data_offsets":[0,4]}'


def file_of(header: str | bytes, data: bytes = b"", length: int | None = None) -> bytes:
    text = header.encode() if isinstance(header, str) else header
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def one(dtype: str = "F32", shape: str = "[1]", offsets: str = "[0,4]", more: str = "") -> str:
    return f'{{"a":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}{more}}}}}'


VALID = {
    "no tensors": file_of("{}"),
    "spaces around": file_of(' {"a": ' + SCALAR + "}  \n", b"1234"),
    "a scalar": file_of(f'{{"a":{SCALAR}}}', b"1234"),
    "no metadata": file_of(f'{{"__metadata__":null,"a":{SCALAR}}}', b"1234"),
    "an unknown field": file_of(one(more=',"x":[1.5,{}]'), b"1234"),
    "an empty name": file_of(f'{{"":{SCALAR}}}', b"1234"),
    "an escaped name": file_of(f'{{"\\u00e4\\n":{SCALAR}}}', b"1234"),
    "no alignment": file_of(
        '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
        '"b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}}',
        b"12345",
    ),
    "no elements": file_of(one(shape="[0,4294967296,4294967296]", offsets="[0,0]")),
    "another order": file_of(
        '{"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},'
        '"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
        b"12",
    ),
}

INVALID = {
    "an empty file": b"",
    "half a length": b"abc",
    "100 MB of JSON": struct.pack("<Q", 100_000_001) + b"x" * 20,
    "a length behind the end": file_of("{}", length=50),
    "the largest length": file_of("{}", length=(1 << 64) - 1),
    "no JSON": file_of("{"),
    "an array": file_of("[]"),
    "no brace before the first name": file_of(f'["a":{SCALAR}}}', b"1234"),
    "no UTF-8": file_of(b'{"\xff":1}'),
    "half a surrogate pair": file_of(f'{{"\\ud800":{SCALAR}}}', b"1234"),
    "a control character": file_of(f'{{"a\nb":{SCALAR}}}', b"1234"),
    "text behind the object": file_of("{} x"),
    "zeros behind the object": file_of(f'{{"a":{SCALAR}}}\0\0', b"1234"),
    "deep nesting": file_of('{"a":' + "[" * 5000 + "]" * 5000 + "}"),
    "NaN": file_of(one(more=',"x":NaN'), b"1234"),
    "an infinite number": file_of(one(more=',"x":1e999'), b"1234"),
    "a name twice": file_of(f'{{"a":{SCALAR},"a":{SCALAR}}}', b"1234"),
    "a field twice": file_of(one(more=',"dtype":"F32"'), b"1234"),
    "metadata twice": file_of('{"__metadata__":{},"__metadata__":{}}'),
    "a key of the metadata twice": file_of('{"__metadata__":{"a":"b","a":"b"}}'),
    "half a surrogate pair in the metadata": file_of('{"__metadata__":{"a":"\\ud800"}}'),
    "half a surrogate pair in the metadata before a tensor": file_of(
        f'{{"__metadata__":{{"a":"\\ud800"}},"a":{SCALAR}}}', b"1234"
    ),
    "nesting in the metadata before a tensor": file_of(
        '{"__metadata__":' + '{"a":' * 5000 + "1" + "}" * 5000 + f',"a":{SCALAR}}}', b"1234"
    ),
    "half a surrogate pair in a key of the metadata": file_of(
        '{"__metadata__":{"\\udc00":"a","b":"c"}}'
    ),
    "metadata that is not text": file_of('{"__metadata__":{"a":1}}'),
    "metadata that is an array": file_of('{"__metadata__":[]}'),
    "no comma": file_of(f'{{"a":{SCALAR}"b":{SCALAR}x}}', b"1234"),
    "a comma at the end": file_of(f'{{"a":{SCALAR},}}', b"1234"),
    "a tensor that is null": file_of('{"a":null}'),
    "a missing field": file_of('{"a":{"dtype":"F32","shape":[1]}}', b"1234"),
    "an unknown type": file_of(one("F33"), b"1234"),
    "a type in small letters": file_of(one("f32"), b"1234"),
    "a negative length": file_of(one(shape="[-1]"), b"1234"),
    "a length with a fraction": file_of(one(shape="[1.0]"), b"1234"),
    "a length that is true": file_of(one(shape="[true]"), b"1234"),
    "a length with a zero before": file_of(one(shape="[01]"), b"1234"),
    "a length of minus zero": file_of(one(shape="[-0]", offsets="[0,0]")),
    "an integer as large as no number": file_of(one(more=f',"x":{"9" * 400}'), b"1234"),
    "an offset with a zero before": file_of(one(offsets="[0,04]"), b"1234"),
    "a shape that is text": file_of(one(shape='""'), b"1234"),
    "a length of 65 bits": file_of(one(shape="[18446744073709551616]"), b"1234"),
    "a length of 65 bits and none": file_of(one(shape="[0,18446744073709551616]", offsets="[0,0]")),
    "a size of 96 bits": file_of(one(shape="[4294967296,4294967296,4294967296]"), b"1234"),
    "an offset of 65 bits": file_of(one("U8", "[0]", f"[{1 << 64},{1 << 64}]")),
    "the last offset of 64 bits": file_of(one("U8", "[0]", f"[{(1 << 64) - 1},{(1 << 64) - 1}]")),
    "three offsets": file_of(one(offsets="[0,4,8]"), b"1234"),
    "offsets in the wrong order": file_of(one(offsets="[4,0]"), b"1234"),
    "a negative offset": file_of(one(offsets="[-4,0]"), b"1234"),
    "a gap at the start": file_of(one(offsets="[4,8]"), b"12345678"),
    "a gap": file_of(
        '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
        '"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}',
        b"123",
    ),
    "an overlap": file_of(
        '{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},'
        '"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}',
        b"123",
    ),
    "the same bytes twice": file_of(f'{{"a":{SCALAR},"b":{SCALAR}}}', b"1234"),
    "a file cut off": file_of(one(), b"12"),
    "bytes behind the last tensor": file_of(one(), b"12345"),
    "another size than the shape's": file_of(one(shape="[2]"), b"1234"),
    "half a byte": file_of(one("F4", "[3]", "[0,2]"), b"12"),
}


@pytest.mark.parametrize("case", VALID)
def test_a_valid_header_is_read(case: str, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(VALID[case])
    header = read_header(path)
    assert header == header_in(VALID[case], "")
    safetensors = pytest.importorskip("safetensors")
    with safetensors.safe_open(path, "np") as reference:
        assert header.metadata == reference.metadata()
        assert list(header.entries) == reference.offset_keys()
        for name, entry in header.entries.items():
            found = reference.get_slice(name)
            assert (entry.dtype, list(entry.shape)) == (found.get_dtype(), found.get_shape())


@pytest.mark.parametrize("case", INVALID)
def test_a_header_that_is_not_valid_is_refused(case: str, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(INVALID[case])
    with pytest.raises(SafetensorError, match=r"x\.safetensors: ") as caught:
        read_header(path)
    assert isinstance(caught.value, ps.InvalidError)
    assert caught.value.path == str(path)
    assert caught.value.remedy
    with pytest.raises(SafetensorError, match="the data: "):
        header_in(INVALID[case], "the data")


def test_a_header_of_one_megabyte_is_read_in_both_ways(tmp_path: Path) -> None:
    tensors = {f"layers.{n}.weight": ("BF16", (16, n % 7)) for n in range(10_000)}
    start, entries = encode_header(tensors, {"format": "pt"})
    data = start + bytes(sum(entry.nbytes for entry in entries.values()))
    canonical = header_in(data, "")
    text = json.dumps(json.loads(start[8:])).encode()
    other = header_in(file_of(text, data[len(start) :]), "")
    assert canonical.entries == entries
    assert {n: e[1:3] for n, e in other.entries.items()} == {n: e[1:3] for n, e in entries.items()}
    assert canonical.metadata == other.metadata == {"format": "pt"}


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8).filter("__metadata__".__ne__)
SHAPES = st.lists(st.integers(0, 5).map(lambda n: 4 * n), max_size=3)


@given(st.dictionaries(NAMES, st.tuples(st.sampled_from([*BITS][4:]), SHAPES), max_size=6))
def test_what_is_encoded_is_read_again(tensors: dict[str, tuple[str, list[int]]]) -> None:
    metadata = {name: name for name in tensors} or None
    start, entries = encode_header(tensors, metadata)
    assert len(start) % 8 == 0
    size = max((entry.end for entry in entries.values()), default=len(start))
    header = header_in(start.ljust(size, b"\0"), "")
    assert header.entries == entries
    assert header.metadata == metadata


@pytest.mark.parametrize("metadata", [None, {"k": 'v"{'}])
def test_a_text_with_a_changed_byte_is_read_or_refused_as_json_says(
    metadata: dict[str, str] | None,
) -> None:
    start, _ = encode_header({"a": ("U8", (3,)), "b": ("I16", (2, 2))}, metadata)
    data = bytes(11)
    for at in range(8, len(start)):
        for byte in b'",:{}[]0 \\x':
            text = bytearray(start[8:])
            text[at - 8] = byte
            try:
                found = header_in(file_of(bytes(text), data), "")
            except WeightsError:
                continue
            listed = json.loads(bytes(text))
            listed.pop("__metadata__", None)
            assert {
                name: (e.dtype, [*e.shape], [e.begin - len(start), e.end - len(start)])
                for name, e in found.entries.items()
            } == {name: (e["dtype"], e["shape"], e["data_offsets"]) for name, e in listed.items()}


def test_what_the_format_does_not_have_is_not_encoded() -> None:
    for tensors in ({"a": ("F33", (1,))}, {"a": ("F4", (1,))}, {"__metadata__": ("U8", (1,))}):
        with pytest.raises(WeightsError):
            encode_header(tensors)
    with pytest.raises(WeightsTypeError, match="not text"):
        encode_header({}, {"a": 1})  # type: ignore[dict-item]


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_header(tmp_path / "none")
