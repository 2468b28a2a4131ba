"""What is tuned: the kinds of transfers that a profile tells apart, and settings for each."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.tuning.search import Setting, Space

KIB, MIB = 1 << 10, 1 << 20

SMALL_SIZES = (64 * KIB, MIB, 4 * MIB)
"""Small transfers are measured at these sizes, and judged by the geometric mean of the rates."""
LARGE_FROM = 64 * MIB
"""Large transfers have at least so many bytes; the engine draws the line at the same size."""


@dataclass(frozen=True)
class Row:
    """One kind of transfer: a row of a profile."""

    operation: str
    """"read" or "write"."""
    size: str
    """"small" or "large"."""
    place: str
    """"cache": reads of cached files, and writes that are done when the cache has them. "storage":
    reads of files that are not cached, and writes with durable=yes."""

    @property
    def name(self) -> str:
        """A few words for tables."""
        words = {
            ("read", "cache"): "read, cached",
            ("read", "storage"): "read, not cached",
            ("write", "cache"): "write",
            ("write", "storage"): "write, durable",
        }
        return f"{self.size} {words[self.operation, self.place]}"

    @property
    def weight(self) -> float:
        """Its part of the budget: large reads matter most, and have most to choose from."""
        if self.size == "small":
            return 1.0
        return 3.0 if self.operation == "read" else 2.0


# Writes come last: they change the file.
ROWS = tuple(
    Row(operation, size, place)
    for operation in ("read", "write")
    for size in ("large", "small")
    for place in ("cache", "storage")
)


def text(setting: Setting) -> str:
    """A setting as PENSTOCK_OPTIONS has it."""
    return ";".join(f"{key}={value}" for key, value in setting)


def in_words(setting: Setting) -> str:
    """A setting for a table."""
    return ", ".join(f"{key} {value}" for key, value in setting) or "default"


def space(row: Row, *, on_gpu: bool, cores: int, gds: bool, uring: bool, direct: bool) -> Space:
    """The settings that may be best for a kind of transfer.

    Args:
        row: The kind.
        on_gpu: Whether the memory is a GPU's.
        cores: Cores that a process may use.
        gds: Whether cuFile starts and takes files here.
        uring: Whether io_uring is to be had.
        direct: Whether the file system has direct I/O.
    """
    ways: list[tuple[Setting, list[str]]] = []
    for route in _routes(row, on_gpu, gds):
        named = {} if route == "host" else {"route": route}
        axes = ["threads", "block"]
        for past_cache in _direct(row, direct, route):
            way = tuple(sorted({**named, **past_cache}.items()))
            ways.append((way, [*axes, "slots"] if route == "staged" else axes))
            if uring and row.place == "storage" and route in ("host", "staged"):
                ways.append((tuple(sorted((*way, ("io", "uring")))), [*axes, "queue_depth"]))
    small = row.size == "small"
    return Space(
        ways=ways,
        axes={
            "threads": _up_to((1, 2, 3, 4) if small else (1, 2, 4, 6, 8, 10, 12, 16, 24), cores),
            "block": _sizes(64 * KIB, 4 * MIB) if small else _sizes(256 * KIB, 32 * MIB),
            "slots": ("2", "3", "4", "6"),
            "queue_depth": ("2", "4", "8", "16", "32"),
        },
        starts=_starts(small, cores),
    )


def _routes(row: Row, on_gpu: bool, gds: bool) -> list[str]:
    if not on_gpu:
        return ["host"]
    routes = ["staged"]
    if row.operation == "read" and row.place == "cache":
        routes.append("mapped")
    return [*routes, "gds"] if gds else routes


def _direct(row: Row, direct: bool, route: str) -> list[dict[str, str]]:
    """Past the page cache or through it: a question only where the medium has the bytes."""
    if row.place == "cache" or route == "mapped":
        return [{}]
    return [{"direct": "no"}, {"direct": "yes"}] if direct else [{"direct": "no"}]


def _up_to(counts: tuple[int, ...], cores: int) -> tuple[str, ...]:
    """More threads than cores pay at most where they wait: twice as many."""
    return tuple(str(count) for count in counts if count <= max(2 * cores, 2))


def _sizes(low: int, high: int) -> tuple[str, ...]:
    sizes = []
    while low <= high:
        sizes.append(f"{low // MIB}MiB" if low >= MIB else f"{low // KIB}KiB")
        low *= 2
    return tuple(sizes)


def _starts(small: bool, cores: int) -> list[dict[str, str]]:
    other = {"slots": "2", "queue_depth": "8"}
    if small:
        return [{"threads": "1", "block": "1MiB", **other}]
    places = [(1, "4MiB"), (4, "4MiB"), (8, "4MiB"), (8, "1MiB")]
    return [
        {"threads": str(count), "block": block, **other}
        for count, block in places
        if count <= max(2 * cores, 2)
    ]
