"""Runs a command as a shell would: in place of this process, or as a watched child."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from typing import NoReturn

NOT_FOUND = 127
NOT_EXECUTABLE = 126

# Python ignores these signals, and a program would inherit that.
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
    """The command did not start; ``status`` is the exit status that a shell would return."""

    def __init__(self, command: str, error: OSError) -> None:
        missing = isinstance(error, FileNotFoundError)
        self.status = NOT_FOUND if missing else NOT_EXECUTABLE
        super().__init__(f"cannot run {command}: {error.strerror}")


def replace(command: list[str], environment: Mapping[str, str]) -> NoReturn:
    """Replace this process by the command, with its own signals and exit status."""
    for number in _IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        raise CannotRunError(command[0], error) from None


def watch(command: list[str], environment: Mapping[str, str]) -> int:
    """Run the command to its end and return its exit status, 128 + N if signal N killed it.

    Signals that another process sends to this one are forwarded to the command. Those of a
    terminal are not, because the kernel sends them to the command, too.
    """
    # A process that ignores SIGCHLD is not notified when its child ends.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *_PASSED_ON})
    try:
        # The kernel delivers a signal to any thread that does not block it. The threads of
        # NumPy's OpenBLAS do not, so a signal would kill this process. OpenBLAS ends its threads
        # before a fork, and Popen forks (instead of using vfork) only if it has a preexec_fn.
        child = subprocess.Popen(
            command,
            env=environment,
            close_fds=False,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),
        )
        while (code := child.poll()) is None:
            received = signal.sigwaitinfo({signal.SIGCHLD, *_PASSED_ON})
            # Signals that kill(2) or the like has sent; the kernel's own have positive codes.
            if received.si_signo != signal.SIGCHLD and received.si_code <= 0:
                child.send_signal(received.si_signo)
    except OSError as error:
        raise CannotRunError(command[0], error) from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return code if code >= 0 else 128 - code
