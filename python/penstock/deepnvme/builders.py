"""DeepSpeed's builders of operators. They build nothing: the operators are in this package."""

from __future__ import annotations

from types import ModuleType

from penstock.deepnvme import aio, gds, pinned
from penstock.machine import devices


class _Builder:
    NAME: str
    _module: ModuleType

    def is_compatible(self, verbose: bool = False) -> bool:
        """Whether the operator works on this machine."""
        return True

    def load(self, verbose: bool = True) -> ModuleType:
        """Return the module with the operator's handle."""
        return self._module


class AsyncIOBuilder(_Builder):
    """The builder of :class:`penstock.deepnvme.aio_handle`.

    >>> handle = AsyncIOBuilder().load().aio_handle(1 << 20, 128, False, False, 8)
    """

    NAME = "async_io"
    _module = aio


class GDSBuilder(_Builder):
    """The builder of :class:`penstock.deepnvme.gds_handle`.

    >>> handle = GDSBuilder().load().gds_handle(1 << 20, 128, False, False, 8)
    """

    NAME = "gds"
    _module = gds

    def is_compatible(self, verbose: bool = False) -> bool:
        """Whether there is a GPU. GPUDirect Storage is not required."""
        return bool(devices())


class PinMemoryBuilder(_Builder):
    """The builder of :class:`penstock.deepnvme.pin_handle`.

    >>> handle = PinMemoryBuilder().load().pin_handle()
    """

    NAME = "pin_memory"
    _module = pinned
