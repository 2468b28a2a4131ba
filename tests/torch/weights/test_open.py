"""``safe_open``: names, tensors, slices, prefetched tensors."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import numpy as np  # noqa: E402

import penstock as ps  # noqa: E402
from penstock import request  # noqa: E402
from penstock.errors import IOFailure  # noqa: E402
from penstock.torch import SafetensorError, load_file, safe_open, save_file  # noqa: E402

from .conftest import assert_equal  # noqa: E402

BACKENDS = ("mmap", "pread")
INDICES = [
    np.s_[:],
    np.s_[...],
    (),
    np.s_[:2],
    np.s_[-2:],
    np.s_[2:1],
    np.s_[100:],
    np.s_[1],
    np.s_[-1],
    np.s_[::2],
    np.s_[:, 1:3],
    np.s_[:, 8:1032],
    np.s_[1:3, :1024],
    np.s_[..., 0],
    np.s_[1, 2],
    np.s_[None, 1:2],
    np.s_[:, None],
    np.s_[1:2, :, ::3],
    np.int64(1),
    [],
    [0, 1],
    torch.tensor([1, 0]),
    True,
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("index", INDICES, ids=str)
def test_an_index_selects_what_it_selects_of_the_tensor(index, backend, weights, tensors):
    with safe_open(weights, "pt", backend=backend) as opened:
        for name in ("matrix", "cube", "float8_e4m3fn", "odd", "scalar", "empty"):
            part = opened.get_slice(name)
            assert part.get_shape() == list(tensors[name].shape)
            try:
                wanted = tensors[name][index]
            except (IndexError, ValueError):
                with pytest.raises((IndexError, ValueError)):
                    part[index]
            else:
                assert_equal(part[index], wanted)


@pytest.mark.parametrize("backend", BACKENDS)
def test_names_metadata_and_tensors_are_those_of_the_file(backend, weights, tensors):
    with safe_open(weights, "pt", "cpu", backend=backend) as opened:
        assert opened.metadata() == {"format": "pt"}
        assert opened.keys() == sorted(tensors)
        assert sorted(opened.offset_keys()) == sorted(tensors)
        assert opened.get_slice("matrix").get_dtype() == "BF16"
        assert opened.get_tensor_meta("matrix").shape == (48, 2048)
        for name, tensor in tensors.items():
            assert_equal(opened.get_tensor(name), tensor)
        for name, tensor in opened.get_tensors().items():
            assert_equal(tensor, tensors[name])
        with pytest.raises(SafetensorError, match="does not contain tensor none"):
            opened.get_tensor("none")
        with pytest.raises(SafetensorError, match="does not contain tensor none"):
            opened.get_slice("none")


def test_a_closed_file_refuses_calls(weights):
    with safe_open(weights, "pt") as opened:
        part = opened.get_slice("odd")
    for call in (opened.keys, opened.metadata, opened.get_tensors, lambda: part[:]):
        with pytest.raises(SafetensorError, match="File is closed"):
            call()
    opened.close()


def test_a_python_file_is_read(weights, tensors):
    with open(weights, "rb") as file, safe_open(file, "pt") as opened:
        assert_equal(opened.get_tensor("matrix"), tensors["matrix"])


def test_numpy_gets_arrays_and_the_bytes_of_types_that_it_lacks(weights, tensors):
    with safe_open(weights, "np") as opened:
        assert np.array_equal(opened.get_tensor("cube"), tensors["cube"].numpy())
        assert np.array_equal(opened.get_slice("cube")[1:3, 2], tensors["cube"][1:3, 2].numpy())
        assert opened.get_tensor("scalar").shape == ()
        packed = opened.get_tensor("float4_e2m1fn_x2")
        assert packed.dtype == np.uint8
        assert packed.shape == (3, 16)
    with pytest.raises(SafetensorError, match="not supported for framework"):
        safe_open(weights, "np", "cuda")
    with pytest.raises(SafetensorError, match="framework x is invalid"):
        safe_open(weights, "x")


@pytest.mark.parametrize("name", ["cube", "scalar", "float4_e2m1fn_x2"])
def test_what_is_written_to_an_array_is_not_read_again(name, weights):
    with safe_open(weights, "np") as opened:
        ways = [
            lambda: opened.get_tensor(name),
            lambda: opened.get_tensors([name])[name],
            lambda: opened.get_tensors()[name],
            lambda: opened.get_slice(name)[...],
            lambda: opened.get_tensors({name: np.s_[...]})[name],
        ]
        expected = ways[0]().copy()
        for way in ways * 2:
            found = way()
            assert np.array_equal(found, expected)
            found[...] = 77


def test_types_of_six_bits_are_handed_out_as_bytes(tmp_path):
    from penstock.torch.safetensors.header import encode_header

    start, _ = encode_header({"a": ("F6_E2M3", (2, 4)), "b": ("F6_E3M2", (2, 2))})
    (tmp_path / "x").write_bytes(start + bytes(range(9)))
    with safe_open(tmp_path / "x", "pt") as opened:
        assert opened.get_tensor("a").shape == (2, 3)
        assert opened.get_tensor("b").shape == (3,)
        assert opened.get_tensor("b").tolist() == [0, 1, 2]


def test_a_type_of_four_bits_needs_an_even_row(tmp_path):
    from penstock.torch.safetensors.header import encode_header

    start, _ = encode_header({"a": ("F4", (2, 3))})
    (tmp_path / "x").write_bytes(start + bytes(3))
    with safe_open(tmp_path / "x", "pt") as opened, pytest.raises(SafetensorError, match="f4_x2"):
        opened.get_tensor("a")


PACKED = ("F4", "F6_E2M3", "F6_E3M2")
WHOLE_BYTES = [
    np.s_[:],
    np.s_[2:5],
    np.s_[-1],
    np.s_[::2],
    np.s_[:, :2048],
    np.s_[:, 1024:3072],
    np.s_[1:3, 8:16],
    np.s_[..., -4:],
    np.s_[2, 4:8],
    np.s_[None, :, :64],
    np.s_[3:3],
]


def write_packed(path, dtype):
    """Write a tensor of 8 rows of 4096 elements of less than a byte; return its bytes."""
    from penstock.torch.safetensors.header import BITS, encode_header

    rows = np.random.default_rng(0).integers(0, 256, (8, 512 * BITS[dtype]), np.uint8)
    start, entries = encode_header({"before": ("U8", (3,)), "w": (dtype, (8, 4096))})
    data = bytearray(start + bytes(3 + rows.nbytes))
    data[entries["w"].begin : entries["w"].end] = rows.tobytes()
    path.write_bytes(data)
    return rows


def in_bytes(index, bits):
    """Return an index of elements as one of the bytes of the rows."""
    parts = index if isinstance(index, tuple) else (index,)
    last = parts[-1]
    if len(parts) == 1:
        return index
    bounds = [None if at is None else at * bits // 8 for at in (last.start, last.stop)]
    return (*parts[:-1], slice(*bounds))


def ways_to_read(path, index):
    """Yield what an index selects, read in each way."""
    for framework in ("pt", "np"):
        for backend in BACKENDS:
            with safe_open(path, framework, backend=backend) as opened:
                parts = index if isinstance(index, tuple) else (index,)
                # As in safetensors, the slices for NumPy have neither None nor an ellipsis.
                if framework == "pt" or (None not in parts and ... not in parts):
                    yield lambda: opened.get_slice("w")[index]
                yield lambda: opened.get_tensors({"w": index})["w"]
                yield lambda: opened.get_tensors({"w": index}, copy=True)["w"]

                def prefetched():
                    with opened.prefetch({"w": index}) as loader:
                        return loader.take("w")

                yield prefetched
    for options in ({}, {"backend": "pread"}, {"copy": True}):
        yield lambda: load_file(path, plan={"w": index}, **options)["w"]  # noqa: B023


@pytest.mark.parametrize("dtype", PACKED)
@pytest.mark.parametrize("index", WHOLE_BYTES, ids=str)
def test_an_index_counts_elements_of_less_than_a_byte(dtype, index, tmp_path):
    from penstock.torch.safetensors.header import BITS

    wanted = write_packed(tmp_path / "x", dtype)[in_bytes(index, BITS[dtype])]
    for read in ways_to_read(tmp_path / "x", index):
        found = read()
        found = found if isinstance(found, np.ndarray) else found.view(torch.uint8).numpy()
        assert np.array_equal(found, wanted)


@pytest.mark.parametrize("dtype", PACKED)
@pytest.mark.parametrize(
    "index", [np.s_[:, :1025], np.s_[:, 1:5], np.s_[0, 3], np.s_[:, ::2]], ids=str
)
def test_an_index_that_divides_a_byte_is_refused(dtype, index, tmp_path):
    write_packed(tmp_path / "x", dtype)
    for read in ways_to_read(tmp_path / "x", index):
        with pytest.raises(SafetensorError, match=r"tensor .w. of F.*whole bytes"):
            read()


def test_elements_of_less_than_a_byte_are_not_selected_by_lists(tmp_path):
    write_packed(tmp_path / "x", "F4")
    with safe_open(tmp_path / "x", "pt") as opened:
        for index in ([1, 0], torch.tensor([1]), True):
            with pytest.raises(SafetensorError, match="integers and slices"):
                opened.get_slice("w")[index]


WRONG = (9, (0, 0, 0), [9], 1.5, (slice(None), 5000), "x", (0, b"x"), slice("a", None))


@pytest.mark.parametrize("index", WRONG, ids=str)
def test_a_wrong_index_names_file_and_tensor_in_each_way(index, tmp_path):
    save_file({"w": torch.ones(3, 4)}, tmp_path / "x")
    for read in ways_to_read(tmp_path / "x", index):
        with pytest.raises(SafetensorError, match="x: tensor 'w' of F32 and shape") as caught:
            read()
        assert isinstance(caught.value, (IndexError, TypeError))
        assert caught.value.path == str(tmp_path / "x")
    with pytest.raises((IndexError, TypeError)) as wanted:
        torch.ones(3, 4)[index]
    with safe_open(tmp_path / "x", "pt") as opened, pytest.raises(wanted.type):
        opened.get_slice("w")[index]


@pytest.mark.parametrize("plan", [None, ["odd", "matrix"], {"matrix": np.s_[:, :1024]}], ids=str)
def test_prefetched_tensors_are_handed_out_once(plan, weights, tensors):
    with safe_open(weights, "pt") as opened, opened.prefetch(plan) as loader:
        names = set(tensors if plan is None else plan)
        assert set(loader.names()) == names
        assert len(loader) == len(names)
        index = plan["matrix"] if isinstance(plan, dict) else np.s_[:]
        assert_equal(loader.take("matrix"), tensors["matrix"][index])
        rest = dict(loader)
        assert rest.keys() == names - {"matrix"}
        for name, tensor in rest.items():
            assert_equal(tensor, tensors[name])
        with pytest.raises(SafetensorError, match="taken before"):
            loader.take("matrix")
        with pytest.raises(SafetensorError, match="not in the plan"):
            loader.take("none")


def test_a_tensor_of_a_shape_that_torch_has_not_is_an_error_with_its_name(tmp_path):
    about = {"dtype": "F32", "shape": [1 << 63, 0], "data_offsets": [0, 0]}
    header = json.dumps({"x": about}, separators=(",", ":")).encode()
    (tmp_path / "x").write_bytes(len(header).to_bytes(8, "little") + header)
    with (
        safe_open(tmp_path / "x", "pt") as opened,
        pytest.raises(SafetensorError, match="tensor 'x': torch has none of shape"),
    ):
        opened.get_tensor("x")


def test_a_loader_that_is_closed_hands_out_nothing(weights, tensors):
    with safe_open(weights, "pt") as opened:
        loader = opened.prefetch()
        taken = loader.take("matrix")
        loader.close()
        loader.close()
        with pytest.raises(SafetensorError, match="closed"):
            loader.take("odd")
    assert_equal(taken, tensors["matrix"])


def test_a_plan_of_a_prefetch_may_have_steps(weights, tensors):
    plan = {"odd": np.s_[::2], "cube": np.s_[1:3], "empty": None}
    with safe_open(weights, "pt") as opened, opened.prefetch(plan) as loader:
        for name, tensor in loader:
            wanted = tensors[name] if plan[name] is None else tensors[name][plan[name]]
            assert_equal(tensor, wanted)


def test_a_loader_hands_out_all_tensors_after_its_file_is_closed(weights, tensors, tmp_path):
    plan = {"odd": np.s_[::2], "cube": [2, 1], "matrix": None}
    with safe_open(weights, "pt") as opened:
        loader = opened.prefetch(plan)
    with ExitStack() as others:
        for number in range(8):  # the descriptor of one is that of the file before
            others.enter_context(open(tmp_path / str(number), "wb+"))
        for name, tensor in loader:
            assert_equal(tensor, tensors[name] if plan[name] is None else tensors[name][plan[name]])


def test_a_tensor_that_could_not_be_taken_may_be_taken_again(weights):
    with safe_open(weights, "pt") as opened, opened.prefetch({"odd": [100]}) as loader:
        for _ in range(2):
            with pytest.raises(IndexError):
                loader.take("odd")


def test_a_prefetch_with_threads_has_the_other_options_of_the_file(weights, monkeypatch):
    found, submit = [], request.submit

    def noted(*arguments, **keys):
        found.append(arguments[3])
        return submit(*arguments, **keys)

    monkeypatch.setattr(request, "submit", noted)
    with ps.options(queue_depth=5):
        opened = safe_open(weights, "pt", block="64KiB")
    with opened, opened.prefetch(threads=3):
        assert [(one.threads, one.block, one.queue_depth) for one in found] == [(3, 65536, 5)]


STEPS = {"odd": np.s_[::2], "matrix": [3, 1], "float4_e2m1fn_x2": np.s_[::2]}


def with_steps(path, way):
    """Return what indices select that need no read of their own, in one way."""
    if way == "slice":
        with safe_open(path, "pt", backend="pread") as opened:
            return {name: opened.get_slice(name)[index] for name, index in STEPS.items()}
    if way == "load_file":
        return load_file(path, plan=STEPS, pin=True)
    if way == "prefetch":
        with safe_open(path, "pt") as opened, opened.prefetch(STEPS) as loader:
            return dict(loader)
    with safe_open(path, "pt", backend=way) as opened:
        return opened.get_tensors(STEPS, copy=way == "mmap")


@pytest.mark.parametrize("way", ["slice", "load_file", "prefetch", "pread", "mmap"])
def test_what_is_read_or_copied_does_not_change_with_the_file(way, weights):
    found = with_steps(weights, way)
    before = {name: tensor.clone() for name, tensor in found.items()}
    with open(weights, "r+b") as file:
        file.write(bytes(weights.stat().st_size))
    for name, tensor in found.items():
        assert_equal(tensor, before[name])
        assert tensor.untyped_storage().nbytes() == tensor.nbytes


def test_an_error_of_a_prefetch_names_the_tensor(weights, monkeypatch):
    with safe_open(weights, "pt") as opened:
        offset = opened.get_tensor_meta("matrix").begin + 4096

        def fail(_):
            raise IOFailure("the medium failed", offset=offset)

        with opened.prefetch(["cube", "matrix"]) as loader:
            monkeypatch.setattr(request.Request, "wait", fail)
            with pytest.raises(IOFailure, match="tensor 'matrix': the medium failed"):
                loader.take("matrix")
            monkeypatch.undo()


def test_an_open_file_keeps_its_tensors_whatever_takes_its_name(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    for folder, value in ((tmp_path, 1.0), (other, 2.0)):
        save_file({"x": torch.full((8,), value)}, folder / "x")
    link = tmp_path / "current"
    link.symlink_to(tmp_path / "x")
    with safe_open(link, "pt") as opened:
        link.unlink()
        link.symlink_to(other / "x")
        (tmp_path / "x").unlink()
        assert opened.get_tensor("x").unique().tolist() == [1.0]


@pytest.mark.parametrize("other", ["another", "none"])
def test_a_file_that_is_replaced_while_it_is_opened_is_the_new_one(tmp_path, monkeypatch, other):
    path = tmp_path / "x"
    save_file({"x": torch.full((8,), 1.0)}, path)
    real_open = os.open

    def replace_and_open(name, *arguments, **keys):
        if str(name) == str(path) and not replaced:
            replaced.append(True)
            path.unlink()
            if other == "another":
                save_file({"x": torch.full((9,), 2.0)}, path)
        return real_open(name, *arguments, **keys)

    replaced = []
    monkeypatch.setattr(os, "open", replace_and_open)
    if other == "none":
        with pytest.raises(ps.NotFoundError, match="No such file or directory"):
            load_file(path)
    else:
        assert load_file(path)["x"].unique().tolist() == [2.0]


def test_a_file_that_is_cut_off_while_it_is_open_is_an_error_with_its_name(tmp_path):
    save_file({"x": torch.zeros(4096)}, tmp_path / "x")
    with safe_open(tmp_path / "x", "pt") as opened:
        os.truncate(tmp_path / "x", 100)
        with pytest.raises(SafetensorError, match="x was cut off"):
            opened.get_tensor("x")


@pytest.mark.parametrize("kind", ["folder", "pipe", "below a file"])
def test_what_is_no_file_is_an_error_that_says_so(kind, tmp_path):
    path = tmp_path / "m.safetensors"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(b"")
        path /= "m.safetensors"
    reason = {"folder": "a directory", "pipe": "a FIFO", "below a file": "No such file"}[kind]
    with pytest.raises(ps.Error, match=reason):
        safe_open(path, "np")


@pytest.mark.parametrize(
    "index", [np.s_[...], np.s_[..., 2], np.s_[1, ...], np.s_[1:3, ..., 5:9]], ids=str
)
@pytest.mark.parametrize("framework", ["np", "pt"])
def test_a_slice_may_have_an_ellipsis(framework, index, weights, tensors):
    with safe_open(weights, framework) as opened:
        found = opened.get_slice("cube")[index]
    assert np.array_equal(np.asarray(found), tensors["cube"].numpy()[index])


def test_a_name_or_file_of_another_type_is_a_type_error(weights):
    with safe_open(weights, "pt") as opened:
        for call in (opened.get_tensor, opened.get_slice, lambda name: opened.get_tensors([name])):
            for name in (None, 1, b"cube"):
                with pytest.raises(TypeError, match="not the name") as caught:
                    call(name)
                assert isinstance(caught.value, SafetensorError)
    for file in (None, 3.5):
        with pytest.raises(TypeError, match="neither a path nor"):
            safe_open(file, "pt")
    with pytest.raises(TypeError, match="device_map='auto' is no mapping"):
        load_file(weights, device_map="auto")


def test_a_file_object_with_direct_io_is_read(weights, tensors):
    descriptor = os.open(weights, os.O_RDONLY | os.O_DIRECT)
    with open(descriptor, "rb", buffering=0) as file, safe_open(file, "pt") as opened:
        assert_equal(opened.get_tensor("matrix"), tensors["matrix"])


def test_a_file_object_that_is_open_for_writing_only_is_refused_with_a_remedy(weights):
    descriptor = os.open(weights, os.O_WRONLY)
    with (
        open(descriptor, "wb", buffering=0) as file,
        pytest.raises(ps.InvalidError, match="open it for reading"),
    ):
        safe_open(file, "pt")


def test_a_name_with_a_null_byte_is_refused(tmp_path):
    with pytest.raises(ps.InvalidError):
        safe_open(f"{tmp_path}/a\0b", "pt")
