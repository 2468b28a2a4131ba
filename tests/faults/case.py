"""A case: a load or a save of some size, with a fault in one of its system calls."""

from __future__ import annotations

import errno
import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

ACTIONS = {"none": 0, "fail": 1, "short": 2, "kill before": 3, "kill after": 4}

# The errors that each call can have in reality.
_ALWAYS = ("EIO", "EINTR")
_ERRORS = {
    "open": (*_ALWAYS, "EACCES", "ENOSPC", "EMFILE"),
    "openfolder": (*_ALWAYS, "EACCES", "EMFILE"),
    "openpath": (*_ALWAYS, "EACCES", "EMFILE"),
    "faccessat": (*_ALWAYS, "EACCES"),
    "tmpfile": (*_ALWAYS, "EACCES", "ENOSPC", "EMFILE", "EISDIR"),
    "pwrite": (*_ALWAYS, "ENOSPC", "EDQUOT"),
    "fallocate": (*_ALWAYS, "ENOSPC", "EDQUOT", "EOPNOTSUPP"),
    "fsync": (*_ALWAYS, "ENOSPC", "EINVAL"),
    "fdatasync": (*_ALWAYS, "ENOSPC", "EDQUOT"),
    "syncfs": (*_ALWAYS, "ENOSPC"),
    "fchmod": (*_ALWAYS, "EPERM"),
    "fchown": (*_ALWAYS, "EDQUOT"),
    "flock": (*_ALWAYS, "ENOLCK"),
    "linkat": (*_ALWAYS, "ENOSPC", "EPERM"),
    "rename": (*_ALWAYS, "ENOSPC", "EACCES"),
    "opendir": (*_ALWAYS, "EACCES"),
}


@dataclass(frozen=True)
class Fault:
    """The n-th call of a name (from 1), and its fault."""

    call: str = ""
    occurrence: int = 0
    action: str = "none"
    error: str = "OK"

    @property
    def code(self) -> int:
        return 0 if self.error == "OK" else int(getattr(errno, self.error))

    @property
    def kills(self) -> bool:
        return self.action.startswith("kill")


@dataclass(frozen=True)
class Case:
    operation: str = "save"  # or "load"
    size: int = 0
    shift: int = 0  # of the array in its memory, and of the range in the file of a load
    old: int | None = None  # length of the target before, if there is one
    mode: int = 0o644  # of the target before
    umask: int = 0o022
    waited: bool = True  # save and load, not save_async and load_async
    durable: bool = False
    direct: str = "auto"
    threads: int = 1
    block: str | None = None
    unnamed: bool = True  # whether the file system makes files without names
    leftover: bool = False  # whether a dead process left a hidden file
    fault: Fault = Fault()

    def text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Case:
        values = json.loads(text)
        return cls(**{**values, "fault": Fault(**values["fault"])})

    def options(self) -> dict[str, object]:
        chosen: dict[str, object] = {"io": "threads", "direct": self.direct}
        chosen["threads"] = self.threads
        if self.block is not None:
            chosen["block"] = self.block
        if self.operation == "save":
            chosen["durable"] = self.durable
        return chosen


def scenario(rng: random.Random) -> Case:
    """A case without a fault."""
    kind = rng.choices(["0", "1", "small", "middle", "large", "huge"], [2, 2, 6, 4, 4, 0.15])[0]
    size = {
        "0": lambda: 0,
        "1": lambda: 1,
        "small": lambda: rng.choice([rng.randint(2, 10_000), 4096, 8192]),
        "middle": lambda: rng.randint(10_000, 512 << 10),
        "large": lambda: rng.randint((512 << 10) + 1, 4 << 20),
        "huge": lambda: rng.randint((64 << 20) + 1, (64 << 20) + (3 << 20)),
    }[kind]()
    return Case(
        operation=rng.choices(["save", "load"], [4, 1])[0],
        size=size,
        shift=rng.choice([0, 0, 1, 512, 4096]),
        old=rng.choice([None, 0, 1, 5000, rng.randint(0, 300_000)]),
        mode=rng.choice([0o600, 0o644, 0o640, 0o666, 0o200, 0o777]),
        umask=rng.choice([0o022, 0o077, 0o027, 0]),
        waited=rng.random() < 0.6,
        durable=rng.random() < 0.5,
        direct=rng.choice(["auto", "no", "yes"]),
        threads=rng.choice([1, 1, 2, 4]),
        # A call a block: few enough blocks for all calls to be tried.
        block=rng.choice([None, "64KiB"]) if size <= 512 << 10 else rng.choice([None, "1MiB"]),
        unnamed=rng.random() < 0.6,
        leftover=rng.random() < 0.3,
    )


def faulty(case: Case, calls: list[str]) -> Iterator[Case]:
    """The case with each fault of each call that it makes, in turn."""
    seen: dict[str, int] = {}
    for call in calls:
        seen[call] = seen.get(call, 0) + 1
        faults = [("fail", error) for error in _ERRORS.get(call, _ALWAYS)]
        if call in ("pread", "pwrite"):
            faults.append(("short", "OK"))
        if case.operation == "save":
            faults += [("kill before", "OK"), ("kill after", "OK")]
        for action, error in faults:
            yield replace(case, fault=Fault(call, seen[call], action, error))


def simpler(case: Case) -> Iterator[Case]:
    """Cases that are simpler than this one, each in one property."""
    plain = Case()
    for name in ("leftover", "waited", "threads", "block", "direct", "durable", "shift", "umask"):
        if getattr(case, name) != getattr(plain, name):
            yield replace(case, **{name: getattr(plain, name)})
    if not case.unnamed:
        yield replace(case, unnamed=True)
    if case.mode != 0o600:
        yield replace(case, mode=0o600)
    for old in (None, 1):
        if case.old not in (None, old):
            yield replace(case, old=old)
    for size in (0, 1, 4096, 100_000, 1 << 20):
        if size < case.size:
            yield replace(case, size=size)
    if case.fault.occurrence > 1:
        fault = replace(case.fault, occurrence=case.fault.occurrence - 1)
        yield replace(case, fault=fault)
