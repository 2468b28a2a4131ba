"""Binds a rank to its GPUs, cores and memory, and becomes the command.

The line of `penstock run --launcher` runs it on every rank: ``python -m penstock.cli.bind --gpu=0/1
--cpu=0-15/16-31 --mem=0/1 -- COMMAND``, with an item for each rank of a node. ``--gpu-places`` in
place of ``--gpu`` counts the GPUs that the rank finds in ``CUDA_VISIBLE_DEVICES``, from 0.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from penstock.cli import launch
from penstock.dist.launched import Launched


class CannotBindError(Exception):
    """The rank is unknown, or has no item."""


def bound(words: list[str], environment: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return the command of this rank, behind numactl if it is bound, and its environment."""
    if "--" not in words[:-1]:
        raise CannotBindError("there is no command after --")
    at = words.index("--")
    wanted = dict(environment)
    numactl = []
    for word in words[:at]:
        name, _, text = word.partition("=")
        item = _own(text.split("/"), environment)
        if name == "--gpu":
            wanted["CUDA_VISIBLE_DEVICES"] = item
        elif name == "--gpu-places":
            wanted["CUDA_VISIBLE_DEVICES"] = _among(item, environment.get("CUDA_VISIBLE_DEVICES"))
        elif name == "--cpu":
            numactl.append(f"--physcpubind={item}")
        elif name == "--mem":
            numactl.append(f"--membind={item}")
        else:
            raise CannotBindError(f"{word} is not --gpu, --gpu-places, --cpu or --mem")
    command = words[at + 1 :]
    return (["numactl", *numactl, *command] if numactl else command), wanted


def _among(places: str, visible: str | None) -> str:
    """Return GPUs by their places among those that are visible: all if ``visible`` is ``None``."""
    if visible is None or not places:
        return places
    names = [name for name in visible.split(",") if name]
    try:
        return ",".join(names[int(place)] for place in places.split(","))
    except IndexError:
        raise CannotBindError(
            f"CUDA_VISIBLE_DEVICES={visible} has too few GPUs for all ranks of this node"
        ) from None


def _own(items: list[str], environment: Mapping[str, str]) -> str:
    if len(items) == 1:
        return items[0]
    launched = Launched.by(environment)
    local = launched.local_rank
    if local is None and launched.rank is not None:
        # mpirun and srun number the ranks so if they fill one node after the other.
        local = launched.rank % len(items)
    if local is None:
        raise CannotBindError("the launcher has not set the rank: use mpirun or srun")
    if local >= len(items):
        raise CannotBindError(f"local rank {local} has no item among {len(items)}")
    return items[local]


def main() -> None:
    """Become the command, or exit as a shell does."""
    try:
        command, environment = bound(sys.argv[1:], os.environ)
        launch.replace(command, environment)
    except CannotBindError as error:
        sys.exit(f"penstock: cannot bind this rank: {error}")
    except launch.CannotRunError as error:
        print(f"penstock: {error}", file=sys.stderr)
        sys.exit(error.status)


if __name__ == "__main__":
    main()
