"""Reads of a cached gzip dataset into GPU memory: chunks of 64 KiB, 256 KiB and 1 MiB."""

from __future__ import annotations

from penstock.bench import hdf5
from penstock.bench.command import Found, Plan, main
from penstock.bench.hdf5_files import compressed
from penstock.bench.measure import Row, race
from penstock.bench.peers import libdeflate, nvcomp
from penstock.bench.result import Target
from penstock.units import size_in_words

_CHUNKS = (64 << 10, 256 << 10, 1 << 20)
_H5PY_SHARE = 16
_CORES = 16


def measure(plan: Plan) -> Found:
    found = Found([], [], [])
    for chunk in _CHUNKS:
        found.rows += _measure_chunk(plan, chunk)

    def worst(peer: str) -> float | None:
        """Return the ratio to a peer's best setting, at the chunk size where it is least."""
        ratios = []
        for group in {row.group for row in found.rows}:
            rows = [row for row in found.rows if row.group == group]
            of_peer = [row for row in rows if row.name == peer]
            if of_peer:  # none if the peer is not installed
                best = max(of_peer, key=lambda row: row.value or 0)
                ratios.append(rows[0].better_than(best))
        return min((ratio for ratio in ratios if ratio is not None), default=None)

    wanted = {"h5py": 60.0, nvcomp.NAME: 1.0, libdeflate.NAME: 1.0}
    found.targets += [
        Target(f"gzip to the GPU, against {peer}, at the worst chunk size", "x", ratio, worst(peer))
        for peer, ratio in wanted.items()
    ]
    return found


def _measure_chunk(plan: Plan, chunk: int) -> list[Row]:
    group = size_in_words(chunk)
    data = compressed(plan.folder, plan.size, chunk, "gzip")
    path, expected = data.path, data.expected
    contestants = [
        hdf5.penstock(path, expected, "default options", group=group),
        hdf5.penstock(path, expected, "file open already", opened=True, group=group),
        hdf5.penstock(path, expected, "decode=cpu", decode="cpu", group=group),
        hdf5.penstock(path, expected, "decode=gpu", decode="gpu", group=group),
        *nvcomp.contestants(data, (1, 8), group=group),
        libdeflate.contestant(data, threads=_CORES, group=group),
        hdf5.h5py_part(data, _H5PY_SHARE, group=group),
    ]
    return race(contestants, "GB/s", rounds=plan.rounds)


if __name__ == "__main__":
    main("gzip and shuffle to the GPU, by chunk size", measure, size="2GiB", quick_size="4MiB")
