"""Child processes that do not outlive this one: elements of the local cluster, and SLURM's commands."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def dies_with(parent: int) -> Callable[[], None]:
    """Return a `preexec_fn` that has the child killed when its parent THREAD dies: use it only in a thread
    that outlives the child. It calls one C function, found before the fork, and takes no lock."""
    prctl, kill = _libc.prctl, signal.SIGKILL

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, kill, 0, 0, 0)
        if os.getppid() != parent:
            os.kill(os.getpid(), kill)

    return prepare
