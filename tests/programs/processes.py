"""Children of fork."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .model import WrongError
from .program import Operation

if TYPE_CHECKING:
    from .machine import Machine


def fork(machine: Machine, operation: Operation) -> None:
    """A child that ends at once, or that uses the library, which has to refuse."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = _refused() if operation["uses"] and _in_use() else 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if status:
        raise WrongError(f"the child of fork ended with status {status}")


def _in_use() -> bool:
    import penstock as ps

    return ps.last_report() is not None


def _refused() -> int:
    import penstock as ps

    try:
        ps.drain()
    except ps.ForkedError:
        return 0
    return 3
