"""Starts helper processes, each with a socket to this one (`wire`): workers of an element, and processes that
list folders ahead of a walk."""

from __future__ import annotations

import signal
import socket
import subprocess

from penstock.host import interpreter
from penstock.host.wire import Channel

_QUIET = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}  # signals that are blocked in a helper


def start(
    module: str, *inherited: int, options: tuple[int, ...] = ()
) -> tuple[subprocess.Popen[bytes], Channel]:
    """Start a process that runs `module`; it must end when its socket ends. Its arguments are the descriptors
    of its socket and `inherited`, and `options`. Signals of a terminal or of SLURM are blocked in it, so that
    the parent alone decides; SIGKILL to the group ends all. Raises OSError."""
    ours, theirs = socket.socketpair()
    passed = (theirs.fileno(), *inherited)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _QUIET)
    try:
        process = subprocess.Popen(
            [*interpreter.command(module), *map(str, (*passed, *options))],
            stdin=subprocess.DEVNULL,
            pass_fds=passed,
        )
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return process, Channel(ours)
