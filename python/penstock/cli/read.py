"""`penstock read`: read one file or dataset into memory, and report how."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

import penstock as ps
from penstock import text_file
from penstock.cli import comparison, devices
from penstock.cli.ending import refusing
from penstock.cli.output import AsJson, messages, plain, print_json, results
from penstock.hdf5.source import files_of, split, why_no_dataset
from penstock.request_group import RequestGroup
from penstock.same_file import conflict
from penstock.units import parse_size, rate, size

if TYPE_CHECKING:
    import h5py

_BYTES = {"parser": parse_size, "metavar": "SIZE"}


def read(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE[:DATASET]",
            help="A file of plain bytes, or a dataset of an HDF5 file. Without DATASET, lists the "
            "datasets of an HDF5 file.",
        ),
    ],
    device: devices.Device = None,
    out: Annotated[
        Path | None, typer.Option(help="Save the data to this file, as plain bytes.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Record every step as Chrome trace JSON (Perfetto).")
    ] = None,
    offset: Annotated[int | None, typer.Option(help="Bytes of the file to skip.", **_BYTES)] = None,
    length: Annotated[
        int | None, typer.Option(help="Bytes to read; up to the end by default.", **_BYTES)
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Workers that take part.")] = None,
    block: Annotated[
        int | None, typer.Option(help="Bytes that a worker moves at a time.", **_BYTES)
    ] = None,
    queue_depth: Annotated[
        int | None, typer.Option(help="Reads in flight per worker with io_uring.")
    ] = None,
    slots: Annotated[
        int | None, typer.Option(help="Pinned slots of a worker on the staged route.")
    ] = None,
    route: Annotated[str | None, typer.Option(help="auto, host, staged, mapped or gds.")] = None,
    io: Annotated[str | None, typer.Option(help="auto, threads, uring or mmap.")] = None,
    direct: Annotated[
        str | None, typer.Option(help="Bypass the page cache: auto, no or yes.")
    ] = None,
    scratch: Annotated[
        int | None, typer.Option(help="GPU memory for chunks in flight.", **_BYTES)
    ] = None,
    decode: Annotated[
        str | None, typer.Option(help="What decodes chunks: auto, cpu or gpu.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Read a file or an HDF5 dataset into GPU memory, and report the path of the bytes."""
    import h5py

    path, dataset = split(source)
    whole = offset is None and length is None
    if dataset is None and whole and path.is_file() and h5py.is_hdf5(path):
        if out is not None or trace is not None:
            raise typer.BadParameter(
                f"{path} is an HDF5 file: name the dataset to read, as {path}:NAME",
                param_hint="FILE[:DATASET]",
            )
        _list_datasets(path, as_json)
        return
    if dataset is not None and not whole:
        raise typer.BadParameter("--offset and --length apply to plain bytes, not to a dataset")

    _require_apart(out, trace, path, dataset)
    target = devices.choose(device)
    options: dict[str, Any] = {
        "threads": threads,
        "block": block,
        "queue_depth": queue_depth,
        "slots": slots,
        "route": route,
        "io": io,
        "direct": direct,
        "scratch": scratch,
        "decode": decode,
    }
    with ExitStack() as stack:
        with refusing():
            stack.enter_context(ps.options(**options))
        if trace is not None:
            stack.enter_context(_traced(trace))
        if dataset is None:
            array, report = _read_bytes(path, offset or 0, length, target.device)
        else:
            array, report = _read_dataset(path, dataset, target.device)
    if out is not None:
        ps.save(out, array)
    _print_report(source, target, report, out, as_json)


@contextmanager
def _traced(file: Path) -> Iterator[None]:
    """Replace a file by a trace of the block, also of one that fails."""
    failure = None
    with text_file.replacement(file) as new:
        try:
            with ps.trace(new):
                try:
                    yield
                except BaseException as error:
                    failure = error
        except ps.Error as error:
            cause = error.cause or error.message
            raise ps.IOFailure(f"{file}: {cause}", path=str(file), errno=error.errno) from error
    if failure is not None:
        raise failure


def _require_apart(out: Path | None, trace: Path | None, path: Path, name: str | None) -> None:
    """Refuse outputs that would replace what is read."""
    inputs = [path]
    if name is not None and (out or trace):
        with _errors_of_h5py(path, name), ps.File(path) as file:
            inputs += files_of(_dataset(file.h5py, name))
    for flag, output in (("--out", out), ("--trace", trace)):
        if output is None:
            continue
        if why := conflict(output, inputs):
            raise typer.BadParameter(why, param_hint=flag)
        inputs.append(output)


def _read_bytes(path: Path, offset: int, length: int | None, device: str) -> tuple[Any, ps.Report]:
    shape = -1 if length is None else length
    request = ps.load_async(path, dtype="uint8", shape=shape, offset=offset, device=device)
    return _follow(request, request.array.nbytes, path.name)


def _read_dataset(path: Path, name: str, device: str) -> tuple[Any, ps.Report]:
    with _errors_of_h5py(path, name), ps.File(path) as file:
        dataset = _dataset(file.h5py, name)
        request = ps.read_async(dataset, device=device)
        return _follow(request, dataset.nbytes, name)


def _dataset(file: h5py.File, name: str) -> h5py.Dataset:
    import h5py

    with suppress(KeyError, OSError, RuntimeError, ValueError):
        if isinstance(found := file[name], h5py.Dataset):
            return found
    raise typer.BadParameter(why_no_dataset(file, name), param_hint="FILE[:DATASET]")


@contextmanager
def _errors_of_h5py(path: Path, name: str) -> Iterator[None]:
    """Turn what h5py raises for a dataset, such as for a missing filter, into a Penstock error."""
    try:
        yield
    except ps.Error:
        raise
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        message = f"h5py cannot read {name} of {path}: {error}"
        raise ps.UnavailableError(message, path=str(path)) from error


def _follow(request: ps.Request[Any], total: int, name: str) -> tuple[Any, ps.Report]:
    """Wait for a request; Ctrl-C cancels it. A terminal shows a progress bar meanwhile."""
    with RequestGroup([request]) as requests:
        if sys.stderr.isatty():  # a log would get the bar of the last moment alone
            _show_progress(request, total, name)
        array = requests.next()
    return array, request.report


def _show_progress(request: ps.Request[Any], total: int, name: str) -> None:
    from rich import progress as bars  # which takes 30 ms to import

    with bars.Progress(
        bars.TextColumn("{task.description}", markup=False),
        bars.BarColumn(),
        bars.DownloadColumn(binary_units=True),
        bars.TransferSpeedColumn(),
        bars.TimeElapsedColumn(),
        console=messages,
    ) as progress:
        task = progress.add_task(name, total=total)
        while not request.done():
            progress.update(task, completed=request.progress())
            time.sleep(0.02)
        progress.update(task, completed=request.progress())


def _list_datasets(path: Path, as_json: bool) -> None:
    import h5py

    found: list[dict[str, Any]] = []

    def add(name: str | bytes, item: object) -> None:
        if not isinstance(item, h5py.Dataset):
            return
        try:
            known = {"dtype": str(item.dtype), "bytes": item.nbytes}
        except (TypeError, ValueError):
            known = {"dtype": None, "bytes": None}  # a type that NumPy lacks
        found.append(
            {
                "name": os.fsdecode(name),  # h5py gives bytes that are not UTF-8 as such
                **known,
                "shape": None if item.shape is None else list(item.shape),
                "layout": ", ".join([comparison.layout(item), *comparison.filters(item)]),
            }
        )

    with h5py.File(path) as file:
        file.visititems(add)
    if as_json:
        print_json({"file": str(path), "datasets": found})
        return
    table = Table(title=Text(f"Datasets of {path}"), title_justify="left")
    for heading in ("Name", "Type", "Shape", "Layout"):
        table.add_column(heading, overflow="fold")
    table.add_column("Size", justify="right")
    for row in found:
        shape = "null" if row["shape"] is None else " x ".join(map(str, row["shape"])) or "scalar"
        dtype = row["dtype"] or "not a type of NumPy"
        length = "" if row["bytes"] is None else size(row["bytes"])
        table.add_row(*plain(row["name"], dtype, shape, row["layout"], length))
    results.print(table)
    results.print(f"Read one with: penstock read {path}:NAME", markup=False, highlight=False)


def _print_report(
    source: str, target: devices.Target, report: ps.Report, out: Path | None, as_json: bool
) -> None:
    if as_json:
        print_json(
            {
                **asdict(report),
                "source": source,
                "device": target.device,
                "out": None if out is None else str(out),
                "paths": report.paths,
                "decoder": report.decoder,
                "gb_per_s": report.gbps,
            }
        )
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_row(*plain("Read", f"{report.bytes:,} bytes into {target.description}"))
    table.add_row("Route", report.route)
    for path, count in report.paths.items():
        table.add_row("", f"{path}: {count:,} bytes")
    table.add_row("Time", f"{report.seconds * 1e3:.2f} ms, {rate(report.bytes, report.seconds)}")
    table.add_row(
        "Work",
        f"{report.threads} thread(s), {report.io_calls} I/O calls, {report.copies} copies, "
        f"blocks of {size(report.block)}",
    )
    if report.chunks:
        decoded = "" if report.decoder == "none" else f", decoded by {report.decoder}"
        stored = f"{report.chunks:,} of {report.stored:,} bytes in the file{decoded}"
        table.add_row("Chunks", stored)
    if report.tuned:
        table.add_row(*plain("Tuned profile", report.tuned))
    if report.note:
        table.add_row(*plain("Note", report.note))
    if out is not None:
        table.add_row(*plain("Saved", str(out)))
    results.print(table)
