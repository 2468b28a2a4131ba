"""Rows of matrices of h5ad files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.anndata.cells import CELLS, GENES, cells_of, matrix, same

from penstock import IncompatibleError, InvalidError
from penstock.anndata import Rows, libraries, read_h5ad

EXAMPLES = 300 if os.environ.get("PENSTOCK_TEST_CASES") == "all" else 40

Write = Callable[..., str]


@pytest.fixture
def path(write: Write) -> str:
    return write(cells_of(matrix()))


@pytest.mark.parametrize(
    "index",
    [
        [3, 1, 2],
        [5, 5, 5],
        [-1, 0],
        [],
        slice(10, 100, 7),
        slice(None),
        slice(20, 5, -3),
        7,
        np.arange(CELLS)[::-1],
        np.arange(CELLS) % 3 == 0,
    ],
    ids=str,
)
def test_rows_are_those_of_the_matrix(path: str, index: Any) -> None:
    wanted = matrix()[[index] if isinstance(index, int) else index]
    assert same(Rows(path)[index], wanted)


@st.composite
def files(draw: Any) -> tuple[Any, int, str | None, np.dtype[Any], list[int]]:
    cells, genes = draw(st.integers(1, 60)), draw(st.integers(1, 30))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    made = sp.random(cells, genes, draw(st.floats(0, 1)), "csr", np.float64, rng)
    dtype = np.dtype(draw(st.sampled_from(["f4", "f8", "i4", "u1", "i8", ">f4"])))
    made.data = np.round(made.data * 100).astype(dtype.newbyteorder("="))
    chunk = draw(st.sampled_from([0, 1, 7, 64, 5000]))
    rows = draw(st.lists(st.integers(-cells, cells - 1), max_size=80))
    return made, chunk, draw(st.sampled_from([None, "gzip", "lzf"])), dtype, rows


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(files(), st.sampled_from(["i4", "i8", "u2"]))
def test_rows_of_a_random_file_are_those_that_anndata_reads(
    tmp_path: Path, case: Any, kind: str
) -> None:
    made, chunk, filters, dtype, index = case
    path = tmp_path / "random.h5ad"
    with h5py.File(path, "w") as file:
        group = file.create_group("X")
        group.attrs["encoding-type"], group.attrs["encoding-version"] = "csr_matrix", "0.1.0"
        group.attrs["shape"] = made.shape
        keys: dict[str, Any] = {}
        if chunk:
            keys = {"chunks": (chunk,), "maxshape": (None,), "compression": filters}
        group.create_dataset("data", data=made.data.astype(dtype), **keys)
        group.create_dataset("indices", data=made.indices.astype(kind), **keys)
        group.create_dataset("indptr", data=made.indptr.astype(kind))
    found = Rows(path)[index]
    with h5py.File(path) as file:
        backed = anndata.io.sparse_dataset(file["X"])
        # SciPy, and so anndata, has no values of the other byte order.
        is_known = index and dtype.isnative
        # Its backed mode (0.13.4) takes no negative indices.
        rows = np.array(index, int) % made.shape[0]
        wanted = backed[rows] if is_known else made[rows]
    assert found.dtype == dtype.newbyteorder("=")
    assert same(found, wanted)


def test_values_are_converted_as_they_are_read(path: str) -> None:
    found = Rows(path, dtype="float64")[[4, 2]]
    assert found.dtype == np.float64
    assert same(found, matrix()[[4, 2]].astype("f8"))


@pytest.mark.parametrize("kind", ["csr", "csc", "dense"])
@pytest.mark.parametrize("types", ["i4 f4", "f4 i4", "u1 i4", "? f4", "f4 f4", "u1 i1 u1"])
def test_values_of_files_of_several_types_are_promoted(write: Write, types: str, kind: str) -> None:
    parts = []
    for at, dtype in enumerate(types.split()):
        x = matrix(20, seed=at)
        x.data = (x.data * (3.7 if dtype == "f4" else 1)).astype(dtype)
        parts.append(cells_of(x.toarray() if kind == "dense" else x.asformat(kind), at))
    paths = [write(part, f"{at}.h5ad") for at, part in enumerate(parts)]
    wanted, found = anndata.concat(parts).X, Rows(paths)[:]
    assert found.dtype == wanted.dtype
    assert np.array_equal(_dense(found), _dense(wanted))


def test_a_dense_result_has_the_elements_of_the_sparse_file(path: str) -> None:
    assert np.array_equal(Rows(path, dense=True)[[9, 3]], matrix()[[9, 3]].toarray())


@pytest.mark.parametrize("chunks", [None, (7, 9), (1, GENES), (CELLS, 1)], ids=str)
def test_rows_of_a_dense_matrix_are_gathered(write: Write, chunks: Any) -> None:
    path = write(cells_of(matrix().toarray()))
    with h5py.File(path, "r+") as file:
        values, attributes = file["X"][:], dict(file["X"].attrs)
        del file["X"]
        compression = None if chunks is None else "gzip"
        file.create_dataset("X", data=values, chunks=chunks, compression=compression)
        file["X"].attrs.update(attributes)
    index = [100, 3, 3, 149, 0]
    assert np.array_equal(Rows(path)[index], values[index])


def test_layers_and_raw_are_matrices_too(write: Write) -> None:
    made = cells_of(matrix())
    made.layers["counts"] = matrix(seed=5)
    made.raw = cells_of(matrix(seed=6))
    path = write(made)
    assert same(Rows(path, "layers/counts")[[1, 0]], matrix(seed=5)[[1, 0]])
    assert same(Rows(path, "raw/X")[[1, 0]], matrix(seed=6)[[1, 0]])


@pytest.mark.parametrize("join", ["outer", "inner"])
@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_genes_of_several_files_are_aligned_by_name(write: Write, join: Any, kind: str) -> None:
    genes = [
        [f"gene{at}" for at in range(GENES)],
        [f"gene{at}" for at in range(GENES + 9, 9, -1)],
        [f"gene{at}" for at in range(0, 2 * GENES, 2)],
    ]
    parts = []
    for number, names in enumerate(genes):
        x = matrix(60 + number, seed=number)
        parts.append(cells_of(x if kind == "sparse" else x.toarray(), number, names))
    paths = [write(part, f"{number}.h5ad") for number, part in enumerate(parts)]
    rows = Rows(paths, join=join)
    wanted = anndata.concat(parts, join=join)
    index = np.random.default_rng(0).permutation(len(rows))[:100]
    assert rows.shape == wanted.shape
    assert list(rows.var_names) == list(wanted.var_names)
    assert list(rows.obs_names) == list(wanted.obs_names)
    if kind == "sparse":
        assert same(rows[index], wanted.X[index])
    else:
        assert np.array_equal(rows[index], wanted.X[index], equal_nan=True)
    one = np.arange(60, 100)  # of one file
    assert np.array_equal(np.nan_to_num(_dense(rows[one])), np.nan_to_num(_dense(wanted.X[one])))


@pytest.mark.parametrize("x", ["/X", "X/", "./X", "/layers/c", "layers//c/"])
def test_genes_are_aligned_by_any_name_of_a_matrix(write: Write, x: str) -> None:
    genes = [list("abc"), list("cba")]
    parts = [cells_of(matrix(20, 3, seed=at), at, genes[at]) for at in range(2)]
    for part in parts:
        part.layers["c"] = part.X
    rows = Rows([write(part, f"{at}.h5ad") for at, part in enumerate(parts)], x)
    wanted = anndata.concat(parts).X
    assert list(rows.var_names) == ["a", "b", "c"]
    assert same(rows[:], wanted)
    assert rows.x in ("X", "layers/c")


def test_genes_of_raw_are_those_of_its_own_frame(write: Write) -> None:
    parts = [cells_of(matrix(20, 3, seed=at), at, list("abc")) for at in range(2)]
    genes = [list("abcde"), list("xedcb")]
    raws = [cells_of(matrix(20, 5, seed=at), at, genes[at]) for at in range(2)]
    for part, raw in zip(parts, raws, strict=True):
        part.raw = raw
    paths = [write(part, f"{at}.h5ad") for at, part in enumerate(parts)]
    wanted = anndata.concat(raws, join="outer")
    rows = Rows(paths, "raw/X")
    assert list(rows.var_names) == list(wanted.var_names) == list("abcdex")
    assert same(rows[:], wanted.X)
    assert list(Rows(paths[0], "raw/X").var_names) == list("abcde")


def test_columns_that_are_no_genes_have_numbers_for_names(write: Write) -> None:
    made = cells_of(matrix())
    made.obsm["X_pca"] = np.ones((CELLS, 3))
    made.varm["loadings"] = np.ones((GENES, 2))
    path = write(made)
    assert list(Rows(path, "obsm/X_pca").var_names) == [0, 1, 2]
    assert list(Rows(path, "obsm/X_pca").obs_names) == list(made.obs_names)
    assert list(Rows(path, "varm/loadings").obs_names) == list(made.var_names)


def test_names_that_are_numbers_are_those_of_text(write: Write) -> None:
    paths = []
    for at, genes in enumerate(["012", "210"]):
        paths.append(write(cells_of(matrix(20, 3, seed=at), at, list(genes)), f"{at}.h5ad"))
    wanted = Rows(paths)[:]
    with h5py.File(paths[1], "r+") as file:
        for axis, names in (("var", [2, 1, 0]), ("obs", range(20))):
            index = file[axis].attrs["_index"]
            attributes = {"encoding-type": "array", "encoding-version": "0.2.0"}
            del file[axis][index]
            file[axis][index] = np.array(names)
            file[axis][index].attrs.update(attributes)
    rows = Rows(paths)
    assert list(rows.var_names) == ["0", "1", "2"]
    assert set(map(type, rows.obs_names)) == {str}
    assert same(rows[:], wanted)


@pytest.mark.parametrize("axis", ["obs", "var"])
def test_a_frame_of_another_length_than_the_matrix_is_an_error(write: Write, axis: str) -> None:
    paths = [write(cells_of(matrix(seed=at), at), f"{at}.h5ad") for at in range(2)]
    with h5py.File(paths[1], "r+") as file:
        name = f"{axis}/{file[axis].attrs['_index']}"
        is_group = isinstance(file[name], h5py.Group)  # of values and a mask, by pandas 3
        for of_names in [f"{name}/{part}" for part in file[name]] if is_group else [name]:
            names, attributes = file[of_names][:-1], dict(file[of_names].attrs)
            del file[of_names]
            file[of_names] = names
            file[of_names].attrs.update(attributes)
    count = {"obs": CELLS, "var": GENES}[axis]
    message = rf"{axis} of .*1.h5ad has the length {count - 1}, and the matrix has {count}"
    with pytest.raises(InvalidError, match=message):
        assert Rows(paths).obs_names is None


def _dense(found: Any) -> Any:
    return found.toarray() if sp.issparse(found) else found


def test_files_of_the_same_genes_follow_one_another(write: Write) -> None:
    paths = [write(cells_of(matrix(seed=at), at), f"{at}.h5ad") for at in range(3)]
    wanted = sp.vstack([matrix(seed=at) for at in range(3)]).tocsr()
    index = np.random.default_rng(1).integers(0, 3 * CELLS, 200)
    assert same(Rows(paths)[index], wanted[index])


COLUMNS = {
    "text": ["x", "y", "x"],
    "text categories": pd.Categorical(["x", "z", "x"]),
    "numbers": [3, 1, 2],
    "number categories": pd.Categorical([3, 1, 3]),
    "float categories": pd.Categorical([0.5, 1.5, 0.5]),
    "missing": [np.nan, np.nan, np.nan],
    "missing categories": pd.Categorical([None, None, None], categories=["q"]),
    "missing numbers": pd.Categorical([np.nan] * 3, categories=[1.5]),
}


@pytest.mark.parametrize("first", COLUMNS)
@pytest.mark.parametrize("second", COLUMNS)
@pytest.mark.filterwarnings("ignore:The behavior of")
def test_a_column_of_several_files_is_that_of_anndata_or_an_error(
    write: Write, first: str, second: str
) -> None:
    parts = []
    for at, name in enumerate((first, second)):
        parts.append(cells_of(matrix(3, 2, seed=at), at))
        parts[-1].obs["k"] = COLUMNS[name]
    rows = Rows([write(part, f"{at}.h5ad") for at, part in enumerate(parts)])
    kinds = {name for name in (first, second) if not name.startswith("missing")}
    are_text = {"text" in name for name in kinds}
    if len(are_text) == 2 or kinds == {"number categories", "float categories"}:
        with pytest.raises(IncompatibleError, match=r"column k are .*0.h5ad, and .*1.h5ad"):
            rows.obs(["k"])
        return
    found, wanted = rows.obs(["k"])["k"], anndata.concat(parts).obs["k"]
    known = [None if pd.isna(value) else value for value in found]
    assert known == [None if pd.isna(value) else value for value in wanted]


@pytest.mark.parametrize("index", [[0, 1, 2], [0, 2, 3], [2, 3], [3, 2], [2], [3, 4, 5, 0, 1, 2]])
def test_empty_rows_of_several_files_are_read(write: Write, index: list[int]) -> None:
    parts = [sp.csr_matrix(np.array(x, "f4")) for x in ([[1, 0], [0, 2], [0, 0]], np.eye(3, 2))]
    paths = [write(cells_of(part, at), f"{at}.h5ad") for at, part in enumerate(parts)]
    assert same(Rows(paths)[index], sp.vstack(parts).tocsr()[index])


def test_one_plan_reads_several_batches(path: str) -> None:
    batches = [np.array([4, 2]), np.array([], int), np.array([77, 4, 149])]
    found = list(Rows(path).start(batches).wait())
    assert all(same(x, matrix()[rows]) for rows, x in found)
    assert all(np.array_equal(a, b) for (a, _), b in zip(found, batches, strict=True))


@pytest.mark.parametrize("join", ["outer", "inner"])
@pytest.mark.parametrize("like", ["numpy", "torch"])
@pytest.mark.filterwarnings("ignore:Sparse ")
def test_indices_have_64_bits_where_32_are_too_few(
    write: Write, monkeypatch: pytest.MonkeyPatch, join: Any, like: Any
) -> None:
    pytest.importorskip(like)
    genes = [[f"gene{at}" for at in range(10 * n, 10 * n + GENES)] for n in range(2)]
    parts = [cells_of(matrix(60, seed=n), n, names) for n, names in enumerate(genes)]
    rows = Rows([write(part, f"{n}.h5ad") for n, part in enumerate(parts)], like=like, join=join)
    wanted = anndata.concat(parts, join=join).X
    monkeypatch.setattr(libraries, "_BEYOND_INT32", 200)
    for index, width in ((np.arange(120), 64), (np.arange(60), 64), ([3, 70], 32)):
        found = rows[index]
        if like == "torch":
            kinds = {found.crow_indices().dtype, found.col_indices().dtype}
            found = sp.csr_matrix(found.to_dense().numpy())
        else:
            kinds = {found.indptr.dtype, found.indices.dtype}
        assert [str(kind).removeprefix("torch.") for kind in kinds] == [f"int{width}"]
        assert same(found, wanted[index])


def test_a_matrix_with_indices_too_long_for_cupy_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    maker = libraries.Maker("cpu", None)
    maker.library = "cupy"
    assert maker.index_type((1 << 31) - 1, 20_000) == np.int32
    with pytest.raises(IncompatibleError, match=r"2147483648 elements.*read fewer rows"):
        maker.index_type(1 << 31, 20_000)


def test_a_row_that_is_not_there_is_an_index_error(path: str) -> None:
    with pytest.raises(IndexError, match="row 150 is out of range: there are 150 rows"):
        Rows(path)[[0, 150]]
    for row in (2**64 - 1, 2**63, -(2**63), 2**64):
        with pytest.raises(IndexError, match=r"out of range|are not rows"):
            Rows(path)[row]
        with pytest.raises(IndexError, match=r"out of range|are not rows"):
            Rows(path)[[row]]
    with pytest.raises(IndexError, match="mask of shape"):
        Rows(path)[[True, False]]


def test_rows_of_a_matrix_stored_by_column_are_the_same(write: Write) -> None:
    path = write(cells_of(matrix().tocsc()))
    assert same(Rows(path)[[7, 7, 149, 0]], matrix()[[7, 7, 149, 0]])
    assert same(Rows([path, path])[[200, 7]], matrix()[[50, 7]])


MASKS = {
    "none": np.zeros(CELLS, bool),
    "every second": np.arange(CELLS) % 2 == 0,
    "all but every fifteenth": np.arange(CELLS) % 15 > 0,
    "one group": (np.arange(CELLS) > 0) & (np.arange(CELLS) < CELLS // 2),
    "one": np.arange(CELLS) == CELLS // 4,
    "some groups": np.random.default_rng(0).random(CELLS // 10).repeat(10) > 0.5,
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("kind", ["csr", "csc", "dense"])
def test_a_mask_selects_the_same_rows_as_its_indices(write: Write, kind: str, mask: str) -> None:
    x = matrix().toarray() if kind == "dense" else matrix().asformat(kind)
    rows, chosen = Rows(write(cells_of(x))), MASKS[mask]
    assert np.array_equal(_dense(rows[chosen]), matrix().toarray()[chosen])
    assert np.array_equal(_dense(rows[np.flatnonzero(chosen)]), _dense(rows[chosen]))


@pytest.mark.filterwarnings("ignore:Variable names are not unique")
def test_files_that_do_not_fit_together_are_refused(write: Write) -> None:
    sparse = write(cells_of(matrix()), "sparse.h5ad")
    dense = write(cells_of(matrix().toarray()), "dense.h5ad")
    with pytest.raises(IncompatibleError, match="is dense, and X of"):
        Rows([sparse, dense])
    other = write(cells_of(matrix(), genes=["same"] * GENES), "twice.h5ad")
    with pytest.raises(InvalidError, match="has the gene 'same' twice"):
        Rows([sparse, other])
    apart = write(cells_of(matrix(), genes=[f"x{at}" for at in range(GENES)]), "apart.h5ad")
    with pytest.raises(IncompatibleError, match="no gene in common"):
        Rows([sparse, apart], join="inner")


@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_values_of_float16_are_refused_where_scipy_has_no_matrix(path: str, kind: str) -> None:
    with h5py.File(path, "r+") as file:
        values = file["X/data"][:].astype("f2")
        del file["X/data"]
        file["X/data"] = values
        if kind == "csc":
            file["X"].attrs["encoding-type"] = "csc_matrix"
            file["X"].attrs["shape"] = [GENES, CELLS]
    with pytest.raises(IncompatibleError, match=r'X of .*cells.h5ad: SciPy .*dtype="float32"'):
        Rows(path)
    with pytest.raises(IncompatibleError, match=r"X of .*cells.h5ad: SciPy .*as float32"):
        read_h5ad(path)
    wanted = matrix() if kind == "csr" else matrix().T
    assert same(Rows(path, dtype="float32")[:], wanted)


@pytest.mark.parametrize("dtype", ["u1", "i1", "i2", "u4", "i8", "f4", "f2"])
def test_a_matrix_stored_by_column_is_converted_as_one_stored_by_row(
    write: Write, dtype: str
) -> None:
    values = np.array([[300.0, -5.0, 1.7, np.nan, 1e20, 0.0]] * 3 + [[0.0, 2.0, 0.0, -1e9, 0, 3]])
    paths = [
        write(cells_of(kind(values)), f"{kind.__name__}.h5ad")
        for kind in (sp.csr_matrix, sp.csc_matrix)
    ]
    if dtype == "f2":
        for path in paths:
            with pytest.raises(IncompatibleError, match="SciPy has no sparse matrices of float16"):
                Rows(path, dtype=dtype)
        return
    by_row, by_column = (Rows(path, dtype=dtype, dense=True)[[3, 0, 3]] for path in paths)
    assert by_row.dtype == dtype
    assert np.array_equal(by_row, by_column, equal_nan=dtype == "f4")


@pytest.mark.filterwarnings("ignore:Sparse ")
@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8", "i2", "?", "bfloat16"])
@pytest.mark.parametrize("kind", ["csr", "csc", "dense"])
@pytest.mark.parametrize("dense", [False, True])
def test_tensors_have_values_of_each_type(write: Write, dtype: Any, kind: str, dense: bool) -> None:
    torch = pytest.importorskip("torch")
    values = (np.arange(12).reshape(4, 3) % 5).astype("f4" if dtype == "bfloat16" else dtype)
    x = values if kind == "dense" else getattr(sp, f"{kind}_matrix")(values)
    genes = [list("abc"), list("cab")]
    paths = [write(cells_of(x, at, genes[at]), f"{at}.h5ad") for at in range(2)]
    keys: dict[str, Any] = {"like": "torch", "dense": dense}
    if values.dtype == "f4":
        keys["dtype"] = dtype
    wanted = values[[3, 0, 1]]
    for files in (paths[0], paths):
        found = Rows(files, **keys)[[3, 0, 1]]
        if found.layout != torch.strided:
            crow, columns, data = found.crow_indices(), found.col_indices(), found.values()
            arrays = [part.numpy() for part in (data.double(), columns, crow)]
            assert np.array_equal(sp.csr_matrix(tuple(arrays), found.shape).toarray(), wanted)
        else:
            assert np.array_equal(found.double().numpy(), wanted)


def test_a_matrix_that_is_not_there_is_a_key_error(path: str) -> None:
    with pytest.raises(KeyError, match="has no 'layers/counts'; it has X"):
        Rows(path, "layers/counts")


def _indptr(at: int, value: int) -> Callable[[Any], None]:
    def change(group: Any) -> None:
        group["indptr"][at] = value

    return change


def _index(value: int) -> Callable[[Any], None]:
    def change(group: Any) -> None:
        group["indices"][int(group["indptr"][10])] = value

    return change


def _shorter(name: str) -> Callable[[Any], None]:
    return lambda group: group[name].resize((len(group[name]) - 3,))


def _without(name: str) -> Callable[[Any], None]:
    def change(group: Any) -> None:
        del group.attrs[name]

    return change


def _shape(value: Any) -> Callable[[Any], None]:
    def change(group: Any) -> None:
        group.attrs["shape"] = value

    return change


DAMAGES: dict[str, tuple[Callable[[Any], None], str]] = {
    "falls": (_indptr(7, 10**6), "index pointer 8 is smaller than the one before it"),
    "begins late": (_indptr(0, 1), "the first index pointer is 1"),
    "ends late": (_indptr(-1, 10**6), "the index pointers end at 1000000 of 1200 values"),
    "index too large": (_index(GENES), "row 10 has the index 40, and there are 40 columns"),
    "negative index": (_index(-1), "row 10 has the index -1"),
    "fewer indices": (_shorter("indices"), "there are 1200 values and 1197 indices"),
    "no encoding": (_without("encoding-type"), "the group has no encoding-type"),
    "no shape": (_without("shape"), "the attribute shape is None"),
    "negative shape": (_shape([150, -1]), "and not two lengths"),
    "text as shape": (_shape("many"), "and not two lengths"),
    "more rows": (_shape([151, GENES]), "there are 151 index pointers"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_matrix_is_an_error_with_file_and_dataset(path: str, damage: str) -> None:
    change, message = DAMAGES[damage]
    with h5py.File(path, "r+") as file:
        change(file["X"])
    with pytest.raises((InvalidError, IncompatibleError), match=message) as raised:
        Rows(path)[:]
    assert path in str(raised.value)
    assert "X of" in str(raised.value)


@pytest.mark.parametrize("kind", ["csr", "csc"])
@pytest.mark.parametrize(
    "pointers",
    [
        np.array([0, 2**62 + 2 * 10**9, -(2**63), -(2**62), 5], "i8"),
        np.array([0, 2**63 - 1, -(2**63), -1, 5], "i8"),
        np.array([0, 2**64 - 3, 2**64 - 2, 2**64 - 1, 5], "u8"),
        np.array([0, 1, 2, 3, 2**63 + 5], "u8"),
        np.array([0, 1, 2, 3, 6], ">u2"),
    ],
    ids=str,
)
def test_index_pointers_whose_differences_overflow_are_refused(
    write: Write, kind: str, pointers: Any
) -> None:
    shape = (4, 10) if kind == "csr" else (10, 4)
    path = write(cells_of(getattr(sp, f"{kind}_matrix")(np.eye(*shape, dtype="f4"))))
    with h5py.File(path, "r+") as file:
        for name, array in (("data", np.ones(5, "f4")), ("indices", np.arange(5, dtype="i4"))):
            del file["X"][name]
            file["X"][name] = array
        del file["X/indptr"]
        file["X/indptr"] = pointers
    with pytest.raises(InvalidError, match=r"X of .*cells.h5ad: .*index pointer"):
        Rows(path)
    with pytest.raises(InvalidError, match=r"X of .*cells.h5ad: .*index pointer"):
        read_h5ad(path)


def test_a_dense_matrix_with_too_many_elements_to_count_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "large.h5ad", "w") as file:
        file.create_dataset("X", (3, 2**62), "f4", chunks=(1, 1024))
    with pytest.raises(IncompatibleError, match=r"X of .*large.h5ad has the shape \(3, 46"):
        Rows(tmp_path / "large.h5ad")


def test_an_index_of_64_bits_is_not_cut(path: str) -> None:
    with h5py.File(path, "r+") as file:
        indices = file["X/indices"][:].astype("i8")
        indices[0] += 1 << 32
        del file["X/indices"]
        file["X/indices"] = indices
    with pytest.raises(InvalidError, match="row 0 has the index 2147483647 or more"):
        Rows(path)[:]
    with pytest.raises(InvalidError, match=f"the index {indices[0]} is outside"):
        read_h5ad(path)


@pytest.mark.parametrize("kind", ["csr", "dense"])
def test_a_file_that_was_replaced_is_not_read_with_what_the_old_one_had(
    write: Write, kind: str
) -> None:
    parts = [matrix(seed=at) for at in range(2)]
    made = [cells_of(part.toarray() if kind == "dense" else part) for part in parts]
    path, other = write(made[0]), write(made[1], "other.h5ad")
    rows = Rows(path)
    rows[[0]]
    rows.close()
    os.replace(other, path)
    for read in (lambda: rows[[0]], lambda: rows.obs_names, lambda: rows.obs(["kind"])):
        with pytest.raises(InvalidError, match=r"cells.h5ad was replaced or changed after"):
            read()
    assert np.array_equal(_dense(Rows(path)[:]), parts[1].toarray())


def test_a_file_that_was_written_between_two_openings_is_refused(path: str) -> None:
    rows = Rows(path)
    with h5py.File(path, "r+") as file:
        file["X/data"][0] = 7
    with pytest.raises(InvalidError, match=r"cells.h5ad was replaced or changed after"):
        rows[[0]]


def test_a_file_that_is_cut_off_is_an_error_with_its_name(path: str) -> None:
    size = os.path.getsize(path)
    os.truncate(path, size // 2)
    with pytest.raises(OSError, match=r"cells\.h5ad"):
        Rows(path)
