"""Reads of cached datasets, compressed by LZ4 and Zstd, into GPU memory."""

from __future__ import annotations

from penstock.bench import hdf5
from penstock.bench.command import Found, Plan, main
from penstock.bench.hdf5_files import compressed, need_plugin
from penstock.bench.measure import absent, race
from penstock.bench.result import Target

_TITLES = {"lz4": "LZ4", "zstd": "Zstd"}
_CHUNK = 256 << 10
_H5PY_SHARE = 8
_PEER = "h5py, hdf5plugin"


def measure(plan: Plan) -> Found:
    found = Found([], [], [])
    for codec, title in _TITLES.items():
        text = f"{title} to the GPU, decoded"
        try:
            need_plugin(codec)
        except RuntimeError as error:
            # Without the plugin, there is no file to read.
            found.rows += race([absent(_PEER, "", str(error))], "GB/s", rounds=1, group=title)
            found.targets.append(Target(text, "GB/s", 10, None))
            continue
        data = compressed(plan.folder, plan.size, _CHUNK, codec)
        path, expected = data.path, data.expected
        rows = race(
            [
                hdf5.penstock(path, expected, "default options"),
                hdf5.penstock(path, expected, "decode=cpu", decode="cpu"),
                hdf5.penstock(path, expected, "decode=gpu", decode="gpu"),
                hdf5.h5py_part(data, _H5PY_SHARE, peer=_PEER),
            ],
            "GB/s",
            rounds=plan.rounds,
            group=title,
        )
        found.rows += rows
        found.targets.append(Target(text, "GB/s", 10, rows[0].value))
    return found


if __name__ == "__main__":
    main("LZ4 and Zstd with shuffle to the GPU", measure, size="2GiB", quick_size="4MiB")
