"""Datasets of every layout, filter and type against h5py: what it reads and writes is right.

A case is one dataset of a collection, one selection and one array. Cases are counted, and their
number, PENSTOCK_TEST_ORACLE, is part of the tests.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from itertools import cycle
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.cli.comparison import difference
from penstock.hdf5 import selection, small

READS = int(os.environ.get("PENSTOCK_TEST_ORACLE", "600"))
WRITES = READS // 4

pytestmark = pytest.mark.usefixtures("nothing_is_small", "penstock_arrays")

hdf5plugin = pytest.importorskip("hdf5plugin", reason="brings the filters that h5py has not")

# A few hundred bytes to a few KiB each: what differs is the arithmetic, not the size.
SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((997,), (100,)),
    ((41, 37), (16, 16)),
    ((64, 32), (16, 32)),
    ((9, 14, 11), (4, 14, 3)),
    ((5, 6, 7, 4), (2, 3, 7, 1)),
]
PLAIN = ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "c8", "c16", "?"]
STRUCTURE = np.dtype(
    [("a", "i4"), ("b", "f8", (2, 3)), ("c", [("x", ">u2"), ("y", "S3")])], align=True
)
OTHER: list[Any] = [
    "S1",
    "S7",
    "V5",
    STRUCTURE,
    np.dtype(("i2", (2, 2))),
    h5py.enum_dtype({"red": 1, "green": 2, "blue": 300}, "i2"),
    h5py.string_dtype("utf-8", 6),
]
NUMBERS = [np.dtype(kind).newbyteorder(order) for kind in PLAIN[:-3] for order in "<>"]
# Above 0, h5py carries out what is small, after what Penstock does to types and selections.
LIMITS = [0, 0, small.LIMIT]
FILTERS: dict[str, dict[str, Any]] = {
    "none": {},
    "gzip": {"compression": "gzip"},
    "gzip-9-shuffle": {"compression": "gzip", "compression_opts": 9, "shuffle": True},
    "shuffle": {"shuffle": True},
    "fletcher32": {"fletcher32": True},
    "gzip-all": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "lzf": {"compression": "lzf", "shuffle": True},
    "lz4": {**hdf5plugin.LZ4()},
    "zstd": {**hdf5plugin.Zstd(), "shuffle": True},
    "blosc": {**hdf5plugin.Blosc(cname="lz4", shuffle=hdf5plugin.Blosc.SHUFFLE)},
    "blosc-bits": {**hdf5plugin.Blosc(cname="zstd", shuffle=hdf5plugin.Blosc.BITSHUFFLE)},
    "blosc2": {**hdf5plugin.Blosc2(cname="zlib")},
    "bitshuffle": {**hdf5plugin.Bitshuffle(cname="none")},
    "bitshuffle-lz4": {**hdf5plugin.Bitshuffle(cname="lz4")},
}
if h5py.h5z.filter_avail(h5py.h5z.FILTER_SZIP):
    FILTERS["szip"] = {"compression": "szip"}


# Only read: a write of a part of such records is HDF5's alone.
RECORDS: dict[str, Any] = {
    "padded": np.dtype(
        {"names": ["a", "b", "c"], "formats": ["u1", "<f8", ">i2"], "offsets": [1, 8, 20]}
    ),
    "nested": [("a", "i2"), ("b", [("x", "u1"), ("y", [("z", "f4"), ("w", "S3")])]), ("c", "f8")],
    "text": [("a", "i4"), ("t", h5py.string_dtype()), ("b", ">f8"), ("c", "u1")],
    "texts": [("t", h5py.string_dtype()), ("a", "u2"), ("u", h5py.string_dtype()), ("b", "f4")],
    "sequence": [("a", "i4"), ("s", h5py.vlen_dtype("i2")), ("b", "f8")],
    "nested-text": [("a", [("x", "i4"), ("t", h5py.string_dtype())]), ("b", "f4"), ("c", "i8")],
    "sub-array": [("a", "i4", (3,)), ("t", h5py.string_dtype(), (2,)), ("b", ">u2", (2, 2))],
    "reference": [("a", "u1"), ("r", h5py.ref_dtype), ("b", "f8")],
    "opaque": [("a", "V5"), ("b", h5py.enum_dtype({"x": 1, "y": 300}, "i2")), ("c", "?")],
}
FILL_TIMES = ("alloc", "never", "ifset")


def contents(dtype: Any, shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    """Elements of any type: smooth enough to be compressed, with the special ones among them."""
    random = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.subdtype:
        base, inner = dtype.subdtype
        return contents(base, shape + inner, seed)
    if dtype.names:
        made = np.zeros(shape, dtype)
        for name in dtype.names:
            made[name] = contents(dtype[name], shape, seed)
        return made
    if h5py.check_string_dtype(dtype) and dtype.hasobject:
        texts = [f"text {i % 7}" for i in range(math.prod(shape))]
        return np.array(texts, object).reshape(shape)
    if h5py.check_vlen_dtype(dtype):
        lists = np.empty(math.prod(shape), object)
        for i in range(len(lists)):
            lists[i] = np.arange(i % 4, dtype="i2")
        return lists.reshape(shape)
    if dtype.hasobject:
        return np.full(shape, h5py.Reference(), object)
    if h5py.check_enum_dtype(dtype):
        return random.choice(np.array([1, 2, 300], dtype), shape)
    if dtype.kind in "SV":
        raw = random.integers(97, 123, (math.prod(shape), dtype.itemsize), np.uint8)
        return raw.reshape(-1).view(dtype).reshape(shape)
    steps = random.integers(-3, 4, shape).cumsum(axis=-1)
    if dtype.kind == "c":
        return (steps + 1j * steps[::-1]).astype(dtype)
    made = steps.astype(dtype)
    special: list[Any] = [0]
    if not made.size:
        return made
    if dtype.kind == "f":
        special = [np.nan, np.inf, -np.inf, -0.0, np.finfo(dtype).tiny / 2, np.finfo(dtype).max]
    elif dtype.kind in "iu":
        special = [np.iinfo(dtype).min, np.iinfo(dtype).max]
    places = random.integers(0, made.size, 3 * len(special))
    made.reshape(-1)[places] = np.resize(np.array(special, dtype), len(places))
    return made


def fill(file: h5py.File) -> None:
    """All that the cases choose from: each filter with several types, each type with several."""
    seeds = iter(range(10**6))
    shapes = cycle(SHAPES)
    types = cycle([*PLAIN, *OTHER])
    orders = cycle("<>>")

    def data(dtype: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        kind = np.dtype(dtype)
        if kind.metadata is None and kind.names is None:
            kind = kind.newbyteorder(next(orders))
        made = contents(kind, shape, next(seeds))
        return made.astype(kind) if made.dtype == kind else made

    def make(name: str, dtype: Any, **keys: Any) -> h5py.Dataset:
        shape, chunks = next(shapes)
        kind = np.dtype(dtype)
        values = data(kind, shape)
        stored = kind if kind.metadata or kind.subdtype else values.dtype
        if keys.pop("chunked", True):
            keys.setdefault("chunks", chunks)
        made = file.create_dataset(name, shape, stored, **keys)
        made[...] = values
        return made

    for name, keys in FILTERS.items():
        for i in range(7):
            dtype = next(types)
            if name == "szip" and np.dtype(dtype).kind not in "iuf":
                dtype = "i4"
            make(f"filters/{name}/{i}", dtype, **keys)
    for i, dtype in enumerate([*PLAIN, *OTHER]):
        make(f"contiguous/{i}", dtype, chunked=False)
    for i, dtype in enumerate(["u1", "i2", ">i4", "i8", "f4", ">f8"]):
        keys = {"scaleoffset": 3 if np.dtype(dtype).kind == "f" else 0}
        shape, chunks = next(shapes)
        values = np.random.default_rng(i).integers(0, 100, shape).astype(dtype)
        file.create_dataset(f"scaleoffset/{i}", data=values, chunks=chunks, **keys)
    for dtype in ("i4", ">f8", STRUCTURE):
        for index, maxshape in INDEXES.items():
            shape, chunks = next(shapes)
            chunks = shape if index == "single" else chunks
            name = f"index/{index}/{np.dtype(dtype).kind}{np.dtype(dtype).itemsize}"
            made = file.create_dataset(
                name, shape, dtype, chunks=chunks, maxshape=maxshape(shape), fillvalue=None
            )
            made[...] = contents(dtype, shape, next(seeds))
    _nbit(file, next(seeds))
    _compact(file, contents("f4", (41, 37), next(seeds)))
    _partly_written(file, contents("i4", (41, 37), next(seeds)))
    _filter_masks(file, contents("i4", (41, 37), next(seeds)))
    _short_floats(file)
    file.create_dataset("fill", (30, 20), "f4", chunks=(7, 6), fillvalue=-1.5)
    file.create_dataset("fill-contiguous", (30, 20), ">i2", fillvalue=99)


def fill_for_reads(file: h5py.File) -> None:
    """What is only read: records of every kind, and datasets that are written in part or never."""
    for seed, (name, dtype) in enumerate(RECORDS.items()):
        for at, keys in enumerate(({}, {"chunks": True}, {"compression": "gzip"})):
            shape, chunks = SHAPES[(seed + at) % 3]
            keys = keys if not at else {**keys, "chunks": chunks}
            made = file.create_dataset(f"records/{name}/{at}", shape, np.dtype(dtype), **keys)
            made[...] = contents(np.dtype(dtype), shape, seed)
            if at:
                part = file.create_dataset(f"records/{name}/part{at}", shape, made.dtype, **keys)
                part[: shape[0] // 2] = contents(made.dtype, (shape[0] // 2, *shape[1:]), seed)
    for fill_time in FILL_TIMES:
        for at, keys in enumerate(({}, {"chunks": (16, 16)}, {"compression": "gzip"})):
            for value in (None, 7):
                name = f"holes/{fill_time}/{at}/{value}"
                keys = {**keys, "fill_time": fill_time, "fillvalue": value}
                file.create_dataset(f"{name}/never", (41, 37), "i4", **keys)
                made = file.create_dataset(f"{name}/part", (41, 37), ">f8", **keys)
                made[3:20, 5:9] = contents("f8", (17, 4), at)
    for bits in ("B8", "B16", "B32"):
        kind = getattr(h5py.h5t, f"STD_{bits}LE")
        made = _low_level(file, f"bits/{bits}", kind, (41, 37), None)
        made[...] = contents(made.dtype, (41, 37), 3)


INDEXES: dict[str, Callable[[tuple[int, ...]], tuple[int | None, ...]]] = {
    "fixed": lambda shape: shape,
    "single": lambda shape: shape,
    "one-unlimited": lambda shape: (None, *shape[1:]),
    "all-unlimited": lambda shape: (None,) * len(shape),
}


def _low_level(file: h5py.File, name: str, kind: Any, shape: Any, plist: Any) -> h5py.Dataset:
    links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    space = h5py.h5s.create_simple(shape)
    return h5py.Dataset(h5py.h5d.create(file.id, name.encode(), kind, space, plist, links))


def _nbit(file: h5py.File, seed: int) -> None:
    for order in ("LE", "BE"):
        kind = getattr(h5py.h5t, f"STD_I32{order}").copy()
        kind.set_precision(13)
        kind.set_offset(5)
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((16, 16))
        plist.set_filter(h5py.h5z.FILTER_NBIT, h5py.h5z.FLAG_OPTIONAL)
        made = _low_level(file, f"nbit/{order}", kind, (41, 37), plist)
        made[...] = np.random.default_rng(seed).integers(-4000, 4000, (41, 37), "i4")


def _compact(file: h5py.File, values: np.ndarray[Any, Any]) -> None:
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_layout(h5py.h5d.COMPACT)
    kind = h5py.h5t.py_create(values.dtype)
    _low_level(file, "compact", kind, values.shape, plist)[...] = values


def _partly_written(file: h5py.File, values: np.ndarray[Any, Any]) -> None:
    made = file.create_dataset("partly", values.shape, "i4", chunks=(8, 8), compression="gzip")
    made[3:20, 5:9] = values[3:20, 5:9]


def _filter_masks(file: h5py.File, values: np.ndarray[Any, Any]) -> None:
    made = file.create_dataset("masks", data=values, chunks=(16, 16), shuffle=True, fletcher32=True)
    plain = np.ascontiguousarray(values[16:32, :16])
    made.id.write_direct_chunk((16, 0), plain.tobytes(), filter_mask=0b11)


def _short_floats(file: h5py.File) -> None:
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        made = ps.Group(file).create(f"short/{name}", (41, 37), name, chunks=(16, 16))
        made.h5py[...] = contents("f4", (41, 37), 1).clip(-100, 100)


class Collection:
    """The datasets of a file, chosen from by a strategy."""

    def __init__(self, file: h5py.File) -> None:
        self.file = file
        self.names: list[str] = []
        file.visititems(
            lambda name, item: self.names.append(name) if isinstance(item, h5py.Dataset) else None
        )

    def choose(self, data: st.DataObject, without: tuple[str, ...] = ()) -> h5py.Dataset:
        names = [name for name in self.names if not any(word in name for word in without)]
        return self.file[data.draw(st.sampled_from(names))]


@pytest.fixture(scope="module", params=["earliest", "latest"])
def stored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The collection, in a file of an old and of a new format, opened for reading."""
    path = tmp_path_factory.mktemp("oracle") / "read.h5"
    with h5py.File(path, "w", libver=(request.param, "latest"), userblock_size=512) as file:
        fill(file)
        fill_for_reads(file)
        sources = [
            name for name in file["contiguous"] if file["contiguous"][name].shape == (41, 37)
        ]
        layout = h5py.VirtualLayout((len(sources), 41, 50), "f8")
        for i, name in enumerate(sources):
            source = h5py.VirtualSource(file["contiguous"][name])
            if source.dtype.kind in "iuf":
                layout[i, :, 5:42] = source
        file.create_virtual_dataset("virtual", layout, fillvalue=-7)
        external = [(str(path.with_suffix(".raw")), 16, 41 * 37 * 4)]
        values = contents("f4", (41, 37), 5)
        file.create_dataset("external", data=values, external=external)
    with h5py.File(path) as file:
        yield Collection(file)


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The collection twice, for Penstock and for h5py to write.

    At the end what Penstock has written is read once more, from the closed file by h5py alone.
    """
    folder = tmp_path_factory.mktemp("oracle")
    paths = [folder / "ours.h5", folder / "theirs.h5"]
    for path in paths:
        with h5py.File(path, "w", libver="latest") as file:
            fill(file)
    # Opened anew: HDF5 remembers a wrong filter mask of the chunk that was written directly last.
    files = [h5py.File(path, "r+", libver="latest") for path in paths]
    yield Collection(files[0]), files[1]
    written = {name: files[0][name][()] for name in Collection(files[0]).names}
    for file in files:
        file.close()
    # Not with h5py's file: HDF5 leaves the filter mask of a chunk as it was if its size stays.
    with h5py.File(paths[0]) as ours:
        for name, expected in written.items():
            assert not difference(ours[name][()], expected), name


def draw_axis(data: st.DataObject, length: int, kinds: str) -> Any:
    kind = data.draw(st.sampled_from(kinds))
    if kind == "i":
        return data.draw(st.integers(-length, length - 1))
    if kind == "s":
        start = data.draw(st.integers(-length, length))
        stop = data.draw(st.none() | st.integers(-length, length))
        return slice(start, stop, data.draw(st.integers(1, 5)))
    if kind == "l":
        indices = data.draw(st.lists(st.integers(0, length - 1), max_size=6, unique=True))
        return sorted(indices)
    if kind == "m":
        return np.random.default_rng(data.draw(st.integers(0, 99))).random(length) < 0.4
    if kind == "b":
        stride = data.draw(st.integers(2, max(length, 2)))
        block = data.draw(st.integers(1, min(stride - 1, length)))
        count = (length - block) // stride + 1
        return h5py.MultiBlockSlice(start=0, stride=stride, count=count, block=block)
    return slice(None)


def draw_selection(data: st.DataObject, dataset: h5py.Dataset) -> Any:
    """What may stand in ``dataset[...]``, and now and then what may not.

    All of it (w), a box (b), one with a list (f), or points (p).
    """
    shape = dataset.shape
    kind = data.draw(st.sampled_from("wbbbbbfffp"))
    if kind == "w":
        return data.draw(st.sampled_from([(), Ellipsis]))
    if kind == "p":
        mask = np.random.default_rng(data.draw(st.integers(0, 99))).random(shape)
        return mask < data.draw(st.sampled_from([0.0, 0.01, 0.3, 1.0]))
    axes = [draw_axis(data, length, "isss:") for length in shape]
    if kind == "f":
        at = data.draw(st.integers(0, len(shape) - 1))
        axes[at] = draw_axis(data, shape[at], "lmb")
    axes = axes[: data.draw(st.integers(0, len(axes)))]
    if data.draw(st.booleans()) and len(axes) < len(shape):
        at = data.draw(st.integers(0, len(axes)))
        rest = [slice(None)] * (len(axes) - at)
        axes = [*axes[:at], Ellipsis, *rest]
    names = dataset.dtype.names
    if names and data.draw(st.booleans()):
        axes += data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
    return tuple(axes)


def draw_number(data: st.DataObject, stored: np.dtype[Any]) -> np.dtype[Any]:
    """A type of numbers, often of the length of those that are stored."""
    alike = [kind for kind in NUMBERS if kind.itemsize == stored.itemsize]
    return data.draw(st.sampled_from(NUMBERS) | st.sampled_from(alike or NUMBERS))


def attempt(action: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        return action(), None
    except (TypeError, ValueError, IndexError, OSError, RuntimeError) as error:
        return None, error


def draw_strides(data: st.DataObject, shape: tuple[int, ...], itemsize: int) -> Any:
    """Offset, strides and length in bytes of an array with gaps, turned dimensions and so on."""
    order = data.draw(st.permutations(range(len(shape))))
    step = itemsize * data.draw(st.integers(1, 2))
    offset, strides = data.draw(st.sampled_from([0, itemsize, 3])), [0] * len(shape)
    low, high = offset, offset
    for axis in order:
        sign = data.draw(st.sampled_from([1, 1, -1]))
        strides[axis] = sign * step
        reach = step * max(shape[axis] - 1, 0)
        low, high = (low - reach, high) if sign < 0 else (low, high + reach)
        step *= max(shape[axis], 1)
    return offset - low, tuple(strides), high - low + itemsize + offset


class Host:
    """Arrays in host memory."""

    kinds = ("new", "contiguous", "strided")
    device = None

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.strided = True

    def array(self, values: np.ndarray[Any, Any], kind: str) -> tuple[Any, Callable[[], Any]]:
        """An array with these values, and a look into it."""
        if kind == "contiguous":
            made = np.array(values, order="C")
        else:
            start, strides, length = draw_strides(self.data, values.shape, values.dtype.itemsize)
            whole = np.full(length, 0x55, np.uint8)
            made = np.ndarray(values.shape, values.dtype, whole, start, strides)
            made[...] = values
        return made, lambda: np.array(made)


class Gpu(Host):
    """Arrays in GPU memory, the strided ones by nothing but ``__cuda_array_interface__``."""

    device = "cuda"

    def __init__(self, data: st.DataObject, interface: Any) -> None:
        super().__init__(data)
        self.interface = interface

    def array(self, values: np.ndarray[Any, Any], kind: str) -> tuple[Any, Callable[[], Any]]:
        if kind == "contiguous" or not self.strided:
            made = ps.DeviceArray.from_numpy(values)
            return made, made.numpy
        start, strides, length = draw_strides(self.data, values.shape, values.dtype.itemsize)
        whole = np.full(length, 0x55, np.uint8)
        np.ndarray(values.shape, values.dtype, whole, start, strides)[...] = values
        on_gpu = ps.DeviceArray.from_numpy(whole)
        changes = {
            "shape": values.shape,
            "strides": strides,
            "typestr": values.dtype.str,
            "data": (on_gpu.data_ptr + start, False),
        }

        def look() -> np.ndarray[Any, Any]:
            return np.array(np.ndarray(values.shape, values.dtype, on_gpu.numpy(), start, strides))

        return self.interface(on_gpu, **changes), look


@pytest.fixture(params=["host", pytest.param("gpu", marks=pytest.mark.gpu)])
def arrays(request: pytest.FixtureRequest, cuda_interface: Any) -> Callable[[Any], Host]:
    """Makes arrays of one kind of memory from what a case draws."""
    if request.param == "host":
        return Host
    return lambda data: Gpu(data, cuda_interface)


OPTIONS: list[dict[str, Any]] = [
    {},
    {"decode": "gpu"},
    {"decode": "cpu", "threads": 1},
    {"scratch": "1MiB", "block": "4KiB"},
]

CASES = {
    "deadline": None,
    "database": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}


def test_reads_are_those_of_h5py(
    stored: Collection, arrays: Callable[[Any], Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = 0

    @settings(max_examples=READS // 2, **CASES)
    @given(st.data())
    def case(data: st.DataObject) -> None:
        nonlocal cases
        cases += 1
        dataset = stored.choose(data)
        chosen = draw_selection(data, dataset)
        memory = arrays(data)
        kind = data.draw(st.sampled_from(memory.kinds))
        if has_objects(dataset, chosen):
            memory, kind = Host(data), "new"
        numeric = dataset.dtype.kind in "iuf"
        wanted = draw_number(data, dataset.dtype) if numeric and data.draw(st.booleans()) else None
        if wanted is not None and dataset.name.startswith("/bits"):
            wanted = wanted.newbyteorder(
                "="
            )  # Penstock reads the other order, too, and h5py refuses
        options = data.draw(st.sampled_from(OPTIONS))
        monkeypatch.setattr(small, "LIMIT", data.draw(st.sampled_from(LIMITS)))
        note(f"{dataset} [{chosen}] as {wanted} into {kind} on {memory.device}, {options}")
        theirs, refusal = attempt(
            lambda: dataset[chosen] if wanted is None else dataset.astype(wanted)[chosen]
        )
        if isinstance(refusal, (TypeError, ValueError)) and is_for_numpy(dataset, chosen):
            # h5py refuses some lists; NumPy does not.
            indices, names = selection.split(chosen)
            whole, refusal = attempt(
                lambda: dataset[names] if wanted is None else dataset.astype(wanted)[()]
            )
            if refusal is None:
                each = whole.reshape(dataset.size, *whole.shape[dataset.ndim :])
                theirs = each[selected_by_numpy(dataset.shape, indices)]
        if refusal is not None:
            with pytest.raises((TypeError, ValueError, IndexError, OSError, RuntimeError)):
                ps.read(dataset, chosen, dtype=wanted, device=memory.device)
        elif kind == "new":
            ours = ps.read(dataset, chosen, dtype=wanted, device=memory.device, **options)
            if memory.device:
                ours, theirs = native(ours.numpy()), native(np.asarray(theirs))
            else:
                assert type(ours) is type(theirs)
            assert not difference(ours, theirs)
        else:
            # A scalar has no byte order, and HDF5 converts by it.
            theirs = np.asarray(theirs, wanted)
            memory.strided = is_strided(dataset, chosen)
            out, look = memory.array(np.zeros(theirs.shape, theirs.dtype), kind)
            assert ps.read(dataset, chosen, out=out, **options) is out
            assert not difference(look(), theirs)

    case()
    assert cases >= READS // 2


def has_objects(dataset: h5py.Dataset, chosen: Any) -> bool:
    """Whether the selected elements are objects of Python, which only new host arrays hold here."""
    kind, refusal = attempt(lambda: selection.stored_type(dataset, chosen))
    return dataset.dtype.hasobject if refusal is not None else kind.hasobject


def is_strided(dataset: h5py.Dataset, chosen: Any) -> bool:
    """Whether a GPU array may have strides: points, lists and inner arrays need C order.

    Arrays of NumPy, torch and CuPy may have them at all times, and are copied where need be.
    """
    parts = chosen if isinstance(chosen, tuple) else (chosen,)
    return dataset.dtype.kind in "biufc" and all(
        isinstance(part, (int, slice, type(...))) for part in parts
    )


def native(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array.astype(array.dtype.newbyteorder("="))


def test_writes_are_those_of_h5py(
    twins: Any, arrays: Callable[[Any], Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = twins
    cases = 0

    @settings(max_examples=WRITES, **CASES)
    @given(st.data())
    def case(data: st.DataObject) -> None:
        nonlocal cases
        cases += 1
        # HDF5 2.0.0 itself loses the mask of a chunk whose length stays the same when one of these
        # filters fails, or no longer does: the twin then has other elements than were written.
        dataset = ours.choose(data, without=("szip", "blosc", "lzf"))
        twin = theirs[dataset.name]
        chosen = draw_selection(data, dataset)
        value = draw_value(data, twin, chosen)
        if "scaleoffset" in dataset.name and isinstance(value, np.ndarray):
            # HDF5 makes chunks that it cannot read of infinite values, and finds in its cache what
            # the filter has not rounded yet.
            value = (np.round(np.clip(np.nan_to_num(value), -100, 100)) + 0).astype(value.dtype)
        memory = arrays(data)
        kind = data.draw(st.sampled_from(memory.kinds[1:]))
        monkeypatch.setattr(small, "LIMIT", data.draw(st.sampled_from(LIMITS)))
        note(f"{dataset} [{chosen}] = {value!r} {kind} on {memory.device}")
        memory.strided = is_strided(dataset, chosen)
        source, _ = memory.array(value, kind) if isinstance(value, np.ndarray) else (value, None)
        _, refusal = attempt(lambda: twin.__setitem__(chosen, as_field(twin, chosen, value)))
        if isinstance(refusal, (TypeError, ValueError)) and is_for_numpy(dataset, chosen):
            # h5py broadcasts nothing to lists; NumPy does.
            _, refusal = attempt(lambda: write_as_numpy(twin, chosen, value))
        try:
            if refusal is not None:
                with pytest.raises((TypeError, ValueError, IndexError, OSError, RuntimeError)):
                    ps.write(dataset, source, chosen)
            else:
                ps.write(dataset, source, chosen)
            assert not difference(dataset[()], twin[()])
        except BaseException:
            dataset[()] = twin[()]  # the next case starts from the same
            raise

    case()
    assert cases >= WRITES


def as_field(dataset: h5py.Dataset, chosen: Any, value: Any) -> Any:
    """Values of a field that is itself a structure, in the form in which h5py writes them."""
    _, names = selection.split(chosen)
    members = getattr(getattr(value, "dtype", None), "names", None)
    if len(names) != 1 or not members or names[0] in members:
        return value
    stored, refusal = attempt(lambda: selection.stored_type(dataset, chosen).base)
    if refusal is not None or set(stored.names or ()) != set(members):
        return value
    made = np.zeros(np.shape(value), [(names[0], value.dtype)])
    made[names[0]] = value
    return made


def is_for_numpy(dataset: h5py.Dataset, chosen: Any) -> bool:
    """Whether lists select elements."""
    indices, _ = selection.split(chosen)
    selected, _ = attempt(lambda: selection.select(dataset, dataset.shape, indices))
    return selected is not None and selected.has_lists


def selected_by_numpy(shape: tuple[int, ...], indices: tuple[Any, ...]) -> np.ndarray[Any, Any]:
    """The numbers of the elements that one list or mask selects, counted in C order.

    A list keeps its place among integers, as by h5py; NumPy puts it first.
    """
    parts = list(indices)
    rest = next((at for at, part in enumerate(parts) if part is Ellipsis), len(parts))
    dropped = []
    for at, part in enumerate(parts):
        if isinstance(part, int):
            parts[at] = slice(part, part + 1 or None)
            dropped.append(at if at < rest else at - len(parts))
    numbers = np.arange(math.prod(shape)).reshape(shape)
    return numbers[tuple(parts)].squeeze(tuple(dropped))


def write_as_numpy(dataset: h5py.Dataset, chosen: Any, value: Any) -> None:
    """Assign as NumPy does, which says what is written where. HDF5 converts the numbers."""
    indices, names = selection.split(chosen)
    stored = selection.stored_type(dataset, chosen)
    base, inner = stored.subdtype or (stored, ())
    array = np.asarray(value, None if isinstance(value, np.ndarray) else base)
    assert array.shape[array.ndim - len(inner) :] == inner
    outer = array.shape[: array.ndim - len(inner)]
    selected = selected_by_numpy(dataset.shape, indices)
    values = np.zeros(selected.shape, int)
    values[...] = np.arange(math.prod(outer)).reshape(outer)
    written = np.full(dataset.size, -1)
    written[selected] = values
    mask = written.reshape(dataset.shape) >= 0
    dataset[(mask, *names)] = array.reshape(math.prod(outer), *inner)[written[written >= 0]]


def draw_value(data: st.DataObject, dataset: h5py.Dataset, chosen: Any) -> Any:
    """An array for a selection, or one that is broadcast into it, or a number."""
    indices, names = selection.split(chosen)
    selected, refusal = attempt(lambda: selection.select(dataset, dataset.shape, indices))
    if refusal is not None:
        return np.zeros(3, "f4")
    dtype = selection.field_dtype(dataset.dtype, names) if names else dataset.dtype
    dtype, inner = dtype.subdtype or (dtype, ())
    outer = selected.shape
    seed = data.draw(st.integers(0, 1000))
    numeric = dtype.kind in "iuf"
    parts = chosen if isinstance(chosen, tuple) else (chosen,)
    if numeric and not names and data.draw(st.booleans()):
        dtype = draw_number(data, dtype)
    blocks = any(isinstance(part, h5py.MultiBlockSlice) for part in parts)
    # Into blocks h5py broadcasts as if they were single elements.
    if not blocks and data.draw(st.sampled_from([False, False, True])):
        outer = outer[data.draw(st.integers(0, len(outer))) :]
        outer = tuple(data.draw(st.sampled_from([1, n])) for n in outer)
    if not blocks and data.draw(st.sampled_from([False, False, False, True])):
        outer = (1,) * (data.draw(st.integers(1, 2)) + len(selected.shape) - len(outer)) + outer
    shape = outer + inner
    if numeric and not shape and data.draw(st.booleans()):
        return data.draw(st.sampled_from([0, 7, 1.5]))
    if dtype.kind == "b":
        return np.random.default_rng(seed).random(shape) < 0.5
    if "scaleoffset" in dataset.name and dataset.dtype.kind == "f":
        # NaN, infinities and what is too large have no defined encoding there.
        return np.random.default_rng(seed).integers(-50, 50, shape).astype(dtype)
    made = contents(dtype, shape, seed) if shape else contents(dtype, (1,), seed).reshape(shape)
    if dtype.kind in "iuf":
        made = made.astype(dtype)
    return made


def test_floats_of_ml_dtypes_are_read_and_written_exactly(tmp_path: Any) -> None:
    with ps.File(tmp_path / "f.h5", "w") as file:
        for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
            kind = np.dtype(getattr(ml_dtypes, name))
            values = np.arange(256 if kind.itemsize == 1 else 1 << 16, dtype=f"u{kind.itemsize}")
            dataset = file.create(name, data=values.view(kind), chunks=(100,), compression="gzip")
            assert dataset.h5py.id.get_type().get_size() == kind.itemsize
            found = dataset.read(dtype=name)
            assert found.dtype == kind
            np.testing.assert_array_equal(found.view(values.dtype), values)
            finite = np.isfinite(values.view(kind).astype("f4"))
            if name != "float8_e4m3fn":  # whose NaN is a number to HDF5
                widened = values.view(kind).astype("f4")
                np.testing.assert_array_equal(dataset.read(dtype="f4")[finite], widened[finite])
