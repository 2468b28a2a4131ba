"""Dask arrays in HDF5 files, on threads and on a cluster of processes."""

from __future__ import annotations

import pickle

import h5py
import numpy as np
import pytest

import penstock as ps

da = pytest.importorskip("dask.array", reason="Dask is not installed: pip install penstock[dask]")
distributed = pytest.importorskip("distributed", reason="distributed is not installed")
dask = pytest.importorskip("dask")

from penstock.dist import dask as penstock_dask  # noqa: E402

# Those of distributed, whose processes come and go.
pytestmark = pytest.mark.filterwarnings("ignore")
WHOLE = np.arange(100 * 30, dtype="f4").reshape(100, 30)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "data.h5"
    with h5py.File(path, "w") as file:
        file["plain"] = WHOLE
        file.create_dataset("gzip", data=WHOLE, chunks=(16, 10), compression="gzip")
        file["scalar"] = 5.0
        file["empty"] = np.empty((0, 3), "i4")
        file["big"] = WHOLE.astype(">f8")
    return path


@pytest.fixture(scope="module")
def cluster():
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as made:
        yield made


@pytest.fixture(params=["threads", "processes"])
def scheduler(request):
    if request.param == "threads":
        with dask.config.set(scheduler="threads"):
            yield
        return
    with distributed.Client(request.getfixturevalue("cluster")):
        yield


@pytest.mark.usefixtures("scheduler")
@pytest.mark.parametrize("name", ["plain", "gzip", "big"])
def test_blocks_together_are_the_dataset(path, name):
    array = penstock_dask.from_hdf5(path, name, chunks=(30, 17))
    assert array.numblocks == (4, 2)
    assert (array.compute() == WHOLE).all()
    assert array[::3].sum(axis=0).compute().tolist() == WHOLE[::3].sum(axis=0).tolist()


def test_chunks_and_types_are_those_of_the_file(path):
    with dask.config.set({"array.chunk-size": "2KiB"}):
        array = penstock_dask.from_hdf5(path, "gzip")
    assert all(side % 16 == 0 for side in array.chunks[0][:-1])
    assert all(side % 10 == 0 for side in array.chunks[1][:-1])
    assert array.dtype == "f4"
    assert type(array._meta) is np.ndarray
    assert penstock_dask.from_hdf5(path, "big").dtype == np.dtype(">f8")


def test_scalars_and_arrays_without_elements_are_read(path):
    assert penstock_dask.from_hdf5(path, "scalar").compute() == 5
    assert penstock_dask.from_hdf5(path, "empty").compute().shape == (0, 3)


@pytest.mark.parametrize("chunks", ["auto", (2, -1, -1), (2, 1, 2)])
@pytest.mark.parametrize("keys", [{}, {"chunks": (2,), "compression": "gzip"}], ids=str)
def test_elements_that_are_arrays_become_the_last_dimensions(tmp_path, chunks, keys):
    whole = np.arange(5 * 2 * 3, dtype="f4").reshape(5, 2, 3)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", (5,), np.dtype(("f4", (2, 3))), **keys)[...] = whole
        file.create_dataset("scalar", (), np.dtype(("f4", (2,))))[...] = whole[0, 0, :2]
    array = penstock_dask.from_hdf5(tmp_path / "x.h5", "x", chunks)
    assert (array.shape, array.dtype) == ((5, 2, 3), "f4")
    assert (array.compute() == whole).all()
    assert (array[1:, 1].compute() == whole[1:, 1]).all()
    assert penstock_dask.from_hdf5(tmp_path / "x.h5", "scalar").compute().tolist() == [0, 1]


def test_strings_of_variable_length_are_read(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = ["a", "bb", "ccc"]
    array = penstock_dask.from_hdf5(tmp_path / "x.h5", "x")
    assert array.compute().tolist() == [b"a", b"bb", b"ccc"]


@pytest.mark.parametrize("chunks", [0, (0, 4)])
def test_blocks_without_elements_are_refused(path, chunks):
    with pytest.raises(ps.InvalidError, match="blocks have no elements"):
        penstock_dask.from_hdf5(path, "plain", chunks)


def test_the_graph_holds_paths_and_no_open_files(path):
    array = penstock_dask.from_hdf5(path, "gzip", chunks=(16, 10))
    text = pickle.dumps(array)
    assert str(path).encode() in text
    assert len(text) < 20_000
    path.unlink()  # nothing is open
    with pytest.raises(FileNotFoundError):
        array.compute(scheduler="synchronous")


@pytest.mark.usefixtures("scheduler")
@pytest.mark.parametrize(
    ("blocks", "keys"),
    [
        ((30, 17), {}),
        ((30, 17), {"chunks": (16, 10)}),
        ((32, 10), {"compression": "gzip", "shuffle": True}),
        ((30, 17), {"chunks": (16, 10), "compression": "gzip"}),  # blocks cut chunks
        ((30, 17), {"chunks": [16, 10], "compression": "gzip"}),
        ((30, 17), {"chunks": True, "compression": "gzip"}),
    ],
)
def test_what_workers_write_is_what_h5py_reads(tmp_path, blocks, keys):
    path = tmp_path / "made.h5"
    array = da.from_array(WHOLE, chunks=blocks) * 2
    penstock_dask.to_hdf5(array, path, "group/made", **keys)
    with h5py.File(path) as file:
        found = file["group/made"]
        assert (found[()] == 2 * WHOLE).all()
        assert found.dtype == "f4"
        assert found.compression == keys.get("compression")
    assert [entry.name for entry in tmp_path.iterdir()] == ["made.h5"]


@pytest.mark.parametrize("keys", [{}, {"compression": "gzip"}])
def test_a_failure_leaves_the_file_of_before(path, keys):
    before = path.read_bytes()

    def fail(block):
        if block.size and block.flat[0] > 0:
            raise KeyError("mine")
        return block

    array = da.from_array(WHOLE, chunks=(50, 30)).map_blocks(fail, dtype="f4")
    with dask.config.set(scheduler="threads"), pytest.raises(KeyError, match="mine"):
        penstock_dask.to_hdf5(array, path, "x", **keys)
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == ["data.h5"]


def test_a_block_that_is_computed_again_with_another_result_is_an_error(tmp_path, monkeypatch):
    # Other chunks than those for which storage was found could overwrite their neighbours.
    def table_of_before(encoded):
        return encoded[0] - [0, 1, 0]

    monkeypatch.setattr(penstock_dask, "_table", table_of_before)
    array = da.from_array(WHOLE, chunks=(50, 30))
    with dask.config.set(scheduler="synchronous"), pytest.raises(ps.InvalidError, match="again"):
        penstock_dask.to_hdf5(array, tmp_path / "x.h5", "x", compression="gzip")
    assert not list(tmp_path.iterdir())


def test_scalars_and_arrays_without_elements_are_written(tmp_path):
    path = tmp_path / "made.h5"
    empty = np.empty((0, 4), "i2")
    for values, keys in ((np.float32(3), {}), (empty, {}), (empty, {"compression": "gzip"})):
        penstock_dask.to_hdf5(da.from_array(values), path, "x", **keys)
        with h5py.File(path) as file:
            assert (file["x"][()] == values).all()
            assert file["x"].shape == values.shape


@pytest.mark.parametrize("keys", [{}, {"compression": "gzip"}])
def test_numbers_are_not_cut_to_text(tmp_path, keys):
    array = da.from_array(np.array([1000, 20000]), chunks=1)
    with pytest.raises(ps.IncompatibleError, match="no conversion"):
        penstock_dask.to_hdf5(array, tmp_path / "x.h5", "x", dtype=np.dtype("S3"), **keys)
    assert not list(tmp_path.iterdir())


def test_one_number_is_the_length_of_a_chunk_of_one_dimension(tmp_path):
    path = tmp_path / "made.h5"
    penstock_dask.to_hdf5(da.from_array(WHOLE[:, 0], chunks=30), path, "x", chunks=4, shuffle=True)
    with h5py.File(path) as file:
        assert (file["x"][()] == WHOLE[:, 0]).all()
        assert file["x"].chunks == (4,)


def test_arguments_in_another_order_are_a_type_error_that_names_them(tmp_path):
    array = da.zeros((4, 5))
    for arguments in (
        (tmp_path / "f.h5", "x", array),
        ("f.h5", "x", array),
        (np.zeros(3), "f", "x"),
    ):
        with pytest.raises(TypeError, match=r"to_hdf5\(array, path, dataset\)"):
            penstock_dask.to_hdf5(*arguments)
    assert list(tmp_path.iterdir()) == []


def test_an_array_of_unknown_shape_is_refused(tmp_path):
    array = da.from_array(WHOLE, chunks=50)
    with pytest.raises(ps.InvalidError, match="compute_chunk_sizes"):
        penstock_dask.to_hdf5(array[array > 5], tmp_path / "x.h5", "x")


def test_blocks_on_the_gpu_need_cupy(path):
    pytest.importorskip("numpy")
    try:
        import cupy  # noqa: F401
    except ImportError:
        with pytest.raises(ps.UnavailableError, match="CuPy"):
            penstock_dask.from_hdf5(path, "plain", device="cuda")
    else:
        pytest.skip("CuPy is installed")
