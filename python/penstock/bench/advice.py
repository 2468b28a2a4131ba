"""Advice from the figures of one run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.units import size_in_words

from .cells import Measurement

_ENOUGH = 0.9
"""The share of the best rate that a smaller transfer must reach to be recommended."""
_EQUAL = 1.005
"""The ratio of two rates below which it is shown as 1.00."""
_DIRECT_PATHS = ("gds, p2p", "gds, nvfs")


def of_memory(found: Sequence[Measurement]) -> list[str]:
    """Return which memory, mode and size to use. Cached and cold reads are never compared."""
    words: list[str] = []
    measured = [seen for seen in found if seen.rate is not None]
    for access, cache in dict.fromkeys((seen.cell.access, seen.cell.cache) for seen in measured):
        for on_gpu in (False, True):
            cells = [
                seen
                for seen in measured
                if (seen.cell.access, seen.cell.cache) == (access, cache)
                and _is_on_gpu(seen) == on_gpu
            ]
            if cells:
                where = "GPU" if on_gpu else "host"
                kind = {"warm": "cached ", "cold": "cold "}.get(cache, "")
                words += _of(f"{kind}{access}s of {where} memory", cells)
    words += _of_cufile(found)
    return words


def _is_on_gpu(seen: Measurement) -> bool:
    return seen.cell.memory in ("cudaMalloc", "cudaMallocManaged")


def _of(what: str, cells: list[Measurement]) -> Iterator[str]:
    best = max(cells, key=_rate)
    cell = best.cell
    yield (
        f"Advice, {what}: {cell.memory} and {cell.opened} by {cell.api} were "
        f"fastest, {_rate(best) / 1e9:.2f} GB/s in transfers of {size_in_words(cell.transfer)} "
        f"({best.path})."
    )
    yield from _by_mode(what, best, cells)
    yield from _by_memory(what, best, cells)
    yield from _by_size(what, best, cells)


def _by_mode(what: str, best: Measurement, cells: list[Measurement]) -> Iterator[str]:
    others = [seen for seen in cells if seen.cell.opened != best.cell.opened]
    if not others:
        return
    other = max(others, key=_rate)
    ratio = _rate(best) / _rate(other)
    if ratio < _EQUAL:
        yield f"Advice, {what}: {best.cell.opened} and {other.cell.opened} are equally fast."
    elif _overlap(best, other):
        yield (
            f"Advice, {what}: {best.cell.opened} and {other.cell.opened} differ "
            f"by no more than their spread ({ratio:.2f}x)."
        )
    else:
        yield (
            f"Advice, {what}: open {best.cell.opened}; {other.cell.opened} is "
            f"{ratio:.2f} times slower at its best."
        )


def _by_memory(what: str, best: Measurement, cells: list[Measurement]) -> Iterator[str]:
    """Compare with the slowest kind of memory, all else being equal to the best."""
    cell = best.cell
    alike = [
        seen
        for seen in cells
        if seen is not best
        and (seen.cell.opened, seen.cell.api, seen.cell.transfer, seen.cell.cache)
        == (cell.opened, cell.api, cell.transfer, cell.cache)
    ]
    if not alike:
        return
    worst = min(alike, key=_rate)
    ratio = _rate(best) / _rate(worst)
    if ratio < _EQUAL or _overlap(best, worst):
        yield f"Advice, {what}: the kind of allocation makes no difference here."
    else:
        yield (
            f"Advice, {what}: {worst.cell.memory} is slowest, "
            f"{ratio:.2f} times slower than {cell.memory}."
        )


def _by_size(what: str, best: Measurement, cells: list[Measurement]) -> Iterator[str]:
    cell = best.cell
    alike = sorted(
        (
            seen
            for seen in cells
            if (seen.cell.memory, seen.cell.opened, seen.cell.api, seen.cell.cache)
            == (cell.memory, cell.opened, cell.api, cell.cache)
        ),
        key=lambda seen: seen.cell.transfer,
    )
    enough = next(seen for seen in alike if _rate(seen) >= _ENOUGH * _rate(best))
    if len(alike) > 1:
        yield (
            f"Advice, {what}: transfers of "
            f"{size_in_words(enough.cell.transfer)} reach {_rate(enough) / _rate(best):.0%} of the "
            "best rate."
        )


def _of_cufile(found: Sequence[Measurement]) -> Iterator[str]:
    """Report whether storage and GPU exchanged data directly, and with which memory."""
    cells = [seen for seen in found if seen.cell.api == "CUFILE" and seen.rate is not None]
    if not cells:
        return
    direct = {seen.cell.memory for seen in cells if seen.path in _DIRECT_PATHS}
    if direct:
        others = sorted({seen.cell.memory for seen in cells} - direct)
        yield (
            f"Advice: GPUDirect Storage carried the bytes of {', '.join(sorted(direct))}"
            + (f", not those of {', '.join(others)}." if others else ".")
        )
    else:
        yield (
            "Advice: GPUDirect Storage served no kind of memory: cuFile carried all bytes through "
            "host memory. Leave the route to Penstock unless the table says otherwise."
        )


def _rate(seen: Measurement) -> float:
    return seen.rate or 0.0


def _overlap(one: Measurement, other: Measurement) -> bool:
    return min(one.rates) <= max(other.rates) and min(other.rates) <= max(one.rates)
