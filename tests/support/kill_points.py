"""The built command, killed with signal 9 right before its n-th change of a tree."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_CHILD = """
import os, signal, sys
root, at = sys.argv[1], int(sys.argv[2])
CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.symlink", "os.link", "os.mkdir", "os.chmod", "os.utime"}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
seen = 0

def hook(event, args):
    global seen
    if event == "open":
        if not isinstance(args[0], (str, bytes)) or not (args[2] or 0) & WRITES:
            return
    elif event not in CHANGES:
        return
    path = os.fsdecode(args[0]) if isinstance(args[0], (str, bytes, os.PathLike)) else ""
    if path.startswith("/") and not path.startswith(root):
        return
    if path.endswith(("/lock", ".pyc")):
        return
    seen += 1
    if seen == at:
        os.kill(os.getpid(), signal.SIGKILL)

from penstock.cli.main import main
sys.addaudithook(hook)
sys.exit(main(sys.argv[3:]))
"""
"""Changes of the lock itself are left out: its tests are others', and its heartbeat comes when it likes."""


def killed_at(number: int, root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `penstock WORDS` until right before its change of this number, counted from 1, below `root` (and of
    what is named by a descriptor). A return code of -9 says that it came so far."""
    return subprocess.run(
        [sys.executable, "-c", _CHILD, str(root), str(number), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="backslashreplace",
        timeout=240,
        check=False,
    )
