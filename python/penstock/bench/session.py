"""Runs a measurement of ``penstock bench``.

A session makes a folder for the files, runs the contestants, shows the progress, and at the end
prints, saves and draws the results. It always removes the folder. Only the first rank prints.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import penstock as ps
from penstock import text_file
from penstock.same_file import conflict
from penstock.signals import undisturbed

from . import figures, files, group, machine
from .figures import Figure
from .measure import LEFT_OUT, OUR_MODES, OURS, Contestant, Row, WrongBytesError, no_check, race
from .ranks import LostRankError, Ranks
from .tables import Table

PEERS = (
    *(
        "kvikio",
        "h5py",
        "torch",
        "deepspeed",
        "vfd-gds",
        "vol-async",
        "fio",
        "nvcomp",
        "libdeflate",
    ),
    *("safetensors", "instanttensor", "runai", "fastsafetensors", "lance", "netcdf4", "h5netcdf"),
    *("anndata", "annbatch"),
)

_REMOVAL_SECONDS = 20
"""The longest time in which terminated ranks may still write."""


class RefusedError(Exception):
    """The request cannot be measured: one line, exit status 2."""


@dataclass(frozen=True)
class Common:
    """The common options of all benchmarks."""

    folder: Path
    iterations: int = 5
    warm_up: bool = True
    verify: bool = True
    peers: frozenset[str] = frozenset(PEERS)
    json: Path | None = None
    csv: Path | None = None
    plot: Path | None = None
    quiet: bool = False
    keeps_files: bool = False
    """Whether the files are made in the folder itself, and stay for the next benchmark."""

    @property
    def results(self) -> list[Path]:
        return list(filter(None, (self.json, self.csv, self.plot)))


@dataclass
class Session:
    """One run of one benchmark."""

    name: str
    title: str
    common: Common
    ranks: Ranks
    folder: Path
    """The folder for the files of all ranks, which is removed at the end."""
    measured: Path
    """A path on the measured file system."""
    progress: Progress
    rows: list[Row] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    failures: list[Row] = field(default_factory=list)
    """The rows whose errors are failures, in addition to those of Penstock's contestants."""
    words: list[str] = field(default_factory=list)
    """Sentences below the tables."""
    absent: dict[str, str] = field(default_factory=dict)
    """The contestants that cannot run here, with the reason."""
    settings: dict[str, Any] = field(default_factory=dict)
    """The options of the run, for the reader of the results."""

    @property
    def own_folder(self) -> Path:
        """The folder for the files of this rank."""
        made = self.folder / f"rank-{self.ranks.rank}"
        made.mkdir(exist_ok=True)
        return made

    @property
    def runs(self) -> int:
        """The runs of each contestant: the warm-up and the timed ones."""
        return self.common.warm_up + self.common.iterations

    def override(self, *, iterations: int | None, verify: bool | None) -> None:
        """Apply common options that a benchmark takes under other names."""
        if iterations is not None:
            self.common = replace(self.common, iterations=iterations)
        if verify is not None:
            self.common = replace(self.common, verify=verify)

    def wants(self, peer: str) -> bool:
        assert peer in PEERS
        return peer in self.common.peers

    def protect(self, path: Path) -> None:
        """Refuse to write results over a file that is measured."""
        for results in self.common.results:
            if why := conflict(results, [path]):
                raise RefusedError(why)

    def need_space(self, nbytes: int, folder: Path | None = None) -> None:
        """Refuse a run that would fill the file system. Each rank needs ``nbytes``."""
        where = self.folder if folder is None else folder
        needed = nbytes * self.ranks.size * 21 // 20
        # The first rank decides for all, before any rank writes.
        (free, *_) = self.ranks.gather(shutil.disk_usage(where).free)
        if free < needed:
            shown = self.common.folder if folder is None else folder
            raise RefusedError(f"{shown} has {free:,} bytes left, but {needed:,} are needed")

    def need_cold(self, path: Path) -> None:
        """Refuse cold runs if the pages of a file, or of a new file in a folder, stay cached."""
        try:
            files.try_to_drop(path)
            stays = False
        except RuntimeError:
            stays = True
        if any(self.ranks.gather(stays)):
            shown = self.common.folder if path == self.folder else path
            raise RefusedError(
                f"the page cache keeps all of {shown}, so no read is cold: choose a file system on "
                "a disk, or only buffered reads and --cache warm"
            )

    def race(
        self,
        contestants: Iterable[Contestant],
        unit: str = "GB/s",
        *,
        group: str = "",
        warm_up: bool | None = None,
        iterations: int | None = None,
    ) -> list[Row]:
        """Time contestants alternately, on all ranks together. The slowest rank of a run counts.

        The amount of a row is that of all ranks.
        """
        offered = list(contestants)
        self.absent |= {one.name: one.absent for one in offered if one.absent}
        entered = [one for one in offered if not one.absent]
        if not self.common.verify:
            for contestant in entered:
                contestant.check = contestant.verify = no_check
        has_warm_up = self.common.warm_up if warm_up is None else warm_up
        rounds = self.common.iterations if iterations is None else iterations
        total = len(entered) * (rounds + has_warm_up)
        task = self.progress.add_task(group or self.title, total=total)
        how: dict[str, Any] = {"rounds": rounds, "group": group, "warm_up": has_warm_up}
        step = partial(self.progress.advance, task)
        rows = race(entered, unit, ranks=self.ranks, step=step, **how)
        self.progress.remove_task(task)
        self.rows += rows
        return rows

    def finish(self) -> int:
        """Print and save the results, and return the exit status."""
        failed = [row for row in self.rows if row.is_wrong or (row.error and self._is_ours(row))]
        if not self.ranks.is_first:
            return 1 if failed else 0
        environment = machine.environment(self.measured)
        where = machine.in_words(environment)
        if not self.common.quiet:
            self._print(where)
        for row in failed:
            what = ", ".join(filter(None, [row.group, row.name, row.setting]))
            print(f"penstock: {what}: {row.error}", file=sys.stderr)
        # Last, so that a failure here does not lose the printed tables.
        if self.common.json:
            text = json.dumps(self._as_json(environment), indent=1, allow_nan=False)
            _write(self.common.json, f"{text}\n")
        if self.common.csv:
            _write(self.common.csv, "\n".join(table.as_csv() for table in self.tables))
        drawn = figures.draw(self.figures, self.common.plot, where) if self.common.plot else []
        for path in [] if self.common.quiet else drawn:
            print(f"Figure: {path}")
        return 1 if failed else 0

    def _is_ours(self, row: Row) -> bool:
        is_named = row.name in OUR_MODES and row.error != LEFT_OUT
        return row.name.startswith(OURS) or is_named or row in self.failures

    def _print(self, where: str) -> None:
        out = Console(width=None if sys.stdout.isatty() else 160)
        absent = [f"Not measured: {name}: {why}." for name, why in self.absent.items()]
        plain: dict[str, Any] = {"markup": False, "highlight": False}
        for table in self.tables:
            out.print(table.as_rich(out.width))
            for note in table.notes:
                out.print(note, **plain)
        for sentence in (*self.words, *absent, f"{where}."):
            out.print(sentence, **plain)

    def _as_json(self, environment: dict[str, Any]) -> dict[str, Any]:
        return {
            "benchmark": self.name,
            "title": self.title,
            "settings": self.settings,
            "ranks": self.ranks.size,
            "environment": environment,
            "tables": [table.as_json() for table in self.tables],
            "figures": [asdict(figure) for figure in self.figures],
            "words": self.words,
            "absent": self.absent,
            "rows": [row.as_json() for row in self.rows],
        }


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text_file.write(path, text)


def measure(
    name: str, title: str, common: Common, ranks: Ranks, work: Callable[[Session], None]
) -> int:
    """Run a measurement, and return the exit status: 0, 1 for a failure, 2 if it is refused.

    A failure outside the timed runs, in their preparation, counts as a refusal.
    """
    try:
        _check(common)
        with _folder(common, ranks) as folder, _progress(common, ranks) as progress:
            session = Session(name, title, common, ranks, folder, common.folder, progress)
            work(session)
            group.end()
        status = session.finish()
        ranks.leave()
        return status
    except RefusedError as refused:
        if ranks.is_first:
            print(f"penstock: {refused}", file=sys.stderr)
        return 2
    except WrongBytesError as wrong:
        print(f"penstock: {wrong}", file=sys.stderr)
        return 1
    except LostRankError as lost:
        print(f"penstock: rank {ranks.rank}: {lost}", file=sys.stderr)
        return 1
    except (ps.Error, OSError, MemoryError, RuntimeError) as error:
        text = str(error).split("\n")[0] or type(error).__name__
        print(f"penstock: {text}", file=sys.stderr)
        return 2


def _check(common: Common) -> None:
    if not common.folder.exists():
        raise RefusedError(f"{common.folder} does not exist: give a folder to measure")
    if not common.folder.is_dir():
        raise RefusedError(f"{common.folder} is not a folder: give a folder to measure")
    if unknown := sorted(common.peers - set(PEERS)):
        known = ", ".join(PEERS)
        raise RefusedError(f"there is no peer {', '.join(unknown)}: choose from {known}")
    if common.iterations < 1:
        raise RefusedError(f"--iterations is {common.iterations}, but must be at least 1")
    if common.plot:
        if common.plot.suffix not in figures.FORMATS:
            raise RefusedError(f"{common.plot} must end in one of {', '.join(figures.FORMATS)}")
        if why := figures.missing():
            raise RefusedError(why)
    for path in common.results:
        if path.is_dir():
            raise RefusedError(f"{path} is a folder: give a file for the results")
        _check_writable(path)
    for number, path in enumerate(common.results):
        if conflict(path, common.results[:number]):
            why = "give each kind of results a file of its own"
            raise RefusedError(f"{path} is given twice: {why}")


def _check_writable(path: Path) -> None:
    """Check, before anything is measured, that a file can be written.

    If its folder does not exist yet, check the nearest existing parent.
    """
    place = path
    while not place.exists() and place != place.parent:
        place = place.parent
    if place != path and not place.is_dir():
        raise RefusedError(f"{path} cannot be made: {place} is not a folder")
    try:
        if place == path:
            # Without waiting for the reader of a FIFO.
            os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC))
        else:
            tempfile.TemporaryFile(dir=place).close()
    except OSError as error:
        raise RefusedError(f"{path} cannot be written: {error.strerror}") from None


@contextmanager
def _folder(common: Common, ranks: Ranks) -> Iterator[Path]:
    """Make a folder for all ranks, and remove it at the end."""
    if common.keeps_files:
        yield common.folder
        return
    made: str | None = None
    error = None
    # After a failure, every rank removes the folder, because the first rank may be gone.
    removes = True
    try:
        if ranks.is_first:
            try:
                made = tempfile.mkdtemp(prefix="penstock-bench-", dir=common.folder)
            except OSError as failed:
                error = f"no folder can be made in {common.folder}: {failed.strerror}"
        made, error = ranks.gather((made, error))[0]
        if made is None:
            raise RefusedError(error or "no folder")
        yield Path(made)
        ranks.barrier()
        removes = ranks.is_first
    finally:
        if made is not None and removes:
            with undisturbed():
                _remove(Path(made))


def _remove(folder: Path) -> None:
    """Remove a folder, even while terminated ranks are still writing there."""
    deadline = time.monotonic() + _REMOVAL_SECONDS
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            time.sleep(0.05)


def _progress(common: Common, ranks: Ranks) -> Progress:
    shown = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    is_off = common.quiet or not ranks.is_first or not sys.stderr.isatty()
    console = Console(stderr=True)
    return Progress(*shown, TimeElapsedColumn(), console=console, transient=True, disable=is_off)
