"""Reads of whole cached datasets and of parts of them into GPU memory, by filter and layout."""

from __future__ import annotations

from math import isqrt
from typing import Any

import numpy as np

from penstock.bench import hdf5
from penstock.bench.files import DATASET
from penstock.bench.hdf5_files import ITEM, Dataset, array, compressed, create, need_plugin
from penstock.bench.measure import Contestant, absent
from penstock.bench.peers import libdeflate, nvcomp
from penstock.bench.verify import Expected
from penstock.units import size_in_words

from .run import Run, benchmark, fastest

_CORES = 16
_SMALL_CHUNKS = (64 << 10, 256 << 10, 1 << 20)
_PEERS = {"h5py": 60.0, nvcomp.NAME: 1.0, libdeflate.NAME: 1.0}
"""The peers of gzip, and how many times as fast Penstock is to be."""


@benchmark("gzip and shuffle to the GPU, by chunk size", size="2GiB", quick_size="4MiB")
def hdf5_gzip(run: Run) -> None:
    ratios: dict[str, list[float]] = {}
    for chunk in _SMALL_CHUNKS:
        group = size_in_words(chunk)
        data = compressed(run.folder, run.size, chunk, "gzip")
        ours, *decoders = hdf5.by_decoder(data, "default options")
        opened = hdf5.penstock(data.path, data.expected, "file open already", opened=True)
        peers = _peers_of_gzip(data, (1, 8), share=16)
        rows = run.race([ours, opened, *decoders, *peers], group=group)
        for peer in {row.name for row in rows} & set(_PEERS):
            if ratio := rows[0].better_than(fastest(rows, peer)):
                ratios.setdefault(peer, []).append(ratio)
    for peer, wanted in _PEERS.items():
        text = f"gzip to the GPU, against {peer}, at the worst chunk size"
        run.target(text, wanted, min(ratios.get(peer, []), default=None))


@benchmark("Few large chunks of gzip to the GPU", size="512MiB", quick_size="8MiB")
def hdf5_few(run: Run) -> None:
    data = compressed(run.folder, run.size, 4 << 20, "gzip")
    rows = run.race(
        [*hdf5.by_decoder(data, "default options"), *_peers_of_gzip(data, (8,), share=8)]
    )
    run.target("128 chunks of 4 MiB, against h5py", 25, rows[0].better_than(rows[-1]))


@benchmark("LZ4 and Zstd with shuffle to the GPU", size="2GiB", quick_size="4MiB")
def hdf5_codecs(run: Run) -> None:
    peer = "h5py, hdf5plugin"
    for codec, title in (("lz4", "LZ4"), ("zstd", "Zstd")):
        try:
            need_plugin(codec)
        except RuntimeError as error:
            # Without the plugin, there is no file to read.
            run.race([absent(peer, "", str(error))], group=title)
            seen = None
        else:
            data = compressed(run.folder, run.size, 256 << 10, codec)
            entered = [
                *hdf5.by_decoder(data, "default options"),
                hdf5.h5py_part(data, 8, peer=peer),
            ]
            seen = run.race(entered, group=title)[0].value
        run.target(f"{title} to the GPU, decoded", 10, seen, "GB/s")


def _peers_of_gzip(data: Dataset, threads: tuple[int, ...], share: int) -> list[Contestant]:
    """Return the peers; h5py, the last one, decodes chunks one by one, so it reads only a share."""
    return [
        *nvcomp.contestants(data, threads),
        libdeflate.contestant(data, threads=_CORES),
        hdf5.h5py_part(data, share),
    ]


@benchmark("Uncompressed chunks to the GPU", size="2GiB", quick_size="16MiB")
def hdf5_plain(run: Run) -> None:
    chunk = (1 << 20) // ITEM
    count = run.size // ITEM
    columns = isqrt(count // 512) * 16
    flat, square = (count,), (count // columns, columns)
    side = isqrt(chunk)
    layouts: dict[str, tuple[tuple[int, ...], tuple[int, ...] | None]] = {
        "contiguous": (flat, None),
        "chunks of 1 MiB": (flat, (chunk,)),
        f"chunks of {side} x {side}": (square, (side, min(side, columns))),
    }
    ours: list[Contestant] = []
    theirs: list[Contestant] = []
    for number, (setting, (shape, chunks)) in enumerate(layouts.items()):
        path = run.folder / f"hdf5-plain-{number}-{run.size}.h5"
        values = array(shape)

        def fill(file: Any, values: Any = values, chunks: Any = chunks) -> None:
            file.create_dataset(DATASET, data=values, chunks=chunks)

        create(path, values.nbytes, fill)
        expected = Expected(values)
        ours.append(hdf5.penstock(path, expected, setting))
        rows = max(shape[0] // 4, 1)
        theirs.append(hdf5.h5py_to_gpu(path, expected.part(rows), setting, slice(rows)))
    contiguous, *chunked = run.race([*ours, *theirs])[: len(ours)]
    for words, row in zip(("1-D", "2-D"), chunked, strict=True):
        text = f"Uncompressed chunks of 1 MiB, {words}, share of the contiguous rate"
        run.target(text, 0.9, row.better_than(contiguous), "")


@benchmark("Parts of datasets to the GPU", size="1GiB", quick_size="16MiB")
def hdf5_strided(run: Run) -> None:
    rows = isqrt(run.size // ITEM // 2)
    side = round((run.size // ITEM) ** (1 / 3))
    values = {"matrix": array((rows, rows * 2)), "cube": array((side, side, side))}
    chunks = {"matrix": (64, min(4096, rows * 2)), "cube": (min(64, side),) * 3}
    path = run.folder / f"hdf5-strided-{run.size}.h5"

    def fill(file: Any) -> None:
        for name, data in values.items():
            file.create_dataset(f"{name}, contiguous", data=data)
            file.create_dataset(f"{name}, chunked", data=data, chunks=chunks[name])

    create(path, 4 * run.size, fill)
    # Lengths and offsets are not aligned to chunks, as is usual for parts.
    box = slice(side // 5, side // 5 + side * 3 // 5)
    rectangle = (slice(rows // 8, rows // 8 * 5), slice(rows // 5, rows // 5 + rows // 3))
    parts: list[tuple[str, str, Any, bool]] = [
        ("every second row", "matrix", np.s_[::2], True),
        ("cube of a cube", "cube", (box, box, box), True),
        ("rectangle", "matrix", rectangle, False),
        ("every second column", "matrix", np.s_[:, ::2], False),
    ]
    for title, dataset, part, is_promised in parts:
        wanted = Expected(np.ascontiguousarray(values[dataset][part]))
        for layout in ("contiguous", "chunked"):
            name, group = f"{dataset}, {layout}", f"{title}, {layout}"
            one = hdf5.penstock(path, wanted, "default options", part, name=name)
            other = hdf5.h5py_to_gpu(path, wanted, "", part, name=name)
            ours, theirs = run.race([one, other], group=group)
            if is_promised:
                run.target(f"To the GPU, {group}, against h5py", 10, ours.better_than(theirs))
