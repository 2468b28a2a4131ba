"""Each program shows one behaviour of operations that go on after their call."""

from __future__ import annotations

from pathlib import Path

import pytest

SOURCES = sorted((Path(__file__).parent / "async").glob("*.c"))


def kinds_of_memory(source: Path) -> list[str]:
    """Where the buffers of a program may be: only on the host if it asks for no other memory."""
    return ["host", "device"] if "new_memory" in source.read_text() else ["host"]


CASES = [(source, memory) for source in SOURCES for memory in kinds_of_memory(source)]


@pytest.mark.parametrize(
    ("source", "memory"), CASES, ids=[f"{source.stem}-{memory}" for source, memory in CASES]
)
def test_behaviour(source, memory, run_connected):
    run_connected(source, PENSTOCK_TEST_MEMORY=memory)
