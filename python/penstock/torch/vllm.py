"""A model loader for vLLM: ``vllm serve MODEL --load-format penstock``.

vLLM finds :func:`register` by the entry point ``vllm.general_plugins`` of this package. Options go
by ``--model-loader-extra-config``: those of :class:`penstock.OptionKeys`, and ``window``, the bytes
that are read ahead. Files other than safetensors are loaded as vLLM's default loader does.
"""

from __future__ import annotations

import copy
import inspect
import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from penstock._options import OptionKeys
from penstock.torch.safetensors.stream import WINDOW, iter_weights

NAME = "penstock"


def register() -> None:
    """Register the load format with vLLM. Each process calls it, perhaps more than once."""
    loaders: Any = import_module("vllm.model_executor.model_loader")
    known = getattr(loaders, "_LOAD_FORMAT_TO_MODEL_LOADER", {})
    if NAME not in known:
        loaders.register_model_loader(NAME)(make_loader())


def make_loader() -> type[Any]:
    """Return the class of the loader, a subclass of vLLM's default one."""
    default: Any = import_module("vllm.model_executor.model_loader.default_loader")
    utils: Any = import_module("vllm.model_executor.model_loader.weight_utils")

    class PenstockModelLoader(default.DefaultModelLoader):  # type: ignore[misc]
        """Loads safetensors files straight into GPU memory."""

        counter_before_loading_weights: float = 0.0

        def __init__(self, load_config: Any) -> None:
            own = copy.copy(load_config)
            # The methods of the base class know their own formats only.
            own.load_format = "safetensors"
            extra = dict(load_config.model_loader_extra_config or {})
            self._window = int(extra.pop("window", WINDOW))
            names = OptionKeys.__annotations__
            self._options: Any = {key: extra.pop(key) for key in list(extra) if key in names}
            own.model_loader_extra_config = extra
            super().__init__(own)

        def _get_weights_iterator(self, source: Any) -> Iterator[tuple[str, Any]]:
            folder, files, is_safetensors, *index = _prepared(self._prepare_weights, source)
            if not is_safetensors or self.load_config.safetensors_load_strategy == "torchao":
                made: Iterator[tuple[str, Any]] = super()._get_weights_iterator(source)
                return made
            prefixes = getattr(self, "_encoder_only_lm_prefixes", None)
            if prefixes is not None:
                mapper = self._encoder_only_weights_mapper
                files = utils.filter_mm_encoder_only_safetensors_files(
                    files, folder, *index, prefixes, weights_mapper=mapper
                )
                if not files:
                    raise RuntimeError(f"{source.model_or_path} has no weights of the encoder")
            is_unused = getattr(source, "is_unused_weight", None)
            if is_unused is not None:
                files = utils.filter_safetensors_files_by_weight_name(files, is_unused)
            if self.counter_before_loading_weights == 0.0:
                self.counter_before_loading_weights = time.perf_counter()
            return (
                (source.prefix + name, tensor)
                for name, tensor in iter_weights(
                    sorted(files),
                    _device(self.load_config),
                    wanted=_wanted(getattr(self, "local_expert_ids", None)),
                    window=self._window,
                    **self._options,
                )
            )

    return PenstockModelLoader


def _prepared(prepare: Any, source: Any) -> Any:
    """Call ``_prepare_weights``, whose parameters differ between versions of vLLM."""
    names = inspect.signature(prepare).parameters
    others = {"model_name_or_path": "model_or_path"}
    return prepare(**{name: getattr(source, others.get(name, name)) for name in names})


def _wanted(local_experts: set[int] | None) -> Any:
    """Return which tensors this rank needs; ``None`` for all."""
    if local_experts is None:
        return None
    filters: Any = import_module("vllm.model_executor.model_loader.ep_weight_filter")
    return lambda name: not filters.should_skip_weight(name, local_experts)


def _device(load_config: Any) -> Any:
    torch: Any = import_module("torch")
    if load_config.device is not None:
        return load_config.device
    return "cuda" if torch.cuda.is_available() else "cpu"
