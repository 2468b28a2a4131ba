"""torch, as a module without types: those of its own differ between versions."""

from __future__ import annotations

from importlib import import_module
from typing import Any

torch: Any = import_module("torch")
torch_data: Any = import_module("torch.utils.data")
