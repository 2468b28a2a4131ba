"""Whole h5ad files."""

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
from tests.anndata.cells import CELLS, GENES, cells_of, matrix

import penstock as ps
from penstock import Error, InvalidError
from penstock.anndata import read_h5ad, stored
from penstock.anndata.libraries import Maker
from penstock.anndata.reading import read_sparse

Write = Callable[..., str]


def full(x: Any) -> anndata.AnnData:
    """Return cells with each kind of element that a file may have."""
    rng = np.random.default_rng(3)
    made = cells_of(x)
    made.layers["counts"] = matrix(seed=1)
    made.layers["columns"] = matrix(seed=2).tocsc()
    made.layers["dense"] = rng.random((CELLS, GENES))
    made.obsm["X_pca"] = rng.random((CELLS, 300)).astype("f4")  # more than h5py is quick for
    made.obsm["frame"] = pd.DataFrame({"a": np.arange(CELLS)}, index=made.obs_names)
    made.obsp["near"] = matrix(CELLS, CELLS, seed=4)
    made.varm["loadings"] = rng.random((GENES, 5))
    made.obs["nullable"] = pd.array([1, None] * (CELLS // 2), dtype="Int32")
    made.obs["flag"] = pd.array([True, None] * (CELLS // 2), dtype="boolean")
    made.uns["nested"] = {
        "number": 3,
        "text": "text",
        "texts": np.array(["a", "ü"], dtype=object),
        "matrix": matrix(5, 5),
        "records": np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")]),
        "nothing": None,
        "empty": {},
    }
    made.raw = cells_of(matrix(CELLS, GENES + 3, seed=8))
    return made


@pytest.mark.parametrize("kind", ["csr", "csc", "dense"])
def test_a_file_is_what_anndata_reads(write: Write, kind: str) -> None:
    x = matrix().toarray() if kind == "dense" else getattr(matrix(), f"to{kind}")()
    path = write(full(x))
    found, wanted = read_h5ad(path), anndata.io.read_h5ad(path)
    assert type(found.X) is type(wanted.X)
    _assert_same(found, wanted)


@pytest.mark.parametrize("kind", ["csr", "csc"])
@pytest.mark.parametrize(
    ("pointers", "indices"),
    [("i8", "i4"), ("u2", "i4"), ("i4", "i8"), ("u4", "u2"), (">i8", ">i4")],
)
def test_indices_and_pointers_have_the_integer_types_of_the_file(
    write: Write, kind: str, pointers: str, indices: str
) -> None:
    path = write(cells_of(getattr(matrix(), f"to{kind}")()))
    with h5py.File(path, "r+") as file:
        for name, dtype in (("indptr", pointers), ("indices", indices)):
            stored = file["X"][name][()]
            del file["X"][name]
            file["X"][name] = stored.astype(dtype)
    found = read_h5ad(path).X
    assert found.indptr.dtype == np.dtype(pointers).newbyteorder("=")
    assert found.indices.dtype == np.dtype(indices).newbyteorder("=")
    np.testing.assert_array_equal(found.toarray(), matrix().toarray())


def test_elements_that_were_never_written_are_zeros(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.attrs.update({"encoding-type": "csr_matrix", "shape": (1, 9)})
        for name, kind in (("data", "f4"), ("indices", "i4")):
            made = file.create_dataset(name, (40,), kind, chunks=(20,), dcpl=properties)
            made[:20] = 1
        file["indptr"] = [0, 40]
        empty = Maker.empty

        def used_before(*arguments: Any) -> Any:
            array = empty(*arguments)
            array.fill(7)
            return array

        monkeypatch.setattr(Maker, "empty", used_before)
        described = stored.sparse(file, "x.h5", "/")
        found = read_sparse(file, described, Maker("cpu", None), {})
    for array in (found.data, found.indices):
        assert array.tolist() == [1] * 20 + [0] * 20


def _assert_same(found: Any, wanted: Any) -> None:
    pd.testing.assert_frame_equal(found.obs, wanted.obs)
    pd.testing.assert_frame_equal(found.var, wanted.var)
    for name in ("layers", "obsm", "obsp", "varm", "varp"):
        mine, theirs = getattr(found, name), getattr(wanted, name)
        assert list(mine) == list(theirs)
        for key in mine:
            _assert_equal(mine[key], theirs[key])
    _assert_equal(found.X, wanted.X)
    _assert_equal(dict(found.uns), dict(wanted.uns))
    assert (found.raw is None) == (wanted.raw is None)
    if found.raw is not None:
        _assert_equal(found.raw.X, wanted.raw.X)
        pd.testing.assert_frame_equal(found.raw.var, wanted.raw.var)


def _parts(sparse: Any) -> tuple[Any, Any, Any]:
    return sparse.data, sparse.indices, sparse.indptr


def _assert_equal(mine: Any, theirs: Any) -> None:
    assert type(mine) is type(theirs)
    if isinstance(mine, dict):
        assert mine.keys() == theirs.keys()
        for key in mine:
            _assert_equal(mine[key], theirs[key])
    elif sp.issparse(mine):
        for one, other in zip(_parts(mine), _parts(theirs), strict=True):
            assert one.dtype == other.dtype
        assert mine.shape == theirs.shape
        assert (mine != theirs).nnz == 0
    elif isinstance(mine, pd.DataFrame):
        pd.testing.assert_frame_equal(mine, theirs)
    elif isinstance(mine, np.ndarray):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)
    else:
        assert mine == theirs


def test_sparse_arrays_come_where_the_settings_of_anndata_ask_for_them(write: Write) -> None:
    path = write(cells_of(matrix()))
    with anndata.settings.override(use_sparse_array_on_read=True):
        assert isinstance(read_h5ad(path).X, sp.csr_array)
    assert isinstance(read_h5ad(path).X, sp.csr_matrix)


def test_a_file_without_x_is_read(write: Write) -> None:
    path = write(anndata.AnnData(obs=pd.DataFrame({"a": [1.0, 2.0]}, index=["x", "y"])))
    assert read_h5ad(path).X is None


def test_an_awkward_array_is_read_or_is_the_error_of_anndata(write: Write) -> None:
    path = write(cells_of(matrix()))
    with h5py.File(path, "r+") as file:
        group = file["obsm"].create_group("ragged")
        group.attrs.update({"encoding-type": "awkward-array", "encoding-version": "0.1.0"})
    with pytest.raises(Exception, match="ragged") as ours:
        read_h5ad(path)
    with pytest.raises(Exception, match="ragged") as theirs:
        anndata.io.read_h5ad(path)
    assert type(ours.value) is type(theirs.value)


def test_a_group_without_encoding_is_what_it_is_to_anndata(write: Write) -> None:
    path = write(cells_of(matrix()))
    with h5py.File(path, "r+") as file:
        del file["X"].attrs["encoding-type"]
    with pytest.raises(Exception, match=r".") as theirs:
        anndata.io.read_h5ad(path)
    with pytest.raises(Exception, match=r".") as ours:
        read_h5ad(path)
    assert type(ours.value) is type(theirs.value)


def test_a_damaged_matrix_is_an_error_with_file_and_dataset(write: Write) -> None:
    path = write(cells_of(matrix()))
    with h5py.File(path, "r+") as file:
        file["X/indices"][5] = GENES
    with pytest.raises(InvalidError, match=r"/X of .*cells.h5ad: the index 40 is outside"):
        read_h5ad(path)
    with h5py.File(path, "r+") as file:
        file["X/indptr"][3] = 10**6
    with pytest.raises(InvalidError, match="index pointer 4 is smaller"):
        read_h5ad(path)


def test_files_that_are_not_there_or_of_another_kind_are_os_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_h5ad(tmp_path / "none.h5ad")
    (tmp_path / "text.h5ad").write_text("no HDF5")
    with pytest.raises(OSError, match=r"text\.h5ad"):
        read_h5ad(tmp_path / "text.h5ad")


def old_file(path: Path) -> None:
    """Write a file as anndata 0.6 did."""
    x = matrix()
    with h5py.File(path, "w") as file:
        group = file.create_group("X")
        group.attrs["h5sparse_format"], group.attrs["h5sparse_shape"] = b"csr", x.shape
        for name in ("data", "indices", "indptr"):
            group[name] = getattr(x, name)
        obs = np.zeros(CELLS, dtype=[("index", "S12"), ("depth", "f8"), ("kind", "i1")])
        obs["index"] = [f"cell{at}".encode() for at in range(CELLS)]
        obs["depth"], obs["kind"] = np.arange(CELLS), np.arange(CELLS) % 2
        file["obs"] = obs
        var = np.zeros(GENES, dtype=[("index", "S12")])
        var["index"] = [f"gene{at}".encode() for at in range(GENES)]
        file["var"] = var
        file["uns/kind_categories"] = np.array([b"B", b"T"])
        group = file.create_group("raw.X")
        group.attrs["h5sparse_format"], group.attrs["h5sparse_shape"] = b"csr", x.shape
        for name in ("data", "indices", "indptr"):
            group[name] = getattr(x, name)
        file["raw.var"] = var


@pytest.mark.filterwarnings("ignore")
def test_a_file_of_before_0_7_is_what_anndata_reads(tmp_path: Path) -> None:
    path = tmp_path / "old.h5ad"
    old_file(path)
    _assert_same(read_h5ad(path), anndata.io.read_h5ad(path))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "at", "value"), [("indptr", 3, 10**6), ("indptr", -1, 10**6), ("indices", 5, GENES)]
)
@pytest.mark.parametrize("group", ["X", "raw.X"])
def test_a_damaged_matrix_of_before_0_7_is_an_error(
    tmp_path: Path, group: str, name: str, at: int, value: int
) -> None:
    path = tmp_path / "old.h5ad"
    old_file(path)
    with h5py.File(path, "r+") as file:
        file[group][name][at] = value
    with pytest.raises(InvalidError, match=rf"{group} of .*old.h5ad: .*index"):
        read_h5ad(path)


ARCHIVES = sorted(Path(os.environ.get("PENSTOCK_TEST_H5AD", "none")).glob("*.h5ad"))
"""Files of anndata's and scanpy's repositories, which no package has."""


@pytest.mark.skipif(not ARCHIVES, reason="PENSTOCK_TEST_H5AD names no folder of files")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", ARCHIVES, ids=lambda path: path.name)
def test_files_of_earlier_versions_are_what_anndata_reads(path: Path) -> None:
    _assert_same(read_h5ad(path), anndata.io.read_h5ad(path))


@pytest.mark.gpu
def test_a_gpu_without_cupy_is_an_error_that_names_it(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.frameworks.with_gpu", lambda name: None)
    with pytest.raises(Error, match="CuPy is not installed"):
        read_h5ad(write(cells_of(matrix())), device="cuda")


def test_anndata_reads_and_writes_elements_of_a_file_of_penstock(tmp_path):
    made = anndata.AnnData(np.arange(12.0, dtype="f4").reshape(4, 3))
    with ps.File(tmp_path / "f.h5ad", "w") as file:
        anndata.io.write_elem(file, "/", made)
        anndata.io.write_elem(file, "copy", file["X"])
        anndata.io.write_elem(file.create_group("group"), "obs", made.obs)
        found = anndata.io.read_elem(file)
        np.testing.assert_array_equal(found.X, made.X)
        np.testing.assert_array_equal(file["copy"][...], made.X)
        assert list(anndata.io.read_elem(file["group/obs"]).index) == list(made.obs.index)
