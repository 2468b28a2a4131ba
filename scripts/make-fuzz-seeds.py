#!/usr/bin/env python3
"""Writes fuzz/seeds: the inputs from which each fuzz target starts.

    scripts/make-fuzz-seeds.py

The inputs of the filters are the chunks of crates/codec/tests/fixtures, in the form that
crates/codec/src/fuzz.rs describes: once as stored, to be decoded, and once as data to be encoded.
Those of plans and conversions are arbitrary bytes.
"""

import hashlib
import shutil
import struct
from pathlib import Path

ROOT = Path(__file__).parent.parent
FIXTURES = ROOT / "crates/codec/tests/fixtures"
SEEDS = ROOT / "fuzz/seeds"
# In the order of FUZZED in crates/codec/src/fuzz.rs.
FILTERS = {
    1: "deflate",
    2: "shuffle",
    3: "fletcher32",
    4: "szip",
    5: "nbit",
    6: "scaleoffset",
    32000: "lzf",
    32001: "blosc",
    32004: "lz4",
    32008: "bitshuffle",
    32015: "zstd",
    32026: "blosc2",
}
# Targets for which any bytes are a valid case.
ANY = ("planner", "chunk_table", "selection", "convert")
# In the order of nvCOMP's methods in crates/codec/src/gpu/nvcomp.rs.
FRAMED = (1, 32004, 32015)
ENCODE = 0x80
# Fuzzers do best with short inputs.
MOST = 2048


def sample(size: int) -> bytes:
    """Compressible bytes, with a tail that is hardly compressible."""
    smooth = bytes((3 * (i // 28) + (i // 4) % 11) % 256 if i % 4 == 0 else 0 for i in range(size))
    return smooth[: size - size // 4] + noise("tail", size // 4)


def noise(name: str, size: int) -> bytes:
    return hashlib.shake_128(name.encode()).digest(size)


def numbers(values) -> bytes:
    return b"".join(struct.pack("<I", value) for value in values)


def keep(target: str, name: str, *parts: bytes) -> None:
    data = b"".join(parts)
    if len(data) <= MOST:
        folder = SEEDS / target
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def keep_filter(name: str, number: int, values: list[int], size: int, stored: bytes) -> None:
    if size > 0xFFFF:
        return
    target, count = FILTERS[number], len(values)
    keep(target, name, struct.pack("<HB", size, count), numbers(values), stored)
    head = struct.pack("<HB", size, count | ENCODE)
    keep(target, f"{name}-encode", head, numbers(values), sample(size))
    if number in FRAMED:
        keep("framing", name, struct.pack("<BH", FRAMED.index(number), size), stored)


def keep_pipeline(name: str, mask: int, filters, size: int, stored: bytes) -> None:
    if size > 0xFFFF:
        return
    places = list(FILTERS)
    described = b"".join(
        struct.pack("<BB", places.index(number), optional << 7 | len(values)) + numbers(values)
        for number, optional, values in filters
    )
    count = len(filters)
    keep("pipeline", name, struct.pack("<IHB", mask, size, count), described, stored)
    head = struct.pack("<IHB", mask, size, count | ENCODE)
    keep("pipeline", f"{name}-encode", head, described, sample(size))


def main() -> None:
    shutil.rmtree(SEEDS, ignore_errors=True)
    for line in (FIXTURES / "chunks.tsv").read_text().splitlines():
        name, _, count, size, mask, *filters = line.split("\t")
        stored = (FIXTURES / f"{name}.bin").read_bytes()
        decoded = int(count) * int(size)
        parsed = []
        for text in filters:
            number, optional, values = text.split(":")
            listed = [int(value) for value in values.split(",") if value]
            parsed.append((int(number), int(optional), listed))
        if len(parsed) > 1 or int(mask):
            keep_pipeline(name, int(mask), parsed, decoded, stored)
        else:
            number, _, listed = parsed[0]
            keep_filter(name, number, listed, decoded, stored)
    hard = FIXTURES / "hard_chunks"
    for line in (hard / "chunks.tsv").read_text().splitlines():
        name, number, values, size, _ = line.split("\t")
        listed = [int(value) for value in values.split(",") if value]
        stored = (hard / f"{name}.bin").read_bytes()
        keep_filter(name, int(number), listed, int(size), stored)
    every = [
        (2, 0, [4]),
        (32008, 1, [0, 4, 4, 0, 2]),
        (32001, 1, [2, 2, 4, 400, 5, 1, 0]),
        (32000, 1, [4, 261, 400]),
        (32015, 1, [3]),
        (32004, 1, [0]),
        (1, 1, [4]),
        (3, 0, []),
    ]
    keep_pipeline("every-filter", 0, every, 400, b"")
    for target in ANY:
        for number in range(32):
            keep(target, f"{number:02}", noise(f"{target}-{number}", 16 + 8 * number))


if __name__ == "__main__":
    main()
