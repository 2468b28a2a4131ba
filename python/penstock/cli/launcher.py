"""The line by which `penstock run` starts several ranks: mpirun or srun, then the binding.

Flags and meaning are those of Legate's command: one item a rank of a node, separated by slashes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import typer

LAUNCHERS = ("mpirun", "srun", "none")


@dataclass(frozen=True)
class Layout:
    """The numbers of nodes and ranks, and the binding of each rank of a node."""

    launcher: str = "none"
    nodes: int = 1
    ranks_per_node: int = 1
    gpus: int | None = None
    """The number of GPUs of a rank; ``None``: all visible ones."""
    gpu_bind: tuple[str, ...] = ()
    """For each rank of a node its GPUs, as ``CUDA_VISIBLE_DEVICES`` takes them."""
    gpu_places: tuple[str, ...] = ()
    """For each rank of a node, without ``gpu_bind``, the places of its GPUs among the visible ones.

    An allocation may have set ``CUDA_VISIBLE_DEVICES`` on the node.
    """
    cpu_bind: tuple[str, ...] = ()
    """For each rank of a node its cores, as ``numactl --physcpubind`` takes them."""
    mem_bind: tuple[str, ...] = ()
    """For each rank of a node its memory, as ``numactl --membind`` takes it."""
    extra: tuple[str, ...] = field(default=())
    """More arguments of the launcher."""

    @classmethod
    def of(
        cls,
        launcher: str,
        nodes: int,
        ranks_per_node: int,
        gpus: int | None,
        bindings: Mapping[str, str | None],
        extra: Iterable[str],
    ) -> Layout:
        """Check the flags, and divide the bindings, which are by flag."""
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
        items = {flag: _items(flag, text, ranks_per_node) for flag, text in bindings.items()}
        for item in items["--gpu-bind"]:
            if gpus is not None and len(item.split(",")) != gpus:
                raise typer.BadParameter(
                    f"{item!r} does not name {gpus} GPU(s), as --gpus says", param_hint="--gpu-bind"
                )
        places: tuple[str, ...] = ()
        if gpus is not None and not items["--gpu-bind"]:
            places = tuple(
                ",".join(str(rank * gpus + at) for at in range(gpus))
                for rank in range(ranks_per_node)
            )
        return cls(
            launcher,
            nodes,
            ranks_per_node,
            gpus,
            items["--gpu-bind"],
            places,
            items["--cpu-bind"],
            items["--mem-bind"],
            tuple(extra),
        )

    @property
    def is_plain(self) -> bool:
        """Whether the command runs as it is."""
        return self.launcher == "none" and not self._bindings

    @property
    def _bindings(self) -> list[str]:
        named = (
            *(("gpu", self.gpu_bind), ("gpu-places", self.gpu_places)),
            *(("cpu", self.cpu_bind), ("mem", self.mem_bind)),
        )
        return [f"--{name}={'/'.join(items)}" for name, items in named if items]

    def line(self, command: list[str], variables: Iterable[str]) -> list[str]:
        """Return the command that starts all ranks.

        Args:
            command: What each rank runs.
            variables: The environment variables that the ranks on other nodes need, too.
        """
        bound = list(command)
        if self._bindings:
            # The launcher sets each rank's number in its environment, so the rank binds itself.
            bound = [sys.executable, "-m", "penstock.cli.bind", *self._bindings, "--", *command]
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


def _items(flag: str, text: str | None, ranks: int) -> tuple[str, ...]:
    if text is None:
        return ()
    items = tuple(text.split("/"))
    if len(items) != ranks or not all(items):
        raise typer.BadParameter(
            f"{text!r} has {len(items)} item(s) for {ranks} rank(s) of a node: separate them by /",
            param_hint=flag,
        )
    return items
