"""Writes HDF5 files of every layout, chunk index and element type into a folder.

The file `datasets` there lists them: a line holds the file, the dataset and its kind.
"""

import ctypes
import sys
from pathlib import Path

import h5py
import numpy as np

NUMBERS = np.arange(23 * 17, dtype="<f4").reshape(23, 17)
CUBE = np.arange(1000).reshape(10, 10, 10)


def creation(chunks=None, early=False, fill=None, never=False, bare_edges=False):
    """Properties that h5py's create_dataset does not offer."""
    dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    if chunks:
        dcpl.set_chunk(chunks)
    if bare_edges:
        dcpl.set_deflate(4)
        set_chunk_opts = ctypes.CDLL(loaded_hdf5()).H5Pset_chunk_opts
        set_chunk_opts.argtypes = [ctypes.c_int64, ctypes.c_uint]
        assert set_chunk_opts(dcpl.id, 2) == 0
    if early:
        dcpl.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    if fill is not None:
        dcpl.set_fill_value(fill)
    if never:
        dcpl.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    return dcpl


def loaded_hdf5():
    maps = Path("/proc/self/maps").read_text()
    mapped = [line.split()[-1] for line in maps.splitlines()]
    return next(path for path in mapped if Path(path).name.startswith(("libhdf5-", "libhdf5.so")))


def low_level(file, name, dcpl, maxshape=None, data=NUMBERS):
    space = h5py.h5s.create_simple(data.shape, maxshape)
    type_id = h5py.h5t.py_create(data.dtype)
    made = h5py.h5d.create(file.id, name.encode(), type_id, space, dcpl)
    made.write(h5py.h5s.ALL, h5py.h5s.ALL, data)


def indexes(file):
    unlimited = h5py.h5s.UNLIMITED
    low_level(file, "chunks", creation(chunks=(4, 5)))
    low_level(file, "single", creation(chunks=NUMBERS.shape))
    low_level(file, "early", creation(chunks=(4, 5), early=True))
    low_level(file, "one_unlimited", creation(chunks=(4, 5)), (unlimited, 17))
    low_level(file, "inner_unlimited", creation(chunks=(4, 5)), (23, unlimited))
    room = (40, unlimited)
    low_level(file, "inner_unlimited_with_room", creation(chunks=(4, 5)), room)
    low_level(file, "room", creation(chunks=(4, 5)), (40, 50))
    low_level(file, "room_early", creation(chunks=(4, 5), early=True), (40, 50))
    some = file.create_dataset(
        "some_of_inner_unlimited", (23, 17), "f4", chunks=(4, 5), maxshape=(40, None)
    )
    some[3:6, 2:3] = NUMBERS[3:6, 2:3]
    low_level(file, "two_unlimited", creation(chunks=(4, 5)), (unlimited, unlimited))
    file.create_dataset("gzip", data=NUMBERS, chunks=(4, 5), compression="gzip", shuffle=True)
    file.create_dataset(
        "gzip_unlimited",
        data=NUMBERS,
        chunks=(4, 5),
        maxshape=(None, None),
        compression="gzip",
        fletcher32=True,
    )
    partly = file.create_dataset("partly", NUMBERS.shape, "f4", chunks=(4, 5), fillvalue=2.5)
    partly[5:9, 4:11] = NUMBERS[5:9, 4:11]
    shrunk = file.create_dataset("shrunk", data=NUMBERS, chunks=(4, 5), maxshape=(None, None))
    shrunk.resize((10, 12))
    shrunk.resize((15, 16))
    masked = file.create_dataset("masked", data=NUMBERS, chunks=(4, 5), compression="gzip")
    masked.id.write_direct_chunk((4, 5), NUMBERS[4:8, 5:10].tobytes(), filter_mask=1)
    inner = {"compression": "gzip", "maxshape": (12, None, 10)}
    file.create_dataset("middle_unlimited", data=CUBE, chunks=(3, 4, 4), **inner)
    file.create_dataset("rank3", data=CUBE, chunks=(3, 10, 4))


def layouts(file, folder):
    file["contiguous"] = NUMBERS
    file["scalar"] = np.int16(-7)
    file.create_dataset("unwritten", NUMBERS.shape, "i4", fillvalue=9)
    file.create_dataset("unwritten_chunks", NUMBERS.shape, "i4", chunks=(4, 5), fillvalue=9)
    file.create_dataset("empty", (0, 4), "i4")
    file.create_dataset("null", data=h5py.Empty("f4"))
    compact = creation()
    compact.set_layout(h5py.h5d.COMPACT)
    low_level(file, "compact", compact)
    parts = [(str(folder / f"part{n}.bin"), 16 * n, 4 * 17 * 8) for n in (0, 1)]
    parts.append((str(folder / "part2.bin"), 5, h5py.h5f.UNLIMITED))
    file.create_dataset("external", data=NUMBERS, external=parts)


def types(file):
    values = np.arange(60)
    for code in ("i1", "u1", "<i2", ">i2", "<u4", ">u4", "<i8", ">i8", "<f2", ">f2", ">f4"):
        file[f"type_{code.replace('<', 'le_').replace('>', 'be_')}"] = values.astype(code)
    file["type_be_f8"] = values.astype(">f8")
    file["type_longdouble"] = values.astype(np.longdouble)
    file["type_bool"] = values % 3 == 0
    file["type_complex"] = (values + 2j * values).astype("<c8")
    file["type_string"] = values.astype("S5")
    file["type_opaque"] = values.astype("V3")
    file["type_array"] = np.zeros(7, np.dtype([("a", "<f4", (2, 3))]))["a"]
    fields = np.dtype([("x", "<i4"), ("y", ">f8"), ("name", "S3"), ("cells", "<i2", (2, 2))])
    file["type_compound"] = np.frombuffer(bytes(range(230)), fields)
    enum = h5py.enum_dtype({"RED": -1, "GREEN": 7}, basetype=">i2")
    file.create_dataset("type_enum", data=np.array([7, -1, 7]), dtype=enum)
    file.create_dataset("type_vlen", data=["one", "three"], dtype=h5py.string_dtype())
    array = h5py.h5t.array_create(h5py.h5t.STD_I16BE, (2, 3))
    space = h5py.h5s.create_simple((5,))
    h5py.h5d.create(file.id, b"type_array_of_shape", array, space)
    bits = h5py.h5t.STD_I32LE.copy()
    bits.set_precision(20)
    bits.set_offset(3)
    h5py.h5d.create(file.id, b"type_narrow", bits, space)
    brain = h5py.h5t.IEEE_F16LE.copy()
    brain.set_fields(15, 7, 8, 0, 7)
    brain.set_ebias(127)
    h5py.h5d.create(file.id, b"type_bfloat16", brain, space)
    new_types(file, space)


def new_types(file, space):
    """Types of HDF5 2.0, which h5py cannot name."""
    hdf5 = ctypes.CDLL(loaded_hdf5())
    hdf5.H5Dcreate2.argtypes = [ctypes.c_int64, ctypes.c_char_p, *[ctypes.c_int64] * 5]
    hdf5.H5Dcreate2.restype = ctypes.c_int64
    hdf5.H5Dclose.argtypes = [ctypes.c_int64]
    for name in ("COMPLEX_IEEE_F32BE", "FLOAT_F8E4M3", "FLOAT_F8E5M2", "FLOAT_BFLOAT16BE"):
        try:
            type_id = ctypes.c_int64.in_dll(hdf5, f"H5T_{name}_g").value
        except ValueError:
            continue
        dataset = f"type_new_{name}".encode()
        made = hdf5.H5Dcreate2(file.id.id, dataset, type_id, space.id, 0, 0, 0)
        assert made > 0
        assert hdf5.H5Dclose(made) == 0


def virtual(file):
    layout = h5py.VirtualLayout((2, *NUMBERS.shape), "f4")
    layout[0] = h5py.VirtualSource(".", "contiguous", NUMBERS.shape)
    layout[1, :9] = h5py.VirtualSource("other.h5", "x", NUMBERS.shape)[:9]
    file.create_virtual_dataset("virtual", layout)


def main(folder):
    written = []

    def write(name, kind, fill, **options):
        with h5py.File(folder / name, "w", **options) as file:
            fill(file)
            written.extend(f"{name} {dataset} {kind}" for dataset in file)

    for libver in ("earliest", "latest"):
        write(f"indexes_{libver}.h5", "numbers", indexes, libver=libver)
    write("user_block.h5", "numbers", indexes, userblock_size=1024)
    write("bare_edges.h5", "numbers", bare_edges, libver="latest")
    write("layouts.h5", "numbers", lambda file: layouts(file, folder), userblock_size=512)
    write("types.h5", "types", types)
    write("virtual.h5", "virtual", lambda file: (file.update(contiguous=NUMBERS), virtual(file)))
    (folder / "datasets").write_text("\n".join(written))


def bare_edges(file):
    low_level(file, "bare_edges", creation(chunks=(4, 5), bare_edges=True))


def million(path, libver):
    """A dataset of 10^6 chunks, at whose addresses there is nothing of interest."""
    with h5py.File(path, "w", libver=libver) as file:
        dcpl = creation(chunks=(1, 1), early=True, never=True)
        space = h5py.h5s.create_simple((1000, 1000), (h5py.h5s.UNLIMITED, h5py.h5s.UNLIMITED))
        h5py.h5d.create(file.id, b"million", h5py.h5t.STD_I32LE, space, dcpl)


if __name__ == "__main__":
    if sys.argv[1] == "million":
        million(sys.argv[2], sys.argv[3])
    else:
        main(Path(sys.argv[1]))
