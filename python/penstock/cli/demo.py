"""`penstock demo`: read several kinds of data, check every byte, and compare with h5py's rate."""

from __future__ import annotations

import errno
import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

import penstock as ps
from penstock.cli import comparison, devices, memory, samples
from penstock.cli.output import AsJson, messages, print_json, results
from penstock.signals import temporary_folder
from penstock.units import gigabytes_per_second, parse_size, size

ROUNDS = 5
_REMEDIES = {
    errno.EFBIG: "raise the limit of a file's size, ulimit -f, or choose a smaller --size",
    errno.EMFILE: "raise the limit of open files, ulimit -n",
    errno.ENOSPC: "free some space, or choose another folder with --dir or a smaller --size",
    errno.EDQUOT: "free some space, or choose another folder with --dir or a smaller --size",
}


def demo(
    total: Annotated[
        int,
        typer.Option(
            "--size",
            parser=parse_size,
            metavar="SIZE",
            show_default="256MiB",
            help="Total bytes of the files.",
        ),
    ] = parse_size("256MiB"),
    folder: Annotated[
        Path | None,
        typer.Option("--dir", help="Folder for the temporary files; the system's by default."),
    ] = None,
    device: devices.Device = None,
    as_json: AsJson = False,
) -> None:
    """Make files, read each into GPU memory, check every byte, and compare with h5py's rate."""
    if total < 1 << 20:
        raise typer.BadParameter("the files need at least 1MiB", param_hint="--size")
    target = devices.choose(device)
    # The kernel would kill the process. The most at a time is about the size of all files.
    if total > (left := max(memory.left(), 0)):
        raise typer.BadParameter(
            f"{size(total)} of files need as much memory, and {size(left)} are left: choose fewer",
            param_hint="--size",
        )
    with ExitStack() as made_folders:
        with _naming(folder):
            made = made_folders.enter_context(temporary_folder("penstock-demo-", folder))
        free = shutil.disk_usage(made).free
        if total * 1.1 > free:
            raise typer.BadParameter(
                f"{size(total)} do not fit: {made.parent} has {size(free)} left; choose fewer, or "
                "another folder with --dir",
                param_hint="--size",
            )
        with _naming(folder), messages.status(f"Writing {size(total)} of files"):
            samples.write(made, total)
        rows = _measure_all(made, target)
    verified = all(row["verified"] for row in rows)
    peer = rows[0]["peer"]
    if as_json:
        print_json(
            {
                "device": target.device,
                "memory": target.description,
                "reason": target.reason,
                "peer": peer,
                "rounds": ROUNDS,
                "rows": rows,
                "verified": verified,
            }
        )
    else:
        _print(rows, target, peer)
    if not verified:
        messages.print("Some bytes differ from what h5py reads: this is a defect of Penstock.")
        raise typer.Exit(1)


@contextmanager
def _naming(folder: Path | None) -> Iterator[None]:
    """Name the user's folder and a remedy in an error of files that are made in it."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # h5py raises a RuntimeError where a close fails
        code: int | None = getattr(error, "errno", None)
        cause = os.strerror(code) if code else str(error)
        where = folder or "the system's temporary folder"
        raise ps.IOFailure(
            f"the demo cannot use {where}: {cause}",
            remedy=_REMEDIES.get(code or 0, "choose another folder with --dir"),
            errno=code,
        ) from error


def _measure_all(folder: Path, target: devices.Target) -> list[dict[str, Any]]:
    rows = []
    with samples.opened(folder, target.on_gpu) as found, messages.status("") as status:
        for sample in found:
            status.update(f"Reading {sample.name} ({sample.layout})")
            rows.append(_measure(sample, target.device))
    return rows


def _measure(sample: samples.Sample, device: str) -> dict[str, Any]:
    expected = devices.native(sample.peer())
    ours = sample.read(device)
    report = ps.last_report()
    assert report is not None
    verified = not comparison.difference(devices.native(devices.to_host(ours)), expected)
    copied_by, copy = devices.usual_copy(ours)
    del ours
    seconds, peer_seconds = _alternate(lambda: sample.read(device), lambda: copy(sample.peer()))
    return {
        "dataset": sample.name,
        "layout": sample.layout,
        "bytes": expected.nbytes,
        "route": report.route,
        "paths": report.paths,
        "decoder": report.decoder,
        "note": report.note,
        "peer": sample.peer_name + copied_by,
        "gb_per_s": gigabytes_per_second(expected.nbytes, seconds),
        "peer_gb_per_s": gigabytes_per_second(expected.nbytes, peer_seconds),
        "ratio": peer_seconds / seconds,
        "verified": verified,
    }


def _alternate(ours: Callable[[], object], peer: Callable[[], object]) -> tuple[float, float]:
    """Return the median seconds of both, which alternate so that load affects both equally."""
    peer()
    ours()
    pairs = [(_seconds(ours), _seconds(peer)) for _ in range(ROUNDS)]
    first, second = zip(*pairs, strict=True)
    return statistics.median(first), statistics.median(second)


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    result = work()
    elapsed = time.perf_counter() - start
    del result  # after the clock is read: freeing memory is not part of reading
    return elapsed


def _print(rows: list[dict[str, Any]], target: devices.Target, peer: str) -> None:
    table = Table(
        title=f"Files, cached, into {target.description}",
        caption=f"Median of {ROUNDS} reads each, alternating with {peer}; "
        "NumPy reads the tensor file instead of h5py.",
        title_justify="left",
        caption_justify="left",
    )
    rates = ("GB/s", f"{peer} GB/s", "Ratio")
    for heading in ("Data", "Layout", "Bytes", "Route", "Decoded by", *rates, "Verified"):
        table.add_column(heading, justify="right" if heading in ("Bytes", *rates) else "left")
    for row in rows:
        table.add_row(
            row["dataset"],
            row["layout"],
            f"{row['bytes']:,}",
            row["route"],
            "" if row["decoder"] == "none" else row["decoder"],
            f"{row['gb_per_s']:.2f}",
            f"{row['peer_gb_per_s']:.2f}",
            f"{row['ratio']:.2f}",
            "yes" if row["verified"] else "[red]NO[/red]",
        )
    results.print(table)
    if target.reason:
        results.print("No GPU was found: penstock report shows what was checked.")
