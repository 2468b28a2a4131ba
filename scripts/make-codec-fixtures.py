#!/usr/bin/env python3
"""Writes crates/codec/tests/fixtures: chunks as h5py and hdf5plugin store them.

    pip install h5py hdf5plugin numpy
    scripts/make-codec-fixtures.py

Each chunk is a file NAME.bin. Its line in chunks.tsv has what it decodes to (a function below,
which the tests have, too; the number of elements; their size), the filter mask, and the filters as
id:optional:values.
"""

import tempfile
from pathlib import Path

import h5py
import hdf5plugin
import numpy as np

FOLDER = Path(__file__).parent.parent / "crates/codec/tests/fixtures"
LZF = {"compression": "lzf"}


def sample(count: int, size: int) -> np.ndarray:
    """Element i is the little-endian number 3 * (i / 7) + 31 * (i mod 11), truncated or padded with
    zeros to `size` bytes."""
    i = np.arange(count, dtype="<u8")
    numbers = 3 * (i // 7) + 31 * (i % 11)
    bytes_ = numbers.view("u1").reshape(count, 8)
    padded = np.zeros((count, size), "u1")
    padded[:, : min(size, 8)] = bytes_[:, :size]
    return padded.reshape(-1).view(f"V{size}")


def noise(count: int, size: int) -> np.ndarray:
    """Byte k is the top byte of the k-th number of the sequence x -> 1664525 x + 1013904223."""
    x, out = 1, bytearray()
    for _ in range(count * size):
        x = (1664525 * x + 1013904223) % 2**32
        out.append(x >> 24)
    return np.frombuffer(bytes(out), f"V{size}")


def zeros(count: int, size: int) -> np.ndarray:
    return np.zeros(count, f"V{size}")


def ones(count: int, size: int) -> np.ndarray:
    """All bits are ones."""
    return np.frombuffer(b"\xff" * (count * size), f"V{size}")


def gzip(level: int, **others) -> dict:
    return {"compression": "gzip", "compression_opts": level, **others}


# Name, data, element count, element size, arguments of create_dataset.
CHUNKS = [
    *((f"deflate-{level}", sample, 400, 4, gzip(level)) for level in (0, 1, 4, 9)),
    ("deflate-noise", noise, 300, 4, gzip(4)),
    *((f"shuffle-{s}", sample, n, s, {"shuffle": True}) for s, n in
      ((1, 40), (2, 333), (3, 270), (4, 133), (5, 300), (8, 77), (12, 61), (16, 61), (100, 5))),
    ("shuffle-deflate", sample, 501, 4, gzip(4, shuffle=True)),
    ("shuffle-deflate-fletcher32", sample, 501, 4, gzip(4, shuffle=True, fletcher32=True)),
    *((f"fletcher32-{s}x{n}", sample, n, s, {"fletcher32": True}) for s, n in
      ((1, 1), (1, 7), (1, 722), (2, 361), (4, 500))),
    ("fletcher32-zeros", zeros, 500, 2, {"fletcher32": True}),
    ("fletcher32-ones", ones, 500, 2, {"fletcher32": True}),
    *((f"lzf-{s}", sample, n, s, LZF) for s, n in ((1, 3000), (4, 900), (8, 500))),
    ("lzf-constant", zeros, 30000, 1, LZF),
    ("lzf-shuffle", sample, 2000, 4, LZF | {"shuffle": True}),
    ("lzf-skipped", noise, 100, 4, LZF),
    ("lz4", sample, 500, 4, hdf5plugin.LZ4()),
    ("lz4-shuffle", sample, 2000, 4, {**hdf5plugin.LZ4(), "shuffle": True}),
    ("lz4-blocks", sample, 501, 4, hdf5plugin.LZ4(nbytes=1000)),
    ("lz4-noise", noise, 300, 4, hdf5plugin.LZ4(nbytes=512)),
    *((f"zstd-{level}", sample, 400, 4, hdf5plugin.Zstd(clevel=level)) for level in (1, 3, 19)),
    ("zstd-fast", sample, 400, 4, hdf5plugin.Zstd(clevel=-3)),
    ("zstd-shuffle", sample, 2000, 4, {**hdf5plugin.Zstd(), "shuffle": True}),
    *((f"bitshuffle-none-{s}x{n}", sample, n, s, hdf5plugin.Bitshuffle(cname="none")) for s, n in
      ((1, 77), (2, 333), (3, 256), (4, 205), (8, 203), (16, 41))),
    ("bitshuffle-none-block", sample, 333, 4, hdf5plugin.Bitshuffle(nelems=64, cname="none")),
    *((f"bitshuffle-{c}-{s}x{n}", sample, n, s, hdf5plugin.Bitshuffle(cname=c))
      for c in ("lz4", "zstd") for s, n in ((1, 8705), (2, 4355), (4, 3001), (8, 1101), (12, 701))),
    ("bitshuffle-lz4-block", sample, 1003, 4, hdf5plugin.Bitshuffle(nelems=128, cname="lz4")),
    ("bitshuffle-lz4-tiny", sample, 5, 4, hdf5plugin.Bitshuffle(cname="lz4")),
    ("bitshuffle-lz4-noise", noise, 300, 4, hdf5plugin.Bitshuffle(cname="lz4")),
]  # fmt: skip


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.glob("*.bin"):
        old.unlink()
    lines = []
    with tempfile.TemporaryDirectory() as folder, h5py.File(f"{folder}/x.h5", "w") as f:
        for name, data, count, size, arguments in CHUNKS:
            elements = data(count, size)
            ds = f.create_dataset(name, data=elements, chunks=(count,), **dict(arguments))
            mask, stored = ds.id.read_direct_chunk((0,))
            (FOLDER / f"{name}.bin").write_bytes(stored)
            plist = ds.id.get_create_plist()
            filters = []
            for i in range(plist.get_nfilters()):
                number, flags, values, _ = plist.get_filter(i)
                optional = flags & h5py.h5z.FLAG_OPTIONAL
                filters.append(f"{number}:{optional}:{','.join(map(str, values))}")
            lines.append(
                "\t".join([name, data.__name__, str(count), str(size), str(mask), *filters])
            )
    (FOLDER / "chunks.tsv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
