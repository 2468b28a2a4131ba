"""Tensors of many files one after the other, of which few are in memory at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from operator import attrgetter
from typing import Any, NamedTuple

from penstock._options import OptionKeys, Unpack
from penstock.files import Path
from penstock.torch.safetensors import frameworks
from penstock.torch.safetensors.frameworks import Framework
from penstock.torch.safetensors.header import Entry
from penstock.torch.safetensors.opened import OneSave, WeightsFile
from penstock.torch.safetensors.prefetch import PrefetchLoader
from penstock.torch.safetensors.sharded import listed

WINDOW = 128 << 20
"""Bytes of tensors that one request reads, at least; more, if a tensor has more."""
_AHEAD = 1
"""Requests in flight beside the one whose tensors are handed out."""


def iter_weights(
    filenames: Iterable[Path],
    device: Any = "cpu",
    *,
    wanted: Callable[[str], bool] | None = None,
    window: int = WINDOW,
    **options: Unpack[OptionKeys],
) -> Iterator[tuple[str, Any]]:
    """Yield the tensors of files for a consumer that copies each into its place.

    While tensors of one window are handed out, the next window is read. A consumer that keeps no
    tensor needs memory for two windows.

    Args:
        filenames: The files, in the order in which they are read. Of a file that
            ``model.safetensors.index.json`` beside it names, the tensors are read that the index
            says are there. An index and a folder stand for the files of the model.
        device: Where the tensors go, as for :func:`load_file`.
        wanted: Whether a tensor of this name is read; by default, all are.
        window: The bytes of a window. A tensor that is larger is a window of its own.
        **options: See :class:`penstock.OptionKeys`.

    >>> for name, tensor in iter_weights(sorted(folder.glob("*.safetensors")), "cuda"):
    ...     parameters[name].data.copy_(tensor)
    """
    framework = frameworks.choose("pt", device)
    started: deque[_Window] = deque()
    windows = _in_turn(_start(filenames, framework, wanted, window, options))
    try:
        for begun in windows:
            started.append(begun)
            if len(started) > _AHEAD:
                yield from started[0].loader
                started.popleft().close()
        while started:
            yield from started[0].loader
            started.popleft().close()
    finally:
        for begun in started:
            begun.close()
        windows.close()


class _Window(NamedTuple):
    """The tensors of one request."""

    loader: PrefetchLoader | Generator[tuple[str, Any], None, None]
    file: WeightsFile | None
    """The file, if this is its last request."""

    def close(self) -> None:
        """End the request, and with the last one close the file."""
        self.loader.close()
        if self.file is not None:
            self.file.close()


def _in_turn(windows: Generator[_Window, None, None]) -> Generator[_Window, None, None]:
    """Yield windows. One that cannot be started raises its error when its tensors are due."""

    def fail(error: Exception) -> Generator[tuple[str, Any], None, None]:
        raise error
        yield

    try:
        yield from windows
    except Exception as error:
        yield _Window(fail(error), None)


def _start(
    filenames: Iterable[Path],
    framework: Framework,
    wanted: Callable[[str], bool] | None,
    window: int,
    options: OptionKeys,
) -> Generator[_Window, None, None]:
    """Start one request after the other, each when it is asked for."""
    save = OneSave()
    for filename, names in listed(filenames):
        file = WeightsFile(filename, "pread", options)
        handed_over = False
        try:
            save.add(file, names)
            found = file.header.entries.values() if names is None else map(file.entry, names)
            entries = [entry for entry in found if wanted is None or wanted(entry.name)]
            entries.sort(key=attrgetter("begin", "end"))
            groups = list(_windows(entries, window))
            for left, group in zip(range(len(groups) - 1, -1, -1), groups, strict=True):
                loader = PrefetchLoader(file, group, framework, None, {})
                handed_over = not left
                yield _Window(loader, file if handed_over else None)
        finally:
            if not handed_over:
                file.close()


def _windows(entries: Iterable[Entry], window: int) -> Iterator[list[Entry]]:
    group: list[Entry] = []
    nbytes = 0
    for entry in entries:
        if group and nbytes + entry.nbytes > window:
            yield group
            group, nbytes = [], 0
        group.append(entry)
        nbytes += entry.nbytes
    if group:
        yield group
