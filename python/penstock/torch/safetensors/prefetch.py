"""Tensors of one request, handed out as their bytes arrive."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from penstock.request_group import RequestGroup
from penstock.torch.safetensors.errors import WeightsError
from penstock.torch.safetensors.frameworks import Framework
from penstock.torch.safetensors.layout import AnyPart
from penstock.torch.safetensors.opened import Reading, WeightsFile

_POLL = 1e-4
"""Seconds between two looks at what has arrived."""


class PrefetchLoader:
    """Tensors that are being read. Each is handed out once, and is ready on any stream then.

    The tensors are parts of one allocation, which is freed with the last of them.
    """

    def __init__(
        self,
        file: WeightsFile,
        parts: Sequence[AnyPart],
        framework: Framework,
        threads: int | None,
        others: Mapping[str, Callable[[], Any]],
    ) -> None:
        self._numbers = {part.name: number for number, part in enumerate(parts)}
        self._ends = list(itertools.accumulate(part.nbytes for part in parts))
        self._others = others
        self._unread = len(parts)
        self._is_closed = False
        self._left = dict.fromkeys([*self._numbers, *others])
        self._reading: Reading | None = Reading(file, parts, framework).start(threads)
        self._reads = RequestGroup([self._reading])

    def names(self) -> list[str]:
        """Return the names of all tensors in the order in which they are handed out."""
        return [*self._numbers, *self._others]

    def __len__(self) -> int:
        return len(self._numbers) + len(self._others)

    def take(self, name: str) -> Any:
        """Return a tensor, after waiting for its bytes.

        Raises:
            WeightsError: The plan does not have it, or it has been taken.
        """
        if name not in self._numbers and name not in self._others:
            raise WeightsError(f"tensor {name!r} is not in the plan")
        if name not in self._left:
            raise WeightsError(f"tensor {name!r} was taken before")
        if self._is_closed:
            raise WeightsError(f"tensor {name!r} cannot be taken: the loader is closed")
        if name in self._others:
            tensor = self._others[name]()
        else:
            assert self._reading is not None
            number = self._numbers[name]
            self._wait(self._ends[number if self._unread > 1 else -1])
            tensor = self._reading.tensor(number)
            self._unread -= 1
            if not self._unread:
                self._reading = None  # the memory is freed with the tensors
        del self._left[name]
        return tensor

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        for name in list(self._left):
            if name in self._left:
                yield name, self.take(name)

    def _wait(self, arrived: int) -> None:
        """Wait until as many bytes have arrived, in the order of the file."""
        if not self._reads:
            return
        made = self._reads.first.request
        while made is not None and arrived < self._ends[-1] and not made.done():
            if made.arrived() >= arrived:
                return
            time.sleep(_POLL)
        try:
            self._reads.next()
        except BaseException:
            self._is_closed, self._reading = True, None  # no tensor is complete
            raise

    def close(self) -> None:
        """Stop reading, and release the tensors that were not taken."""
        self._is_closed, self._reading = True, None
        self._reads.stop()

    def __enter__(self) -> PrefetchLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
