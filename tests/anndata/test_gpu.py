"""Rows and batches of cells in GPU memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import anndata
import numpy as np
import pytest
import scipy.sparse as sp
from tests.anndata.cells import CELLS, GENES, cells_of, matrix, same

import penstock as ps
from penstock.anndata import Batches, Rows, read_h5ad
from penstock.frameworks import with_gpu

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:Sparse ")]
Write = Callable[..., str]


@pytest.fixture
def torch() -> Iterator[Any]:
    """torch; the CPU computes its kernels on the stand-in GPU, which does not run them."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch finds no GPU")
    from tests.torch_kernels import kernels_on_cpu

    with kernels_on_cpu():
        yield torch


def on_host(found: Any) -> Any:
    """Return a sparse matrix of any library as SciPy's."""
    if isinstance(found, tuple):
        data, indices, indptr = (one.numpy() for one in found[:3])
        return sp.csr_matrix((data, indices, indptr), shape=found[3])
    parts = (found.values(), found.col_indices(), found.crow_indices())
    arrays = tuple(one.cpu().numpy() for one in parts)
    return sp.csr_matrix(arrays, shape=tuple(found.shape))


@pytest.mark.parametrize("index", [[3, 1, 2], [5, 5, 5], np.arange(CELLS)[::-1]], ids=str)
def test_rows_are_gathered_into_device_arrays(write: Write, index: Any) -> None:
    rows = Rows(write(cells_of(matrix())), device="cuda", like="device")
    found = rows[index]
    assert isinstance(found.data, ps.DeviceArray)
    assert same(on_host(found), matrix()[index])


def test_dense_rows_are_gathered_into_device_arrays(write: Write) -> None:
    rows = Rows(write(cells_of(matrix().toarray())), device="cuda", like="device")
    assert np.array_equal(rows[[70, 2, 2]].numpy(), matrix().toarray()[[70, 2, 2]])


def test_batches_of_device_arrays_have_the_cells(write: Write) -> None:
    batches = Batches(write(cells_of(matrix())), 32, device="cuda", like="device", window=2)
    for batch in batches:
        assert same(on_host(batch.x), matrix()[batch.rows])


@pytest.mark.torch
@pytest.mark.parametrize("window", [1, 3, None])
@pytest.mark.parametrize("shuffle", ["full", "blocks"])
def test_batches_are_sparse_tensors(
    torch: Any, write: Write, shuffle: Any, window: int | None
) -> None:
    path = write(cells_of(matrix()))
    batches = Batches(
        path, 32, obs=["kind", "depth"], device="cuda", like="torch", shuffle=shuffle, window=window
    )
    kinds, depths = Rows(path).obs(["kind", "depth"]).values()
    seen = []
    for batch in batches:
        assert batch.x.layout == torch.sparse_csr
        assert batch.x.is_cuda
        assert same(on_host(batch.x), matrix()[batch.rows])
        assert batch.obs["kind"].cpu().tolist() == kinds.cat.codes[batch.rows].tolist()
        assert batch.obs["depth"].cpu().tolist() == depths[batch.rows].tolist()
        seen += batch.rows.tolist()
    assert sorted(seen) == list(range(CELLS))


@pytest.mark.torch
@pytest.mark.parametrize("join", ["outer", "inner"])
def test_genes_are_aligned_in_gpu_memory(torch: Any, write: Write, join: Any) -> None:
    genes = [[f"gene{at}" for at in range(10 * n, 10 * n + GENES)] for n in range(2)]
    parts = [cells_of(matrix(60, seed=n), n, names) for n, names in enumerate(genes)]
    paths = [write(part, f"{n}.h5ad") for n, part in enumerate(parts)]
    index = np.random.default_rng(0).permutation(120)
    found = Rows(paths, device="cuda", like="torch", join=join)[index]
    assert same(on_host(found), anndata.concat(parts, join=join).X[index])


@pytest.mark.torch
def test_rows_of_a_matrix_stored_by_column_go_to_gpu_memory(torch: Any, write: Write) -> None:
    path = write(cells_of(matrix().tocsc()))
    found = Rows(path, device="cuda", like="torch", dtype="float64")[[9, 9, 140]]
    assert same(on_host(found), matrix()[[9, 9, 140]].astype("f8"))


@pytest.mark.torch
def test_dense_batches_are_tensors(torch: Any, write: Write) -> None:
    path = write(cells_of(matrix().toarray()))
    for batch in Batches(path, 40, device="cuda", like="torch"):
        assert np.array_equal(batch.x.cpu().numpy(), matrix().toarray()[batch.rows])


@pytest.mark.torch
def test_an_index_outside_the_matrix_is_an_error_before_a_kernel_uses_it(
    torch: Any, write: Write
) -> None:
    import h5py

    path = write(cells_of(matrix()))
    with h5py.File(path, "r+") as file:
        file["X/indices"][int(file["X/indptr"][100])] = 10**6
    with pytest.raises(ps.InvalidError, match="row 100 has the index 1000000"):
        Rows(path, device="cuda", like="torch")[:]


@pytest.fixture
def cupy() -> Any:
    """CuPy, which works on a GPU alone, not on the stand-in."""
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    if with_gpu("cupy") is None:
        pytest.skip("CuPy finds no GPU")
    return cupy


def test_batches_are_matrices_of_cupy(cupy: Any, write: Write) -> None:
    path = write(cells_of(matrix()))
    depths = Rows(path).obs(["depth"])["depth"].to_numpy()
    batches = Batches(path, 32, obs=["depth"], device="cuda", like="cupy", window=2)
    seen = []
    for batch in batches:
        assert batch.x.format == "csr"
        assert isinstance(batch.x.data, cupy.ndarray)
        assert same(batch.x.get(), matrix()[batch.rows])
        assert np.array_equal(batch.obs["depth"].get(), depths[batch.rows])
        seen += batch.rows.tolist()
    assert sorted(seen) == list(range(CELLS))


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("join", ["outer", "inner"])
def test_cupy_aligns_genes(cupy: Any, write: Write, join: Any, dense: bool) -> None:
    genes = [[f"gene{at}" for at in range(10 * n, 10 * n + GENES)] for n in range(2)]
    parts = [cells_of(matrix(60, seed=n), n, names) for n, names in enumerate(genes)]
    paths = [write(part, f"{n}.h5ad") for n, part in enumerate(parts)]
    index = np.random.default_rng(0).permutation(120)
    found = Rows(paths, device="cuda", like="cupy", join=join, dense=dense)[index]
    wanted = anndata.concat(parts, join=join).X[index]
    assert same(found.get(), wanted)


@pytest.mark.parametrize("kind", ["csr", "csc", "dense"])
def test_a_file_is_an_anndata_of_cupy(cupy: Any, write: Write, kind: str) -> None:
    made = cells_of(matrix().toarray() if kind == "dense" else matrix().asformat(kind))
    made.obsm["X_pca"] = np.random.default_rng(0).random((CELLS, 50))
    made.obsp["near"] = matrix(CELLS, CELLS)
    found = read_h5ad(write(made), device="cuda")
    assert isinstance(found.obsm["X_pca"], cupy.ndarray)
    assert np.array_equal(found.obsm["X_pca"].get(), made.obsm["X_pca"])
    assert same(found.obsp["near"].get(), made.obsp["near"])
    assert same(found.X.get(), made.X)
    assert found.X.format == kind if kind != "dense" else isinstance(found.X, cupy.ndarray)
    assert found.obs.equals(made.obs)


@pytest.mark.parametrize("dtype", ["u2", "u4", "u8", "?"])
@pytest.mark.parametrize("kind", ["csr", "csc", "dense"])
def test_tensors_on_the_gpu_have_values_of_each_type(
    write: Write, torch: Any, dtype: str, kind: str
) -> None:
    values = (np.arange(12).reshape(4, 3) % 5).astype(dtype)
    x = values if kind == "dense" else getattr(sp, f"{kind}_matrix")(values)
    genes = [list("abc"), list("cab")]
    paths = [write(cells_of(x, at, genes[at]), f"{at}.h5ad") for at in range(2)]
    found = Rows(paths, device="cuda", like="torch")[[3, 0, 1]]
    assert found.is_cuda
    is_dense = found.layout == torch.strided
    made = found.cpu().numpy() if is_dense else on_host(found).toarray()
    assert np.array_equal(made, values[[3, 0, 1]])
