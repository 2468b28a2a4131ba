"""Transfers that have to fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .doors.base import CancelledError
from .model import WrongError
from .program import Operation
from .selection import Picked
from .values import Memory

if TYPE_CHECKING:
    from .machine import Machine


def missing(machine: Machine, operation: Operation) -> None:
    """The external file of a dataset is not there: reads say so."""
    file = machine.door.h5py(machine._open("main"))
    name = f"missing{machine.count}"
    raw = machine.folder / f"{name}.raw"
    length = operation["length"]
    file.create_dataset(name, (length,), "u1", external=[(str(raw), 0, length)])
    kind = operation["memory"] if machine.door.device or operation["memory"] != "device" else "c"
    memory = Memory("c" if kind in ("f", "step") else kind, (length,), "u1")
    try:
        transfer = machine.door.read(
            machine.files["main"],
            name,
            Picked((length,), None),
            memory,
            {},
            waits=operation["waits"],
            dtype=None,
        )
        transfer.wait()
    except CancelledError as error:
        raise WrongError("a read was cancelled by nobody") from error
    except Exception:
        del file[name]
        return
    raise WrongError(f"a dataset of {length} bytes was read whose external file does not exist")
