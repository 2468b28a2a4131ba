"""Random programs."""

from __future__ import annotations

import math
import random
from typing import Any

from . import kinds, layouts, selection
from .alone import generate as in_c
from .interfaces import interface as interface_class
from .model import HDF5S
from .parallel import generate as by_ranks
from .program import Operation, Program

RARE = (
    *("threads", "interrupts", "fork", "full", "swmr", "missing", "virtual", "external", "cancel"),
    *("records", "types", "plugins", "filters", "fills", "files", "page-buffer", "unlocked"),
    *("copy", "visit", "multi", "durable", "collective", "sources", "openings"),
    *("damaged", "orders", "exchange", "events", "errors"),
)
"""Kinds of operations that can be left out, by ``--without``."""
_CACHE = 8 << 20
"""Bytes of the longest chunk that HDF5 2.0 caches."""


class Draft:
    """A program under construction, and the probable shapes of its datasets."""

    def __init__(
        self, draw: random.Random, interface: str, device: str, without: frozenset[str]
    ) -> None:
        self.draw = draw
        self.interface = interface_class(interface)
        self.buffers_pages = interface == "driver"
        self.is_penstocks_alone = interface == "python" and draw.random() < 0.5
        """Whether HDF5 encodes no chunks: h5py only creates, opens and closes."""
        self.device = device
        self.without = without
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.kinds: dict[str, Operation] = {}
        self.operations: list[Operation] = []

    def maybe(self, probability: float, kind: str = "") -> bool:
        return self.draw.random() < probability and kind not in self.without

    def seed(self) -> int:
        return self.draw.randrange(1 << 30)


def generate(
    interface: str, seed: int, number: int, device: str, without: frozenset[str] = frozenset()
) -> Program:
    """The program of a number; the same for the same arguments."""
    if interface == "hdf5":
        return in_c.generate(seed, number, device, without)
    if interface == "mpi":
        return by_ranks.generate(seed, number, device, without)
    draw = random.Random(f"{interface} {seed} {number} {device}")
    draft = Draft(draw, interface, device, without)
    settings: dict[str, Any] = {
        "small": draw.random() < 0.3,
        "libver": draw.choice(["earliest", "latest", "v108", "v110"]),
        "implicit": draw.random() < 0.5,
        "copy": draw.choice(["auto", "always", "never"]),
        "second": draw.choice(["c", "c", "connector", "driver"]),
        "at_once": draw.choice([None, None, "0", "0", "4KiB", "1MiB"]),
        "file": _file(draft),
    }
    if draft.maybe(0.4, "openings"):
        settings["openings"] = _openings(draft)
    for _ in range(draw.choice([1, 1, 2, 3])):
        _create(draft, f"d{len(draft.shapes)}")
    for _ in range(draw.choice([4, 8, 12, 16, 24])):
        _operation(draft)
    return Program(interface, seed, number, device, settings, tuple(draft.operations))


def _file(draft: Draft) -> dict[str, Any]:
    """How the files are made and opened: their space, and whether they are locked."""
    draw = draft.draw
    made: dict[str, Any] = {}
    if draft.maybe(0.3, "files"):
        made["strategy"] = draw.choice(["aggregate", "fsm", "page", "page", "none"])
        made["persist"] = draft.maybe(0.5) and made["strategy"] != "none"
        made["userblock"] = draw.choice([0, 0, 512, 4096]) if made["strategy"] != "page" else 0
        made["width"] = draw.choice([8, 8, 4])
        if made["strategy"] == "page":
            made["page_size"] = draw.choice([512, 4096, 65536])
            if made["page_size"] == 512:
                made["persist"] = False  # HDF5 2.0 itself may not return from the close
            # HDF5 2.0 itself loses raw data of its own drivers in a page buffer.
            if draft.maybe(0.5, "page-buffer") and draft.buffers_pages:
                made["persist"] = False  # HDF5 2.0 itself writes beyond the end
                made["page_buffer"] = made["page_size"] * draw.choice([1, 4, 64])
    if draft.maybe(0.1, "unlocked"):
        made["locking"] = False
    return made


def _openings(draft: Draft) -> dict[str, Any]:
    """How the first and the second handle of a file are opened; HDF5 needs one driver for both."""
    driver = draft.maybe(0.4)
    return {
        handle: {"driver": driver, "connector": draft.maybe(0.3), "options": _options(draft, 0.2)}
        for handle in ("main", "again")
    }


def _dtype(draft: Draft) -> str:
    draw = draft.draw
    if draft.maybe(0.15, "types"):
        able = [n for n in kinds.OTHERS if "records" not in draft.without or not _fields(n)]
        return draw.choice(able)
    return draw.choice(kinds.NUMBERS)


def _fields(dtype: str) -> tuple[str, ...]:
    return kinds.dtype(dtype).names or ()


def _filters(draft: Draft, dtype: str) -> list[str]:
    """None, or one to four in any order, of which some are optional."""
    draw = draft.draw
    if draft.maybe(0.3):
        return []
    if draft.maybe(0.5) or "filters" in draft.without:
        return draw.choice([["gzip"], ["shuffle", "gzip"], ["lzf"], ["fletcher32"], ["szip"]])
    able = [*layouts.BUILT_IN, *(() if "plugins" in draft.without else layouts.PLUGINS)]
    chosen = draw.sample(able, draw.choice([1, 2, 2, 3, 4]))
    # Blosc2 fails on chunks that a checksum has made longer.
    if "Blosc2" in chosen and "fletcher32" in chosen:
        chosen.remove("fletcher32")
    # HDF5 itself keeps an old filter mask where a chunk that it writes again skips other filters
    # than before, and has the same length. It writes some members of records, and strings.
    changing = [name for name in chosen if name not in ("shuffle", "fletcher32")]
    by_hdf5 = not draft.is_penstocks_alone or not kinds.is_number(dtype)
    if len(changing) > 1 and by_hdf5:
        chosen = [name for name in chosen if name not in changing[1:]]
    elif len(changing) > 1:
        chosen = [name for name in chosen if name not in HDF5S]
    return [name + ("?" if draft.maybe(0.3) and name != "fletcher32" else "") for name in chosen]


def _operation(draft: Draft) -> None:
    draw = draft.draw
    choices = {
        _write: 34,
        _read: 30,
        _request: 14,
        _plain: 0 if draft.is_penstocks_alone else 10,
        _blocks: 2,
        _flush: 2,
        _resize: 0 if draft.is_penstocks_alone else 4,
        _again: 3,
        _handle: 3,
        _reopen: 1.5,
        _reading: 4,
        _read_many: 4,
        _virtual: 1.5 if "virtual" not in draft.without else 0,
        _source: 1.5 if "sources" not in draft.without else 0,
        _copy: 1 if "copy" not in draft.without else 0,
        _visit: 1 if "visit" not in draft.without else 0,
        _threads: 0.6 if "threads" not in draft.without else 0,
        _fork: 0.3 if "fork" not in draft.without else 0,
        _interrupts: 0.5 if "interrupts" not in draft.without else 0,
        _full: 0.1 if "full" not in draft.without else 0,
        _swmr: 0.1 if "swmr" not in draft.without else 0,
        _missing: 0.3 if "missing" not in draft.without else 0,
        _damaged: 0.4 if "damaged" not in draft.without else 0,
    }
    chosen = draw.choices(list(choices), list(choices.values()))[0]
    chosen(draft)


def _shape(draft: Draft) -> tuple[int, ...]:
    """A shape whose bytes lie around the thresholds: 128 KiB, 512 KiB, 1 MiB, 8 MiB."""
    draw = draft.draw
    size = draw.choices(
        [60, 5_000, 40_000, 150_000, 1_200_000, 9_000_000], [20, 35, 25, 15, 2, 0.1]
    )[0]
    size = max(int(size * draw.uniform(0.3, 1.2)), 2)
    rank = draw.choice([1, 2, 2, 2, 3])
    if rank == 1:
        return (size,)
    columns = max(int(size ** draw.uniform(0.2, 0.7)), 1)
    if rank == 2:
        return (max(size // columns, 1), columns)
    middle = draw.choice([1, 2, 5])
    return (max(size // (columns * middle), 1), middle, columns)


def _create(draft: Draft, name: str) -> None:
    draw = draft.draw
    shape = _shape(draft)
    dtype = _dtype(draft)
    size = math.prod(shape)
    if not kinds.is_number(dtype) and size > 60_000:
        shape = (min(shape[0], 300), *(min(length, 20) for length in shape[1:]))
        size = math.prod(shape)
    layout = draw.choices(["contiguous", "chunked", "compact", "external"], [40, 52, 3, 5])[0]
    if layout == "external" and "external" in draft.without:
        layout = "contiguous"
    if layout == "external" and kinds.dtype(dtype).hasobject:
        layout = "contiguous"
    # A string or an array of variable length takes 16 bytes of the dataset.
    if layout == "compact" and size * max(kinds.dtype(dtype).itemsize, 40) > 60_000:
        layout = "contiguous"
    made: Operation = {
        "do": "create",
        "name": name,
        "file": "main",
        "shape": list(shape),
        "dtype": dtype,
        "layout": layout,
        "fill": draw.choice([0, 7, 99]),
        "alloc": draw.choice(["early", "late", "late", "incr"]),
        "seed": draft.seed() if draft.maybe(0.7) else None,
    }
    if layout == "chunked":
        pieces = draw.choice([1, 2, 3, 5, 8] if size < 200_000 else [2, 4, 8])
        made["chunks"] = [max(1, -(-length // draw.choice([1, pieces]))) for length in shape]
        made["filters"] = _filters(draft, dtype)
        if draft.maybe(0.5):
            made["maxshape"] = [None if draft.maybe(0.7) else length * 2 for length in shape]
    if draft.maybe(0.25, "fills") and layout in ("chunked", "contiguous"):
        made["fill_time"] = draw.choice(["ifset", "alloc", "never"])
        made["fill_is"] = draw.choice(["defined", "default", "undefined"])
        if kinds.dtype(dtype).hasobject:
            made["fill_time"] = "ifset"  # HDF5 refuses others
        if made["fill_time"] == "alloc" or kinds.dtype(dtype).hasobject:
            made["fill_is"] = "default"  # HDF5 refuses that it is undefined
        elif math.prod(made.get("chunks", [0])) * kinds.dtype(dtype).itemsize > _CACHE:
            # HDF5 2.0 itself then says of a written dataset of one chunk that it has no data.
            made["fill_is"] = "default"
        elif made["fill_is"] == "undefined":
            made["seed"] = draft.seed()  # HDF5 does not read where nothing was ever written
    if draft.maybe(0.08):
        made["file"] = "other"
    draft.operations.append(made)
    draft.shapes[name] = shape
    draft.kinds[name] = made


def _name(draft: Draft) -> str:
    return draft.draw.choice(list(draft.shapes))


def _options(draft: Draft, unusual: float = 0.04) -> dict[str, Any]:
    draw = draft.draw
    options: dict[str, Any] = {}
    if draft.maybe(0.4):
        options["threads"] = draw.choice([1, 2, 3])
    if draft.maybe(0.4):
        options["block"] = draw.choice(["4KiB", "16KiB", "64KiB", "1MiB"])
    if draft.maybe(unusual):
        options["io"] = draw.choice(["uring", "mmap"])
    if draft.maybe(unusual):
        options["direct"] = "yes"
    return options


def _memory(draft: Draft) -> str:
    if draft.device != "host" and draft.maybe(1 if draft.device == "gpu" else 0.5):
        return "device"
    return draft.draw.choices(["c", "f", "step"], [70, 15, 15])[0]


def transfer(draft: Draft, do: str, name: str) -> Operation:
    """A write or a read."""
    draw = draft.draw
    made: Operation = {
        "do": do,
        "name": name,
        "select": selection.generate(draw, draft.shapes[name]),
        "waits": draft.maybe(0.35),
        "memory": _memory(draft),
        "dtype": draw.choice(kinds.NUMBERS) if draft.maybe(0.3) else None,
        "via": "again" if draft.maybe(0.25) else "main",
        "options": _options(draft),
    }
    dtype = draft.kinds[name].get("dtype", "u1")
    if not kinds.is_number(dtype):
        made["dtype"] = None
    if fields := _fields(dtype):
        chosen = sorted(draw.sample(range(len(fields)), draw.randint(1, len(fields))))
        made["fields"] = [fields[place] for place in chosen] if draft.maybe(0.5) else None
    if do == "write":
        made["seed"] = draft.seed()
        made["repeat"] = draw.choices(["no", "value", "row"], [90, 5, 5])[0]
    else:
        made["new"] = draft.maybe(0.4)
        made["way"] = draw.choice(["plain", "kept", "kept", "index"])
    if not made["waits"] and draft.maybe(0.06, "cancel"):
        made["cancel"] = draw.choice([0, 0, 1, 3])
    return made


def _write(draft: Draft) -> None:
    draft.operations.append(transfer(draft, "write", _name(draft)))


def _read(draft: Draft) -> None:
    draft.operations.append(transfer(draft, "read", _name(draft)))


def _request(draft: Draft) -> None:
    do = draft.draw.choices(["wait", "poll", "drop", "wait_all"], [5, 3, 2, 1])[0]
    draft.operations.append({"do": do, "which": draft.draw.randrange(8)})


def _plain(draft: Draft) -> None:
    name = _name(draft)
    do = draft.draw.choices(["plain_read", "plain_write", "attribute", "refresh"], [5, 5, 1, 1])[0]
    made: Operation = {"do": do, "name": name, "via": "again" if draft.maybe(0.25) else "main"}
    if do in ("plain_read", "plain_write"):
        made["select"] = selection.generate(draft.draw, draft.shapes[name])
        made["seed"] = draft.seed()
    draft.operations.append(made)


def _blocks(draft: Draft) -> None:
    name = _name(draft)
    rows = max(1, draft.shapes[name][0] // draft.draw.choice([1, 2, 5, 9]))
    draft.operations.append(
        {"do": "blocks", "name": name, "rows": rows, "leave": draft.draw.choice([0, 0, 1, 2])}
    )


def _flush(draft: Draft) -> None:
    draft.operations.append({"do": "flush"})


def _resize(draft: Draft) -> None:
    able = [name for name, kind in draft.kinds.items() if kind.get("maxshape")]
    if not able:
        return
    name = draft.draw.choice(able)
    kind = draft.kinds[name]
    shape = [
        max(1, int(length * draft.draw.choice([0.5, 1, 1, 1.3, 2])))
        for length in draft.shapes[name]
    ]
    shape = [
        min(length, most or length) for length, most in zip(shape, kind["maxshape"], strict=True)
    ]
    if math.prod(shape) > 300_000:  # HDF5 is slow where chunks are larger than its cache
        return
    made = {"do": "resize", "name": name, "shape": shape, "plain": draft.maybe(0.3)}
    draft.operations.append(made)
    draft.shapes[name] = tuple(shape)


def _again(draft: Draft) -> None:
    """Delete a dataset, and make another one of the same name."""
    name = _name(draft)
    if draft.kinds[name]["do"] != "create":
        return
    draft.operations.append({"do": "delete", "name": name, "plain": draft.maybe(0.3)})
    _create(draft, name)


def _handle(draft: Draft) -> None:
    do = draft.draw.choice(["open_again", "close_again"])
    draft.operations.append({"do": do, "mode": draft.draw.choice(["r", "r+", "r+"])})


def _reopen(draft: Draft) -> None:
    mode = draft.draw.choice(["r", "r+"])
    draft.operations.append({"do": "reopen", "mode": mode, "replace": draft.maybe(0.3)})


def _reading(draft: Draft) -> None:
    """Open the files for reading only, and read by cached dataset objects."""
    draft.operations.append({"do": "reopen", "mode": "r", "replace": draft.maybe(0.3)})
    names = draft.draw.choices(list(draft.shapes), k=2)
    for _ in range(draft.draw.choice([2, 5, 10])):
        if draft.maybe(0.25):
            _read_many(draft)
            continue
        made = transfer(draft, "read", draft.draw.choice(names))
        made["waits"] = made["waits"] or draft.maybe(0.5)
        if made["waits"]:
            made.pop("cancel", None)
        if draft.maybe(0.5):
            made["options"] = {}
        draft.operations.append(made)
    if draft.maybe(0.4):
        draft.operations.append({"do": "reopen", "mode": draft.draw.choice(["r", "r+"])})
        draft.operations.append({"do": "read_closed"})


def _read_many(draft: Draft) -> None:
    """Read pieces of several datasets as one request."""
    draw = draft.draw
    names = draw.choices(list(draft.shapes), k=draw.choice([1, 2, 3, 8]))
    parts = [{"name": n, "select": selection.generate(draw, draft.shapes[n])} for n in names]
    draft.operations.append(
        {
            "do": "read_many",
            "parts": parts,
            "by_name": draft.maybe(0.5),
            "given": draft.maybe(0.5),
            "memory": _memory(draft),
            "dtype": draw.choice(kinds.NUMBERS) if draft.maybe(0.2) else None,
            "via": "again" if draft.maybe(0.25) else "main",
            "options": _options(draft) if draft.maybe(0.3) else {},
        }
    )


def _copy(draft: Draft) -> None:
    """Copy a dataset within a file."""
    name = _name(draft)
    if draft.kinds[name]["do"] != "create" or draft.kinds[name]["layout"] == "external":
        return
    to = f"d{len(draft.shapes)}"
    draft.operations.append(
        {"do": "copy", "name": name, "to": to, "flush": draft.maybe(0.5), "plain": draft.maybe(0.3)}
    )
    draft.shapes[to] = draft.shapes[name]
    draft.kinds[to] = draft.kinds[name] | {"name": to}


def _visit(draft: Draft) -> None:
    """Visit the objects of the file, and read datasets within the visit."""
    draft.operations.append({"do": "visit", "via": "again" if draft.maybe(0.25) else "main"})


def _virtual(draft: Draft) -> None:
    """A virtual dataset over one to three different new ones of the same kind."""
    draw = draft.draw
    first = f"d{len(draft.shapes)}"
    is_alone, draft.is_penstocks_alone = draft.is_penstocks_alone, False  # HDF5 writes them
    _create(draft, first)
    draft.is_penstocks_alone = is_alone
    if not kinds.is_number(draft.kinds[first]["dtype"]):
        draft.kinds[first]["dtype"] = "<f4"
        if draft.kinds[first]["layout"] == "compact":  # whose elements may be longer now
            draft.kinds[first]["layout"] = "contiguous"
    draft.kinds[first].pop("fill_time", None)
    draft.kinds[first].pop("fill_is", None)
    sources = [first]
    for _ in range(draw.choice([0, 1, 2])):
        name = f"d{len(draft.shapes)}"
        again = dict(draft.kinds[first]) | {"name": name, "seed": draft.seed()}
        draft.operations.append(again)
        draft.shapes[name], draft.kinds[name] = draft.shapes[first], again
        sources.append(name)
    made: Operation = {"do": "virtual", "name": f"d{len(draft.shapes)}", "sources": sources}
    draft.operations.append(made)
    rows, *rest = draft.shapes[first]
    draft.shapes[made["name"]] = (rows * len(sources), *rest)
    draft.kinds[made["name"]] = made
    if draft.maybe(0.3, "sources"):
        _source(draft)


def _source(draft: Draft) -> None:
    """Give a source of a virtual dataset another shape, and read the virtual dataset."""
    draw = draft.draw
    able = [name for name, kind in draft.kinds.items() if kind["do"] == "virtual"]
    if not able:
        return
    name = draw.choice(able)
    source = draw.choice(draft.kinds[name]["sources"])
    factors = [draw.choice([0.5, 0.9, 1, 1, 1.3, 2]) for _ in draft.shapes[source]]
    shape = [max(1, int(n * f)) for n, f in zip(draft.shapes[source], factors, strict=True)]
    kind = draft.kinds[source]
    most = kind.get("maxshape")
    if most and draft.maybe(0.5):
        shape = [min(n, longest or n) for n, longest in zip(shape, most, strict=True)]
        made: Operation = {"do": "resize", "name": source, "shape": shape, "of_virtual": True}
        made["plain"] = draft.maybe(0.3)
    else:
        made = kind | {"do": "recreate", "shape": shape, "seed": draft.seed()}
        if "chunks" in kind:
            made["chunks"] = [min(n, chunk) for n, chunk in zip(shape, kind["chunks"], strict=True)]
        if most:
            made["maxshape"] = [
                longest and max(longest, n) for n, longest in zip(shape, most, strict=True)
            ]
        draft.kinds[source] = made | {"do": "create"}
    if math.prod(shape) > 300_000:
        return
    draft.operations.append(made)
    draft.shapes[source] = tuple(shape)
    for _ in range(draw.choice([1, 3])):
        draft.operations.append(transfer(draft, "read", name))


def _threads(draft: Draft) -> None:
    """Threads that each use a dataset of their own."""
    names = [name for name, kind in draft.kinds.items() if kind["do"] == "create"]
    while len(names) < draft.draw.choice([2, 4]):
        names.append(f"d{len(draft.shapes)}")
        _create(draft, names[-1])
    groups = []
    for name in names[:6]:
        own = [transfer(draft, draft.draw.choice(["write", "read"]), name) for _ in range(6)]
        for operation in own:
            if draft.maybe(0.4):
                operation["waits"] = False
        own.insert(3, {"do": "wait_all", "which": 0})
        groups.append(own)
    draft.operations.append({"do": "threads", "groups": groups})


def _fork(draft: Draft) -> None:
    draft.operations.append(
        {"do": "fork", "name": _name(draft), "uses": draft.draw.choice([True, False])}
    )


def _missing(draft: Draft) -> None:
    draft.operations.append(
        {
            "do": "missing",
            "length": draft.draw.choice([10, 5_000, 200_000, 1_500_000]),
            "memory": _memory(draft),
            "waits": draft.maybe(0.5),
        }
    )


def _damaged(draft: Draft) -> None:
    """Read several datasets at once, of which one has a damaged chunk."""
    draw = draft.draw
    parts = [
        {
            "length": draw.choice([1_000, 20_000, 200_000, 1_000_000]),
            "dtype": draw.choice(kinds.NUMBERS),
            "chunked": draft.maybe(0.5),
            "memory": _memory(draft),
            "seed": draft.seed(),
        }
        for _ in range(draw.choice([2, 3, 5]))
    ]
    draft.operations.append(
        {
            "do": "damaged",
            "parts": parts,
            "bad": draw.randrange(len(parts)),
            "chunk": draw.randrange(8),
            "by_name": draft.maybe(0.5),
            "options": _options(draft) if draft.maybe(0.5) else {},
            "pause": draw.choice([0.002, 0.02]),
        }
    )


def _interrupts(draft: Draft) -> None:
    """Operations that signals may end."""
    group: list[Operation] = []
    for _ in range(draft.draw.choice([5, 10, 20])):
        made = transfer(draft, draft.draw.choice(["write", "read"]), _name(draft))
        made.pop("cancel", None)
        group.append(made)
        if draft.maybe(0.3):
            do = draft.draw.choice(["wait", "drop"])
            group.append({"do": do, "which": draft.draw.randrange(4)})
        for each in group[-2:]:
            each["after"] = 10 ** draft.draw.uniform(-5, -2.5)
    draft.operations.append({"do": "interrupts", "groups": [group]})


def _full(draft: Draft) -> None:
    draft.operations.append(
        {
            "do": "full",
            "room": draft.draw.choice([256, 2048]),
            "chunked": draft.maybe(0.5),
            "filtered": draft.maybe(0.5),
            "memory": _memory(draft),
            "waits": draft.maybe(0.3),
            "waits_for": draft.maybe(0.5),
        }
    )


def _swmr(draft: Draft) -> None:
    draft.operations.append(
        {
            "do": "swmr",
            "rows": draft.draw.choice([4, 40, 300]),
            "columns": draft.draw.choice([3, 50]),
            "pieces": draft.draw.choice([1, 3, 20]),
            "dtype": draft.draw.choice(kinds.NUMBERS),
            "filtered": draft.maybe(0.5),
            "waits": draft.maybe(0.5),
            "seeds": [draft.seed() for _ in range(draft.draw.choice([1, 2, 4]))],
            "way": draft.draw.choice(["async", "rows", "list", "many"]),
        }
    )
