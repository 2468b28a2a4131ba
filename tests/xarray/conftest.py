"""Arrays of the GPU without CuPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.placement import place


@pytest.fixture
def duck_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have xarray take arrays of Penstock in GPU memory, as CuPy's kernels need a real GPU."""

    def refuse(*_: object, **__: object) -> Any:
        return NotImplemented

    def indexed(array: ps.DeviceArray, key: Any) -> ps.DeviceArray:
        return ps.DeviceArray.from_numpy(np.ascontiguousarray(array.numpy()[key]))

    def transposed(array: ps.DeviceArray, order: tuple[int, ...]) -> ps.DeviceArray:
        return ps.DeviceArray.from_numpy(np.ascontiguousarray(array.numpy().transpose(order)))

    def converted(array: ps.DeviceArray, dtype: Any) -> ps.DeviceArray:
        return ps.DeviceArray.from_numpy(array.numpy().astype(dtype))

    monkeypatch.setattr(
        "penstock.xarray.backend._placement",
        lambda device: None if device in (None, "cpu") else place(device, "device", pin=False),
    )
    for name, method in {
        "__array_function__": refuse,
        "__array_ufunc__": refuse,
        "__getitem__": indexed,
        "astype": converted,
        "transpose": transposed,
    }.items():
        monkeypatch.setattr(ps.DeviceArray, name, method, raising=False)
