"""Weights in safetensors files, by the names of the packages ``safetensors`` and
``safetensors.torch``.

>>> from penstock.torch.safetensors import load_file    # was: safetensors.torch
>>> state = load_file("model.safetensors", device="cuda")
"""

from penstock.torch.safetensors.errors import SafetensorError
from penstock.torch.safetensors.load import load, load_file
from penstock.torch.safetensors.model import load_model, save_model
from penstock.torch.safetensors.open import SafeSlice, safe_open
from penstock.torch.safetensors.prefetch import PrefetchLoader
from penstock.torch.safetensors.save import save, save_file
from penstock.torch.safetensors.stream import iter_weights

__all__ = [
    "PrefetchLoader",
    "SafeSlice",
    "SafetensorError",
    "iter_weights",
    "load",
    "load_file",
    "load_model",
    "safe_open",
    "save",
    "save_file",
    "save_model",
]
