#!/usr/bin/env python3
"""Writes crates/codec/tests/fixtures/hard_chunks: chunks of szip, n-bit, scale-offset, Blosc and
Blosc2 as HDF5 and hdf5plugin store them.

    pip install h5py hdf5plugin numpy blosc2
    scripts/make-hard-fixtures.py

Each chunk is a file NAME.bin. Its line in chunks.tsv has the filter's number and values, the size
of the decoded chunk, and the FNV-1a hash of the bytes to which HDF5 itself decodes it.
"""

import tempfile
from pathlib import Path

import blosc2
import h5py
import hdf5plugin
import numpy as np

FOLDER = Path(__file__).parent.parent / "crates/codec/tests/fixtures/hard_chunks"
NBIT, SCALEOFFSET = 5, 6


def fnv1a(data: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def sample(dtype, *shape) -> np.ndarray:
    """Element i is 3 * (i / 7) + 31 * (i mod 11) - 100, an eighth of it in floats."""
    i = np.arange(np.prod(shape), dtype="i8")
    numbers = 3 * (i // 7) + 31 * (i % 11) - 100
    if np.dtype(dtype).kind == "f":
        numbers = numbers / 8
    return numbers.astype(dtype).reshape(shape)


def steps(dtype, *shape) -> np.ndarray:
    """Runs of equal elements that increase slowly, with single elements one greater."""
    i = np.arange(np.prod(shape), dtype="i8")
    return np.cumsum(i % 37 == 5).astype(dtype).reshape(shape) + (i % 91 == 7).reshape(shape)


def noise(dtype, *shape) -> np.ndarray:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(np.random.default_rng(1).bytes(size), dtype).reshape(shape)


def wide(dtype, *shape) -> np.ndarray:
    """Both ends of an integer type, and some numbers between."""
    data = noise(dtype, *shape).copy()
    limits = np.iinfo(dtype)
    data.flat[0], data.flat[1] = limits.min, limits.max
    return data


def full(value, dtype, *shape) -> np.ndarray:
    return np.full(shape, value, dtype)


def holes(data: np.ndarray, fill) -> np.ndarray:
    data = data.copy()
    data.flat[::5] = fill
    return data


class Writer:
    def __init__(self, file):
        self.file = file
        self.lines = []

    def keep(self, name, ds):
        """Write the only chunk of a dataset to its file."""
        origin = (0,) * len(ds.shape)
        mask, stored = ds.id.read_direct_chunk(origin)
        assert mask == 0, name
        number, _, values, _ = ds.id.get_create_plist().get_filter(0)
        tid = ds.id.get_type()
        raw = np.empty(int(np.prod(ds.shape)) * tid.get_size(), "u1")
        space = h5py.h5s.create_simple(ds.shape)
        ds.id.read(space, space, raw, mtype=tid)
        (FOLDER / f"{name}.bin").write_bytes(stored)
        fields = name, number, ",".join(map(str, values)), raw.size, fnv1a(raw.tobytes())
        self.lines.append("\t".join(map(str, fields)))

    def high(self, name, data, **arguments):
        self.keep(name, self.file.create_dataset(name, data=data, chunks=data.shape, **arguments))

    def low(self, name, tid, data, set_filter):
        """Write the elements of `data` unchanged, whatever bits the type `tid` uses."""
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk(data.shape)
        set_filter(plist)
        space = h5py.h5s.create_simple(data.shape)
        ds = h5py.h5d.create(self.file.id, name.encode(), tid, space, plist)
        ds.write(space, space, data.reshape(-1).view("u1"), mtype=tid)
        self.keep(name, h5py.Dataset(ds))

    def frame(self, name, data, frame):
        """Store a Blosc2 frame that was made elsewhere."""
        ds = self.file.create_dataset(
            name, data.shape, data.dtype, chunks=data.shape, **hdf5plugin.Blosc2()
        )
        ds.id.write_direct_chunk((0,) * data.ndim, frame)
        assert ds[()].tobytes() == data.tobytes(), name
        self.keep(name, ds)


def bits(base, precision, offset):
    """Return a type that uses only some of its bits."""
    tid = base.copy()
    tid.set_precision(precision)
    tid.set_offset(offset)
    return tid


def szip(w):
    for name, data, option, pixels in (
        ("u1", steps("u1", 700) * 3, "nn", 8),
        ("i2", sample("<i2", 700), "nn", 16),
        ("i2-big", sample(">i2", 700), "nn", 16),
        ("i2-entropy", sample("<i2", 700) + 100, "ec", 32),
        ("i4", sample("<i4", 1200), "nn", 32),
        ("i4-big", sample(">i4", 300), "nn", 4),
        ("f4", sample("<f4", 900), "nn", 10),
        ("f8", sample("<f8", 20, 33), "nn", 16),
        ("f8-big", sample(">f8", 20, 33), "ec", 16),
        ("rows", sample("<i2", 13, 27), "nn", 8),
        ("short-rows", sample("<i2", 60, 5), "nn", 8),
        ("odd-rows", steps("u1", 31, 61), "nn", 30),
        ("pairs", steps("u1", 900) % 3, "ec", 16),
        ("steps", steps("<u2", 4000), "nn", 8),
        ("steps-long", steps("<i4", 9000), "nn", 2),
        ("zeros", np.zeros(5000, "<i2"), "nn", 8),
        ("constant", full(77, "u1", 40, 130), "nn", 4),
    ):
        w.high(f"szip-{name}", data, compression="szip", compression_opts=(option, pixels))
    t = h5py.h5t

    def nn(p):
        return p.set_szip(h5py.h5z.SZIP_NN_OPTION_MASK, 16)

    w.low("szip-12-bits", bits(t.STD_U16LE, 12, 0), sample("<u2", 800) % 4096, nn)
    w.low(
        "szip-12-bits-big", bits(t.STD_U16BE, 12, 0), (sample("<u2", 800) % 4096).astype(">u2"), nn
    )
    w.low("szip-20-bits", bits(t.STD_U32LE, 20, 0), sample("<u4", 800) * 31 % 2**20, nn)
    w.low(
        "szip-24-bits-big", bits(t.STD_U32BE, 24, 0), (sample("<u4", 800) % 2**24).astype(">u4"), nn
    )
    w.low("szip-5-bits", bits(t.STD_U8LE, 5, 0), sample("u1", 800) % 32, nn)


def scaleoffset(w):
    for dtype in ("i1", "u1", "<i2", ">i2", "<u2", "<i4", ">u4", "<i8", ">i8", "<u8", ">u8"):
        name = dtype.replace("<", "").replace(">", "big-")
        w.high(f"scaleoffset-{name}", sample(dtype, 200), scaleoffset=0)
        w.high(f"scaleoffset-wide-{name}", wide(dtype, 40), scaleoffset=0)
        data = holes(sample(dtype, 150), 99)
        w.high(f"scaleoffset-fill-{name}", data, scaleoffset=0, fillvalue=99)
    w.high("scaleoffset-constant", full(-5, "<i4", 300), scaleoffset=0)
    w.high("scaleoffset-all-fill", full(7, "<i4", 300), scaleoffset=0, fillvalue=7)
    w.high("scaleoffset-9-bits", sample("<i4", 200), scaleoffset=9)
    w.high("scaleoffset-3-bits", sample("<u2", 200) % 8, scaleoffset=3)
    w.high("scaleoffset-16-bits", sample("<u2", 200), scaleoffset=16)
    for dtype in ("<f4", ">f4", "<f8", ">f8"):
        name = dtype.replace("<", "").replace(">", "big-")
        for decimals in (0, 2, 5):
            w.high(f"scaleoffset-{name}-{decimals}", sample(dtype, 200), scaleoffset=decimals)
        data = holes(sample(dtype, 200), -9999)
        w.high(f"scaleoffset-fill-{name}", data, scaleoffset=1, fillvalue=-9999)
        w.high(f"scaleoffset-wide-{name}", sample(dtype, 200) * 1e16, scaleoffset=6)

    def hundreds(p):
        return p.set_filter(SCALEOFFSET, h5py.h5z.FLAG_OPTIONAL, (0, 2**32 - 2))

    w.low("scaleoffset-hundreds", h5py.h5t.IEEE_F64LE, sample("<f8", 200) * 1e4, hundreds)


def nbit(w):
    t = h5py.h5t

    def nbit(p):
        return p.set_filter(NBIT, h5py.h5z.FLAG_OPTIONAL, ())

    for name, tid, dtype in (
        ("i1-3-2", bits(t.STD_I8LE, 3, 2), "i1"),
        ("u2-10-3", bits(t.STD_U16LE, 10, 3), "<u2"),
        ("u2-big-10-3", bits(t.STD_U16BE, 10, 3), ">u2"),
        ("i4-17-0", bits(t.STD_I32LE, 17, 0), "<i4"),
        ("i4-17-15", bits(t.STD_I32LE, 17, 15), "<i4"),
        ("i4-big-16-8", bits(t.STD_I32BE, 16, 8), ">i4"),
        ("u8-40-5", bits(t.STD_U64LE, 40, 5), "<u8"),
        ("u8-big-64", bits(t.STD_U64BE, 63, 1), ">u8"),
        ("i4-8-8", bits(t.STD_I32LE, 8, 8), "<i4"),
    ):
        w.low(f"nbit-{name}", tid, noise(dtype, 101), nbit)
        w.low(f"nbit-even-{name}", tid, noise(dtype, 64), nbit)
    w.low("nbit-whole", t.STD_I32LE.copy(), sample("<i4", 50), nbit)
    w.low("nbit-array", t.array_create(bits(t.STD_I16LE, 9, 2), (3, 4)), noise("V24", 20), nbit)
    string = t.C_S1.copy()
    string.set_size(5)
    inner = t.create(t.COMPOUND, 7)
    inner.insert(b"a", 0, bits(t.STD_U16BE, 11, 4))
    inner.insert(b"s", 2, string)
    outer = t.create(t.COMPOUND, 40)
    outer.insert(b"x", 1, bits(t.STD_I32LE, 20, 6))
    outer.insert(b"z", 8, t.IEEE_F32LE.copy())
    outer.insert(b"w", 14, t.array_create(string, (2,)))
    outer.insert(b"v", 25, t.array_create(bits(t.STD_U8LE, 3, 1), (1,)))
    # Last, because HDF5 misreads members after an array of compounds.
    outer.insert(b"y", 26, t.array_create(inner, (2,)))
    w.low("nbit-compound", outer, noise("V40", 30), nbit)


CODECS = "blosclz", "lz4", "lz4hc", "zlib", "zstd"
SHUFFLES = {"none": 0, "bytes": 1, "bits": 2}


def blosc(w):
    plugin = hdf5plugin.Blosc
    for cname in CODECS:
        for name, shuffle in SHUFFLES.items():
            w.high(
                f"blosc-{cname}-{name}", np.tile(sample("<i4", 75), 40), **plugin(cname, 5, shuffle)
            )
        if cname != "lz4hc":
            w.high(f"blosc-{cname}-long", steps("<i4", 16001), **plugin(cname, 1))
    for dtype, count in (("u1", 999), ("<i2", 1001), ("<f8", 200)):
        w.high(f"blosc-{dtype.strip('<')}", steps(dtype, count), **plugin("blosclz", 9))
        w.high(f"blosc-bits-{dtype.strip('<')}", steps(dtype, count), **plugin("zstd", 5, 2))
    for size in (12, 17, 300):
        data = steps("<i4", size * 20).view(f"V{size}")
        w.high(f"blosc-v{size}", data, **plugin("lz4", 5))
        w.high(f"blosc-bits-v{size}", data, **plugin("zlib", 5, 2))
    w.high("blosc-bits-long", steps("<i4", 16008), **plugin("zstd", 1, 2))
    gap = np.zeros(9000, "u1")
    far = np.concatenate([noise("u1", 500), gap, noise("u1", 500), gap, noise("u1", 500)])
    w.high("blosc-far", far, **plugin("blosclz", 9, 0))
    w.high("blosc-zeros", np.zeros(100000, "<f4"), **plugin("blosclz"))


def blosc2_(w):
    plugin = hdf5plugin.Blosc2
    for cname in CODECS:
        for name, shuffle in SHUFFLES.items():
            w.high(
                f"blosc2-{cname}-{name}",
                np.tile(sample("<i4", 75), 41),
                **plugin(cname, 5, shuffle),
            )
        if cname != "lz4hc":
            w.high(f"blosc2-{cname}-long", steps("<i4", 16001), **plugin(cname, 1))
            w.high(f"blosc2-{cname}-rows", steps("<f4", 130, 41), **plugin(cname))
    for dtype, count in (("u1", 999), ("<i2", 1001)):
        w.high(f"blosc2-{dtype.strip('<')}", steps(dtype, count), **plugin("blosclz", 9))
        w.high(f"blosc2-bits-{dtype.strip('<')}", steps(dtype, count), **plugin("zstd", 5, 2))
    for size in (12, 17, 300):
        data = steps("<i4", size * 20).view(f"V{size}")
        w.high(f"blosc2-v{size}", data, **plugin("lz4", 5))
        w.high(f"blosc2-bits-v{size}", data, **plugin("zlib", 5, 2))
    w.high("blosc2-bits-long", steps("<i4", 16001), **plugin("zstd", 1, 2))
    w.high("blosc2-box", steps("<i2", 33, 50, 11), **plugin("zstd"))
    w.high("blosc2-four", steps("<i4", 9, 3, 11, 120) // 4, **plugin("zstd"))
    w.high("blosc2-zeros", np.zeros(9000, "<f4"), **plugin())
    w.high("blosc2-zero-rows", np.zeros((90, 100), "<f8"), **plugin())
    w.high("blosc2-constant", full(3.25, "<f8", 9000), **plugin())
    w.high("blosc2-delta", steps("<i4", 30011), **plugin("zstd", filters=3))
    w.high("blosc2-stored", noise("<f4", 100), **plugin(clevel=0))
    w.high("blosc2-noise", noise("<f4", 100), **plugin())

    # Frames that other programs write into HDF5 files.
    kinds = blosc2.Filter
    for name, data, filters, meta in (
        ("delta", steps("<i4", 15000), [kinds.DELTA, kinds.SHUFFLE], [0, 0]),
        ("delta-bits", steps("<i8", 5001), [kinds.DELTA, kinds.BITSHUFFLE], [0, 0]),
        (
            "truncated",
            np.float32(16) * sample("<i2", 5000),
            [kinds.TRUNC_PREC, kinds.SHUFFLE],
            [16, 0],
        ),
        ("grouped", steps("<i8", 5000), [kinds.SHUFFLE], [2]),
        ("twice", steps("<i8", 2000), [kinds.SHUFFLE, kinds.BITSHUFFLE], [0, 0]),
    ):
        size = data.itemsize
        cparams = {"typesize": size, "filters": filters, "filters_meta": meta, "blocksize": 8192}
        cparams |= {"codec": blosc2.Codec.ZSTD, "nthreads": 1}
        schunk = blosc2.SChunk(chunksize=data.nbytes, data=data, cparams=cparams, contiguous=True)
        w.frame(f"blosc2-made-{name}", data, schunk.to_cframe())
    for name, data, chunks, blocks in (
        ("tiles", steps("<i4", 60, 70) // 16, (25, 30), (7, 8)),
        ("padded", steps("<i2", 23, 19, 7), (16, 16, 7), (5, 16, 3)),
    ):
        array = blosc2.asarray(
            data, chunks=chunks, blocks=blocks, cparams={"codec": blosc2.Codec.ZSTD, "nthreads": 1}
        )
        w.frame(f"blosc2-{name}", data, array.to_cframe())
    for name, array in (
        ("made-zeros", blosc2.zeros((30, 40), "<f4")),
        ("made-nans", blosc2.nans((30, 40), "<f8")),
        ("made-full", blosc2.full((30, 40), 5, "<i2")),
    ):
        w.frame(f"blosc2-{name}", array[()], array.to_cframe())


def main() -> None:
    # Several threads would write the blocks in any order.
    blosc2.set_nthreads(1)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.glob("*.bin"):
        old.unlink()
    with tempfile.TemporaryDirectory() as folder, h5py.File(f"{folder}/x.h5", "w") as f:
        writer = Writer(f)
        for group in (szip, scaleoffset, nbit, blosc, blosc2_):
            group(writer)
    (FOLDER / "chunks.tsv").write_text("\n".join(writer.lines) + "\n")


if __name__ == "__main__":
    main()
