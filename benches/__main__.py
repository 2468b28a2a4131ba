"""Runs a benchmark: `python -m benches NAME`."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from tempfile import gettempdir
from typing import Annotated

import typer

from penstock.bench.options import SIZE
from penstock.bench.ranks import Ranks
from penstock.bench.session import Common, measure

from .names import MODULES, NAMES
from .run import BENCHMARKS

_FOLDER = Path(gettempdir()) / "penstock-bench"


def main(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(NAMES)}.")],
    size: Annotated[int | None, typer.Option("--size", help="Bytes to move.", **SIZE)] = None,
    on_gpu: Annotated[bool, typer.Option("--gpu", help="daily: the cases on a GPU.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Only check that it runs.")] = False,
    folder: Annotated[
        Path, typer.Option("--dir", help="A folder for the files, which stay for the next one.")
    ] = _FOLDER,
    json: Annotated[Path | None, typer.Option("--json", help="Save the result here.")] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw the figure: .png, .svg or .pdf.")
    ] = None,
) -> None:
    """Run a benchmark. The exit status is 1 if Penstock failed or, in ``daily``, was too slow."""
    name = f"{name}_gpu" if on_gpu else name
    if name not in NAMES:
        raise typer.BadParameter(f"there is no benchmark {name}: choose from {', '.join(NAMES)}")
    os.environ["PENSTOCK_PROFILE"] = "off"  # compare defaults, not tuned options
    import_module(f"benches.{next(key for key, names in MODULES.items() if name in names)}")
    found = BENCHMARKS[name]
    folder.mkdir(parents=True, exist_ok=True)
    common = Common(folder, keeps_files=True, json=json, plot=plot)
    lost: list[str] = []
    title, ranks = found.title, Ranks()
    status = measure(name, title, common, ranks, lambda it: lost.extend(found.run(it, size, quick)))
    raise typer.Exit(status or int(bool(lost)))


if __name__ == "__main__":
    typer.run(main)
