"""The built command, killed with signal 9 right before its n-th change of a tree.

`python -m tests.support.kill_points ROOT NUMBER WORDS...` is that command.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.support.commands import PATIENCE, ROOT

from penstock.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

CHANGES = frozenset(
    {"os.rename", "os.remove", "os.rmdir", "os.symlink", "os.link", "os.mkdir", "os.chmod", "os.utime"}
)
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class Killer:
    """An audit hook. Changes of the lock itself are left out: its tests are others', and its heartbeat comes
    when it likes."""

    def __init__(self, root: str, number: int) -> None:
        self._root, self._left = root, number

    def __call__(self, event: str, args: tuple[object, ...]) -> None:
        if event == "open":
            name, flags = args[0], args[2]
            if not isinstance(name, str | bytes) or not isinstance(flags, int) or not flags & WRITES:
                return
        elif event not in CHANGES:
            return
        path = os.fsdecode(args[0]) if isinstance(args[0], str | bytes | os.PathLike) else ""
        if path.startswith("/") and not path.startswith(self._root):
            return
        if path.endswith(("/lock", ".pyc")):
            return
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def killed_at(number: int, root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `penstock WORDS` until right before its change of this number, counted from 1, below `root` (and of
    what is named by a descriptor). A return code of -9 says that it came so far."""
    return subprocess.run(
        [sys.executable, "-m", "tests.support.kill_points", str(root), str(number), *words],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="backslashreplace",
        timeout=PATIENCE,
        check=False,
    )


if __name__ == "__main__":
    sys.addaudithook(Killer(sys.argv[1], int(sys.argv[2])))
    sys.exit(main(sys.argv[3:]))
