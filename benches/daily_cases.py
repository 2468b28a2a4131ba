"""The cases of ``python -m benches daily``, by groups. Each is one line: what, ours, the peer's."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

import penstock as ps

Cases = Iterator["Case"]


class Case(NamedTuple):
    """The same work by Penstock and by a peer. Both return what is compared."""

    what: str
    ours: Callable[[], Any]
    peer: Callable[[], Any]
    name: str = "h5py"
    """The peer."""
    floor: float = 0.95
    """The least share of the peer's speed."""


Groups = dict[str, Callable[[Path, ExitStack], Cases]]

GROUPS: Groups = {}

_SHAPE = (2000, 256)
DOES_LESS = 0.7
"""The floor of cases in which the peer promises less: a file that is replaced at once, or an error
for elements that HDF5 buffers and cannot write."""


def group(
    name: str, groups: Groups = GROUPS
) -> Callable[[Callable[[Path, ExitStack], Cases]], Any]:
    """Register a function as the cases of a group."""

    def registered(cases: Callable[[Path, ExitStack], Cases]) -> Any:
        groups[name] = cases
        return cases

    return registered


def values(shape: tuple[int, ...] = _SHAPE, dtype: Any = "f4") -> np.ndarray[Any, Any]:
    steps = np.random.default_rng(3).integers(-3, 4, shape)
    return steps.cumsum(axis=-1).astype(dtype)


def opened(path: Path, files: ExitStack, mode: str) -> tuple[ps.File, h5py.File]:
    """Open a file by Penstock and, to change it a copy of it, by h5py."""
    theirs = path
    if mode != "r":
        theirs = path.with_suffix(".peer.h5")
        theirs.write_bytes(path.read_bytes())
    return files.enter_context(ps.File(path, mode)), files.enter_context(h5py.File(theirs, mode))


def _indexed(what: str, ours: Any, theirs: Any, part: Any) -> Case:
    """Return the case of a read by ``dataset[part]``."""
    return Case(what, partial(ours.__getitem__, part), partial(theirs.__getitem__, part))


def both(what: str, act: Callable[[Any], Any], pair: Iterable[Any], **more: Any) -> Case:
    """Return the case of the same call with Penstock's object and with the peer's."""
    return Case(what, *(partial(act, one) for one in pair), **more)


LAYOUTS: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "chunked": {"chunks": (100, 256)},
    "gzip": {"chunks": (100, 256), "compression": "gzip", "compression_opts": 1},
    "gzip, shuffle": {"chunks": (100, 256), "compression": "gzip", "shuffle": True},
    "lzf": {"chunks": (100, 256), "compression": "lzf"},
    "big-endian": {"dtype": ">f4"},
}
SELECTIONS: dict[str, Any] = {
    "one": np.s_[77, 5],
    "a row": np.s_[77],
    "10 rows": np.s_[70:80],
    "200 rows": np.s_[700:900],
    "a column": np.s_[:, 5],
    "each 7th row": np.s_[::7],
    "a box": np.s_[500:520, 10:74],
    "a list of 20 rows": (list(range(5, 2000, 100)),),
    "all": (),
}


def layouts(folder: Path) -> Path:
    path = folder / "daily-layouts.h5"
    if not path.exists():
        with h5py.File(path, "w") as file:
            for name, keys in LAYOUTS.items():
                file.create_dataset(name, data=values(), **keys)
            file.create_dataset("never written", _SHAPE, "f4", chunks=(100, 256))
            external = [(f"{path}.raw", 0, math.prod(_SHAPE) * 4)]
            file.create_dataset("external", data=values(), external=external)
    return path


@group("reads")
def _reads(folder: Path, files: ExitStack) -> Cases:
    ours, theirs = opened(layouts(folder), files, "r")
    for name, what in itertools.product((*LAYOUTS, "never written", "external"), SELECTIONS):
        yield _indexed(f"{name}, {what}", ours[name], theirs[name], SELECTIONS[what])


@group("reads of a file open for writing")
def _reads_rw(folder: Path, files: ExitStack) -> Cases:
    ours, theirs = opened(layouts(folder), files, "r+")
    for name, what in itertools.product(("contiguous", "gzip"), SELECTIONS):
        yield _indexed(f"{name}, {what}", ours[name], theirs[name], SELECTIONS[what])


@group("conversions")
def _conversions(folder: Path, files: ExitStack) -> Cases:
    ours, theirs = opened(layouts(folder), files, "r")
    for name, what in itertools.product(("contiguous", "gzip"), ("a row", "200 rows", "all")):
        a, b, part = ours[name], theirs[name], SELECTIONS[what]
        for dtype in ("f8", "i4"):
            peer = partial(lambda b, part, dtype: b.astype(dtype)[part], b, part, dtype)
            yield Case(f"{name} as {dtype}, {what}", partial(a.read, part, dtype=dtype), peer)


@group("into arrays")
def _into(folder: Path, files: ExitStack) -> Cases:
    ours, theirs = opened(layouts(folder), files, "r")
    parts = {
        "10 rows": (np.s_[70:80], np.s_[3:13]),
        "a column": (np.s_[:, 5], np.s_[:, 7]),
        "all": (np.s_[:], np.s_[:]),
    }
    for name, (what, (part, place)) in itertools.product(("contiguous", "gzip"), parts.items()):
        mine, other = np.zeros(_SHAPE, "f4"), np.zeros(_SHAPE, "f4")

        def direct(
            b: Any = theirs[name], part: Any = part, to: Any = place, out: Any = other
        ) -> Any:
            b.read_direct(out, part, to)
            return out[to]

        yield Case(f"{name}, {what}", partial(ours[name].read, part, out=mine[place]), direct)


@group("types")
def _types(folder: Path, files: ExitStack) -> Cases:
    path = folder / "daily-types.h5"
    n = 20_000
    if not path.exists():
        records = np.zeros(n, [("id", "i4"), ("x", "f8")])
        records["id"], records["x"] = np.arange(n), np.arange(n) / 7
        with h5py.File(path, "w") as file:
            file["bool"] = np.arange(n) % 3 == 0
            file["complex"] = np.arange(n) * (1 + 2j)
            file["record"] = records
            file["bytes"] = np.array([b"word%d" % (i % 99) for i in range(n)], "S8")
            file["string"] = [f"text {i}" for i in range(2000)]
            kind = h5py.enum_dtype({"a": 0, "b": 1}, "i1")
            file.create_dataset("enum", data=np.arange(n) % 2, dtype=kind)
            ragged = file.create_dataset("ragged", (2000,), h5py.vlen_dtype("f4"))
            for i in range(0, 2000, 2):
                ragged[i] = np.arange(i % 7)
            file["scalar"] = 1.5
    ours, theirs = opened(path, files, "r")
    parts = {
        "one": 77,
        "100": np.s_[100:200],
        "a list of 20": list(range(5, 2000, 100)),
        "all": (),
    }
    for name, what in itertools.product(
        ("bool", "complex", "record", "bytes", "string", "enum", "ragged"), parts
    ):
        yield _indexed(f"{name}, {what}", ours[name], theirs[name], parts[what])
    for what, part in {"a field of 100": ("x", np.s_[100:200]), "a field": ("x",)}.items():
        yield _indexed(what, ours["record"], theirs["record"], part)
    yield _indexed("scalar", ours["scalar"], theirs["scalar"], ())
    yield both("number of attributes", len, (ours["scalar"].attrs, theirs["scalar"].attrs))


@group("writes")
def _writes(folder: Path, files: ExitStack) -> Cases:
    path = folder / "daily-writes.h5"
    with h5py.File(path, "w") as file:
        for name in ("contiguous", "chunked", "gzip"):
            file.create_dataset(name, data=values(), **LAYOUTS[name])
        file["scalar"] = 1.0
        file["string"] = ["a", "b"]
    ours, theirs = opened(path, files, "r+")
    row, rows, column = values((256,)), values((10, 256)), values((2000,))
    parts = (
        ("one", np.s_[77, 5], 3.0),
        ("a row", 77, row),
        ("10 rows", np.s_[70:80], rows),
        ("a row of float64", 78, row.astype("f8")),
        ("a column", np.s_[:, 5], column),
        ("all", np.s_[:], values()),
    )
    for name, (what, part, value) in itertools.product(("contiguous", "chunked", "gzip"), parts):
        yield _written(f"{name}, {what}", (ours[name], theirs[name]), part, value)
    yield _written("scalar", (ours["scalar"], theirs["scalar"]), (), 2.5, floor=DOES_LESS)
    yield _written("string", (ours["string"], theirs["string"]), 0, "text", floor=DOES_LESS)
    for count in (1, 100):
        keys = {"maxshape": (None, 64), "chunks": (256, 64)}
        grown = [
            file.create_dataset(f"grown {count}", (0, 64), "f4", **keys) for file in (ours, theirs)
        ]

        block = values((count, 64))

        def append(dataset: Any, block: Any = block) -> None:
            begin = dataset.shape[0]
            dataset.resize(begin + len(block), 0)
            dataset[begin:] = block

        yield both(f"append {count} rows", append, grown)

    def flush(file: Any) -> None:
        file["contiguous"][77] = row
        file.flush()

    yield both("a row, and flush", flush, (ours, theirs))


def _written(what: str, pair: Iterable[Any], part: Any, value: Any, **more: Any) -> Case:
    """Return the case of ``dataset[part] = value``."""
    return Case(what, *(partial(one.__setitem__, part, value) for one in pair), **more)


@group("creating")
def _creating(folder: Path, files: ExitStack) -> Cases:
    names = map(str, itertools.count())
    ours = files.enter_context(ps.File(folder / "daily-new.h5", "w"))
    theirs = files.enter_context(h5py.File(folder / "daily-new.peer.h5", "w"))

    def create(file: Any, **keys: Any) -> None:
        file.create_dataset(next(names), **keys)

    def assign(file: Any, value: Any) -> None:
        file[next(names)] = value

    for what, keys in {
        "a dataset of 256 B": {"data": values((64,))},
        "a gzip dataset of 8 KB": {"data": values((2000,)), "compression": "gzip"},
        "an empty dataset": {"shape": (1000,), "dtype": "f4"},
    }.items():
        yield both(what, partial(create, **keys), (ours, theirs), floor=DOES_LESS)
    yield both("f[name] = 1", partial(assign, value=1), (ours, theirs), floor=DOES_LESS)
    pair = ((ps.File, folder / "daily-a.h5"), (h5py.File, folder / "daily-b.h5"))
    for size in (64, 64 << 10, 1 << 20, 4 << 20):
        zeros = np.zeros(size // 4, "f4")

        def new(one: Any, zeros: Any = zeros) -> None:
            kind, path = one
            with kind(path, "w") as file:
                file.create_dataset("x", data=zeros)

        yield both(f"a file of {size} bytes", new, pair, floor=DOES_LESS)


@group("opening")
def _opening(folder: Path, files: ExitStack) -> Cases:
    path = folder / "daily-open.h5"
    if not path.exists():
        with h5py.File(path, "w") as file:
            file["x"] = np.arange(10.0)
            file.attrs["k"] = "v"
            for number in range(500):
                file[f"g/{number}"] = np.arange(1000.0)

    def with_file(kind: Any, what: Callable[[Any], Any]) -> Any:
        with kind(path, "r") as file:
            return what(file)

    for name, what in {
        "open, an attribute": lambda f: f.attrs["k"],
        "open, a small dataset": lambda f: f["x"][...],
        "open, 500 datasets of 8 KB": lambda f: [f["g"][str(i)][...] for i in range(500)][-1],
        "open, list a group": lambda f: len(list(f["g"])),
    }.items():
        yield both(name, partial(with_file, what=what), (ps.File, h5py.File))
    whole = partial(with_file, h5py.File, lambda f: f["x"][...])
    yield Case('ps.read("f.h5:x")', partial(ps.read, f"{path}:x"), whole)
    ours, theirs = opened(layouts(folder), files, "r")
    a, b = ours["gzip"], theirs["gzip"]
    yield Case("f[name]", partial(lambda f: f["gzip"].shape, ours), lambda: theirs["gzip"].shape)
    for name in ("shape", "dtype", "chunks", "compression", "is_virtual", "name"):
        yield Case(f"dataset.{name}", partial(getattr, a, name), partial(getattr, b, name))


@group("many")
def _many(folder: Path, files: ExitStack) -> Cases:
    ours, theirs = opened(layouts(folder), files, "r")
    numbers = np.random.default_rng(4).permutation(_SHAPE[0])[:100].tolist()
    for name in ("contiguous", "chunked", "gzip"):
        wanted = [(name, number) for number in numbers]
        b = theirs[name]
        peer = partial(lambda b: [b[number] for number in numbers], b)
        yield Case(f"read_many of 100 rows, {name}", partial(ours.read_many, wanted), peer)
    path = folder / "daily-virtual.h5"
    if not path.exists():
        layout = h5py.VirtualLayout((100, 64), "f4")
        for number in range(100):
            source = folder / f"daily-source{number}.h5"
            with h5py.File(source, "w") as file:
                file["x"] = values((64,)) + number
            layout[number] = h5py.VirtualSource(source, "x", (64,))
        with h5py.File(path, "w") as file:
            file.create_virtual_dataset("x", layout)
    mine, other = opened(path, files, "r")
    for what, part in {"all": (), "a row": 50}.items():
        yield _indexed(f"virtual dataset of 100 sources, {what}", mine["x"], other["x"], part)


@group("plain files")
def _plain(folder: Path, files: ExitStack) -> Cases:
    path, copy = folder / "daily.bin", folder / "daily-saved.bin"

    def readinto(out: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        with open(path, "rb", buffering=0) as file:
            file.readinto(out)
        return out

    def replace(numbers: np.ndarray[Any, Any]) -> None:
        with open(f"{copy}.new", "wb", buffering=0) as file:
            file.write(numbers)
        os.replace(f"{copy}.new", copy)

    for size in (4 << 10, 64 << 10, 1 << 20, 16 << 20):
        numbers = np.arange(size // 4, dtype="f4")
        numbers.tofile(path)
        keys = {"dtype": "f4", "shape": len(numbers), "device": "cpu"}
        fromfile = partial(np.fromfile, path, "f4")
        yield Case(f"load {size}", partial(ps.load, path, **keys), fromfile, "NumPy")
        mine, other = np.empty_like(numbers), np.empty_like(numbers)
        into = partial(ps.load, path, out=mine)
        yield Case(f"load, out, {size}", into, partial(readinto, other), "readinto")
        saved = partial(ps.save, copy, numbers)
        yield Case(f"save {size}", saved, partial(replace, numbers), "write, rename", DOES_LESS)
    offsets = [(number * 8192, 1024, "f4") for number in range(500)]
    file = files.enter_context(path.open("rb", buffering=0))

    def pread() -> list[Any]:
        read = partial(os.pread, file.fileno())
        return [np.frombuffer(read(4096, offset), "f4") for offset, _, _ in offsets]

    yield Case("load_many of 500 x 4 KiB", partial(ps.load_many, path, offsets), pread, "pread")


@group("safetensors")
def _safetensors(folder: Path, files: ExitStack) -> Cases:
    try:
        import safetensors
        import safetensors.torch as theirs
        import torch
    except ImportError:
        return
    from penstock.torch import safetensors as ours

    path, copy = folder / "daily.safetensors", folder / "daily-saved.safetensors"
    tensors = {f"layer.{number}.weight": torch.arange(1024.0) + number for number in range(8)}
    theirs.save_file(tensors, path)
    name = "layer.3.weight"

    def with_file(module: Any, framework: str, what: Callable[[Any], Any]) -> Any:
        with module.safe_open(path, framework) as file:
            return what(file)

    calls = {
        "keys": lambda file: sorted(file.keys()),
        "one tensor of 4 KiB": lambda file: file.get_tensor(name),
    }
    peer = {"name": "safetensors"}
    for framework, (what, call) in itertools.product(("np", "pt"), calls.items()):
        act = partial(with_file, framework=framework, what=call)
        yield both(f"open, {what}, {framework}", act, (ours, safetensors), **peer)
    loads = (partial(module.load_file, path) for module in (ours, theirs))
    yield Case("load_file of 8 x 4 KiB", *loads, **peer)
    saves = (partial(module.save_file, tensors, copy) for module in (ours, theirs))
    yield Case("save_file of 8 x 4 KiB", *saves, floor=DOES_LESS, **peer)
    many = folder / "daily-many.safetensors"
    names = [f"tensor.{number}" for number in range(5000)]
    theirs.save_file({name: torch.full((16,), 1.0) for name in names}, many)
    for framework in ("np", "pt"):
        pair = [files.enter_context(it.safe_open(many, framework)) for it in (ours, safetensors)]
        yield both(
            f"get_tensor of 5,000 x 64 B, {framework}",
            lambda file: [file.get_tensor(name) for name in names][-1],
            pair,
            **peer,
        )


@group("samples for torch")
def _samples(folder: Path, files: ExitStack) -> Cases:
    try:
        import torch
    except ImportError:
        return
    from penstock.torch import HDF5Dataset

    path = layouts(folder)
    numbers = np.random.default_rng(4).permutation(_SHAPE[0])[:32].tolist()
    file = files.enter_context(h5py.File(path))
    for name in ("contiguous", "chunked", "gzip"):
        ours, theirs = HDF5Dataset(path, {"x": name}, device="cpu"), file[name]

        def mine(ours: Any = ours) -> Any:
            return torch.utils.data.default_collate(ours.__getitems__(numbers))

        def sample(number: int, theirs: Any = theirs) -> dict[str, Any]:
            return {"x": torch.from_numpy(theirs[number])}

        def batch(sample: Any = sample) -> dict[str, Any]:
            return torch.utils.data.default_collate([sample(number) for number in numbers])

        yield Case(f"{name}, dataset[i]", partial(ours.__getitem__, 77), partial(sample, 77))
        yield Case(f"{name}, batch of 32", mine, batch)
