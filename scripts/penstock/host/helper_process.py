"""Starts a process that helps this one, with a socket between them (see `wire`): workers of an element, and
processes that list folders ahead of a walk."""

from __future__ import annotations

import signal
import socket
import subprocess

from penstock.host import interpreter
from penstock.host.wire import Channel

_QUIET = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
"""Signals that are blocked in a helper."""


def start(
    module: str, *inherited: int, options: tuple[int, ...] = ()
) -> tuple[subprocess.Popen[bytes], Channel]:
    """A process that runs `module`: its arguments are the descriptor of its end of a socket pair, then the
    descriptors `inherited`, then `options`. It is to end when that socket ends. Raises OSError.

    The signals of a terminal or of SLURM go to the parent alone, which decides; a helper inherits that they
    are blocked. (SIGKILL to the group ends all.)
    """
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
