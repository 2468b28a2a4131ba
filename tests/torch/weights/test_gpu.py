"""Weights in GPU memory: of torch where it has a GPU, else Penstock's own on the stand-in."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import penstock as ps
from penstock.torch.safetensors.layout import ALIGNMENT

torch = pytest.importorskip("torch", reason="torch is not installed")

from penstock.torch import load_file, load_model, safe_open, save_file  # noqa: E402
from penstock.torch.safetensors import frameworks, replicated, save  # noqa: E402
from penstock.torch.safetensors.header import Entry  # noqa: E402

from .conftest import assert_equal  # noqa: E402

pytestmark = pytest.mark.gpu
needs_torch = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")


def bytes_of(array):
    """Return the bytes of a DeviceArray."""
    if not array.nbytes:
        return b""
    whole = ps.DeviceArray.part(array, 0, (array.nbytes,), ps.dtypes.element_type("uint8"))
    return whole.numpy().tobytes()


def of_torch(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("copy", [False, True])
def test_all_tensors_are_loaded_by_one_request(copy, weights, tensors):
    with safe_open(weights, "device", 0) as opened:
        found = opened.get_tensors(copy=copy)
    report = ps.last_report()
    assert report is not None
    assert report.bytes == sum(len(of_torch(t)) for t in tensors.values() if t.numel())
    for name, tensor in tensors.items():
        if tensor.numel():
            assert bytes_of(found[name]) == of_torch(tensor), name


def test_tensors_are_aligned_whatever_their_places_in_the_file(tmp_path):
    made = {f"s{n}": torch.full((n,), n, dtype=torch.uint8) for n in range(1, 200)}
    made |= {f"w{n}": torch.full((64,), n, dtype=torch.int8) for n in range(20)}
    made |= {f"f{n}": torch.full((3,), n, dtype=torch.float32) for n in range(20)}
    save_file(made, tmp_path / "x")
    with safe_open(tmp_path / "x", "device") as opened:
        found = opened.get_tensors()
    for name, tensor in made.items():
        assert bytes_of(found[name]) == of_torch(tensor)
        nbytes = found[name].nbytes
        assert found[name].data_ptr % min(nbytes & -nbytes, ALIGNMENT) == 0


@pytest.mark.parametrize(
    "index",
    [np.s_[3:7], np.s_[:, :512], np.s_[:, 8:1032], np.s_[5], np.s_[::2], np.s_[:, 7]],
    ids=str,
)
def test_a_slice_reads_its_bytes_alone(index, weights, tensors):
    with safe_open(weights, "device") as opened:
        found = opened.get_slice("matrix")[index]
    wanted = tensors["matrix"][index]
    assert found.shape == tuple(wanted.shape)
    assert bytes_of(found) == of_torch(wanted)


def test_ranks_read_halves_of_a_tensor(weights, tensors):
    matrix = tensors["matrix"]
    for rank in range(2):
        rows, columns = (
            np.s_[24 * rank : 24 * (rank + 1)],
            np.s_[:, 1024 * rank : 1024 * (rank + 1)],
        )
        for plan in ({"matrix": rows}, {"matrix": columns}):
            with safe_open(weights, "device") as opened:
                found = opened.get_tensors(plan)["matrix"]
            report = ps.last_report()
            assert report is not None
            assert report.bytes == matrix.nbytes // 2
            assert bytes_of(found) == of_torch(matrix[plan["matrix"]])


def test_prefetched_tensors_arrive(weights, tensors):
    with safe_open(weights, "device") as opened, opened.prefetch(threads=2) as loader:
        for name, found in loader:
            if found.nbytes:
                assert bytes_of(found) == of_torch(tensors[name])


@needs_torch
@pytest.mark.parametrize(
    "keys", [{}, {"copy": True}, {"plan": {"matrix": np.s_[:, :1024]}}], ids=str
)
def test_torch_gets_tensors_on_its_gpu(keys, weights, tensors):
    found = load_file(weights, "cuda", **keys)
    for name, tensor in found.items():
        wanted = tensors[name][keys["plan"][name]] if "plan" in keys else tensors[name]
        assert tensor.device == torch.device("cuda", torch.cuda.current_device())
        assert_equal(tensor, wanted)
        assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


@needs_torch
def test_gpu_tensors_are_saved_from_where_they_are(weights, tensors, tmp_path):
    found = load_file(weights, "cuda")
    changed = {name: tensor.clone() for name, tensor in found.items()}
    save_file(changed, tmp_path / "y", {"format": "pt"})
    assert (tmp_path / "y").read_bytes() == weights.read_bytes()


@needs_torch
def test_the_bytes_of_gpu_tensors_are_those_of_a_saved_file(tmp_path):
    tensors = {str(n): torch.full((1 << 18,), float(n), device="cuda") for n in range(6)}
    save_file(tensors, tmp_path / "x")
    assert save(tensors) == (tmp_path / "x").read_bytes()


@needs_torch
def test_a_save_waits_for_the_stream_that_fills_a_tensor(tmp_path):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = torch.zeros(1 << 20, device="cuda")
        for _ in range(200):
            x += 1
        save_file({"x": x}, tmp_path / "x")
    assert load_file(tmp_path / "x")["x"].unique().tolist() == [200.0]


TWO_GPUS = """
import ctypes, sys
import torch
import penstock as ps
import penstock.torch as pt

def keep_busy(gpu):
    with torch.cuda.device(gpu):
        launch = ctypes.CDLL("libcudart.so.13").cudaLaunchHostFunc
        launch.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        usleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p)
        assert launch(torch.cuda.current_stream().cuda_stream, usleep, 200_000) == 0

ones, path = torch.ones(1000).pin_memory(), sys.argv[1]
for save, load in ((pt.save_file, pt.load_file), (pt.save, lambda path: pt.load(path, "cpu"))):
    for busy in (0, 1):
        tensors = {str(gpu): torch.zeros(1000).to(f"cuda:{gpu}") for gpu in (0, 1)}
        keep_busy(busy)
        tensors[str(busy)].copy_(ones, non_blocking=True)
        save(tensors, path)
        assert load(path)[str(busy)].tolist() == [1] * 1000

ps.save(path, torch.ones(2000))
arrays = [torch.zeros(1000).to(f"cuda:{gpu}") for gpu in (0, 1)]
keep_busy(1)
before = torch.ones(1000).pin_memory()
before.copy_(arrays[1], non_blocking=True)
ps.load_many(path, [(0, arrays[0]), (4000, arrays[1])])
torch.cuda.synchronize(1)
assert before.tolist() == [0] * 1000
assert arrays[1].tolist() == [1] * 1000
"""


@needs_torch
def test_a_request_waits_for_the_default_streams_of_all_its_gpus(tmp_path):
    if "stand-in" not in torch.cuda.get_device_name() and torch.cuda.device_count() < 2:
        pytest.skip("it needs two GPUs")
    environment = os.environ | {"CUDASIM_DEVICES": "2"}
    command = [sys.executable, "-c", TWO_GPUS, tmp_path / "x"]
    subprocess.run(command, env=environment, timeout=240, check=True)


@needs_torch
def test_the_gpu_needs_no_more_than_the_tensors(tmp_path):
    save_file({str(n): torch.zeros(1 << 22) for n in range(24)}, tmp_path / "x")
    load_file(tmp_path / "x", "cuda")
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before, (free, _) = torch.cuda.memory_allocated(), torch.cuda.mem_get_info()
    found = load_file(tmp_path / "x", "cuda")
    left, _ = torch.cuda.mem_get_info()
    assert free - left <= (24 << 24) + (128 << 20)
    assert torch.cuda.max_memory_allocated() - before < (24 << 24) + (128 << 20)
    del found


@needs_torch
def test_memory_is_freed_with_the_last_tensor(tmp_path):
    save_file({str(n): torch.zeros(1 << 20) for n in range(4)}, tmp_path / "x")
    gc.collect()
    before = torch.cuda.memory_allocated()
    found = load_file(tmp_path / "x", "cuda")
    kept = found.pop("2")
    found.clear()
    gc.collect()
    assert torch.cuda.memory_allocated() - before == 4 << 22
    del kept
    assert torch.cuda.memory_allocated() == before
    found = load_file(tmp_path / "x", "cuda", copy=True)
    del found["0"], found["1"], found["3"]
    assert torch.cuda.memory_allocated() - before == 1 << 22


@needs_torch
def test_a_stream_may_use_tensors_at_once(tmp_path):
    save_file({"x": torch.arange(1 << 18)}, tmp_path / "x")
    for _ in range(20):
        # Memory that the last round freed may have work queued on this stream.
        torch.zeros(1 << 18, dtype=torch.int64, device="cuda").add_(1)
        found = load_file(tmp_path / "x", "cuda")["x"]
        with torch.cuda.stream(torch.cuda.Stream()):
            assert int(found[-1]) == (1 << 18) - 1


@needs_torch
def test_unaligned_tensors_of_a_group_are_complete_for_any_stream():
    maker = frameworks.choose("pt", "cuda")
    memory = maker.allocate(64)
    entries, places = [Entry("x", "F32", (4,), 1, 17)], [1]
    torch.cuda._sleep(200_000_000)  # work of this stream that the copy of the tensor follows
    prepared = SimpleNamespace(memory=memory, places=places, entries=entries)
    found = replicated._tensors(maker, prepared)
    assert found["x"].data_ptr() % ALIGNMENT == 0
    assert torch.cuda.current_stream().query()


@needs_torch
@pytest.mark.parametrize("default", ["cpu", "cuda"])
def test_the_default_device_of_torch_changes_nothing(default, weights, tensors):
    with torch.device(default):
        for device in ("cpu", "cuda"):
            found = load_file(weights, device)
            with safe_open(weights, "pt", device) as opened:
                found["matrix"] = opened.get_tensor("matrix")
                found["cube"] = opened.get_slice("cube")[1:3]
            assert {tensor.device.type for tensor in found.values()} == {device}
            assert_equal(found["matrix"], tensors["matrix"])


@needs_torch
def test_a_device_map_over_gpu_and_host(weights, tensors):
    found = load_file(weights, device_map={"matrix": "cuda", "": "cpu"})
    assert {name for name, tensor in found.items() if tensor.is_cuda} == {"matrix"}
    for name, tensor in tensors.items():
        assert_equal(found[name], tensor)


@needs_torch
def test_a_model_on_the_gpu_is_filled_in_place(tmp_path):
    model, other = (torch.nn.Linear(512, 512) for _ in range(2))
    save_file(model.state_dict(), tmp_path / "x")
    other.cuda()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    assert load_model(other, tmp_path / "x") == (set(), [])
    assert torch.cuda.max_memory_allocated() == before
    assert_equal(other.weight.cpu(), model.weight)


@needs_torch
def test_other_frameworks_get_gpu_arrays(weights, tensors):
    cupy = pytest.importorskip("cupy")
    with safe_open(weights, "cupy", 0) as opened:
        assert bytes(cupy.asnumpy(opened.get_tensor("cube")).tobytes()) == of_torch(tensors["cube"])


@pytest.mark.parametrize("seed", range(6))
def test_columns_of_several_tensors_are_those_of_the_file(seed, tmp_path):
    draw = np.random.default_rng(seed)
    made, plan = {}, {}
    for number in range(draw.integers(1, 5)):
        rows, columns = int(draw.choice([1, 7, 1500, 3000])), int(draw.integers(600, 6000))
        name = f"t{number}"
        made[name] = torch.from_numpy(draw.integers(0, 99, (rows, columns), dtype=np.int16))
        start, stop = sorted(draw.choice(columns + 1, 2, replace=False).tolist())
        some = np.s_[:: int(draw.choice([1, 3])), start:stop]
        plan[name] = (None, np.s_[: rows // 2], some, some, some)[draw.integers(5)]
    save_file(made, tmp_path / "x")
    for copy in False, True:
        with safe_open(tmp_path / "x", "device") as opened:
            found = opened.get_tensors(plan, copy=copy)
        for name, tensor in made.items():
            wanted = tensor if plan[name] is None else tensor[plan[name]]
            assert found[name].shape == tuple(wanted.shape)
            assert bytes_of(found[name]) == of_torch(wanted), (name, plan[name])
