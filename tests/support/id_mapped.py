"""An id-mapped mount (Linux 5.12): the same files, and owners of other numbers."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_CLONE, _CLOEXEC, _EMPTY_PATH, _FROM_FD, _IDMAP = 1, os.O_CLOEXEC, 0x1000, 4, 0x00100000
_HERE = -100
_IN_A_NAMESPACE = """
import ctypes, sys
sys.exit("no user namespace") if ctypes.CDLL(None).unshare(0x10000000) else print(flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def id_mapped(source: Path, point: Path, ids: str) -> Iterator[Path]:
    """`source` once more at `point`, a folder. `ids` are lines of uid_map and gid_map: the number on the file
    system, the number that is shown, how many. Skips who is not root, and where there are no such mounts."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts")
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long

    def call(*values: object) -> int:
        found = int(libc.syscall(*values))
        if found < 0:
            pytest.skip(f"no id-mapped mount here: {os.strerror(ctypes.get_errno())}")
        return found

    words = [sys.executable, "-c", _IN_A_NAMESPACE]
    with (
        contextlib.ExitStack() as stack,
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        stack.callback(process.stdin.close)
        if not process.stdout.readline():
            pytest.skip("no user namespaces here")
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{process.pid}/{name}").write_text(ids)
        namespace = os.open(f"/proc/{process.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        stack.callback(os.close, namespace)
        tree = call(_OPEN_TREE, _HERE, os.fsencode(source), _CLONE | _CLOEXEC)
        stack.callback(os.close, tree)
        attributes = struct.pack("<QQQQ", _IDMAP, 0, 0, namespace)
        call(_MOUNT_SETATTR, tree, b"", _EMPTY_PATH, attributes, len(attributes))
        call(_MOVE_MOUNT, tree, b"", _HERE, os.fsencode(point), _FROM_FD)
    try:
        yield point
    finally:
        subprocess.run(["umount", "--lazy", point], check=True)
