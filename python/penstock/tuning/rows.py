"""The kinds of transfers that a profile distinguishes, and the settings to try for each."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.tuning.search import Setting, Space

KIB, MIB = 1 << 10, 1 << 20

SMALL_SIZES = (64 * KIB, MIB, 4 * MIB)
"""Small transfers are measured at these sizes, and compared by the geometric mean of the rates."""
LARGE_FROM = 64 * MIB
"""The least bytes of a large transfer; the engine uses the same threshold."""


@dataclass(frozen=True)
class Row:
    """One kind of transfer: a row of a profile."""

    operation: str
    """"read" or "write"."""
    size: str
    """"small" or "large"."""
    place: str
    """"cache": reads of cached files, and writes that end in the page cache. "storage": reads of
    files that are not cached, and writes with durable=yes."""

    @property
    def name(self) -> str:
        """The kind of transfer in words, for tables."""
        words = {
            ("read", "cache"): "read, cached",
            ("read", "storage"): "read, not cached",
            ("write", "cache"): "write",
            ("write", "storage"): "write, durable",
        }
        return f"{self.size} {words[self.operation, self.place]}"

    @property
    def weight(self) -> float:
        """Its share of the time: large reads matter most, and have the most settings."""
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
    """Return a setting in the syntax of PENSTOCK_OPTIONS."""
    return ";".join(f"{key}={value}" for key, value in setting)


def in_words(setting: Setting) -> str:
    """Return a setting in words, for tables."""
    return ", ".join(f"{key} {value}" for key, value in setting) or "default"


def space(row: Row, *, on_gpu: bool, cores: int, gds: bool, uring: bool, direct: bool) -> Space:
    """Return the settings to try for a kind of transfer.

    Args:
        row: The kind of transfer.
        on_gpu: Whether the memory is on a GPU.
        cores: Cores that a process may use.
        gds: Whether cuFile starts and accepts files here.
        uring: Whether io_uring is available.
        direct: Whether the file system supports direct I/O.
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
    """Return the values of ``direct`` to try, which matters only if the bytes are on the medium."""
    if row.place == "cache" or route == "mapped":
        return [{}]
    return [{"direct": "no"}, {"direct": "yes"}] if direct else [{"direct": "no"}]


def _up_to(counts: tuple[int, ...], cores: int) -> tuple[str, ...]:
    """Return the thread counts up to twice the cores: more cannot help threads that wait."""
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
