"""Reads of a cached dataset of a few large chunks, compressed by gzip, into GPU memory."""

from __future__ import annotations

from penstock.bench import hdf5
from penstock.bench.command import Found, Plan, main
from penstock.bench.hdf5_files import compressed
from penstock.bench.measure import race
from penstock.bench.peers import libdeflate, nvcomp
from penstock.bench.result import Target

_CHUNK = 4 << 20
_H5PY_SHARE = 8
_CORES = 16


def measure(plan: Plan) -> Found:
    data = compressed(plan.folder, plan.size, _CHUNK, "gzip")
    path, expected = data.path, data.expected
    rows = race(
        [
            hdf5.penstock(path, expected, "default options"),
            hdf5.penstock(path, expected, "decode=cpu", decode="cpu"),
            hdf5.penstock(path, expected, "decode=gpu", decode="gpu"),
            *nvcomp.contestants(data, (8,)),
            libdeflate.contestant(data, threads=_CORES),
            hdf5.h5py_part(data, _H5PY_SHARE),
        ],
        "GB/s",
        rounds=plan.rounds,
    )
    target = Target("128 chunks of 4 MiB, against h5py", "x", 25, rows[0].better_than(rows[-1]))
    return Found(rows, [target], [])


if __name__ == "__main__":
    main("Few large chunks of gzip to the GPU", measure, size="512MiB", quick_size="8MiB")
