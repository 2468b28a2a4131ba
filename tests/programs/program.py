"""Programs as data: what can be printed, stored, shortened and run again."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

Operation = dict[str, Any]


@dataclass(frozen=True)
class Program:
    """Operations, with all that they need to be run again."""

    interface: str
    seed: int
    number: int
    device: str
    settings: dict[str, Any] = field(default_factory=dict)
    operations: tuple[Operation, ...] = ()

    @property
    def title(self) -> str:
        return (
            f"--interface {self.interface} --device {self.device} "
            f"--seed {self.seed} --only {self.number}"
        )

    def with_operations(self, operations: Any) -> Program:
        return replace(self, operations=tuple(operations))

    def to_json(self) -> str:
        return json.dumps(vars(self) | {"operations": list(self.operations)})

    @classmethod
    def from_json(cls, text: str) -> Program:
        found = json.loads(text)
        return cls(**(found | {"operations": tuple(found["operations"])}))

    def listing(self) -> str:
        """One operation a line, each a line of JSON: a file of it is a program again."""
        head = {key: value for key, value in vars(self).items() if key != "operations"}
        return "\n".join(json.dumps(line) for line in [head, *self.operations])

    @classmethod
    def from_listing(cls, text: str) -> Program:
        head, *operations = (json.loads(line) for line in text.splitlines() if line.strip())
        if "door" in head:  # the key of older listings
            head["interface"] = head.pop("door")
        return cls(**head, operations=tuple(operations))


def count_operations(operations: Any) -> int:
    """How many operations there are, those inside of others counted."""
    return sum(
        1 + sum(map(count_operations, operation.get("groups", ()))) for operation in operations
    )
