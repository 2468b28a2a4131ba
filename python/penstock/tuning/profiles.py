"""The profile files: where they are, what they contain, and their removal.

The engine reads them (``crates/engine/src/profile``); docs/how-to/tuning.md describes their format.
The engine supplies the identifiers of machine, mount and GPU, so that it finds what is written
here.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import penstock as ps
from penstock import text_file
from penstock.errors import UnavailableError

_MOST = 1 << 20
"""The largest profile in bytes; the engine has the same limit."""


@dataclass(frozen=True)
class Slot:
    """The place of one device's profile, and the profile's state."""

    device: int
    """The CUDA ordinal, -1 for host memory."""
    gpu: dict[str, Any] | None
    path: Path
    state: str
    """"none", "used" or "ignored"."""
    reason: str
    """Why it is ignored."""

    @property
    def name(self) -> str:
        """The device in words."""
        if self.gpu is None:
            return "host memory"
        return f"cuda:{self.device}, {self.gpu['name']}, {self.gpu['pci_bus_id']}"

    def contents(self) -> dict[str, Any] | None:
        """Return the profile, used or not; ``None`` if it cannot be read or shown as JSON."""
        try:
            if not self.path.is_file() or self.path.stat().st_size > _MOST:
                return None
            found = json.loads(self.path.read_text("utf-8"))
            json.dumps(found, indent=2, allow_nan=False)
        except (OSError, ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None


@dataclass(frozen=True)
class Store:
    """The profiles of one file system."""

    folder: Path
    is_off: bool
    """Whether PENSTOCK_PROFILE=off is set."""
    prefix: str
    """The prefix of the names of its profiles."""
    tuning: dict[str, Any]
    """The engine's description of it."""

    @classmethod
    def of(cls, path: Path) -> Store:
        """Return the store for the file system of a path.

        Raises:
            UnavailableError: There is no configuration folder, or the mount is unknown.
        """
        tuning = ps.describe(path)["tuning"]
        if tuning["folder"] is None:
            raise UnavailableError(
                "there is no configuration folder for profiles",
                remedy="set HOME, XDG_CONFIG_HOME or PENSTOCK_PROFILE_DIR",
            )
        if "\ufffd" in tuning["folder"]:
            raise UnavailableError(
                f"the name of the configuration folder {tuning['folder']} is not UTF-8",
                remedy="set PENSTOCK_PROFILE_DIR to another folder",
            )
        if tuning["file_system"] is None:
            raise UnavailableError(
                f"the system does not show which mount {path} is on",
                remedy="mount /proc here; a chroot must be at a mount point",
            )
        return cls(Path(tuning["folder"]), tuning["off"], f"{tuning['name']}-", tuning)

    def slots(self) -> list[Slot]:
        """Return the slots of host memory and of each GPU of this machine."""
        return [
            Slot(
                found["device"],
                found["gpu"],
                Path(found["path"]),
                found["state"],
                found["reason"] or "",
            )
            for found in self.tuning["profiles"]
        ]

    def slot(self, device: int) -> Slot:
        """Return the slot of one device."""
        return next(slot for slot in self.slots() if slot.device == device)

    def files(self) -> list[Path]:
        """Return all profiles, including those of GPUs that are no longer present."""
        if not self.folder.is_dir():
            return []
        return sorted(
            path
            for path in self.folder.iterdir()
            if path.name.startswith(self.prefix) and path.suffix == ".json"
        )

    def require_writable(self) -> None:
        """Raise an ``UnavailableError`` now if a profile could not be written later."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
        except OSError as error:
            is_other = isinstance(error, FileExistsError)
            raise UnavailableError(
                f"no profile can be kept in {self.folder}: "
                f"{'it is not a folder' if is_other else error.strerror}",
                remedy="set PENSTOCK_PROFILE_DIR to a folder that can be written",
            ) from None

    def keep(self, slot: Slot, rows: Sequence[dict[str, Any]], together: Sequence[str]) -> Path:
        """Replace the profile of a device atomically, and return its path."""
        profile = {
            "format": self.tuning["format"],
            "penstock": ps.__version__,
            "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "machine": self.tuning["machine"],
            "file_system": self.tuning["file_system"],
            "gpu": slot.gpu,
            "together": list(together),
            "rows": list(rows),
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        text_file.replace(slot.path, json.dumps(profile, indent=2) + "\n")
        return slot.path

    def clear(self) -> list[Path]:
        """Remove all profiles of the file system.

        Returns:
            The paths that were removed.
        """
        found = self.files()
        for path in found:
            path.unlink(missing_ok=True)
        return found
