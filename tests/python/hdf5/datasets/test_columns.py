"""Tables by column."""

from __future__ import annotations

import pickle
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import penstock as ps
from penstock.tables import columns as module

RECORD = np.dtype(
    [
        ("count", "i4"),
        ("energy", "f8"),
        ("swapped", ">f4"),
        ("name", "S5"),
        ("place", "f4", (3,)),
        ("flag", "u1"),
    ]
)


@pytest.fixture
def records() -> Any:
    rng = np.random.default_rng(0)
    made = np.zeros(1000, RECORD)
    for name in RECORD.names or ():
        shape = made[name].shape
        made[name] = rng.integers(0, 100, shape).astype("S5" if name == "name" else "i4")
    return made


@pytest.fixture(params=[None, 64], ids=["contiguous", "gzip"])
def path(request: pytest.FixtureRequest, tmp_path: Path, records: Any) -> Path:
    keys = {"chunks": (request.param,), "compression": "gzip"} if request.param else {}
    with h5py.File(tmp_path / "table.h5", "w") as file:
        file.create_dataset("group/table", data=records, **keys)
    return tmp_path / "table.h5"


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK", 10_000)


def test_each_field_is_a_column(path: Path, records: Any) -> None:
    found = ps.read_columns(f"{path}:group/table")
    assert list(found) == list(RECORD.names or ())
    for name, column in found.items():
        assert column.flags.c_contiguous
        assert column.dtype == records[name].dtype
        assert np.array_equal(column, records[name])


def test_only_named_columns_are_made(path: Path, records: Any) -> None:
    with ps.File(path) as file:
        found = ps.read_columns(file["group/table"], ["energy", "count"])
    assert list(found) == ["energy", "count"]
    assert np.array_equal(found["energy"], records["energy"])


def test_a_column_that_is_not_there_is_a_key_error(path: Path) -> None:
    with pytest.raises(KeyError, match="has no column 'mass'; it has count, energy"):
        ps.read_columns(f"{path}:group/table", ["mass"])


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "plain.h5", "w") as file:
        file["numbers"] = np.arange(5)
        with pytest.raises(ps.InvalidError, match="has no records with fields"):
            ps.read_columns(file["numbers"])
        with pytest.raises(ps.InvalidError, match="is not a pandas data frame"):
            ps.read_columns(file["/"])


def test_strings_of_variable_length_are_refused_unless_left_out(tmp_path: Path) -> None:
    kind = np.dtype([("text", h5py.string_dtype()), ("number", "i4")])
    with h5py.File(tmp_path / "text.h5", "w") as file:
        table = file.create_dataset("table", data=np.array([("a", 1), ("b", 2)], kind))
        with pytest.raises(ps.IncompatibleError, match="column text of /table has elements of var"):
            ps.read_columns(table)
        assert ps.read_columns(table, ["number"])["number"].tolist() == [1, 2]


def test_a_column_that_is_named_twice_is_read_once(tmp_path: Path) -> None:
    kind = np.dtype([("text", h5py.string_dtype()), ("number", "i4")])
    with h5py.File(tmp_path / "text.h5", "w") as file:
        table = file.create_dataset("table", data=np.array([("a", 1), ("b", 2)], kind))
        found = ps.read_columns(table, ["number", "number"])
    assert {name: column.tolist() for name, column in found.items()} == {"number": [1, 2]}


@pytest.mark.gpu
@pytest.mark.parametrize("names", [["count", "energy", "swapped", "place", "flag"], ["flag"]])
def test_columns_go_to_device_arrays(path: Path, records: Any, names: list[str]) -> None:
    found = ps.read_columns(f"{path}:group/table", names, device="cuda", like="device")
    for name in names:
        assert np.array_equal(found[name].numpy(), records[name])


@pytest.mark.gpu
@pytest.mark.parametrize("count", [40, 400_000])
def test_records_that_were_never_written_are_zeros_on_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    record = np.dtype([("a", "f8"), ("b", "i8")])
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    with h5py.File(tmp_path / "holes.h5", "w") as file:
        dataset = file.create_dataset("t", (count,), record, chunks=(20,), dcpl=properties)
        dataset[:20] = np.ones(20, record)

    def used_before(shape: Any, element: Any, *_: Any) -> Any:
        return ps.DeviceArray.from_numpy(np.full(shape, 7, element.numpy))

    monkeypatch.setattr(module, "allocate", used_before)
    found = ps.read_columns(f"{tmp_path / 'holes.h5'}:t", device="cuda", like="device")
    for name in "ab":
        assert found[name].numpy().tolist() == [1] * 20 + [0] * (count - 20)


@pytest.mark.gpu
def test_columns_go_to_tensors_on_the_gpu(path: Path, records: Any, torch: Any) -> None:
    from tests.torch_kernels import kernels_on_cpu

    names = ["count", "energy", "swapped", "place", "flag"]
    with kernels_on_cpu():
        found = ps.read_columns(f"{path}:group/table", names, device="cuda", like="torch")
        for name in names:
            assert found[name].is_cuda
            assert np.array_equal(found[name].cpu().numpy(), records[name])


def test_the_columns_of_a_single_record_may_be_unaligned(tmp_path: Path, torch: Any) -> None:
    record = np.array([(1, 2.5)], [("a", "u1"), ("b", "f8")])
    with h5py.File(tmp_path / "one.h5", "w") as file:
        file["t"] = record
    found = ps.read_columns(f"{tmp_path / 'one.h5'}:t", like="torch")
    assert found["b"].tolist() == [2.5]


@pytest.mark.gpu
def test_strings_do_not_go_to_a_gpu(path: Path) -> None:
    with pytest.raises(ps.IncompatibleError, match=r"column name .* which are not numbers"):
        ps.read_columns(f"{path}:group/table", device="cuda", like="device")


def test_a_table_of_pytables_is_read_by_column(tmp_path: Path, records: Any) -> None:
    tables = pytest.importorskip("tables")
    with tables.open_file(tmp_path / "pytables.h5", "w") as file:
        filters = tables.Filters(complevel=4, complib="zlib", shuffle=True)
        file.create_table("/", "events", obj=records.astype(_native()), filters=filters)
    found = ps.read_columns(f"{tmp_path / 'pytables.h5'}:events")
    for name, column in found.items():
        assert np.array_equal(column, records[name])


def _native() -> np.dtype[Any]:
    return RECORD.newbyteorder("=")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", ["fixed", "table"])
def test_a_frame_of_pandas_is_read_by_column(tmp_path: Path, form: Any) -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("tables")
    frame = pd.DataFrame(
        {
            "a": np.arange(500.0),
            "b": np.arange(500),
            "c": np.arange(500) * 2.5,
            "yes": np.arange(500) % 3 == 0,
            "when": pd.date_range("2020", periods=500),
            "little": np.arange(500, dtype="i2"),
        },
        index=np.arange(1000, 1500),
    )
    path = tmp_path / "pandas.h5"
    keys = {"data_columns": ["b"]} if form == "table" else {}
    frame.to_hdf(path, key="group/frame", format=form, complevel=5, **keys)
    found = ps.read_columns(f"{path}:group/frame")
    assert found.keys() == {"index", *frame.columns}
    assert np.array_equal(found.pop("index"), frame.index)
    for name, column in found.items():
        assert column.dtype == frame[name].dtype
        assert np.array_equal(column, frame[name])
    assert list(ps.read_columns(f"{path}:group/frame", ["c", "yes"])) == ["c", "yes"]


@pytest.mark.filterwarnings("ignore")
def test_what_pandas_has_pickled_is_refused(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("tables")
    path = tmp_path / "pandas.h5"
    pd.DataFrame({"a": [1.0, 2.0], "s": ["x", "yy"]}).to_hdf(path, key="frame", format="fixed")
    with pytest.raises(ps.IncompatibleError, match="column s of /frame has elements that pandas"):
        ps.read_columns(f"{path}:frame")
    assert ps.read_columns(f"{path}:frame", ["a"])["a"].tolist() == [1, 2]


BOMBS = {
    "memory": b"\x80\x02]r\xff\xff\xff\x3f.",
    "memory as text": b"(lp99999999999\n.",
    "negative memory": b"(lp-3\n.",
    "persistent": b"\x80\x02]Q.",
    "deep": b"(" * 10**4 + b"t.",
    "instance": b"(i__main__\nX\n.",
    "extension": b"\x80\x02\x82\x01.",
    "no UTF-8": b"\x80\x02X\x01\x00\x00\x00\xff.",
    "frame": b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.",
    "buffer": b"\x80\x05\x97.",
    "state": b"\x80\x02]}b.",
    "item": b"\x80\x02]K\x01K\x01s.",
    "call": b"\x80\x02KK\x01\x81.",
    "long text": b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\xffX.",
    "long number": b"(lI" + b"9" * 5000 + b"\na.",
    "nothing": b"",
}


@pytest.mark.parametrize("pickled", BOMBS.values(), ids=BOMBS)
def test_names_that_are_pickled_run_nothing(tmp_path: Path, pickled: bytes) -> None:
    with h5py.File(tmp_path / "bomb.h5", "w") as file:
        kind = [("index", "i8"), ("values_block_0", "f8", (2,))]
        table = file.create_dataset("k/table", data=np.zeros(3, kind))
        table.attrs["values_block_0_kind"] = np.void(pickled) if pickled else h5py.Empty("S1")
    assert list(ps.read_columns(f"{tmp_path / 'bomb.h5'}:k")) == ["index", "values_block_0"]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_names_that_are_pickled_are_those_of_columns(tmp_path: Path, protocol: int) -> None:
    names = ["a", "é" * 300, 7, 70000, "a b"]
    with h5py.File(tmp_path / "names.h5", "w") as file:
        kind = [("index", "i8"), ("values_block_0", "f8", (5,))]
        table = file.create_dataset("k/table", data=np.zeros(3, kind))
        table.attrs["values_block_0_kind"] = np.void(pickle.dumps(names, protocol))
    found = ps.read_columns(f"{tmp_path / 'names.h5'}:k")
    assert list(found) == ["index", *map(str, names)]


@pytest.mark.parametrize(
    "pickled", [b"(lp1\nS'a'\np2\naS'b'\np3\na.", b"]q\x01(U\x01aq\x02U\x01be."]
)
def test_names_that_python_2_has_pickled_are_those_of_columns(
    tmp_path: Path, pickled: bytes
) -> None:
    with h5py.File(tmp_path / "names.h5", "w") as file:
        kind = [("index", "i8"), ("values_block_0", "f8", (2,))]
        table = file.create_dataset("k/table", data=np.zeros(3, kind))
        table.attrs["values_block_0_kind"] = np.void(pickled)
    assert list(ps.read_columns(f"{tmp_path / 'names.h5'}:k")) == ["index", "a", "b"]


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", ["fixed", "table"])
def test_a_frame_of_pandas_goes_to_device_arrays(tmp_path: Path, form: Any) -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("tables")
    frame = pd.DataFrame({"a": np.arange(50.0), "b": np.arange(50), "c": np.arange(50) * 2.5})
    frame.to_hdf(tmp_path / "pandas.h5", key="frame", format=form)
    found = ps.read_columns(f"{tmp_path / 'pandas.h5'}:frame", device="cuda", like="device")
    assert np.array_equal(found.pop("index").numpy(), frame.index)
    for name, column in found.items():
        assert np.array_equal(column.numpy(), frame[name])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("like", [None, pytest.param("torch", marks=pytest.mark.torch)])
def test_a_frame_without_rows_has_empty_columns(tmp_path: Path, like: Any) -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("tables")
    if like:
        pytest.importorskip(like)
    types = {"a": "f8", "b": "f8", "i": "i4", "y": "?", "t": "M8[ns]"}
    frame = pd.DataFrame({name: np.zeros(0, kind) for name, kind in types.items()})
    path = tmp_path / "empty.h5"
    frame.to_hdf(path, key="frame")
    frame["a"].to_hdf(path, key="series")
    found = ps.read_columns(f"{path}:frame", like=like)
    assert list(found) == ["index", "a", "b", "i", "y", "t"]
    assert all(tuple(column.shape) == (0,) for column in found.values())
    series = ps.read_columns(f"{path}:series", like=like)
    assert {name: tuple(column.shape) for name, column in series.items()} == {
        "index": (0,),
        "values": (0,),
    }
    if like is None:
        assert [found[name].dtype for name in types] == list(types.values())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", ["fixed", "table"])
def test_the_index_beside_a_column_named_index_is_level_0(tmp_path: Path, form: Any) -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("tables")
    frame = pd.DataFrame({"index": [1.5, 2.5], "a": [1, 2]}, index=[7, 8])
    frame.to_hdf(tmp_path / "named.h5", key="frame", format=form)
    found = ps.read_columns(f"{tmp_path / 'named.h5'}:frame")
    assert {name: column.tolist() for name, column in found.items()} == {
        "level_0": [7, 8],
        "index": [1.5, 2.5],
        "a": [1, 2],
    }


@pytest.mark.filterwarnings("ignore")
def test_an_index_of_several_levels_is_left_out_by_naming_columns(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("tables")
    index = pd.MultiIndex.from_tuples([(1, 2), (3, 4)])
    frame = pd.DataFrame({"a": [0.5, 1.5]}, index=index)
    path = tmp_path / "levels.h5"
    frame.to_hdf(path, key="frame")
    frame["a"].to_hdf(path, key="series")
    for key, column in (("frame", "a"), ("series", "values")):
        with pytest.raises(ps.IncompatibleError, match=rf"/{key} of .* an index of several levels"):
            ps.read_columns(f"{path}:{key}")
        assert ps.read_columns(f"{path}:{key}", [column])[column].tolist() == [0.5, 1.5]


@pytest.mark.parametrize("order", ["little", "big"])
def test_times_of_pytables_are_those_that_it_reads(tmp_path: Path, order: str) -> None:
    tables = pytest.importorskip("tables")

    class Row(tables.IsDescription):  # type: ignore[misc]
        long = tables.Time64Col()
        short = tables.Time32Col()
        pair = tables.Time64Col(shape=(2,))
        x = tables.Float64Col()
        flag = tables.BoolCol()

    rng = np.random.default_rng(0)
    with tables.open_file(tmp_path / "times.h5", "w") as file:
        table = file.create_table("/", "t", Row, byteorder=order, chunkshape=(7,))
        rows = np.zeros(100, table.dtype)
        rows["long"], rows["pair"] = rng.uniform(-2e9, 2e9, 100), rng.uniform(0, 2e9, (100, 2))
        rows["short"], rows["x"], rows["flag"] = range(100), rng.random(100), rng.random(100) > 0.5
        table.append(rows)
        table.flush()
    with tables.open_file(tmp_path / "times.h5") as file:
        wanted = file.root.t[:]
    path = f"{tmp_path / 'times.h5'}:t"
    found = ps.read_columns(path)
    assert found.keys() == set(wanted.dtype.names)
    for name, column in found.items():
        assert column.dtype.newbyteorder("=") == wanted[name].dtype.newbyteorder("=")
        assert column.flags.c_contiguous
        assert np.array_equal(column, wanted[name])
    assert np.array_equal(ps.read_columns(path, ["x"])["x"], wanted["x"])
    with pytest.raises(KeyError, match="has no column 'y'; it has"):
        ps.read_columns(path, ["y"])


@pytest.mark.parametrize("order", ["little", "big"])
def test_times_inside_nested_columns_are_those_that_pytables_reads(
    tmp_path: Path, order: str
) -> None:
    tables = pytest.importorskip("tables")

    class Row(tables.IsDescription):  # type: ignore[misc]
        x = tables.Int16Col()

        class nested(tables.IsDescription):  # type: ignore[misc]  # noqa: N801
            when = tables.Time64Col(shape=(3,))
            count = tables.Int32Col()

            class deep(tables.IsDescription):  # type: ignore[misc]  # noqa: N801
                at = tables.Time64Col()

    rng = np.random.default_rng(1)
    with tables.open_file(tmp_path / "times.h5", "w") as file:
        table = file.create_table("/", "t", Row, byteorder=order)
        rows = np.zeros(50, table.dtype)
        rows["nested"]["when"] = rng.uniform(0, 2e9, (50, 3))
        rows["nested"]["deep"]["at"] = rng.uniform(0, 2e9, 50)
        rows["nested"]["count"] = rows["x"] = range(50)
        table.append(rows)
        wanted = table[:]
    found = ps.read_columns(f"{tmp_path / 'times.h5'}:t")
    assert np.array_equal(found["x"], wanted["x"])
    assert np.array_equal(found["nested"]["count"], wanted["nested"]["count"])
    assert np.array_equal(found["nested"]["when"], wanted["nested"]["when"])
    assert np.array_equal(found["nested"]["deep"]["at"], wanted["nested"]["deep"]["at"])


def test_truth_values_inside_nested_columns_are_booleans(tmp_path: Path) -> None:
    tables = pytest.importorskip("tables")
    kind = np.dtype([("n", [("p", "?"), ("m", [("y", "?", (2, 2)), ("u", "u1")])]), ("i", "i4")])
    rows = np.zeros(100, kind)
    rows["i"], rows["n"]["p"], rows["n"]["m"]["u"] = range(100), np.arange(100) % 3 == 0, 7
    rows["n"]["m"]["y"][::2, 0] = True
    with tables.open_file(tmp_path / "nested.h5", "w") as file:
        file.create_table("/", "t", obj=rows)
    nested = ps.read_columns(f"{tmp_path / 'nested.h5'}:t")["n"]
    for found, wanted in (
        (nested["p"], rows["n"]["p"]),
        (nested["m"]["y"], rows["n"]["m"]["y"]),
        (nested["m"]["u"], rows["n"]["m"]["u"]),
    ):
        np.testing.assert_array_equal(found, wanted, strict=True)


BOOLEANS = {
    "host": {},
    "tensor": pytest.param({"like": "torch"}, marks=pytest.mark.torch),
    "device": pytest.param({"device": "cuda", "like": "device"}, marks=pytest.mark.gpu),
    "cuda": pytest.param({"device": "cuda"}, marks=[pytest.mark.gpu, pytest.mark.torch]),
}


def kernels_of(where: Any) -> Any:
    """Return what runs torch's kernels where columns go to tensors of a GPU."""
    if where != {"device": "cuda"}:
        return nullcontext()
    from tests.torch_kernels import kernels_on_cpu

    return kernels_on_cpu()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("where", BOOLEANS.values(), ids=BOOLEANS)
@pytest.mark.parametrize("form", ["fixed", "table", "data_columns", "pytables", "h5py"])
def test_truth_values_are_booleans_in_every_memory(tmp_path: Path, form: str, where: Any) -> None:
    pd = pytest.importorskip("pandas")
    tables = pytest.importorskip("tables")
    if where.get("like", "torch" if "device" in where else "") == "torch":
        pytest.importorskip("torch")
    path, truth = tmp_path / "truth.h5", np.arange(100) % 3 == 0
    records = np.zeros(100, [("b", "?"), ("pair", "?", (2,)), ("i", "i4")])
    records["b"], records["pair"] = truth, truth[:, None]
    if form == "pytables":
        with tables.open_file(path, "w") as file:
            file.create_table("/", "t", obj=records)
    elif form == "h5py":
        with h5py.File(path, "w") as file:
            file["t"] = records
    else:
        frame = pd.DataFrame({"b": truth, "pair": truth, "i": np.arange(100)})
        keys = {"format": "fixed"} if form == "fixed" else {"format": "table"}
        frame.to_hdf(path, key="t", data_columns=form == "data_columns" or None, **keys)
    with kernels_of(where):
        found = ps.read_columns(f"{path}:t", ["b", "pair"], **where)
    for column in found.values():
        assert str(column.dtype).removeprefix("torch.") == "bool"
        on_host = column.cpu() if hasattr(column, "cpu") else column
        on_host = on_host if isinstance(on_host, np.ndarray) else on_host.numpy()
        assert (on_host.reshape(100, -1) == truth[:, None]).all()


def test_bytes_of_bits_outside_tables_of_pytables_stay_integers(tmp_path: Path) -> None:
    kind = h5py.h5t.create(h5py.h5t.COMPOUND, 1)
    kind.insert(b"flags", 0, h5py.h5t.STD_B8LE)
    with h5py.File(tmp_path / "bits.h5", "w") as file:
        made = h5py.h5d.create(file.id, b"t", kind, h5py.h5s.create_simple((3,)))
        values = np.array([(5,), (0,), (255,)], [("flags", "u1")])
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, values, kind)
    assert ps.read_columns(f"{tmp_path / 'bits.h5'}:t")["flags"].tolist() == [5, 0, 255]


@pytest.mark.filterwarnings("ignore")
def test_columns_of_several_levels_are_refused(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("tables")
    columns = pd.MultiIndex.from_product([["a", "b"], [0, 1]])
    pd.DataFrame(np.zeros((10, 4)), columns=columns).to_hdf(tmp_path / "levels.h5", key="frame")
    with pytest.raises(ps.IncompatibleError, match=r"columns of /frame of .* have several levels"):
        ps.read_columns(f"{tmp_path / 'levels.h5'}:frame")


def test_a_field_beside_times_that_numpy_lacks_is_refused(tmp_path: Path) -> None:
    kind = h5py.h5t.create(h5py.h5t.COMPOUND, 24)
    kind.insert(b"time", 0, h5py.h5t.UNIX_D64LE)
    kind.insert(b"text", 8, h5py.h5t.py_create(h5py.string_dtype(), logical=True))
    with h5py.File(tmp_path / "mixed.h5", "w") as file:
        space = h5py.h5s.create_simple((3,))
        h5py.h5d.create(file.id, b"t", kind, space)
        h5py.h5d.create(file.id, b"plain", h5py.h5t.UNIX_D64LE, space)
    with pytest.raises(ps.IncompatibleError, match="column text of /t has elements that NumPy"):
        ps.read_columns(f"{tmp_path / 'mixed.h5'}:t")
    assert ps.read_columns(f"{tmp_path / 'mixed.h5'}:t", ["time"])["time"].tolist() == [0, 0, 0]
    with pytest.raises(ps.InvalidError, match=r"/plain of .* has no records with fields"):
        ps.read_columns(f"{tmp_path / 'mixed.h5'}:plain")


@pytest.mark.gpu
def test_times_go_to_device_arrays(tmp_path: Path) -> None:
    kind = h5py.h5t.create(h5py.h5t.COMPOUND, 8)
    kind.insert(b"time", 0, h5py.h5t.UNIX_D64BE)
    with h5py.File(tmp_path / "times.h5", "w") as file:
        h5py.h5d.create(file.id, b"t", kind, h5py.h5s.create_simple((3,)))
    found = ps.read_columns(f"{tmp_path / 'times.h5'}:t", device="cuda", like="device")
    assert found["time"].numpy().tolist() == [0, 0, 0]
