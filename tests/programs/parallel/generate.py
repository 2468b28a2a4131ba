"""Random programs of HDF5 calls by MPI ranks: see `program.c` for what each of them does."""

from __future__ import annotations

import random
from math import prod
from typing import Any

from ..alone import NUMBERS
from ..program import Operation, Program

_TYPES = NUMBERS + 6
_SLOTS = 8
_SAME_IN_MEMORY = (0, 1, 4, 6, 8, 10, 12, 14, 16, 18)
"""Types of files that need no conversion: HDF5 writes filtered datasets in parallel without one."""
_FILTERS = [[], [], [], ["gzip"], ["shuffle", "gzip"]]
_KINDS = {"nothing": 0, "box": 1, "points": 2, "corners": 3, "all": 4}


def generate(seed: int, number: int, device: str, without: frozenset[str]) -> Program:
    draw = random.Random(f"mpi {seed} {number} {device}")
    connector, second = _options(draw), _options(draw)
    connector += ["implicit=1"] if draw.random() < 0.4 else []
    collective = draw.choice(["", "", "auto", "engine", "hdf5"])
    if collective and "collective" not in without:
        connector.append(f"collective={collective}")
    settings = {
        "ranks": draw.choice([2, 3, 3, 4]),
        "libver": draw.choice(["earliest", "latest"]),
        "reads": int(draw.random() < 0.4),
        "writes": int(draw.random() < 0.4),
        "connector": connector,
        "second": second,
    }
    draft = _Draft(draw, without, settings["ranks"])
    for _ in range(draw.choice([2, 3, 5])):
        draft.create()
    for _ in range(draw.choice([10, 20, 40])):
        draft.operation()
    return Program("mpi", seed, number, device, settings, tuple(draft.operations))


def _options(draw: random.Random) -> list[str]:
    """Options of the connector for one opening."""
    made = [f"small={draw.choice(['0', '0', '0', '4KiB'])}"]
    made += [f"copy={draw.choice(['auto', 'always', 'never'])}"]
    made += ["direct=yes"] if draw.random() < 0.2 else []
    made += [f"io={draw.choice(['uring', 'mmap'])}"] if draw.random() < 0.3 else []
    made += [f"threads={draw.choice([1, 2, 3])}"] if draw.random() < 0.3 else []
    return made + (["block=4KiB"] if draw.random() < 0.2 else [])


class _Draft:
    def __init__(self, draw: random.Random, without: frozenset[str], ranks: int) -> None:
        self.draw = draw
        self.without = without
        self.ranks = ranks
        self.operations: list[Operation] = []
        self.made: dict[int, Operation] = {}

    def create(self) -> None:
        draw = self.draw
        free = [slot for slot in range(_SLOTS) if slot not in self.made]
        if not free:
            return
        kind = draw.randrange(NUMBERS if draw.random() < 0.7 else _TYPES)
        if (
            "types" in self.without or kind == NUMBERS + 3
        ):  # variable-length text cannot be written in parallel
            kind %= NUMBERS
        rank = draw.choice([1, 2, 2, 3])
        # Transfers of some megabytes are still under way when the next ones begin.
        is_long = draw.random() < 0.15
        longest = ({1: 400_000, 2: 600, 3: 70} if is_long else {1: 6_000, 2: 80, 3: 18})[rank]
        shape = [draw.randint(1, longest if draw.random() < 0.8 else 12) for _ in range(rank)]
        layout = draw.choices(["contiguous", "chunked", "compact"], [4, 6, 0.4])[0]
        fill_time = draw.choice(["ifset"] * 4 + ["alloc", "never", "never"])
        fill_is = draw.choice(["default", "default", "defined", "defined", "undefined"])
        if "fills" in self.without:
            fill_time, fill_is = "ifset", "default"
        if fill_time == "alloc" and fill_is == "undefined":
            fill_is = "default"
        filters = draw.choice(_FILTERS) if layout == "chunked" else []
        if "filters" in self.without:
            filters = []
        if filters:
            kind = draw.choice(_SAME_IN_MEMORY)
        is_written = fill_time == "alloc" or (fill_is == "defined" and kind < NUMBERS)
        is_written |= layout != "contiguous"
        made = {
            "do": "create",
            "slot": draw.choice(free),
            "file": int(draw.random() < 0.2),
            "type": kind,
            "layout": layout,
            "shape": [min(n, 12) for n in shape] if layout == "compact" else shape,
            "chunks": [max(1, n // draw.choice([1, 2, 3, 7])) for n in shape],
            "maxshape": draw.choice([0, 1, 1, 2, 7]) if layout == "chunked" else 0,
            "alloc": "default",
            "fill_time": fill_time,
            "fill_is": fill_is,
            # Storage that is allocated and not written has any bytes, which cannot be compared.
            "whole": fill_time == "never" or fill_is == "undefined" or not is_written,
            "filters": filters,
        }
        if made["whole"] or layout == "compact":
            made["maxshape"] = 0
        self.operations.append(made)
        self.made[made["slot"]] = made

    def _add(self, do: str, *numbers: int) -> None:
        self.operations.append({"do": do, "numbers": list(numbers)})

    def operation(self) -> None:
        choices = {
            self.write: 30,
            self.read: 25,
            self.epoch: 10,
            self.wait: 6,
            self.turns: 2 if "orders" not in self.without else 0,
            self.exchange: 5 if "exchange" not in self.without else 0,
            self.again: 2 if "openings" not in self.without else 0,
            self.extend: 5,
            self.attribute: 4,
            self.visit: 2 if "visit" not in self.without else 0,
            self.flush: 4,
            self.reopen: 3,
            self.delete: 1.5,
            self.create: 4,
        }
        self.draw.choices(list(choices), list(choices.values()))[0]()

    def _slot(self) -> int:
        return self.draw.choice(list(self.made)) if self.made else 0

    def _number(self) -> int:
        return self.draw.randrange(1 << 20)

    def _move(self, do: str, collective: bool = False) -> Operation:
        draw = self.draw
        slots = [self._slot()]
        if self.made and draw.random() < 0.2 and "multi" not in self.without:
            file = self.made[slots[0]]["file"]
            able = [
                slot
                for slot, made in self.made.items()
                if made["file"] == file and not made["filters"]
            ]
            slots = draw.sample(able, min(len(able), draw.choice([2, 3, 4]))) or slots
        converts = draw.random() < 0.3
        part_of_all = draw.choice([0.9, 0.9, 0.5])
        in_background = draw.randint(1, 3) if draw.random() < 0.6 else 0
        differ = draw.random() < 0.3 and "events" not in self.without
        everyone = (1 << self.ranks) - 1
        fails = draw.choice([1 << draw.randrange(self.ranks), everyone])
        made = {
            "do": do,
            "collective": int(collective or draw.random() < 0.5),
            "fails": fails if draw.random() < 0.05 and "errors" not in self.without else 0,
            "slots": slots,
            "dtype": draw.randrange(2 * NUMBERS) if converts else -1,
            "ranks": [
                [
                    int(draw.random() < part_of_all),
                    draw.randint(0, 3) if differ else in_background,
                    int(draw.random() < 0.5),
                    [self._part(converts) for _ in slots],
                ]
                for _ in range(self.ranks)
            ],
        }
        self.operations.append(made)
        return made

    def _part(self, converts: bool) -> dict[str, Any]:
        draw = self.draw
        boxes = []
        for _ in range(3):
            start = draw.choice([0, 0, draw.randrange(1000)])
            boxes.append([start, draw.choice([1000, draw.randint(start, 1000)]), 1])
            if draw.random() < 0.15:
                boxes[-1][2] = draw.choice([2, 3])
        return {
            "dtype": draw.randrange(2 * NUMBERS) if converts else -1,
            "device": int(draw.random() < 0.5),
            "seed": self._number(),
            "kind": draw.choices(list(_KINDS.values()), [5, 50, 8, 8, 30])[0],
            "box": boxes,
        }

    def write(self) -> None:
        self._move("write")

    def read(self) -> None:
        self._move("read")

    def epoch(self) -> None:
        self._add("epoch", self._number())

    def turns(self) -> None:
        self._add("turns", self._number())

    def exchange(self) -> None:
        """Collective transfers of one dataset, between which the ranks exchange their parts."""
        draw = self.draw
        able = [slot for slot, made in self.made.items() if not made["filters"]]
        if not able:
            return
        if draw.random() < 0.5:
            self.epoch()
        slot = max(draw.sample(able, min(2, len(able))), key=lambda n: prod(self.made[n]["shape"]))
        for step in range(draw.choice([2, 2, 3])):
            if step:
                self._add("exchange", self._number())
            made = self._move(draw.choice(["write", "write", "write", "read"]), collective=True)
            made["slots"] = [slot]
            whole = draw.random() < 0.6
            for rank in made["ranks"]:
                del rank[-1][1:]
                if whole:
                    rank[0], rank[-1][0]["kind"] = 1, _KINDS["all"]

    def again(self) -> None:
        """Open a file a second time, and transfer by both openings."""
        self._add("again", self.draw.randrange(2), self.draw.randrange(3))
        for _ in range(self.draw.choice([2, 4])):
            made = self._move(self.draw.choice(["write", "write", "read"]))
            made["collective"] = 0

    def wait(self) -> None:
        self._add("wait", self.draw.randrange(3), self.draw.randrange(1 << self.ranks))

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
        self._add("extend", slot, *shape, *[1] * (3 - len(shape)))

    def attribute(self) -> None:
        self._add("attribute", self._slot(), self.draw.randrange(1000))

    def visit(self) -> None:
        self._add("visit")

    def flush(self) -> None:
        self._add("flush", self.draw.randrange(2))

    def reopen(self) -> None:
        in_background = self.draw.choice([0, 1, 2, 3])
        self._add("reopen", int(self.draw.random() < 0.4), in_background, self._number())

    def delete(self) -> None:
        if len(self.made) > 1:
            slot = self._slot()
            self._add("delete", slot)
            del self.made[slot]
