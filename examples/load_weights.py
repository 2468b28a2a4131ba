"""Load a model's weights, and compare the time with that of other loaders.

    python examples/load_weights.py model.safetensors
    python examples/load_weights.py folder-of-a-model --device cuda
    torchrun --nproc-per-node 2 examples/load_weights.py folder-of-a-model --group

The path is a file, an index or a folder. Without one, a file of random weights is made.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import torch

from penstock.torch import load_file, save_file
from penstock.torch.safetensors.sharded import files_of


def by_safetensors(path: Path, device: str) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file as load

    return {name: t for file in files_of(path) for name, t in load(file, device=device).items()}


def by_instanttensor(path: Path, device: str) -> dict[str, torch.Tensor]:
    import instanttensor

    where = torch.device(device)
    if where.index is None:  # which it requires
        where = torch.device("cuda", torch.cuda.current_device())
    backend = instanttensor.Backend.MMAP  # the fastest for a file that is cached
    with instanttensor.safe_open(list(files_of(path)), "pt", where, backend=backend) as opened:
        return dict(opened.tensors())


def timed(name: str, load, path: Path, device: str) -> None:
    try:
        seconds = []
        for _ in range(3):
            start = time.perf_counter()
            state = load(path, device)
            # Tensors that are mapped are read when they are used.
            total = sum(float(t.view(torch.uint8).sum()) for t in state.values() if t.ndim)
            seconds.append(time.perf_counter() - start)
            nbytes = sum(t.numel() * t.element_size() for t in state.values())
            del state
    except Exception as error:
        print(f"{name:15} {type(error).__name__}: {error}")
        return
    best = min(seconds)
    print(f"{name:15} {best:8.3f} s  {nbytes / best / 1e9:6.2f} GB/s  sum {total:.0f}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("path", nargs="?", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--group", action="store_true", help="share one read between all ranks")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = given.path
        if path is None:
            path = Path(folder) / "model.safetensors"
            layers = {f"layers.{n}.weight": torch.randn(2048, 2048) for n in range(32)}
            save_file({name: t.to(torch.bfloat16) for name, t in layers.items()}, path)
        if given.group:
            backend = "nccl" if given.device != "cpu" else "gloo"
            if backend == "nccl":
                torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            torch.distributed.init_process_group(backend)
            world = torch.distributed.group.WORLD
            timed("Penstock", lambda p, d: load_file(p, d, group=world), path, given.device)
            torch.distributed.destroy_process_group()
            return
        timed("Penstock", load_file, path, given.device)
        timed("safetensors", by_safetensors, path, given.device)
        if given.device != "cpu":
            timed("InstantTensor", by_instanttensor, path, given.device)


if __name__ == "__main__":
    main()
