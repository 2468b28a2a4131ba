"""Runs a command as a shell would: in the place of this process, or as a child that is watched."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from typing import NoReturn

NOT_FOUND = 127
NOT_EXECUTABLE = 126

# Python ignores these from its start, and a program inherits what is ignored.
_IGNORED_BY_PYTHON = [signal.SIGPIPE, signal.SIGXFSZ]

_PASSED_ON = {
    signal.SIGALRM,
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
}


class CannotRunError(Exception):
    """The command did not start; ``status`` is what a shell would answer."""

    def __init__(self, command: str, error: OSError) -> None:
        missing = isinstance(error, FileNotFoundError)
        self.status = NOT_FOUND if missing else NOT_EXECUTABLE
        super().__init__(f"cannot run {command}: {error.strerror}")


def replace(command: list[str], environment: Mapping[str, str]) -> NoReturn:
    """Become the command: the same process, its signals and its exit status."""
    for number in _IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        raise CannotRunError(command[0], error) from None


def watch(command: list[str], environment: Mapping[str, str]) -> int:
    """Run the command to its end and return its exit status, 128 + N if signal N killed it.

    Signals that somebody sends to this process go on to the command. Those of a terminal do not:
    the kernel has sent them to the command, too.
    """
    # Whoever ignores it is not told that a child has ended.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *_PASSED_ON})
    try:
        # A signal goes to any thread that does not block it, and those of OpenBLAS, which NumPy
        # brings, do not: the process would die of it. OpenBLAS ends them before a fork, which
        # there is only with a function to be called between fork and exec.
        child = subprocess.Popen(
            command,
            env=environment,
            close_fds=False,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),
        )
        while (code := child.poll()) is None:
            received = signal.sigwaitinfo({signal.SIGCHLD, *_PASSED_ON})
            # Sent by kill(2) and its like; the codes of the kernel's own signals are positive.
            if received.si_signo != signal.SIGCHLD and received.si_code <= 0:
                child.send_signal(received.si_signo)
    except OSError as error:
        raise CannotRunError(command[0], error) from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return code if code >= 0 else 128 - code
