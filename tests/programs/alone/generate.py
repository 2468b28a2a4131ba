"""Random programs of HDF5 calls: see `program.c` for what each of them does."""

from __future__ import annotations

import random
from typing import Any

from ..program import Operation, Program
from . import FILTERS, FLOATS, NUMBERS

_TYPES = NUMBERS + 12
_WITH_TEXT = (NUMBERS + 3, NUMBERS + 11)
"""Types with parts of variable length."""
_SLOTS = 8


def generate(seed: int, number: int, device: str, without: frozenset[str]) -> Program:
    draw = random.Random(f"hdf5 {seed} {number} {device}")
    strategy = draw.choice(["fsm"] * 5 + ["aggregate", "page", "none"])
    file: dict[str, Any] = {"strategy": "fsm" if "files" in without else strategy}
    if file["strategy"] == "page":
        if draw.random() < 0.4 and "page-buffer" not in without:
            file["page_buffer"] = draw.choice([4096, 16384, 262144])
    elif draw.random() < 0.2:
        file["userblock"] = 512
    connector = [f"small={draw.choice(['0', '0', '0', '4KiB', '64KiB'])}"]
    connector += ["implicit=1"] if draw.random() < 0.4 else []
    connector += [f"copy={draw.choice(['auto', 'always', 'never'])}"]
    driver = draw.choice(["", "", "threads=2", "block=4KiB", "durable=yes"])
    if driver == "durable=yes" and "durable" in without:
        driver = ""
    settings = {
        "libver": draw.choice(["earliest", "latest"]),
        "file": file,
        "connector": connector,
        "driver": driver,
        "device_driver": draw.random() < 0.5,
    }
    draft = _Draft(draw, without)
    for _ in range(draw.choice([2, 3, 5])):
        draft.create()
    for _ in range(draw.choice([10, 20, 40, 60])):
        draft.operation()
    return Program("hdf5", seed, number, device, settings, tuple(draft.operations))


class _Draft:
    def __init__(self, draw: random.Random, without: frozenset[str]) -> None:
        self.draw = draw
        self.without = without
        self.operations: list[Operation] = []
        self.made: dict[int, Operation] = {}

    def create(self) -> None:
        draw = self.draw
        free = [slot for slot in range(_SLOTS) if slot not in self.made]
        if not free:
            return
        kind = draw.randrange(NUMBERS if draw.random() < 0.6 else _TYPES)
        if "types" in self.without or ("records" in self.without and NUMBERS <= kind < NUMBERS + 4):
            kind %= NUMBERS
        rank = draw.choice([1, 2, 2, 3])
        longest = {1: 6_000, 2: 80, 3: 18}[rank]
        shape = [draw.randint(1, longest if draw.random() < 0.7 else 12) for _ in range(rank)]
        layout = draw.choices(["contiguous", "chunked", "compact"], [4, 6, 0.5])[0]
        has_text = kind in _WITH_TEXT
        fill_time = draw.choice(["ifset"] * 4 + ["alloc", "never"])
        fill_is = draw.choice(["default", "default", "defined", "defined", "undefined"])
        if has_text or "fills" in self.without:
            fill_time, fill_is = "ifset", "default"
        if fill_time == "alloc" and fill_is == "undefined":
            fill_is = "default"
        count = draw.choice([0, 0, 1, 2, 3]) if layout == "chunked" else 0
        made = {
            "do": "create",
            "slot": draw.choice(free),
            "file": int(draw.random() < 0.2),
            "type": kind,
            "layout": layout if layout != "compact" or rank == 3 or kind < FLOATS else "contiguous",
            "shape": [min(n, 12) for n in shape] if layout == "compact" else shape,
            "chunks": [max(1, n // draw.choice([1, 2, 3, 7])) for n in shape],
            "maxshape": draw.choice([0, 1, 1, 2, 7]) if layout == "chunked" else 0,
            "alloc": draw.choice(["default", "early", "late", "incr"]),
            "fill_time": fill_time,
            "fill_is": fill_is,
            # HDF5 itself cannot read back what N-bit has packed after other filters.
            "filters": sorted(draw.sample(list(FILTERS), count), key=lambda name: name != "nbit"),
        }
        if made["layout"] == "contiguous" and made["alloc"] == "incr":
            made["alloc"] = "late"
        if made["layout"] == "compact":
            made["alloc"] = "default"
        is_written = fill_time == "alloc" or (fill_is == "defined" and kind < NUMBERS)
        # HDF5 writes the default fill value only to chunks that it allocates one by one.
        is_one_by_one = made["alloc"] in ("default", "incr") or made["filters"]
        is_written |= (made["layout"] == "chunked" and bool(is_one_by_one)) or has_text
        if fill_time == "never" or fill_is == "undefined" or not is_written:
            # Storage that is allocated and not written has any bytes, which cannot be compared.
            made |= {"whole": True, "maxshape": 0}
            made["alloc"] = "default" if made["layout"] == "compact" else "late"
        self.operations.append(made)
        self.made[made["slot"]] = made

    def _add(self, do: str, *numbers: int) -> None:
        self.operations.append({"do": do, "numbers": list(numbers)})

    def operation(self) -> None:
        choices = {
            self.write: 30,
            self.read: 30,
            self.wait: 8,
            self.extend: 5,
            self.copy: 2 if "copy" not in self.without else 0,
            self.attribute: 4,
            self.visit: 3 if "visit" not in self.without else 0,
            self.flush: 3,
            self.reopen: 1.5,
            self.delete: 1,
            self.create: 3,
        }
        self.draw.choices(list(choices), list(choices.values()))[0]()

    def _slot(self) -> int:
        return self.draw.choice(list(self.made)) if self.made else 0

    def _move(self, do: str) -> None:
        draw = self.draw
        several = draw.random() < 0.2 and "multi" not in self.without
        slots = list(self.made) or [0]
        chosen = draw.sample(slots, min(len(slots), draw.choice([2, 3, 4]))) if several else None
        home: int | None = None
        parts = []
        for slot in chosen or [self._slot()]:
            # H5Dread_multi takes datasets of one file.
            of = self.made[slot]["file"] if slot in self.made else 0
            home = of if home is None else home
            if of == home:
                parts.append(self._part(slot, do))
        in_background = draw.randint(1, 3) if draw.random() < 0.5 else 0
        self.operations.append({"do": do, "set": in_background, "parts": parts})

    def _part(self, slot: int, do: str) -> dict[str, Any]:
        draw = self.draw
        boxes = []
        for _ in range(3):
            start = draw.choice([0, 0, draw.randrange(1000)])
            boxes.append([start, draw.choice([1000, draw.randint(start, 1000)]), 1])
            if draw.random() < 0.15:
                boxes[-1][2] = draw.choice([2, 3])
        kind = draw.choices(["all", "box", "points"], [30, 60, 10])[0]
        dtype = draw.randrange(2 * NUMBERS) if draw.random() < 0.3 else -1
        if do == "write" and slot in self.made and self.made[slot].get("whole"):
            kind = "all"
            if self.made[slot]["type"] >= NUMBERS:
                dtype = -1  # all members of records
        return {
            "slot": slot,
            "dtype": dtype,
            "device": int(draw.random() < 0.5),
            "seed": draw.randrange(1 << 20),
            "select": None if kind == "all" else {"kind": kind, "parts": boxes},
        }

    def write(self) -> None:
        self._move("write")

    def read(self) -> None:
        self._move("read")

    def wait(self) -> None:
        self._add("wait", self.draw.randrange(3))

    def extend(self) -> None:
        able = [slot for slot, made in self.made.items() if made["maxshape"]]
        if not able:
            return
        slot = self.draw.choice(able)
        made = self.made[slot]
        factor = [
            self.draw.choice([0.5, 1, 1.5, 2]) if made["maxshape"] & (1 << axis) else 1
            for axis in range(len(made["shape"]))
        ]
        shape = [max(1, int(n * f)) for n, f in zip(made["shape"], factor, strict=True)]
        # HDF5 (1.14.4, 2.2.0) leaves zeros in a chunk at the end where the fill value belongs, and
        # old bytes of the file if it allocates all chunks for a write of all elements.
        sides = [
            *zip(made["shape"], made["chunks"], strict=True),
            *zip(shape, made["chunks"], strict=True),
        ]
        has_fault = made["fill_is"] == "defined" or made["alloc"] in ("early", "late")
        if has_fault and any(size % chunk for size, chunk in sides):
            return
        if len(shape) and all(n < 100_000 for n in shape):
            self._add("extend", slot, *shape, *[1] * (3 - len(shape)))

    def copy(self) -> None:
        free = [slot for slot in range(_SLOTS) if slot not in self.made]
        if free and self.made:
            slot, to, file = self._slot(), self.draw.choice(free), self.draw.randrange(2)
            made = self.made[slot]
            if made["type"] in _WITH_TEXT and made["filters"]:
                return  # HDF5 1.14.4 writes beyond its memory, also alone
            self._add("copy", slot, to, file)
            self.made[to] = made | {"slot": to, "file": file}

    def attribute(self) -> None:
        self._add("attribute", self._slot(), self.draw.randrange(1000))

    def visit(self) -> None:
        self._add(self.draw.choice(["visit", "iterate"]), self.draw.randrange(2))

    def flush(self) -> None:
        self._add("flush", self.draw.randrange(2))

    def reopen(self) -> None:
        self._add("reopen")

    def delete(self) -> None:
        if len(self.made) > 1:
            slot = self._slot()
            self._add("delete", slot)
            del self.made[slot]
