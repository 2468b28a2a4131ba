"""The kinds of transfers that a profile distinguishes, and the settings to try for each."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.tuning.race import Setting

KIB, MIB = 1 << 10, 1 << 20

SMALL_SIZES = (64 * KIB, MIB, 4 * MIB)
"""Small transfers are measured at these sizes, and compared by the geometric mean of the rates."""
LARGE_FROM = 64 * MIB
"""The least bytes of a large transfer; the engine uses the same threshold."""
_WORDS = {
    ("read", "cache"): "read, cached",
    ("read", "storage"): "read, not cached",
    ("write", "cache"): "write",
    ("write", "storage"): "write, durable",
}


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
        return f"{self.size} {_WORDS[self.operation, self.place]}"

    @property
    def weight(self) -> float:
        """Its share of the time: large reads matter most."""
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


def grid(
    row: Row, *, on_gpu: bool, cores: int, gds: bool, uring: bool, direct: bool
) -> list[Setting]:
    """Return the settings to try for a kind of transfer, around the defaults.

    Args:
        row: The kind of transfer.
        on_gpu: Whether the memory is on a GPU.
        cores: Cores that a process may use.
        gds: Whether cuFile starts and accepts files here.
        uring: Whether io_uring is available.
        direct: Whether the file system supports direct I/O.
    """
    is_small, is_cached = row.size == "small", row.place == "cache"
    ways = [{"route": "staged", "slots": "2"} if on_gpu else {}]
    if on_gpu and row.operation == "read" and is_cached:
        ways.append({"route": "mapped"})
    if on_gpu and gds:
        ways.append({"route": "gds"})
    if not is_cached:
        # Which matters only if the bytes are on the medium.
        past = ("no", "yes") if direct else ("no",)
        ring = {"io": "uring", "queue_depth": "8", "direct": past[-1]}
        ring |= {"route": "staged"} if on_gpu else {}
        ways = [way | {"direct": word} for way in ways for word in past] + [ring] * uring
    counts = (1, 2, 4) if is_small else (1, 2, 4, 8, 12, 16) if is_cached else (1, 2, 4, 8)
    # More than twice the cores cannot help threads that wait.
    threads = [str(count) for count in counts if count <= max(2 * cores, 2)][-4:]
    blocks = ("1MiB", "4MiB") if is_small else ("512KiB", "1MiB", "4MiB")
    return [
        tuple(sorted({**way, "threads": count, "block": block}.items()))
        for way in ways
        for count in threads
        for block in blocks
    ]
