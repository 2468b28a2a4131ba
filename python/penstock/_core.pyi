from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from typing_extensions import Self

class Library:
    def __init__(
        self,
        *,
        readers: tuple[int, ...],
        files: tuple[int, ...],
        sizes: tuple[int, ...],
        fallback: tuple[int, ...],
        options: Callable[[], tuple[Any, ...]],
        parse: Callable[[Any], tuple[int, Any]],
        check: Callable[[int], Any],
        remember: Callable[[Any], Any],
        note_write: Callable[[Any], Any],
        torch_stream: Callable[[int], int],
        device_array: type,
        view: type,
    ) -> None: ...

class File:
    def __new__(cls, library: Library, path: Any, flags: int) -> Self: ...
    @property
    def number(self) -> int: ...
    def fill(self, out: Any, offset: int, options: int, at_once: int) -> bool: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: Any) -> None: ...

def load(
    library: Library, path: Any, out: Any, offset: int, options: int, at_once: int
) -> bool: ...
def save(library: Library, path: Any, array: Any, options: int, at_once: int) -> bool: ...

class Elements:
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def index(self) -> tuple[Any, ...] | None: ...
    @property
    def points(self) -> np.ndarray[Any, Any] | None: ...
    @property
    def lengths(self) -> tuple[int, ...]: ...
    @property
    def order(self) -> tuple[int, ...] | None: ...
    @property
    def is_regular(self) -> bool: ...
    @property
    def is_grid(self) -> bool: ...
    @property
    def selection(self) -> int: ...
    def chunks(self, chunk: tuple[int, ...]) -> int: ...
    def span(self, shape: tuple[int, ...]) -> int: ...

def elements(shape: tuple[int, ...], index: Any) -> Elements | None: ...

class Report:
    @property
    def address(self) -> int: ...

class Typed: ...

class Reader:
    @staticmethod
    def open(
        library: Library,
        dataset: Any,
        lock: Any,
        limits: Any,
        memory: tuple[int, np.dtype[Any] | None, int, int, bool, Any] | None,
    ) -> Reader | None: ...
    def open_as(
        self, dataset: Any, memory: tuple[int, np.dtype[Any] | None, int, int, bool, Any]
    ) -> Typed | None: ...
    @property
    def shape(self) -> tuple[int, ...] | None: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def own(self) -> Typed: ...
    def is_forgotten(self) -> bool: ...
    def has(self, opener: Any, key: Any) -> bool: ...
    def read(self, index: Any, opener: Any = None, key: Any = None) -> tuple[Any, bool]: ...
    def write(self, opener: Any, index: Any, array: np.ndarray[Any, Any]) -> bool: ...
    def fill(
        self,
        opener: Any,
        index: Any,
        out: Any,
        stream: int | None,
        options: int,
        is_new: bool,
    ) -> bool: ...
    def start(
        self,
        opener: Any,
        index: Any,
        out: Any,
        stream: int | None,
        options: int,
        is_new: bool,
        place: int,
    ) -> int | None: ...
    def shape_of(self, index: Any) -> tuple[int, ...] | None: ...

def export_array(
    address: int,
    shape: tuple[int, ...],
    dtype: tuple[int, int],
    device: tuple[int, int],
    owner: object,
    *,
    versioned: bool,
    copied: bool,
) -> object: ...
def import_arrays(
    make: Any,
    parts: Sequence[tuple[Any, ...]],
    places: Sequence[int],
    codes: dict[str, tuple[int, int]],
    memory: tuple[object, int, int],
    device: tuple[int, int],
) -> list[Any]: ...
def read_capsule(
    capsule: object,
) -> (
    tuple[int, tuple[int, int], list[int], list[int] | None, tuple[int, int, int], bool] | None
): ...
def canonical_tensors(
    text: bytes, start: int, begin: int, bits: dict[str, int]
) -> list[tuple[str, str, tuple[int, ...], int, int]] | None: ...
