"""What `penstock bench memory` advises by the figures of a run."""

from __future__ import annotations

import pytest

from penstock.bench.advice import of_memory
from penstock.bench.cells import Cell, Measurement


def _seen(memory: str, opened: str, seconds: float) -> Measurement:
    cell = Cell(memory, opened, "POSIX", "write", 1 << 20, "")
    return Measurement(cell, 1 << 30, opening=[0.0], moving=[seconds], closing=[0.0])


@pytest.mark.parametrize("seconds", [1.0, 1.004])
def test_nothing_is_called_slower_that_is_as_fast(seconds: float) -> None:
    found = [_seen("mmap", "buffered", 1.0), _seen("mmap", "direct", seconds)]
    found.append(_seen("malloc", "buffered", seconds))
    words = of_memory(found)
    assert any("buffered and direct are equally fast" in sentence for sentence in words)
    assert any("the kind of allocation makes no difference" in sentence for sentence in words)
    assert not any("slower" in sentence for sentence in words)


def test_what_is_slower_is_called_so() -> None:
    words = of_memory([_seen("mmap", "buffered", 1.0), _seen("mmap", "direct", 1.01)])
    assert any("direct is 1.01 times slower" in sentence for sentence in words)
