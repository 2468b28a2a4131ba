"""`penstock bench batches`: batches of samples for training, beside torch's loader."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer

from penstock.units import size_in_words

from .. import loaders, sample_files
from ..figures import Figure, Panel
from ..measure import Contestant, Row
from ..options import benchmark, chosen
from ..peers import lance
from ..place import Device, choose
from ..session import RefusedError, Session
from ..tables import of_rows

_PARTS = ("images", "overlap", "robotics")
_IMAGE = (224, 224, 3)
_SMALL = (96, 96, 3)
_SHARE = 8
"""h5py without workers reads only this fraction of the samples."""


@benchmark("batches", "Batches of samples for training", iterations=3)
def batches(
    session: Session,
    parts: Annotated[str, typer.Option(help=f"A list of {', '.join(_PARTS)}.")] = ",".join(_PARTS),
    samples: Annotated[int, typer.Option(help="Images of 150 KB; 0: by processors.")] = 0,
    small: Annotated[int, typer.Option(help="Samples of robotics; 0: by processors.")] = 0,
    batch: Annotated[int, typer.Option(help="Samples of a batch.")] = 256,
    workers: Annotated[int, typer.Option(help="Spawned workers of torch's loader.")] = 8,
    prefetch: Annotated[int, typer.Option(help="Batches that are read ahead.")] = 3,
    step: Annotated[float, typer.Option(help="Milliseconds of a model's step.")] = 20.0,
    device: Device = "auto",
) -> None:
    """Read all samples of cached files in random order, a batch at a time.

    The images are gzip chunks of 150 KB; robotics has small images, states and actions. The peers
    are torch's DataLoader over h5py, with spawned workers and without, and Lance. In the overlap,
    a step of a model runs after each batch: products of matrices on the GPU, a sleep on the host.
    """
    try:
        import_module("torch")
    except ImportError as error:
        raise RefusedError(f"torch is not installed: {error}") from None
    place = choose(device, session.ranks)
    selected = chosen(parts, _PARTS, "part")
    cores = loaders.cores()
    count = samples or min(512 * cores, 8192)
    few = small or min(2048 * cores, 16384)
    if min(count, few, batch) < 1 or workers < 0 or prefetch < 0:
        raise RefusedError("--samples, --small and --batch must be positive")
    session.settings |= {"cores": cores, "batch": batch, "workers": workers, "step_ms": step}
    by_h5py = session.wants("h5py") and workers

    def race(entered: list[Contestant], title: str, group: str) -> list[Row]:
        rows = session.race(entered, "samples/s", group=group)
        session.tables.append(of_rows(f"{title}, into {place.in_words}, cached", rows))
        panel = Panel("", [group], {row.full_name: [row.value] for row in rows})
        session.figures.append(Figure(group.split()[0], title, "", "Samples/s", [panel]))
        return rows

    if {"images", "overlap"} & set(selected):
        session.need_space(count * 150_528)
        two = ("image", "number")
        data = sample_files.made(session.own_folder, count, _IMAGE, two, is_gzip=True)
    if "images" in selected:
        ways: list[dict[str, Any]] = [{}, {"decode": "cpu"}, {"decode": "gpu"}]
        entered = [
            loaders.penstock(data, batch, place, prefetch=prefetch, **options)
            for options in (ways if place.is_gpu else ways[:1])
        ]
        entered += [loaders.in_torch(data, batch, place), loaders.raw(data, batch, place)]
        if by_h5py:
            entered.append(loaders.over_h5py(data, batch, workers, place))
        if session.wants("h5py"):
            entered.append(loaders.over_h5py(data, batch, 0, place, share=_SHARE))
        what = f"gzip images of {size_in_words(data.image_nbytes)}"
        race(entered, f"Full shuffle of {what}, batch {batch}", what)
    if "overlap" in selected:
        work = loaders.Step(step / 1e3, place)
        entered = [
            loaders.penstock(data, batch, place, work, prefetch=prefetch),
            loaders.raw(data, batch, place, work),
            loaders.steps(data, batch, place, work),
        ]
        if by_h5py:
            entered.append(loaders.over_h5py(data, batch, workers, place, work))
        alone = loaders.raw(data, batch, place)
        read = session.race([alone], "samples/s", group="read_many alone")[0].median
        both, _, steps, *_ = race(
            entered, f"With a step of {step:g} ms after each batch", "overlap"
        )
        if both.median and steps.median and read:
            session.words.append(_hidden(read, steps.median, both.median))
    if {"images", "overlap"} & set(selected):
        data.path.unlink()
    if "robotics" in selected:
        session.need_space(3 * few * 27_648)
        entered = []
        for is_gzip in (False, True):
            names = ("image", "state", "action", "number")
            data = sample_files.made(session.own_folder, few, _SMALL, names, is_gzip=is_gzip)
            added = [loaders.penstock(data, batch, place, prefetch=prefetch)]
            if by_h5py:
                added.append(loaders.over_h5py(data, batch, workers, place))
            if not is_gzip and session.wants("lance"):
                added += lance.contestants(data, session.own_folder, batch, workers, place)
            for one in added:
                one.setting = f"{'gzip' if is_gzip else 'not compressed'}, {one.setting}"
            entered += added
        what = f"states, actions and images of {size_in_words(data.image_nbytes)}"
        race(entered, f"Full shuffle of {what}, batch {batch}", "robotics")


def _hidden(read: float, steps: float, both: float) -> str:
    """Say how much of the shorter of reads and steps the longer one hides."""
    hidden = 100 * min(max((read + steps - both) / min(read, steps), 0), 1)
    return (
        f"Reads alone take {read:.3f} s, steps alone {steps:.3f} s, both by Batches {both:.3f} s: "
        f"{max(read, steps) / both:.2f} of the slower one's rate, {hidden:.0f} % of the shorter "
        "one hidden."
    )
