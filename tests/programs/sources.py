"""Virtual datasets whose sources get another shape than their mappings have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h5py

from . import layouts
from .interfaces.base import CancelledError
from .interrupts import HandlerError
from .model import Dataset, Expected, Virtual
from .program import Operation

if TYPE_CHECKING:
    from .machine import Machine

FAILED = object()
"""The result of a read whose error is right."""


def is_changed(model: Dataset | Virtual) -> bool:
    """Whether it maps a source of another shape. HDF5 itself then reads other elements."""
    return isinstance(model, Virtual) and not model.is_as_mapped


def tried(expected: Expected | None, call: Any, *arguments: Any) -> Any:
    """The result of a call, or ``FAILED`` after an error that is right."""
    try:
        return call(*arguments)
    except (AssertionError, CancelledError, HandlerError):
        raise
    except Exception:
        if expected is None or not expected.may_fail:
            raise
        return FAILED


def recreate(machine: Machine, operation: Operation) -> None:
    """Make a source of virtual datasets again, while no file is open."""
    name = operation["name"]
    before, model = machine.models.get(name), layouts.model(operation)
    if before is None or not machine._is_source(name):
        return
    if (before.dtype, len(before.shape)) != (model.dtype, len(model.shape)):
        return
    machine._to_write()
    machine._close_files()
    machine._settle()
    del machine.models[name]
    with h5py.File(machine.folder / f"{before.kind['file']}.h5", "r+") as file:
        del file[name]
    machine._create(operation | {"file": before.kind["file"]})
    for virtual in machine.models.values():
        if isinstance(virtual, Virtual) and name in virtual.kind["sources"]:
            virtual.replace(machine.models[name])
