"""Programs in processes of their own, which need not import torch and Penstock again."""

from __future__ import annotations

import io
import multiprocessing
import sys
import traceback
import warnings
from contextlib import redirect_stdout
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["torch.distributed.checkpoint", "penstock.torch.checkpoint", "penstock.dist"]
)


def start(program: str, arguments: list[str]) -> tuple[BaseProcess, Connection]:
    """Start a program; return its process, and the end of its connection `parent`.

    Its last message is a tuple with what it has printed, or the text of its error.
    """
    end, parent = CONTEXT.Pipe()
    process = CONTEXT.Process(target=_run, args=(program, arguments, parent))
    process.start()
    parent.close()
    return process, end


def run_ranks(program: str, arguments: list[str], ranks: int = 2) -> list[str]:
    """Run a program by processes, with the rank as its first argument; return what each prints."""
    started = [start(program, [str(rank), *arguments]) for rank in range(ranks)]
    try:
        found = [end.recv() if end.poll(120) else "no answer" for _, end in started]
        assert all(isinstance(answer, tuple) for answer in found), found
        for process, _ in started:
            process.join(60)
            assert process.exitcode == 0
    finally:
        for process, _ in started:
            process.kill()
            process.join()
    return [printed for (printed,) in found]


def _run(program: str, arguments: list[str], parent: Connection) -> None:
    sys.argv[1:] = arguments
    warnings.simplefilter("ignore")
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            exec(compile(program, "<rank>", "exec"), {"__name__": "__main__", "parent": parent})
        parent.send((printed.getvalue(),))
    except BaseException:
        parent.send(traceback.format_exc())
        raise
