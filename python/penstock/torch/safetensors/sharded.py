"""Models in several files, with the index that says which tensor is in which."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any

from penstock.errors import NotFoundError
from penstock.files import Path
from penstock.torch.safetensors.errors import WeightsError, WeightsTypeError

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"


def files_of(path: Path) -> dict[str, list[str] | None]:
    """Return the files of a model, each with the names of its tensors, ``None`` for all.

    Args:
        path: A file of weights, an index, or a folder that has one of them under its usual name.

    Raises:
        NotFoundError: There is none.
        WeightsError: The index is not valid.
    """
    name = os.fsdecode(path)
    if os.path.isdir(name):
        index, single = os.path.join(name, INDEX), os.path.join(name, SINGLE)
        if os.path.exists(index):
            name = index
        elif os.path.exists(single):
            name = single
        else:
            raise NotFoundError(f"{name} has neither {INDEX} nor {SINGLE}", path=name)
    return _of_index(name) if name.endswith(".json") else {name: None}


def listed(paths: Iterable[Path]) -> Iterator[tuple[Path, list[str] | None]]:
    """Yield files of weights, each with the names of its tensors, ``None`` for all.

    A file that an index beside it names has the tensors that the index says, as for
    :func:`files_of`, which expands indexes and folders.

    Raises:
        NotFoundError: An index or a folder has no files.
        WeightsError: An index is not valid.
    """
    known: dict[str, dict[str, list[str] | None]] = {}
    for path in paths:
        name = os.fsdecode(path)
        if os.path.isdir(name) or name.endswith(".json"):
            yield from files_of(name).items()
            continue
        folder, file = os.path.split(name)
        index = os.path.join(folder, INDEX)
        if index not in known:
            known[index] = _of_index(index) if os.path.exists(index) else {}
        yield path, known[index].get(os.path.join(folder, file))


def _of_index(name: str) -> dict[str, list[str] | None]:
    try:
        text = FilePath(name).read_bytes()
    except FileNotFoundError:
        raise NotFoundError(f"No such file or directory: {name}", path=name) from None
    try:
        weight_map = json.loads(text.decode())["weight_map"]
        items = list(weight_map.items())
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise _invalid(name, f"it is not an index with a weight_map: {error}") from None
    folder = os.path.dirname(name)
    files: dict[str, list[str] | None] = {}
    for tensor, file in items:
        # Only a name in the same folder: an index comes from others.
        if not isinstance(file, str) or os.path.basename(file) != file or file in ("", ".", ".."):
            raise _invalid(name, f"tensor {tensor!r} is in {file!r}, which is not a file name")
        names = files.setdefault(os.path.join(folder, file), [])
        assert names is not None
        names.append(tensor)
    return files


def device_for(name: str, device_map: Mapping[str, Any]) -> Any:
    """Return the device of a tensor: that of the longest prefix of its name that ends at a dot."""
    if not isinstance(device_map, Mapping):
        raise WeightsTypeError(
            f"device_map={device_map!r} is no mapping of prefixes to devices",
            remedy='give one, such as {"": "cuda"}; accelerate\'s infer_auto_device_map makes one',
        )
    prefix = name
    while True:
        if prefix in device_map:
            return device_map[prefix]
        if not prefix:
            raise WeightsError(
                f"device_map has no device for tensor {name!r}",
                remedy='give one for its module, or for all others as ""',
            )
        prefix = prefix.rpartition(".")[0]


def _invalid(name: str, why: str) -> WeightsError:
    return WeightsError(f"{name}: {why}", path=name, cause=why)
