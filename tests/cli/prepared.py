"""Runs `penstock` commands in forks of an interpreter that has imported what they import.

Importing takes half a second of processor time, which would be most of the time of these tests.
"""

from __future__ import annotations

import array
import gc
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import IO, Any

LARGEST = 1 << 20
"""Bytes of the largest message: a command with its environment."""
READ_AT_START = ("HDF5_", "LANG", "LC_", "LD_", "PYTHON")
"""Prefixes of variables that are read before a command is known."""


class Prepared:
    """The interpreter, from the side of the process that has commands run."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGEST)
        with theirs:
            descriptor = theirs.fileno()
            command = [sys.executable, __file__, str(descriptor)]
            self._process = subprocess.Popen(command, pass_fds=[descriptor])
        self._channel = ours
        self._environment = dict(os.environ)

    def can_run_in(self, environment: dict[str, str]) -> bool:
        """Return whether a fork behaves as a new interpreter in this environment."""
        return read_at_start(environment) == read_at_start(self._environment)

    def run(
        self, arguments: list[str], environment: dict[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            request = {"arguments": arguments, "folder": os.getcwd(), "environment": environment}
            sent = array.array("i", [out.fileno(), err.fileno()])
            self._channel.sendmsg(
                [json.dumps(request).encode()],
                [(socket.SOL_SOCKET, socket.SCM_RIGHTS, sent)],
            )
            self._channel.settimeout(timeout)
            try:
                status = json.loads(self._channel.recv(LARGEST))
            except TimeoutError:
                self._process.kill()
                raise subprocess.TimeoutExpired(arguments, timeout, text(out), text(err)) from None
            return subprocess.CompletedProcess(arguments, status, text(out), text(err))

    def close(self) -> None:
        self._channel.close()
        self._process.wait(timeout=60)


def read_at_start(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(READ_AT_START)}


def text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode().replace("\r\n", "\n")


def serve(channel: socket.socket) -> None:
    """Fork for each command; return in the fork, which runs it, and after the last command."""
    while True:
        message, control, *_ = channel.recvmsg(LARGEST, socket.CMSG_SPACE(8))
        if not message:
            return
        descriptors = array.array("i", control[0][2])
        child = os.fork()
        if not child:
            channel.close()
            become(json.loads(message), *descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        _, status = os.waitpid(child, 0)
        channel.send(json.dumps(os.waitstatus_to_exitcode(status)).encode())


def become(request: dict[str, Any], out: int, err: int) -> None:
    """Take the arguments, folder, variables and standard streams of a command."""
    for descriptor, standard in ((out, 1), (err, 2)):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["penstock", *request["arguments"]]
    sys.path[0] = request["folder"]  # as `python -m` has it


def prepare() -> None:
    from penstock import cli

    # Modules that typer and rich import late.
    for name in ("h5py", "rich.progress", "rich.table", "typer._adapters", "typer.rich_utils"):
        try:
            import_module(name)
        except ImportError:
            assert name.startswith("typer"), f"{name} cannot be imported"
    for name in cli._NAMES:
        import_module(f"penstock.cli.{name}")
    gc.freeze()


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        sys.path[0] = str(Path.cwd())
        prepare()
        served = os.getpid()
        serve(channel)
    if os.getpid() != served:
        runpy.run_module("penstock_command", run_name="__main__", alter_sys=True)
