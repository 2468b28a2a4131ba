"""Writes virtual datasets of every kind, and their sources, into a folder.

The file `virtual` there lists them: a line holds the file, the dataset and what becomes of it.
"""

import os
import sys
from pathlib import Path

import h5py
import numpy as np

SELECT_OR = h5py.h5s.SELECT_OR
written = []


def numbers(shape, start=0, dtype="i4"):
    return (np.arange(np.prod(shape)) + start).reshape(shape).astype(dtype)


def save(name, datasets, **options):
    with h5py.File(name, "w") as file:
        for dataset, data in datasets.items():
            file.create_dataset(dataset, data=data, **options)


def source(file, dataset, shape):
    return h5py.VirtualSource(file, dataset, shape)


def virtual(name, layout, fill=None, kind="parts", dataset="v", mode="w"):
    with h5py.File(name, mode) as file:
        file.create_virtual_dataset(dataset, layout, fillvalue=fill)
    written.append(f"{name} {dataset} {kind}")


def low_level(name, shape, mappings, fill=-7, kind="parts"):
    """Mappings are (virtual dataspace, file, dataset, source dataspace)."""
    dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    dcpl.set_fill_value(np.array(fill, "i4"))
    for target, file, dataset, space in mappings:
        dcpl.set_virtual(target, file.encode(), dataset.encode(), space)
    with h5py.File(name, "w") as file:
        space = h5py.h5s.create_simple(shape, (h5py.h5s.UNLIMITED,) * len(shape))
        h5py.h5d.create(file.id, b"v", h5py.h5t.STD_I32LE, space, dcpl)
    written.append(f"{name} v {kind}")


def slabs(shape, *each):
    """The union of hyperslabs (start, count, stride, block)."""
    space = h5py.h5s.create_simple(shape)
    for at, slab in enumerate(each):
        op = h5py.h5s.SELECT_SET if at == 0 else SELECT_OR
        space.select_hyperslab(*slab, op=op)
    return space


def all_of(shape):
    return h5py.h5s.create_simple(shape)


def boxes():
    layout = h5py.VirtualLayout((7, 40), "i4")
    for row in range(7):
        save(f"row{row}.h5", {"x": numbers(40, 1000 * row)})
        layout[row] = source(f"row{row}.h5", "x", (40,))
    virtual("rows.h5", layout)

    layout = h5py.VirtualLayout((20, 30), "i4")
    for i in (0, 1):
        for j in (0, 1):
            name = f"block{i}{j}.h5"
            data = {"g/x": numbers((10, 15), 1000 * (2 * i + j))}
            save(name, data, chunks=(4, 5), compression="gzip", shuffle=True)
            layout[10 * i : 10 * i + 10, 15 * j : 15 * j + 15] = source(name, "g/x", (10, 15))
    virtual("blocks.h5", layout)

    layout = h5py.VirtualLayout((30, 12), "i4")
    for part in range(3):
        save(f"part{part}.h5", {"x": numbers((10, 24), 1000 * part)}, chunks=(3, 7))
        layout[part::3] = source(f"part{part}.h5", "x", (10, 24))[:, part : part + 12]
    virtual("interleaved.h5", layout)

    layout = h5py.VirtualLayout((10, 36), "i4", maxshape=(None, None))
    for part in range(3):
        layout[:, part::3] = source(f"part{part}.h5", "x", (10, 24))[:, 1::2]
    virtual("interleaved_columns.h5", layout)

    layout = h5py.VirtualLayout((5, 3, 4, 1), "i4")
    save("flat.h5", {"x": numbers(100)})
    layout[:, 1] = source("flat.h5", "x", (100,))[20:40]
    layout[1:4, 2, 1:3] = source("flat.h5", "x", (100,))[50:80:5]
    virtual("folded.h5", layout, fill=3)

    layout = h5py.VirtualLayout((60,), "i4")
    layout[10:60] = source("part0.h5", "x", (10, 24))[::2, 4:24:2]
    virtual("unfolded.h5", layout)


def partial():
    layout = h5py.VirtualLayout((9, 40), "i4")
    for row in (0, 2, 3, 6):
        layout[row, 5:35] = source(f"row{row}.h5", "x", (40,))[5:35]
    layout[4] = source("no_such_file.h5", "x", (40,))
    layout[5] = source("row5.h5", "no_such_dataset", (40,))
    layout[7] = source("no_such_folder/row5.h5", "x", (40,))
    layout[8, :8] = source(str(Path("gone/row6.h5").absolute()), "x", (40,))[:8]
    virtual("partial.h5", layout, fill=77)

    layout = h5py.VirtualLayout((30, 12), "i4")
    layout[1::3, 2::4] = source("part1.h5", "x", (10, 24))[:, :3]
    virtual("mostly_missing.h5", layout)

    with h5py.File("unwritten.h5", "w") as file:
        file.create_dataset("x", (20,), "i4", fillvalue=9)
        file.create_dataset("c", (20,), "i4", chunks=(6,), fillvalue=11)[3:5] = 1
        compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        compact.set_layout(h5py.h5d.COMPACT)
        space = all_of((20,))
        made = h5py.h5d.create(file.id, b"compact", h5py.h5t.STD_I32LE, space, compact)
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, numbers(20, 500))
        file.create_dataset(
            "out", data=numbers(20, 600), external=[(f"{os.getcwd()}/out.bin", 8, 80)]
        )
        file["scalar"] = np.int32(-4)
    layout = h5py.VirtualLayout((6, 20), "i4")
    for row, name in enumerate(("x", "c", "compact", "out")):
        layout[row] = source("unwritten.h5", name, (20,))
    virtual("kinds.h5", layout, fill=5)
    layout = h5py.VirtualLayout((6,), "i4")
    layout[3] = source("unwritten.h5", "scalar", (1,))
    virtual("scalar.h5", layout, kind="any")


def nested():
    layout = h5py.VirtualLayout((4, 20, 30), "i4")
    layout[0] = source("blocks.h5", "v", (20, 30))
    layout[1, :9, :30] = source("partial.h5", "v", (9, 40))[:, 5:35]
    layout[2, ::2, 3:15] = source("interleaved.h5", "v", (30, 12))[::3]
    layout[3, 4:11, 10:] = source("rows.h5", "v", (7, 40))[:, ::2]
    virtual("nested.h5", layout, fill=-1)
    layout = h5py.VirtualLayout((20, 40), "i4")
    layout[:, :30] = source("nested.h5", "v", (4, 20, 30))[1]
    virtual("deeper.h5", layout, fill=-2)

    with h5py.File("same.h5", "w") as file:
        file["a/x"] = numbers((5, 6))
        file["link"] = h5py.SoftLink("/a/x")
        file["elsewhere"] = h5py.ExternalLink("row3.h5", "/x")
        file["dangling"] = h5py.SoftLink("/a/y")
    layout = h5py.VirtualLayout((4, 6), "i4")
    layout[0] = source(".", "a/x", (5, 6))[4]
    layout[1] = source(".", "link", (5, 6))[1]
    layout[2] = source(".", "elsewhere", (40,))[:6]
    layout[3] = source(".", "dangling", (6,))
    virtual("same.h5", layout, fill=8, mode="r+")
    layout = h5py.VirtualLayout((2, 6), "i4")
    layout[1] = source(".", "a/x", (5, 6))[0]
    layout[0] = source("same.h5", "view_of_itself", (2, 6))[1]
    virtual("same.h5", layout, dataset="view_of_itself", mode="r+", kind="view")


def shapes():
    """Sources whose shape is not the one that the mapping was made for."""
    with h5py.File("grown.h5", "w") as file:
        data = numbers((12, 9))
        file.create_dataset("x", data=data, chunks=(5, 4), maxshape=(None, None))
    cross = [((0, 2), (1, 1), None, (5, 2)), ((2, 0), (1, 1), None, (1, 6))]
    target = slabs((8, 8), ((1, 1), (2, 2), (4, 4), (2, 2)))
    pieces = slabs((6, 6), ((1, 0), (4, 1), (1, 1), (1, 4)))
    low_level("blocks_of_blocks.h5", (8, 8), [(target, "grown.h5", "x", pieces)])
    irregular = slabs((6, 6), *cross)
    line = slabs((40,), ((3,), (14,), (2,), (1,)))
    low_level("from_irregular.h5", (40,), [(line, "grown.h5", "x", irregular)])
    irregular = slabs((7, 7), *cross)
    others = slabs((7, 7), ((6, 0), (1, 1), None, (1, 7)))
    to_irregular = [
        (irregular, "row1.h5", "x", slabs((40,), ((2,), (2,), (20,), (7,)))),
        (others, "row2.h5", "x", slabs((40,), ((0,), (1,), None, (7,)))),
    ]
    low_level("to_irregular.h5", (7, 7), to_irregular)
    two = slabs((40,), ((0,), (5,), (8,), (3,)))
    low_level(
        "every_third.h5", (40,), [(two, "row1.h5", "x", slabs((40,), ((20,), (1,), None, (15,))))]
    )
    low_level("smaller.h5", (50,), [(all_of((50,)), "row1.h5", "x", all_of((50,)))], kind="outside")
    too_far = slabs((90,), ((60,), (1,), None, (20,)))
    target = slabs((50,), ((0,), (1,), None, (20,)))
    low_level("outside.h5", (50,), [(target, "row1.h5", "x", too_far)], kind="outside")
    more = slabs((30, 9), ((9, 0), (1, 1), None, (9, 9)))
    target = slabs((9, 9), ((0, 0), (1, 1), None, (9, 9)))
    low_level("not_grown.h5", (9, 9), [(target, "grown.h5", "x", more)], kind="outside")
    flat = slabs((9,), ((0,), (1,), None, (9,)))
    target = slabs((9, 9), ((0, 0), (1, 1), None, (1, 9)))
    low_level("rank.h5", (9, 9), [(target, "grown.h5", "x", flat)], kind="refused")


def types():
    save("big.h5", {"x": numbers(40, dtype=">i4"), "wide": numbers(40, dtype="i8")})
    layout = h5py.VirtualLayout((3, 40), "i4")
    layout[0] = source("big.h5", "x", (40,))
    layout[1] = source("row1.h5", "x", (40,))
    virtual("byte_orders.h5", layout, fill=1 << 20)
    layout[2] = source("big.h5", "wide", (40,))
    virtual("widths.h5", layout, kind="hdf5")


def only_hdf5():
    layout = h5py.VirtualLayout((40,), "i4")
    layout[:25] = source("row0.h5", "x", (40,))[:25]
    layout[20:] = source("row1.h5", "x", (40,))[:20]
    virtual("overlap.h5", layout, kind="hdf5")
    unlimited = h5py.h5s.UNLIMITED
    target = h5py.h5s.create_simple((5, 40), (unlimited, 40))
    target.select_hyperslab((0, 0), (unlimited, 1), (1, 1), (1, 40))
    row = slabs((40,), ((0,), (1,), None, (40,)))
    low_level("printf.h5", (5, 40), [(target, "row%b.h5", "x", row)], kind="hdf5")
    target = h5py.h5s.create_simple((12, 9), (unlimited, 9))
    target.select_hyperslab((0, 0), (1, 1), (1, 1), (unlimited, 9))
    space = h5py.h5s.create_simple((12, 9), (unlimited, unlimited))
    space.select_hyperslab((0, 0), (1, 1), (1, 1), (unlimited, 9))
    low_level("unlimited.h5", (12, 9), [(target, "grown.h5", "x", space)], kind="hdf5")
    Path("garbage.h5").write_text("no HDF5")
    layout = h5py.VirtualLayout((40,), "i4")
    layout[:] = source("garbage.h5", "x", (40,))
    virtual("of_garbage.h5", layout, kind="hdf5")
    with h5py.File("row0.h5", "r+") as file:
        file.create_group("group")
    layout = h5py.VirtualLayout((40,), "i4")
    layout[:] = source("row0.h5", "group", (40,))
    virtual("of_group.h5", layout, kind="hdf5")


def names():
    save("50%.h5", {"a%b": numbers(8)})
    layout = h5py.VirtualLayout((8,), "i4")
    layout[:] = source("50%%.h5", "a%%b", (8,))
    virtual("percent.h5", layout)


def cycles():
    for name, other in (("a", "b"), ("b", "a")):
        layout = h5py.VirtualLayout((40,), "i4")
        layout[:] = source(f"cycle_{other}.h5", "v", (40,))
        virtual(f"cycle_{name}.h5", layout, kind="cycle")
    layout = h5py.VirtualLayout((40,), "i4")
    layout[:] = source(".", "v", (40,))
    virtual("cycle_of_one.h5", layout, kind="cycle")
    layout = h5py.VirtualLayout((400,), "i4")
    layout[:399] = source(".", "v", (400,))[1:]
    layout[399:] = source("row1.h5", "x", (40,))[:1]
    virtual("cycle_by_one.h5", layout, kind="cycle")
    # Mappings overlap, so that HDF5 would have to read it.
    layout = h5py.VirtualLayout((40,), "i4")
    layout[:25] = source("row0.h5", "x", (40,))[:25]
    layout[20:] = source("row1.h5", "x", (40,))[:20]
    layout[30:] = source("cycle_overlap2.h5", "v", (40,))[30:]
    virtual("cycle_overlap.h5", layout, kind="cycle")
    layout = h5py.VirtualLayout((40,), "i4")
    layout[:] = source("cycle_overlap.h5", "v", (40,))
    virtual("cycle_overlap2.h5", layout, kind="cycle")


def prefixes():
    """Sources in the folders that HDF5_VDS_PREFIX and HDF5_EXTFILE_PREFIX name."""
    for name in ("sources", "raw"):
        Path(name).mkdir()
    save("sources/row.h5", {"x": numbers(40, 7)})
    save("row.h5", {"x": numbers(40, 9000)})
    layout = h5py.VirtualLayout((40,), "i4")
    layout[:] = source("row.h5", "x", (40,))
    virtual("v.h5", layout)
    with h5py.File("v.h5", "r+") as file:
        data = numbers(20, 600)
        file.create_dataset("out", data=data, external=[("out.bin", 8, h5py.h5f.UNLIMITED)])
    virtual("sources/inner.h5", layout)
    layout[:] = source("inner.h5", "v", (40,))
    virtual("outer.h5", layout)


def main(folder, only_prefixes=False):
    os.chdir(folder)
    if only_prefixes:
        prefixes()
        return
    boxes()
    partial()
    nested()
    shapes()
    types()
    only_hdf5()
    names()
    cycles()
    Path("virtual").write_text("\n".join(written))


if __name__ == "__main__":
    main(*sys.argv[1:])
