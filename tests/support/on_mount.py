"""penstock in a mount namespace of its own.

`python -m tests.support.on_mount SEEN PATH WORDS...` runs `penstock WORDS` where what is mounted at SEEN
stands at PATH, as on another node of a cluster. As root.

It starts warm (`tests.support.warm`), and so does what it starts.
"""

from __future__ import annotations

import ctypes
import os
import sys

from tests.support import warm

from penstock.__main__ import program

_CLONE_NEWNS = 0x20000
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_libc = ctypes.CDLL(None, use_errno=True)


def enter(seen: str, path: str) -> None:
    """A mount namespace of this process, from which no mount reaches another one, with this bind mount."""
    _call("unshare", _CLONE_NEWNS)
    _call("mount", b"none", b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None)
    _call("mount", os.fsencode(seen), os.fsencode(path), None, ctypes.c_ulong(_MS_BIND), None)


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments):
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    enter(*sys.argv[1:3])
    del sys.argv[1:3]
    warm.enter_by_fork()
    program()
