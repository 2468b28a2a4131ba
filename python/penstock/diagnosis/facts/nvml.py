"""Facts that only NVIDIA's management library (NVML) has, by a few calls through ctypes.

Names and numbers are those of ``nvml.h``, which are stable across releases.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import Any

from penstock.diagnosis.system import System

_SUCCESS = 0


class _Bar1(ctypes.Structure):
    """``nvmlBAR1Memory_t``, in bytes."""

    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


def query(bus_ids: Iterable[str], system: System) -> dict[str, dict[str, Any]]:
    """Return persistence mode, size of BAR1, and generation and width of the link by PCI bus id.

    Unknown values are left out. Without the library, or if ``system`` reads another tree than the
    machine's, the result is empty.
    """
    wanted = list(bus_ids)
    if not wanted or str(system.root) != "/":
        return {}
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        if library.nvmlInit_v2() != _SUCCESS:
            return {}
    except (OSError, AttributeError):
        return {}
    try:
        return {bus_id: facts for bus_id in wanted if (facts := _device(library, bus_id))}
    finally:
        library.nvmlShutdown()


def _device(library: Any, bus_id: str) -> dict[str, Any]:
    handle = ctypes.c_void_p()
    by_bus_id = getattr(library, "nvmlDeviceGetHandleByPciBusId_v2", None)
    if by_bus_id is None or by_bus_id(bus_id.encode(), ctypes.byref(handle)) != _SUCCESS:
        return {}

    def ask(call: str, place: Any, value: Callable[[Any], Any]) -> Any:
        function = getattr(library, call, None)
        if function is None or function(handle, ctypes.byref(place)) != _SUCCESS:
            return None
        return value(place)

    def number(call: str) -> Any:
        return ask(call, ctypes.c_uint(), lambda place: place.value)

    persistence = number("nvmlDeviceGetPersistenceMode")
    facts = {
        "persistence": None if persistence is None else bool(persistence),
        "bar1_bytes": ask("nvmlDeviceGetBAR1MemoryInfo", _Bar1(), lambda place: place.total),
        "generation": number("nvmlDeviceGetCurrPcieLinkGeneration"),
        "width": number("nvmlDeviceGetCurrPcieLinkWidth"),
        "max_generation": number("nvmlDeviceGetMaxPcieLinkGeneration"),
        "max_width": number("nvmlDeviceGetMaxPcieLinkWidth"),
    }
    return {key: value for key, value in facts.items() if value is not None}
