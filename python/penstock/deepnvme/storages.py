"""The bytes of torch's storages, in the legacy format of torch.save, which is not a zip archive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from penstock import arrays, frameworks
from penstock.errors import IncompatibleError, InvalidError


def bytes_of(storages: Sequence[Any], with_lengths: bool) -> list[arrays.View]:
    """Return the bytes of storages, each after its number of elements (int64) if ``with_lengths``.

    Each item of ``storages`` is a pair of an untyped storage and torch's type of its elements.
    """
    torch = frameworks.loaded("torch")
    if torch is None:
        raise IncompatibleError("storages are torch's, and torch is not imported")
    views = []
    for untyped, dtype in storages:
        whole = torch.empty(0, dtype=torch.uint8, device=untyped.device).set_(untyped)
        if with_lengths:
            elements = whole.numel() // torch.empty(0, dtype=dtype).element_size()
            views.append(arrays.view(np.array([elements], "<i8")))
        views.append(arrays.view(whole))
    return views


def part_of(views: Sequence[arrays.View], parts: int, index: int) -> Iterator[tuple[int, int, Any]]:
    """Yield address, length and owner of each piece of one part of the views.

    The parts divide the concatenated views; their lengths differ by at most one byte.
    """
    if not 0 <= index < parts:
        raise InvalidError(f"there is no part {index} of {parts}, counted from 0")
    each, over = divmod(sum(view.nbytes for view in views), parts)
    start = each * index + min(index, over)
    end = start + each + (index < over)
    before = 0
    for view in views:
        first, last = max(start - before, 0), min(end - before, view.nbytes)
        if first < last:
            yield view.pointer + first, last - first, view
        before += view.nbytes
