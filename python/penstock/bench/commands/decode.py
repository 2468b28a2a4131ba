"""`penstock bench decode`: compressed datasets by filter and chunk size."""

from __future__ import annotations

import os
from functools import partial
from typing import Annotated, Any

import h5py
import numpy as np
import typer

from penstock.units import size_in_words

from .. import hdf5
from ..figures import Figure, Panel
from ..files import DATASET, DataFile, warm
from ..hdf5_files import ITEM, PERIOD, compressed
from ..measure import Contestant, Row, then
from ..options import SIZE, benchmark, chosen, sizes
from ..peers import libdeflate, nvcomp
from ..place import Device, choose
from ..session import RefusedError, Session
from ..tables import of_rows

_FILTERS = ("gzip", "lz4", "zstd", "none")
_SHARE = 8
"""h5py decodes chunks one by one, so it reads only this fraction of a dataset."""


@benchmark("decode", "Compressed datasets by filter and chunk size")
def decode(
    session: Session,
    filters: Annotated[
        str, typer.Option(help=f"A list of {', '.join(_FILTERS)}.")
    ] = "gzip,lz4,zstd",
    chunks: Annotated[
        str, typer.Option(help="Decoded chunk sizes, as a list.")
    ] = "64KiB,256KiB,1MiB,4MiB",
    size: Annotated[int, typer.Option("--size", help="Decoded bytes of a dataset.", **SIZE)] = 1
    << 30,
    device: Device = "auto",
) -> None:
    """Read cached, compressed float32: a wave with noise, shuffled, half its size with gzip.

    The peers are h5py, with a copy to the GPU, and, for gzip, nvCOMP alone and libdeflate alone,
    each with the reads that it needs.
    """
    place = choose(device, session.ranks)
    selected, lengths = chosen(filters, _FILTERS, "filter"), sizes(chunks)
    if bad := [length for length in lengths if length % 4 or length > size]:
        raise RefusedError(
            f"chunks of {bad[0]:,} bytes do not fit a float32 dataset of {size:,} bytes"
        )
    whole = PERIOD * ITEM
    for length in lengths:
        if size >= whole and (size % whole or whole % length):
            raise RefusedError(
                f"a --size of {size_in_words(whole)} or more must be a multiple of it, and each of "
                f"--chunks must divide it: {size:,} and {length:,} do not"
            )
    session.need_space(2 * size)
    rows: list[Row] = []
    panels = []
    for codec in selected:
        ticks = [size_in_words(length) for length in lengths]
        panel = Panel(codec, ticks, {})
        for at, length in enumerate(lengths):
            seen = _race(session, place.is_gpu, codec, length, size)
            rows += seen
            for row in seen:
                panel.series.setdefault(row.full_name, [None] * len(lengths))[at] = row.value
        panels.append(panel)
    where = place.in_words
    session.tables.append(of_rows(f"Decoding into {where}, cached, rate of decoded bytes", rows))
    figure = Figure("decode", f"Decoding into {where}", "Chunk", "Rate (GB/s)", panels, "lines")
    session.figures.append(figure)


def _race(session: Session, is_gpu: bool, codec: str, chunk: int, size: int) -> list[Row]:
    data = compressed(session.own_folder, size - size % chunk, chunk, codec)
    group = f"{codec}, {size_in_words(chunk)}"
    sides = ("cpu", "gpu") if is_gpu and codec != "none" else ()
    out = None if is_gpu else np.empty((data.count,), "float32")
    entered = hdf5.by_decoder(data, out=out, group=group, sides=sides)
    if session.wants("h5py"):
        if is_gpu:
            entered.append(hdf5.h5py_part(data, _SHARE, group=group))
        else:
            entered.append(_h5py(data, group))
    if codec == "gzip" and is_gpu:
        if session.wants("nvcomp"):
            entered += nvcomp.contestants(data, (min(8, os.cpu_count() or 1),), group=group)
        if session.wants("libdeflate"):
            entered.append(libdeflate.contestant(data, threads=os.cpu_count() or 1, group=group))
    pages = DataFile(data.path, 0, data.path.stat().st_size)
    for each in entered:
        each.before = then(partial(warm, pages), each.before)
    rows = session.race(entered, group=group)
    data.path.unlink()
    return rows


def _h5py(data: Any, group: str) -> Contestant:
    count = max(data.chunks // _SHARE, 1) * data.chunk
    expected = data.expected.part(count)
    # Allocated beforehand, as for Penstock.
    target = np.empty((count,), "float32")

    def run() -> Any:
        with h5py.File(data.path, "r") as file:
            file[DATASET].read_direct(target, np.s_[:count])
        return target

    made = Contestant("h5py", size_in_words(count * 4), count * 4, run, check=expected.check)
    made.poison, made.group = partial(expected.poison, target), group
    return made
