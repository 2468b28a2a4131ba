"""`penstock bench cells`: batches of cells of an h5ad file, beside anndata and its loaders."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer

from penstock import frameworks

from .. import cell_files, loaders
from ..cell_files import CellFile
from ..figures import Figure, Panel
from ..measure import Contestant
from ..options import benchmark, chosen
from ..peers import cells as peers
from ..place import Device, Place, choose
from ..session import RefusedError, Session
from ..tables import of_rows

_PARTS = ("blocks", "random")
_BLOCK = 64


@benchmark("cells", "Batches of cells", iterations=3)
def cells(
    session: Session,
    parts: Annotated[str, typer.Option(help=f"A list of {', '.join(_PARTS)}.")] = ",".join(_PARTS),
    cells: Annotated[int, typer.Option(help="Cells of the file; 0: by processors.")] = 0,
    batch: Annotated[int, typer.Option(help="Cells of a batch.")] = 4096,
    prefetch: Annotated[int, typer.Option(help="Batches that are read ahead.")] = 3,
    device: Device = "auto",
) -> None:
    """Read batches of cells of a cached h5ad file: 20,000 genes, 5 % filled, CSR, gzip.

    The batches have blocks of 64 cells in random order, or all cells in random order. Penstock
    reads a whole epoch; the peers are anndata's backed mode, and annbatch, which first converts the
    file to Zarr.
    """
    for name in ("anndata", "scipy"):
        try:
            import_module(name)
        except ImportError as error:
            raise RefusedError(f"{name} is not installed: {error}") from None
    place = choose(device, session.ranks)
    if place.is_gpu and frameworks.with_gpu("torch") is None:
        raise RefusedError("torch is not installed, or finds no GPU: use --device cpu")
    selected = chosen(parts, _PARTS, "part")
    cores = loaders.cores()
    count = cells or min(6000 * cores, 64_000)
    if min(count, batch) < 1 or prefetch < 0:
        raise RefusedError("--cells and --batch must be positive")
    session.settings |= {"cores": cores, "batch": batch, "genes": cell_files.GENES}
    session.need_space(count * cell_files.FILLED * 16)
    data = cell_files.made(session.own_folder, count)
    batch = min(batch, data.count)
    for part in selected:
        is_random = part == "random"
        block = 1 if is_random else _BLOCK
        ways: list[dict[str, Any]] = [{}]
        ways += [{"decode": "cpu"}, {"decode": "gpu"}] if place.is_gpu else []
        entered = [_penstock(data, batch, prefetch, place, part, {}, way) for way in ways]
        window = {"window": 1 if is_random else 4}
        entered.append(_penstock(data, batch, prefetch, place, part, window, {}))
        if session.wants("anndata"):
            entered.append(peers.backed(data, batch, block, place))
        if session.wants("annbatch"):
            entered.append(peers.annbatch(data, session.own_folder, batch, block, place))
        what = "fully random" if is_random else f"blocks of {_BLOCK}"
        title = f"Batches of {batch} of {data.count} cells, {what}"
        rows = session.race(entered, "cells/s", group=what)
        session.tables.append(of_rows(f"{title}, into {place.in_words}, cached", rows))
        panel = Panel("", [what], {row.full_name: [row.value] for row in rows})
        session.figures.append(Figure(what.replace(" ", "-"), title, "", "Cells/s", [panel]))


def _penstock(
    data: CellFile,
    batch: int,
    prefetch: int,
    place: Place,
    part: str,
    keys: dict[str, Any],
    options: dict[str, Any],
) -> Contestant:
    library: Any = import_module("penstock.anndata")
    like = "torch" if place.is_gpu else "numpy"
    rows = library.Rows(data.path, device=place.name, like=like, **options)
    shuffle = "full" if part == "random" else "blocks"
    batches = library.Batches(
        rows, batch, shuffle=shuffle, block=_BLOCK, prefetch=prefetch, obs=["cell_type"], **keys
    )

    def run() -> Any:
        kept = None
        for found in batches:
            kept = found if kept is None else kept
        if place.is_gpu:
            import_module("torch").cuda.synchronize()
        return kept

    def check(found: Any) -> None:
        data.check(_on_host(found.x), found.rows)

    setting = ", ".join(f"{name}={value}" for name, value in (keys | options).items())
    return Contestant("Penstock Batches", setting or "default", data.count, run, check=check)


def _on_host(x: Any) -> Any:
    """Return a batch as a CSR matrix of SciPy."""
    if not frameworks.is_torch(x):
        return x
    parts = (x.values(), x.col_indices(), x.crow_indices())
    arrays = tuple(part.cpu().numpy() for part in parts)
    return import_module("scipy.sparse").csr_matrix(arrays, shape=tuple(x.shape))
