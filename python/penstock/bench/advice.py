"""Advice from the figures of one run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from penstock.units import size_in_words

from .cells import Measurement

_ENOUGH = 0.9
"""The share of the best rate that a smaller transfer must reach to be recommended."""
_EQUAL = 1.005
"""The ratio of two rates below which it is shown as 1.00."""
_DIRECT_PATHS = ("gds, p2p", "gds, nvfs")


def of_memory(found: Sequence[Measurement]) -> list[str]:
    """Return which memory, mode and size to use. Cached and cold reads are never compared."""
    measured = [seen for seen in found if seen.rate is not None]
    groups: dict[str, list[Measurement]] = {}
    for seen in measured:
        cell = seen.cell
        where = "GPU" if cell.memory in ("cudaMalloc", "cudaMallocManaged") else "host"
        kind = {"warm": "cached ", "cold": "cold "}.get(cell.cache, "")
        groups.setdefault(f"{kind}{cell.access}s of {where} memory", []).append(seen)
    words = [f"Advice, {what}: {said}" for what, cells in groups.items() for said in _of(cells)]
    return [*words, *_of_cufile(measured)]


def _of(cells: list[Measurement]) -> Iterator[str]:
    best = max(cells, key=_rate)
    cell = best.cell
    yield (
        f"{cell.memory} and {cell.opened} by {cell.api} were fastest, {_rate(best) / 1e9:.2f} GB/s "
        f"in transfers of {size_in_words(cell.transfer)} ({best.path})."
    )
    if others := [seen for seen in cells if seen.cell.opened != cell.opened]:
        other = max(others, key=_rate)
        ratio, both = _rate(best) / _rate(other), f"{cell.opened} and {other.cell.opened}"
        if ratio < _EQUAL:
            yield f"{both} are equally fast."
        elif _overlap(best, other):
            yield f"{both} differ by no more than their spread ({ratio:.2f}x)."
        else:
            slower = other.cell.opened
            yield f"open {cell.opened}; {slower} is {ratio:.2f} times slower at its best."
    # Those that differ in one thing only.
    kinds = [s for s in cells if s is not best and replace(s.cell, memory=cell.memory) == cell]
    if kinds:
        worst = min(kinds, key=_rate)
        ratio, kind = _rate(best) / _rate(worst), worst.cell.memory
        if ratio < _EQUAL or _overlap(best, worst):
            yield "the kind of allocation makes no difference here."
        else:
            yield f"{kind} is slowest, {ratio:.2f} times slower than {cell.memory}."
    sizes = [s for s in cells if replace(s.cell, transfer=cell.transfer) == cell]
    enough = min(
        (s for s in sizes if _rate(s) >= _ENOUGH * _rate(best)), key=lambda s: s.cell.transfer
    )
    if len(sizes) > 1:
        length, share = size_in_words(enough.cell.transfer), _rate(enough) / _rate(best)
        yield f"transfers of {length} reach {share:.0%} of the best rate."


def _of_cufile(measured: Sequence[Measurement]) -> Iterator[str]:
    """Report whether storage and GPU exchanged data directly, and with which memory."""
    cells = [seen for seen in measured if seen.cell.api == "CUFILE"]
    if direct := {seen.cell.memory for seen in cells if seen.path in _DIRECT_PATHS}:
        others = sorted({seen.cell.memory for seen in cells} - direct)
        but = f", not those of {', '.join(others)}" if others else ""
        yield f"Advice: GPUDirect Storage carried the bytes of {', '.join(sorted(direct))}{but}."
    elif cells:
        yield (
            "Advice: GPUDirect Storage served no kind of memory: cuFile carried all bytes through "
            "host memory. Leave the route to Penstock unless the table says otherwise."
        )


def _rate(seen: Measurement) -> float:
    return seen.rate or 0.0


def _overlap(one: Measurement, other: Measurement) -> bool:
    return min(one.rates) <= max(other.rates) and min(other.rates) <= max(one.rates)
