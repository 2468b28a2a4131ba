"""State dicts of all kinds of tensors, and what all tests of checkpoints need."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Hide the warnings that torch's own checkpoints give of a process without ranks."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, module=r"torch\.")
        warnings.filterwarnings("ignore", message="TypedStorage is deprecated")
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        warnings.filterwarnings("ignore", message="Detected an existing checkpoint")
        warnings.filterwarnings("ignore", message="Validating sparse tensor invariants")
        yield


def tensors(device: str = "cpu") -> dict[str, Any]:
    """Return tensors of many types, strides and lengths."""
    matrix = torch.arange(60_000.0, device=device).reshape(300, 200)
    return {
        "matrix": matrix,
        "transposed": matrix.t(),
        "rows": matrix[3:5],
        "columns": matrix[:, 3:7],
        "large": torch.arange(1 << 18, dtype=torch.int32, device=device),
        "bfloat16": torch.arange(1000, device=device).to(torch.bfloat16),
        "uint16": torch.arange(3, device=device).to(torch.uint16),
        "float8": torch.ones(5, device=device).to(torch.float8_e4m3fn),
        "conjugate": torch.full((2,), 1j, dtype=torch.complex64, device=device).conj(),
        "bool": torch.tensor([True, False], device=device),
        "empty": torch.zeros(0, 4, device=device),
        "scalar": torch.tensor(3, device=device),
        "parameter": torch.nn.Parameter(torch.ones(3, device=device)),
    }


def state_dict(device: str = "cpu") -> dict[str, Any]:
    """Return a nested state dict with tensors and other objects."""
    return {"model": tensors(device), "step": 7, "names": ["a", (1, 2.5)], "none": None}


def blank(state: Any) -> Any:
    """Return a state dict of the same form with other values."""
    if isinstance(state, dict):
        return {key: blank(value) for key, value in state.items()}
    return torch.zeros_like(state.detach().clone()) if torch.is_tensor(state) else "?"


def assert_same(actual: Any, expected: Any) -> None:
    """Compare state dicts: types, shapes, values and devices."""
    if isinstance(expected, dict):
        assert list(actual) == list(expected)
        for key, value in expected.items():
            assert_same(actual[key], value)
    elif isinstance(expected, (list, tuple)):
        assert (type(actual), len(actual)) == (type(expected), len(expected))
        for one, value in zip(actual, expected, strict=True):
            assert_same(one, value)
    elif torch.is_tensor(expected):
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
        assert actual.device == expected.device
        assert bool((actual == expected).all())
    else:
        assert actual == expected


@pytest.fixture
def count_requests(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of ranges of each request."""
    from penstock import request

    counts: list[int] = []
    submit: Callable[..., Any] = request.submit

    def counting(file: Any, operation: int, ranges: Any, *rest: Any, **keys: Any) -> Any:
        counts.append(len(ranges))
        return submit(file, operation, ranges, *rest, **keys)

    monkeypatch.setattr(request, "submit", counting)
    return counts
