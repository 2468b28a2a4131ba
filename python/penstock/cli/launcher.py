"""The line by which `penstock run` starts several ranks: mpirun or srun, then the binding.

Flags and meaning are those of Legate's command: one item a rank of a node, separated by slashes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import typer

LAUNCHERS = ("mpirun", "srun", "none")


@dataclass(frozen=True)
class Layout:
    """The numbers of nodes and ranks, and the binding of each rank of a node."""

    launcher: str
    nodes: int
    ranks_per_node: int
    bindings: list[str]
    """Arguments of :mod:`penstock.cli.bind`."""
    extra: list[str]
    """More arguments of the launcher."""

    @classmethod
    def of(
        cls,
        launcher: str,
        nodes: int,
        ranks_per_node: int,
        gpus: int | None,
        bindings: Mapping[str, str | None],
        extra: list[str],
    ) -> Layout:
        """Check the flags; the bindings are by flag."""
        if launcher not in LAUNCHERS:
            raise typer.BadParameter(
                f"{launcher!r} is not one of {', '.join(LAUNCHERS)}", param_hint="--launcher"
            )
        for flag, number in (("--nodes", nodes), ("--ranks-per-node", ranks_per_node)):
            if number < 1:
                raise typer.BadParameter(f"{number} is less than 1", param_hint=flag)
        if gpus is not None and gpus < 0:
            raise typer.BadParameter(f"{gpus} is less than 0", param_hint="--gpus")
        if launcher == "none" and nodes * ranks_per_node > 1:
            raise typer.BadParameter(
                f"{nodes * ranks_per_node} ranks need --launcher mpirun or srun",
                param_hint="--launcher",
            )
        words = []
        for flag, text in bindings.items():
            if text is None:
                continue
            items = text.split("/")
            if len(items) != ranks_per_node or not all(items):
                raise typer.BadParameter(
                    f"{text!r} has {len(items)} item(s) for {ranks_per_node} rank(s) of a node: "
                    "separate them by /",
                    param_hint=flag,
                )
            for item in items if flag == "--gpu-bind" and gpus is not None else ():
                if len(item.split(",")) != gpus:
                    raise typer.BadParameter(
                        f"{item!r} does not name {gpus} GPU(s), as --gpus says", param_hint=flag
                    )
            words.append(f"{flag.removesuffix('-bind')}={text}")
        if gpus is not None and bindings["--gpu-bind"] is None:
            # Places among the visible GPUs: an allocation may have set CUDA_VISIBLE_DEVICES.
            ranks = (range(rank * gpus, (rank + 1) * gpus) for rank in range(ranks_per_node))
            words.insert(0, f"--gpu-places={'/'.join(','.join(map(str, own)) for own in ranks)}")
        return cls(launcher, nodes, ranks_per_node, words, extra)

    @property
    def is_plain(self) -> bool:
        """Whether the command runs as it is."""
        return self.launcher == "none" and not self.bindings

    def line(self, command: list[str], variables: Iterable[str]) -> list[str]:
        """Return the command that starts all ranks.

        Args:
            command: What each rank runs.
            variables: The environment variables that the ranks on other nodes need, too.
        """
        bound = list(command)
        if self.bindings:
            # The launcher sets each rank's number in its environment, so the rank binds itself.
            bound = [sys.executable, "-m", "penstock.cli.bind", *self.bindings, "--", *command]
        ranks, each = str(self.nodes * self.ranks_per_node), str(self.ranks_per_node)
        if self.launcher == "mpirun":
            exported = [word for name in sorted(variables) for word in ("-x", name)]
            place = ["--map-by", f"ppr:{each}:node", "--bind-to", "none"]
            return ["mpirun", "-n", ranks, *place, *exported, *self.extra, *bound]
        if self.launcher == "srun":
            # It exports the whole environment by itself.
            place = ["--nodes", str(self.nodes), "--ntasks-per-node", each, "--cpu-bind", "none"]
            return ["srun", "-n", ranks, *place, *self.extra, *bound]
        return bound
