"""Chunks that are written again with the same length, and skip other filters than before."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import Any

import h5py
import numpy as np
import pytest

import penstock as ps
from penstock.hdf5 import small

SIDE = 90
COLUMNS = 1200
GZIP, SHUFFLE, SZIP, NBIT, LZF = 1, 2, 4, 5, 32000
PIPELINES = ((GZIP, LZF), (LZF, GZIP), (LZF, LZF), (SZIP,), (SHUFFLE, LZF))
VERSIONS = ("earliest", "latest")


def create(
    file: h5py.File,
    pipeline: tuple[int, ...],
    shape: tuple[int, ...],
    most: tuple[int | None, ...] | None = None,
    rows: int = SIDE,
) -> h5py.Dataset:
    """Create a dataset with a chunk for each column, whose filters are optional."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk((rows, 1))
    for number in pipeline:
        if number == SZIP:
            properties.set_szip(h5py.h5z.SZIP_NN_OPTION_MASK, 8)
        else:
            values = (4,) if number == GZIP else ()
            properties.set_filter(number, h5py.h5z.FLAG_OPTIONAL, values)
    space = h5py.h5s.create_simple(
        shape, most and tuple(h5py.h5s.UNLIMITED if n is None else n for n in most)
    )
    return h5py.Dataset(h5py.h5d.create(file.id, b"x", h5py.h5t.STD_U8LE, space, properties))


def contents(seed: int) -> np.ndarray[Any, Any]:
    """Return columns that some filters shorten, and some do not."""
    random = np.random.default_rng(seed)
    made = np.empty((SIDE, COLUMNS), "u1")
    for column in range(COLUMNS):
        made[:, column] = random.integers(0, random.integers(2, 256), SIDE)
        if column % 2:
            made[: random.integers(0, SIDE), column] = 7
    return made


@cache
def versions(pipeline: tuple[int, ...]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return two versions of columns. HDF5 stores both with one length, but with other masks."""
    columns = contents(0)
    found: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    with h5py.File("columns", "w", driver="core", backing_store=False) as file:
        dataset = create(file, pipeline, columns.shape)
        dataset[...] = columns
        dataset.id.chunk_iter(
            lambda chunk: found[chunk.size][chunk.filter_mask].append(chunk.chunk_offset[1])
        )
    pairs = []
    for masks in found.values():
        first, *rest = masks.values()
        for second in rest:
            pairs += list(zip(first, second, strict=False))
    pairs += [(one, other) for other, one in pairs]
    if not pairs:
        pairs = [(0, 1), (1, 0)]
    one, other = np.array(pairs).T
    return columns[:, one], columns[:, other]


def write(dataset: h5py.Dataset, values: np.ndarray[Any, Any], how: str, kind: Any) -> None:
    if how == "whole":
        ps.write(dataset, kind.array(values))
    elif how == "async":
        ps.write_async(dataset, kind.array(values)).wait()
    elif how == "columns":
        for at in range(values.shape[1]):
            ps.write(dataset, kind.array(values[:, at : at + 1]), np.s_[:, at : at + 1])
    elif how == "rows":  # parts of chunks
        for start in range(0, SIDE, 30):
            rows = np.s_[start : start + 30]
            ps.write(dataset, kind.array(values[rows]), rows)


@pytest.mark.parametrize("libver", VERSIONS)
@pytest.mark.parametrize("most", [None, (SIDE, None), (None, None)])
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_a_chunk_of_hdf5_is_written_again(tmp_path, libver, most, pipeline, memory):
    old, new = versions(pipeline)
    for how in ("whole", "columns"):
        with h5py.File(tmp_path / "f.h5", "w", libver=libver) as file:
            dataset = create(file, pipeline, old.shape, most)
            dataset[...] = old
            write(dataset, new, how, memory)
            assert np.array_equal(dataset[...], new)
        with h5py.File(tmp_path / "f.h5") as file:
            assert np.array_equal(file["x"][...], new), how


@pytest.mark.parametrize("how", ["whole", "async", "columns", "rows"])
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_chunks_that_are_written_again_and_again_are_read(tmp_path, pipeline, how, memory):
    old, new = versions(pipeline)
    with h5py.File(tmp_path / "f.h5", "w") as file:
        create(file, pipeline, old.shape)
    for values in (old, new, old):
        with h5py.File(tmp_path / "f.h5", "r+") as file:
            write(file["x"], values, how, memory)
        with h5py.File(tmp_path / "f.h5") as file:
            assert np.array_equal(file["x"][...], values)


@pytest.mark.parametrize("libver", VERSIONS)
@pytest.mark.parametrize("how", ["whole", "async"])
@pytest.mark.parametrize("chunks", [1, 3])
def test_chunks_that_hdf5_allocates_late_are_read(tmp_path, chunks, how, libver, memory):
    # Blosc2 does not shorten them, nor chunks of the fill value, for which HDF5 records no mask.
    values = np.arange(43 * chunks, dtype="f4")
    blosc2 = dict(pytest.importorskip("hdf5plugin").Blosc2())
    with h5py.File(tmp_path / "f.h5", "w", libver=libver) as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_alloc_time(h5py.h5d.ALLOC_TIME_LATE)
        properties.set_chunk((43,))
        options = blosc2["compression_opts"]
        properties.set_filter(blosc2["compression"], h5py.h5z.FLAG_OPTIONAL, options)
        space = h5py.h5s.create_simple(values.shape)
        made = h5py.h5d.create(file.id, b"x", h5py.h5t.IEEE_F32LE, space, properties)
        write(h5py.Dataset(made), values, how, memory)
    with h5py.File(tmp_path / "f.h5") as file:
        assert np.array_equal(file["x"][...], values)


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_small_and_large_writes_take_turns(tmp_path, pipeline):
    old, new = versions(pipeline)
    assert new.nbytes < small.LIMIT
    repeats = -(-2 * small.LIMIT // new.nbytes)
    old, new = (np.tile(values, repeats) for values in (old, new))
    with ps.File(tmp_path / "f.h5", "w") as file:
        create(file.h5py, pipeline, old.shape)
        dataset = file["x"]
        dataset[...] = old
        for start in range(0, new.shape[1], 100):
            dataset[:, start : start + 100] = new[:, start : start + 100]
        dataset[40:50] = old[40:50]
        dataset[...] = old
        dataset[45] = new[45]
    old[45] = new[45]
    with h5py.File(tmp_path / "f.h5") as file:
        assert np.array_equal(file["x"][...], old)


@pytest.mark.parametrize("pipeline", [(SHUFFLE,), (SHUFFLE, GZIP), (GZIP,)])
def test_a_mask_that_another_program_chose_goes_with_its_chunk(tmp_path, pipeline):
    values = np.arange(2 * SIDE, dtype="u4").reshape(SIDE, 2)
    with h5py.File(tmp_path / "f.h5", "w") as file:
        dataset = file.create_dataset(
            "x",
            values.shape,
            "u4",
            chunks=(SIDE, 1),
            shuffle=SHUFFLE in pipeline,
            compression="gzip" if GZIP in pipeline else None,
        )
        ps.write(dataset, values)
        lengths = [dataset.id.get_chunk_info(at).size for at in range(2)]
        for at, length in enumerate(lengths):
            dataset.id.write_direct_chunk((0, at), bytes(length - 1), 0)
            dataset.id.write_direct_chunk((0, at), bytes(length), (1 << len(pipeline)) - 1)
        ps.write_async(dataset, values).wait()
        assert [dataset.id.get_chunk_info(at).filter_mask for at in range(2)] == [0, 0]
    with h5py.File(tmp_path / "f.h5") as file:
        assert np.array_equal(file["x"][...], values)


@pytest.mark.parametrize("nbit", [False, True])
def test_a_chunk_is_written_again_that_lzf_makes_no_shorter(tmp_path, nbit):
    noise = np.arange(45, dtype="u1")  # LZF fails
    repeated = noise.copy()
    repeated[6:12] = noise[:6]  # the output has 45 bytes, too
    pipeline = (NBIT, LZF) if nbit else (LZF,)
    for old, new in (noise, repeated), (repeated, noise):
        with h5py.File(tmp_path / "f.h5", "w") as file:
            dataset = create(file, pipeline, (SIDE // 2, 1), rows=SIDE // 2)
            dataset[:, 0] = old
        with ps.File(tmp_path / "f.h5", "r+") as file:
            stored = file["x"].h5py.id.get_chunk_info(0)
            assert (stored.size, stored.filter_mask == 0) == (45, old is repeated)
            file["x"][:, 0] = new
        with h5py.File(tmp_path / "f.h5") as file:
            assert np.array_equal(file["x"][:, 0], new)


@pytest.mark.parametrize(("level", "mixes"), [(1, True), (4, False), (9, False)])
def test_only_deflate_of_the_fastest_level_may_fail(tmp_path, level, mixes):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        options = {"chunks": (SIDE,), "shuffle": True, "compression": level}
        ps.write(file.create_dataset("x", (SIDE,), "u1", **options), np.ones(1, "u1"), np.s_[:1])
        # HDF5 itself writes few elements, unless it might leave a filter out.
        assert ("small write" in ps.last_report().note) != mixes


def test_penstock_skips_no_filter_of_several_that_shorten(tmp_path):
    masks = set()
    with h5py.File(tmp_path / "f.h5", "w") as file:
        dataset = create(file, (GZIP, LZF), (SIDE, COLUMNS))
        ps.write_async(dataset, contents(0)).wait()
        dataset.id.chunk_iter(lambda chunk: masks.add(chunk.filter_mask))
    assert masks == {0}
