"""Loading and saving, with NumPy as the oracle."""

from __future__ import annotations

import os
import stat

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock import placement
from penstock.files import path_of_new

FUNCTION_FIXTURES = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
EDGES = [0, 1, 2, 511, 512, 513, 4095, 4096, 4097, 65536, 1 << 20, (1 << 20) + 1]
LENGTHS = st.one_of(st.sampled_from(EDGES), st.integers(0, 200_000))


@settings(max_examples=40, deadline=None, suppress_health_check=FUNCTION_FIXTURES)
@given(
    length=LENGTHS,
    offset=st.one_of(st.sampled_from([0, 1, 511, 4095, 4096]), st.integers(0, 10_000)),
    misalignment=st.sampled_from([0, 1, 3, 64, 511]),
    route=st.sampled_from(["auto", "host", "staged", "mapped"]),
    direct=st.sampled_from(["auto", "no", "yes"]),
    threads=st.sampled_from([None, 1, 3]),
    block=st.sampled_from([None, "4KiB", "64KiB"]),
)
def test_any_range_loads_as_numpy_reads_it(
    tmp_path, memory, noise, length, offset, misalignment, route, direct, threads, block
):
    contents = noise(offset + length + 7)
    path = tmp_path / "f.bin"
    path.write_bytes(contents.tobytes())
    out, contents_of_out = memory.misaligned(length, misalignment)
    expected = contents[offset : offset + length]
    if memory.kind != "device":
        route = "auto" if route in ("staged", "mapped") else route
    elif route == "host":
        route = "auto"
    options = {"route": route, "direct": direct, "threads": threads, "block": block}
    assert ps.load(path, out=out, offset=offset, **options) is out
    np.testing.assert_array_equal(contents_of_out(), expected)
    report = ps.last_report()
    assert report.bytes == length == sum(report.paths.values())


@settings(max_examples=25, deadline=None, suppress_health_check=FUNCTION_FIXTURES)
@given(
    length=LENGTHS,
    direct=st.sampled_from(["auto", "no", "yes"]),
    threads=st.sampled_from([None, 1, 3]),
    asynchronous=st.booleans(),
)
def test_what_is_saved_is_in_the_file(
    tmp_path, memory, noise, length, direct, threads, asynchronous
):
    contents = noise(length)
    path = tmp_path / "f.bin"
    path.write_bytes(b"older and longer" * 10)
    array = memory.array(contents)
    if asynchronous:
        assert ps.save_async(path, array, direct=direct, threads=threads).wait() is array
    else:
        ps.save(path, array, direct=direct, threads=threads)
        assert ps.last_report().bytes == length
    assert path.read_bytes() == contents.tobytes()
    assert os.listdir(tmp_path) == ["f.bin"]


@pytest.mark.parametrize("dtype", ["u1", "i8", "f2", "f4", "f8", "c8", "?", ">f4", "S5"])
def test_an_array_comes_back_with_its_type_and_shape(tmp_path, noise, dtype):
    array = (noise(24 * 8) % 2).astype(dtype).reshape(2, 3, -1)
    ps.save(tmp_path / "f", array)
    back = ps.load(tmp_path / "f", dtype=dtype, shape=array.shape)
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


def test_an_extended_type_needs_ml_dtypes(tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    array = np.arange(10).astype(ml_dtypes.bfloat16)
    ps.save(tmp_path / "f", array)
    back = ps.load(tmp_path / "f", dtype="bfloat16")
    assert back.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(back, array)


def test_without_a_shape_the_rest_of_the_file_is_read(tmp_path):
    np.arange(10, dtype="i4").tofile(tmp_path / "f")
    np.testing.assert_array_equal(ps.load(tmp_path / "f", dtype="i4", offset=8), np.arange(2, 10))
    assert ps.load(tmp_path / "f", dtype="i4", shape=(-1, 5)).shape == (2, 5)
    assert ps.load(tmp_path / "f").dtype == np.uint8
    assert ps.load(tmp_path / "f", offset=40).shape == (0,)


def test_an_offset_behind_the_end_is_an_end_of_file(tmp_path):
    (tmp_path / "f").write_bytes(bytes(10))
    with pytest.raises(ps.EndOfFileError, match="10 bytes"):
        ps.load(tmp_path / "f", offset=11)


@pytest.mark.parametrize(
    "arguments",
    [
        {"dtype": "f4"},  # 10 bytes are no whole number of elements
        {"shape": (-1, 3)},
        {"shape": (-1, -1)},
        {"shape": -2},
        {"shape": (-1, 0)},
        {"offset": -1},
        {"device": "tpu"},
        {"device": "cuda:x"},
        {"device": -1},
        {"out": np.zeros(5, "u1"), "shape": 4},
        {"out": np.zeros(5, "u1"), "dtype": "i1"},
    ],
)
def test_arguments_that_do_not_fit_are_a_value_error(tmp_path, arguments):
    (tmp_path / "f").write_bytes(bytes(10))
    with pytest.raises(ps.InvalidError):
        ps.load(tmp_path / "f", **arguments)


@pytest.mark.parametrize("arguments", [{}, {"shape": 1}])
def test_a_type_of_arrays_is_refused_with_the_type_to_give(tmp_path, arguments):
    (tmp_path / "f").write_bytes(bytes(16))
    with pytest.raises(ps.IncompatibleError, match=r"shape \(2,\).*give dtype int32"):
        ps.load(tmp_path / "f", dtype="2i4", **arguments)


def test_a_shape_that_differs_from_out_is_named_with_it(tmp_path):
    (tmp_path / "f").write_bytes(bytes(10))
    with pytest.raises(ValueError, match=r"\(5,\).*\(4,\)"):
        ps.load(tmp_path / "f", out=np.zeros(5, "u1"), shape=4)


def test_python_objects_cannot_be_loaded_or_saved(tmp_path):
    (tmp_path / "f").write_bytes(bytes(16))
    with pytest.raises(TypeError):
        ps.load(tmp_path / "f", dtype=object)
    with pytest.raises(TypeError):
        ps.save(tmp_path / "f", np.array([None]))
    assert (tmp_path / "f").read_bytes() == bytes(16)


def test_an_out_that_is_not_contiguous_is_filled_through_a_temporary(tmp_path):
    np.arange(12, dtype="i4").tofile(tmp_path / "f")
    out = np.zeros((3, 8), "i4")
    ps.load(tmp_path / "f", out=out[:, ::2])
    np.testing.assert_array_equal(out[:, ::2], np.arange(12).reshape(3, 4))
    assert not out[:, 1::2].any()
    assert "temporary" in ps.last_report().note


def test_an_array_that_is_not_contiguous_is_saved_in_c_order(tmp_path):
    array = np.arange(12).reshape(3, 4)
    ps.save(tmp_path / "f", array.T)
    np.testing.assert_array_equal(np.fromfile(tmp_path / "f", int).reshape(4, 3), array.T)


def test_a_failed_save_leaves_the_old_file(tmp_path):
    path = tmp_path / "folder"
    path.mkdir()
    (path / "f").write_bytes(b"old")
    with pytest.raises(ps.Error):
        ps.save(path, np.zeros(3))
    assert (path / "f").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["folder"]


@pytest.mark.parametrize("end", ["/", "/.", "/.."])
def test_a_path_that_ends_as_that_of_a_folder_makes_no_file(tmp_path, end):
    path = f"{tmp_path}/new{end}"
    for make in (lambda: ps.save(path, np.zeros(3)), lambda: path_of_new(path)):
        with pytest.raises(ps.InvalidError, match="does not end in the name of a file"):
            make()
    assert os.listdir(tmp_path) == []


def test_a_save_keeps_links_and_mode_but_not_setuid(tmp_path):
    path, other, link = (tmp_path / name for name in ("f", "other", "link"))
    path.write_bytes(b"old")
    path.chmod(0o4750)
    other.hardlink_to(path)
    link.symlink_to("f")
    ps.save(link, np.arange(3, dtype="u1"))
    assert link.is_symlink()
    assert path.read_bytes() == bytes(range(3))
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert other.read_bytes() == b"old"


def test_a_file_that_the_user_may_not_write_is_not_replaced(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"old")
    path.chmod(0o444)
    if os.access(path, os.W_OK):
        pytest.skip("root may write any file")
    for save in (ps.save, lambda *arguments: ps.save_async(*arguments).wait()):
        with pytest.raises(ps.PermissionDeniedError, match=str(path)):
            save(path, np.zeros(3))
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["f"]


def test_a_large_array_comes_back(tmp_path, memory):
    contents = np.arange((80 << 20) // 8, dtype="u8")
    ps.save(tmp_path / "f", memory.array(contents), durable=True)
    out = memory.empty(contents.shape, "u8")
    ps.load(tmp_path / "f", out=out)
    np.testing.assert_array_equal(memory.numpy(out), contents)


def test_the_report_of_a_host_read_is_exact(tmp_path):
    (tmp_path / "f").write_bytes(bytes(5000))
    ps.load(tmp_path / "f", direct=False)
    report = ps.last_report()
    assert (report.route, report.device, report.paths) == ("host", -1, {"host_buffered": 5000})
    assert report.elapsed_ns > 0
    assert report.gbps == pytest.approx(report.bytes / report.elapsed_ns)


@pytest.mark.gpu
@pytest.mark.usefixtures("penstock_arrays")
def test_device_cuda_gives_a_device_array(tmp_path):
    np.arange(12, dtype="f4").tofile(tmp_path / "f")
    array = ps.load(tmp_path / "f", dtype="f4", shape=(3, 4), device="cuda")
    assert isinstance(array, ps.DeviceArray)
    np.testing.assert_array_equal(array.numpy(), np.arange(12).reshape(3, 4))
    assert ps.last_report().device == 0


@pytest.mark.gpu
def test_each_route_to_the_gpu_says_so(tmp_path, noise):
    contents = noise(3 << 20)
    contents.tofile(tmp_path / "f")
    for route in ("staged", "mapped"):
        out = ps.DeviceArray(contents.size)
        ps.load(tmp_path / "f", out=out, route=route)
        np.testing.assert_array_equal(out.numpy(), contents)
        assert ps.last_report().route == route


def test_torch_tensors_on_the_gpu_are_loaded_after_pending_kernels(tmp_path, torch_kernels):
    torch = torch_kernels
    t = torch.arange(1 << 22, dtype=torch.float32, device="cuda")
    for _ in range(50):
        t = t + 1
    ps.save(tmp_path / "f", t)  # no synchronisation in between
    np.testing.assert_array_equal(
        np.fromfile(tmp_path / "f", "f4"), np.arange(1 << 22, dtype="f4") + 50
    )
    back = ps.load(tmp_path / "f", dtype=torch.float32, shape=tuple(t.shape), device="cuda")
    assert isinstance(back, torch.Tensor)
    assert back.is_cuda
    assert torch.equal(back, t)
    half = ps.load(tmp_path / "f", dtype=torch.bfloat16, device=torch.device("cuda", 0))
    assert half.dtype == torch.bfloat16
    assert torch.equal(half.view(torch.float32), t)


def test_a_load_into_a_tensor_waits_for_the_kernels_that_still_use_it(tmp_path, torch_kernels):
    torch = torch_kernels
    np.full(1 << 22, 7, "f4").tofile(tmp_path / "f")
    t = torch.ones(1 << 22, device="cuda")
    total = torch.zeros_like(t)
    for _ in range(100):
        total += t
    ps.load(tmp_path / "f", out=t)
    assert (total == 100).all()
    assert (t == 7).all()


def test_cupy_arrays_are_loaded_and_saved(tmp_path, cupy, monkeypatch):
    monkeypatch.setattr(placement, "_asked_for", lambda: "cupy")
    a = cupy.arange(1 << 20, dtype="f4") * 2
    ps.save(tmp_path / "f", a)
    back = ps.load(tmp_path / "f", dtype="f4", device="cuda")
    assert isinstance(back, cupy.ndarray)
    assert (back == a).all()
    out = cupy.zeros((1 << 19, 4), "f4")
    ps.load(tmp_path / "f", out=out[:, :2])
    assert (out[:, :2].ravel() == a).all()


@pytest.mark.parametrize("kind", ["text", "bytes", "pathlib", "descriptor"])
def test_a_file_is_named_by_its_path_or_an_open_descriptor(tmp_path, noise, kind):
    path, bytes_of_file = tmp_path / "f\xe4", noise(100)
    bytes_of_file.tofile(path)
    with path.open("rb") as file:
        name = {
            "text": str(path),
            "bytes": os.fsencode(path),
            "pathlib": path,
            "descriptor": file.fileno(),
        }[kind]
        out = np.empty_like(bytes_of_file)
        assert ps.load(name, out=out) is out
        np.testing.assert_array_equal(out, bytes_of_file)
        np.testing.assert_array_equal(ps.load(name), bytes_of_file)


def test_a_path_with_a_null_byte_is_a_value_error(tmp_path):
    for call in (ps.load, ps.save):
        arguments = {"out": np.zeros(4)} if call is ps.load else {"array": np.zeros(4)}
        with pytest.raises(ps.InvalidError, match="null byte"):
            call(f"{tmp_path}/a\0b", **arguments)
        with pytest.raises(TypeError, match=r"os\.PathLike"):
            call(1.5, **arguments)


def test_a_missing_file_is_reported_before_an_out_that_cannot_be_filled(tmp_path):
    fixed = np.zeros(4)
    fixed.flags.writeable = False
    for out in (fixed, np.array([None]), object()):
        with pytest.raises(ps.NotFoundError):
            ps.load(tmp_path / "missing", out=out)
    np.zeros(4).tofile(tmp_path / "f")
    with pytest.raises(ps.InvalidError, match="read-only"):
        ps.load(tmp_path / "f", out=fixed)
    for out in (np.array([None]), object()):
        with pytest.raises(ps.IncompatibleError):
            ps.load(tmp_path / "f", out=out)


def test_a_read_only_array_is_saved(tmp_path, noise):
    fixed = noise(100)
    fixed.flags.writeable = False
    ps.save(tmp_path / "f", fixed)
    assert (tmp_path / "f").read_bytes() == fixed.tobytes()
    assert ps.last_report().bytes == 100


def test_a_load_past_the_end_names_the_file_and_the_range(tmp_path):
    np.zeros(4).tofile(tmp_path / "f")
    with pytest.raises(ps.EndOfFileError) as caught:
        ps.load(tmp_path / "f", out=np.zeros(4), offset=8)
    found = caught.value
    assert (found.path, found.offset, found.length) == (str(tmp_path / "f"), 8, 32)
