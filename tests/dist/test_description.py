"""Arrays that are read and written by a description of their storage, without HDF5."""

from __future__ import annotations

import gc
import os
import pickle
import threading
import time
import tracemalloc
from dataclasses import replace

import h5py
import hdf5plugin
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock import arrays
from penstock._native import NULL, ffi, is_loaded, lib
from penstock.dist import transfers
from penstock.dist.description import Description, StoredArray
from penstock.errors import check
from penstock.files import READ, WRITE, NativeFile

WHOLE = np.arange(50 * 40, dtype="f4").reshape(50, 40)


def described(path, name="x"):
    with h5py.File(path, "r") as file:
        return Description.of(file[name])


def read(path, description, slab=(), **keys):
    given = {"out": None, "device": None, "dtype": None, "stream": None, "options": NULL} | keys
    with NativeFile(path, READ) as file:
        ranges = transfers.ranges_of(slab, description.shape)
        return transfers.read(StoredArray(description), file, ranges, **given)


def make(path, data=WHOLE, **keys):
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=data, **keys)
    return described(path)


@settings(max_examples=60, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    chunk=st.none() | st.tuples(st.integers(1, 20), st.integers(1, 20)),
    filters=st.sampled_from([{}, {"compression": "gzip"}, {"shuffle": True}, hdf5plugin.Zstd()]),
    dtype=st.sampled_from(["f4", ">i2", "u1", "c8", "S3"]),
    data=st.data(),
)
def test_every_slab_is_that_of_h5py(tmp_path_factory, shape, chunk, filters, dtype, data):
    path = tmp_path_factory.mktemp("slabs") / "x.h5"
    whole = (np.arange(shape[0] * shape[1]) % 100).reshape(shape).astype(dtype)
    keys = {}
    if chunk is not None:
        keys = {"chunks": tuple(map(min, chunk, shape)), **filters}
    description = make(path, whole, **keys)
    ends = [sorted(data.draw(st.tuples(*[st.integers(0, side)] * 2))) for side in shape]
    slab = tuple(slice(*pair) for pair in ends)
    found = read(path, pickle.loads(pickle.dumps(description)), slab)
    assert found.shape == whole[slab].shape
    assert (found == whole[slab]).all()


def test_lists_that_a_rule_gives_are_left_out(tmp_path):
    plain = make(tmp_path / "plain.h5", chunks=(10, 40))
    assert plain.addresses is None
    assert plain.offset is not None
    assert plain.stored == 5
    gzip = make(tmp_path / "gzip.h5", chunks=(10, 10), compression="gzip")
    assert gzip.numbers is None
    assert len(gzip.addresses) == len(gzip.sizes) == 20
    assert make(tmp_path / "contiguous.h5").chunks is None


def test_chunks_that_were_never_written_read_as_the_fill_value(tmp_path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        some = file.create_dataset("x", (50, 40), "f4", chunks=(10, 40), fillvalue=7)
        some[20:25] = 1
    description = described(path)
    assert list(description.numbers) == [2]
    found = read(path, description)
    assert (found[20:25] == 1).all()
    assert (found[:20] == 7).all()


@pytest.mark.parametrize("stored", [1, 2])
@pytest.mark.parametrize("chunk", [(2, 64), (2, 16)], ids=["rows", "boxes"])
def test_of_chunks_written_from_the_front_the_others_are_fill_values(tmp_path, stored, chunk):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", (8, 64), "f4", chunks=chunk, fillvalue=-1)
        dataset[0 : 2 * stored] = 1
        file.flush()
        file["y"] = np.full((64, 64), 666, "f4")
        expected = dataset[()]
    assert (read(path, described(path)) == expected).all()


def test_a_description_of_some_chunks_without_addresses_is_refused(tmp_path):
    description = make(tmp_path / "x.h5", chunks=(10, 40))
    with pytest.raises(ps.InvalidError, match="not all chunks"):
        read(tmp_path / "x.h5", replace(description, stored=3))


def test_a_dense_write_to_chunks_without_storage_or_fill_value_is_refused(tmp_path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", (8, 64), "f4", chunks=(2, 64), fill_time="never")
        dataset[0:2] = dataset[4:6] = 1
    description = described(path)
    view = arrays.view(np.full((8, 64), 5, "f4"))
    ranges = transfers.ranges_of((), description.shape)
    stored = StoredArray(description)
    with NativeFile(path, WRITE) as file, pytest.raises(ps.InvalidError, match="no storage"):
        transfers.write(stored, file, ranges, view, NULL)


@pytest.mark.parametrize("kind", ["compact", "strings", "virtual", "odd"])
def test_what_only_hdf5_reads_is_refused_with_the_reason(tmp_path, kind):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        if kind == "compact":
            creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            creation.set_layout(h5py.h5d.COMPACT)
            space = h5py.h5s.create_simple((4,))
            h5py.h5d.create(file.id, b"x", h5py.h5t.STD_I32LE, space, creation)
        elif kind == "strings":
            file["x"] = ["a", "bc"]
        elif kind == "virtual":
            file["y"] = WHOLE
            layout = h5py.VirtualLayout((50, 40), "f4")
            layout[:] = h5py.VirtualSource(file["y"])
            file.create_virtual_dataset("x", layout)
        else:
            integer = h5py.h5t.STD_I32LE.copy()
            integer.set_precision(20)
            h5py.h5d.create(file.id, b"x", integer, h5py.h5s.create_simple((4,)))
    with pytest.raises(ps.UnavailableError, match=kind if kind in ("compact", "virtual") else "x"):
        described(path)


@pytest.mark.parametrize("chunks", [None, (16, 16)])
def test_a_write_touches_no_byte_beside_its_elements(tmp_path, chunks):
    path = tmp_path / "x.h5"
    description = make(path, np.zeros((64, 64), "f4"), chunks=chunks)
    before = bytearray(path.read_bytes())
    rounds = 20

    def columns(start):
        stored = StoredArray(description)
        ranges = transfers.ranges_of(np.s_[:, start : start + 8], (64, 64))
        with NativeFile(path, WRITE) as file:
            for number in range(1, rounds + 1):
                values = np.full((64, 8), 100 * start + number, "f8")
                transfers.write(stored, file, ranges, arrays.view(values), NULL)

    threads = [threading.Thread(target=columns, args=(start,)) for start in range(0, 64, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with h5py.File(path) as file:
        found = file["x"][()]
        assert (found == 100 * (np.arange(64) // 8 * 8) + rounds).all()
        if chunks is None:
            start = file["x"].id.get_offset()
            before[start : start + found.nbytes] = found.tobytes()
            assert path.read_bytes() == before


def test_a_write_into_chunks_without_storage_is_refused(tmp_path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (50, 40), "f4", chunks=(10, 40))
    description = described(path)
    ranges = transfers.ranges_of((), (50, 40))
    with NativeFile(path, WRITE) as file, pytest.raises(ps.InvalidError, match="no storage"):
        transfers.write(StoredArray(description), file, ranges, arrays.view(WHOLE), NULL)


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": (1 << 62, 40)},
        {"shape": (50,)},
        {"chunks": (0, 10)},
        {"filters": ((9999, False, ()),)},
        {"filters": ((1, False, ()),) * 70},
        {"sizes": np.zeros(20, "u8")},
        {"addresses": np.full(20, (1 << 64) - 2, "u8")},
        {"numbers": np.full(20, 20, "u8")},
        {"numbers": np.zeros(20, "u8")},
        {"file_size": 100},
        {"dtype": np.dtype("f8")},
        {"shape": (50, 40, 1)},
        {"stored": 21},
        {"fill": bytes(3)},
        {"masks": np.zeros(19, "u4")},
    ],
    ids=str,
)
def test_a_forged_description_is_an_error_and_no_crash(tmp_path, changes):
    path = tmp_path / "x.h5"
    description = make(path, chunks=(10, 10), compression="gzip")
    with pytest.raises((ps.Error, ValueError)):
        read(path, replace(description, **changes), np.s_[0:10])


@pytest.mark.parametrize("offset", [(1 << 64) - 4000, (1 << 64) - 2, 1 << 63, (1 << 63) - 8000])
@pytest.mark.parametrize("chunks", [None, (10, 40)], ids=["contiguous", "chunked"])
def test_a_forged_offset_leads_nowhere_else_in_the_file(tmp_path, chunks, offset):
    path = tmp_path / "x.h5"
    forged = replace(make(path, chunks=chunks), offset=offset, file_size=(1 << 64) - 1)
    before = path.read_bytes()
    with pytest.raises(ps.Error):
        read(path, forged)
    ranges = transfers.ranges_of((), forged.shape)
    with NativeFile(path, WRITE) as file, pytest.raises(ps.Error):  # noqa: PT012 - either call
        stored = StoredArray(forged)
        transfers.write(stored, file, ranges, arrays.view(WHOLE), NULL)
    assert path.read_bytes() == before


def test_names_of_any_bytes_are_sent(tmp_path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset(b"x\xff", data=WHOLE)
    description = described(path, b"x\xff")
    assert (read(path, description) == WHOLE).all()


def test_one_size_and_mask_of_all_chunks_are_described(tmp_path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        made = file.create_dataset("x", (50, 40), "f4", chunks=(10, 40), compression="gzip")
        for at in range(5):
            made.id.write_direct_chunk((10 * at, 0), WHOLE[10 * at : 10 * at + 10].tobytes(), 1)
        file.create_dataset("sums", data=WHOLE, chunks=(10, 40), fletcher32=True)
    for name in ("x", "sums"):
        assert (read(path, described(path, name)) == WHOLE).all()


def test_a_forked_child_forgets_a_description_without_loading_the_library(tmp_path):
    held = [StoredArray(make(tmp_path / "x.h5"))]
    child = os.fork()
    if not child:
        held.clear()
        gc.collect()
        os._exit(int(is_loaded()))
    assert os.waitpid(child, 0)[1] == 0


def test_a_damaged_chunk_is_named(tmp_path):
    path = tmp_path / "x.h5"
    description = make(path, chunks=(10, 10), compression="gzip")
    with open(path, "r+b") as file:
        file.seek(int(description.addresses[5]))
        file.write(bytes(8))
    with pytest.raises(ps.Error, match=r"/x: the chunk at \[1, 1\].*damaged") as caught:
        read(path, description)
    assert caught.value.path == str(path)


def test_encoded_chunks_are_those_that_hdf5_reads(tmp_path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        made = file.create_dataset("x", (50, 40), "f4", chunks=(16, 40), compression="gzip")
        stored = StoredArray(Description.of(made).for_writing())
        ranges = transfers.ranges_of(np.s_[16:50], (50, 40))
        chunks = transfers.EncodedChunks(stored, ranges, arrays.view(WHOLE[16:]), NULL)
        assert chunks.numbers.tolist() == [1, 2, 3]
        assert chunks.data().size == chunks.sizes.sum()
        data = chunks.data().tobytes()
        for number, size, mask in zip(chunks.numbers, chunks.sizes, chunks.masks, strict=True):
            piece, data = data[:size], data[size:]
            made.id.write_direct_chunk((int(number) * 16, 0), piece, int(mask))
        assert (made[16:] == WHOLE[16:]).all()
        cut = transfers.ranges_of(np.s_[16:40], (50, 40))
        with pytest.raises(ps.InvalidError, match="cuts chunks"):
            transfers.EncodedChunks(stored, cut, arrays.view(WHOLE[16:40]), NULL)


def test_a_description_of_ten_million_chunks_is_sent_and_taken_in_seconds():
    count = 10**7
    sizes = np.random.default_rng(1).integers(1000, 2000, count).astype("u8")
    description = Description(
        name="/x",
        shape=(count * 512,),
        dtype=np.dtype("f4"),
        fill=bytes(4),
        file_size=1 << 62,
        offset=None,
        chunks=(512,),
        filters=((1, False, (6,)),),
        unfiltered_edges=False,
        stored=count,
        addresses=np.cumsum(sizes) - sizes,
        sizes=sizes,
    )
    tracemalloc.start()
    began = time.perf_counter()
    parts: list[pickle.PickleBuffer] = []
    head = pickle.dumps(description, protocol=5, buffer_callback=parts.append)
    sent = len(head) + sum(part.raw().nbytes for part in parts)
    received = pickle.loads(head, buffers=parts)
    StoredArray(received)
    took = time.perf_counter() - began
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(head) < 4096  # the lists are not copied
    assert sent < 17 * count
    assert peak < 1 << 20
    assert took < 10


def test_an_element_too_large_in_memory_is_refused(tmp_path):
    """Many numbers of a byte in the file would be eight times as many bytes in memory."""
    (tmp_path / "x").write_bytes(bytes(100))
    name, of_byte, of_eight = ffi.new("char[]", b"x"), 1, 14
    array, opened = ffi.new("penstock_stored_array *"), ffi.new("penstock_stored **")
    array.struct_size = ffi.sizeof("penstock_stored_array")
    array.name, array.number, array.element, array.file_size = name, of_byte, 1 << 62, 1 << 62
    check(lib.penstock_stored_open(array, opened))
    memory = ffi.new("penstock_array *")
    memory.struct_size, memory.type = ffi.sizeof("penstock_array"), of_eight
    memory.data = target = ffi.new("double *")
    made = ffi.new("penstock_request **")
    rest = (NULL, memory, NULL, NULL, 0, made)
    with (
        NativeFile(tmp_path / "x", READ) as file,
        pytest.raises(ps.InvalidError, match="too large"),
    ):
        check(lib.penstock_stored_read_submit(file.handle, opened[0], *rest))
    assert target[0] == 0
    lib.penstock_stored_close(opened[0])


@pytest.mark.parametrize(
    ("stored", "given"),
    [
        ("S3", np.array([1000, 20000])),
        ("S3", np.array([True, False])),
        ("S3", np.array([1.25, 2.5])),
        ("S3", np.array([1j, 2j])),
        ("S3", [1000, 20000]),
        ("V3", np.zeros(2, "V5")),
        ("i4", np.array(["1", "2"])),
    ],
    ids=lambda case: str(getattr(case, "dtype", case)),
)
def test_numbers_are_not_cut_to_text_nor_opaque_elements_to_a_length(tmp_path, stored, given):
    description = make(tmp_path / "x.h5", np.zeros(2, stored))
    with pytest.raises(ps.IncompatibleError, match=r"x has elements.*no conversion"):
        transfers.source(description, (range(2),), given, None)


@pytest.mark.parametrize("given", [["ab", "c"], [b"ab", b"c"], np.array(["ab", "c"]), []], ids=str)
def test_text_becomes_strings_of_a_fixed_length(tmp_path, given):
    description = make(tmp_path / "x.h5", np.zeros(2, "S3"))
    view = transfers.source(description, (range(len(given)),), given, None)
    assert view.array.tolist() == [b"ab", b"c"][: len(given)]


@pytest.mark.parametrize("given", [b"ab", np.bytes_(b"ab"), "ab"], ids=["bytes", "NumPy", "str"])
def test_a_text_is_one_string_of_a_scalar(tmp_path, given):
    description = make(tmp_path / "x.h5", np.zeros((), "S3"))
    view = transfers.source(description, (), given, None)
    assert view.array[()] == b"ab"
