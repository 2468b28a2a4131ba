"""Writes HDF5 files out of stored chunks that a test has made: python pack.py FOLDER.

FOLDER/recipe says what to write, line by line, with tabs between the words:

    file     NAME
    dataset  NAME  SHAPE  CHUNK or -  FILTERS as id:value.value,...
    chunk    FIRST ELEMENT  FILTER MASK  BYTES

The bytes of all chunks follow each other in FOLDER/bytes. Elements are u4.
"""

import sys
from pathlib import Path

import h5py
import numpy as np


def numbers(text: str, separator: str = ",") -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(separator) if word)


def dataset(file: h5py.File, name: str, shape: str, chunk: str, filters: str) -> h5py.Dataset:
    made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    if chunk != "-":
        made.set_chunk(numbers(chunk))
    for word in filter(None, filters.split(",")):
        code, _, values = word.partition(":")
        # HDF5 need not know an optional filter.
        made.set_filter(int(code), h5py.h5z.FLAG_OPTIONAL, numbers(values, "."))
    space = h5py.h5s.create_simple(numbers(shape))
    return h5py.Dataset(
        h5py.h5d.create(file.id, name.encode(), h5py.h5t.STD_U32LE, space, dcpl=made)
    )


def main(folder: Path) -> None:
    file = made = None
    with open(folder / "recipe") as recipe, open(folder / "bytes", "rb") as stored:
        for line in recipe:
            what, *words = line.rstrip("\n").split("\t")
            match what:
                case "file":
                    if file:
                        file.close()
                    file = h5py.File(folder / words[0], "w")
                case "dataset":
                    made = dataset(file, *words)
                case "chunk":
                    first, mask, size = words
                    content = stored.read(int(size))
                    if made.chunks:
                        made.id.write_direct_chunk(numbers(first), content, int(mask))
                    else:
                        made[...] = np.frombuffer(content, "<u4").reshape(made.shape)
    if file:
        file.close()


main(Path(sys.argv[1]))
