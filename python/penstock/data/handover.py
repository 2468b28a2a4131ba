"""Batches in GPU memory that torch makes on a stream of their own."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from importlib import import_module
from typing import Any


def hand_over(stream: Any, tensors: Iterable[Any], steps: deque[Any], most: int) -> None:
    """Let torch's current stream use the tensors of a batch after the work on ``stream``.

    ``steps`` has an event after the work that was queued on each of the last batches. Their memory
    is in use until then, so the program may be no more than ``most`` steps ahead, at least one.
    """
    current = import_module("torch").cuda.current_stream(stream.device)
    steps.append(current.record_event())
    if len(steps) > max(most, 1):
        steps.popleft().synchronize()
    current.wait_stream(stream)
    for tensor in tensors:
        if tensor.is_cuda:
            tensor.record_stream(current)
