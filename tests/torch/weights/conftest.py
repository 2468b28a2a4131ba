"""Tensors of each type, in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.torch.safetensors.dtypes import TORCH_NAMES


def of_each_type(torch: Any) -> dict[str, Any]:
    """Return a tensor of each type that torch has, and of shapes that are special."""
    made = torch.Generator().manual_seed(7)

    def noise(*shape: int) -> Any:
        return torch.randint(0, 255, shape, dtype=torch.uint8, generator=made)

    found: dict[str, Any] = {
        "scalar": torch.tensor(3.5),
        "empty": torch.zeros(0, 4),
        "odd": noise(13),
        "matrix": noise(48, 4096).view(torch.bfloat16),
        "cube": noise(4, 6, 256).view(torch.int32),
        "bool": noise(9) > 100,
        "complex": noise(5, 16).view(torch.complex64),
    }
    for name in TORCH_NAMES.values():
        if name not in ("bool", "uint8", "bfloat16", "int32", "complex64") and hasattr(torch, name):
            found[name] = noise(3, 16).view(getattr(torch, name))
    return found


def assert_equal(found: Any, wanted: Any) -> None:
    """Compare type, shape and bytes of two tensors."""
    import torch

    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    if wanted.numel():
        flat = [
            one.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for one in (found, wanted)
        ]
        assert torch.equal(*flat)


@pytest.fixture(scope="session")
def tensors() -> dict[str, Any]:
    return of_each_type(pytest.importorskip("torch", reason="torch is not installed"))


@pytest.fixture
def weights(tensors: dict[str, Any], tmp_path: Path) -> Path:
    """A file with all of the tensors."""
    from penstock.torch import save_file

    path = tmp_path / "model.safetensors"
    save_file(tensors, path, {"format": "pt"})
    return path
