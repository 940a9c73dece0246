"""What versions before 1.0 divided a link and a target's room by: files that live processes touch.

Only `penstock gc` still handles them: it removes what they left.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING

from penstock.core.human import printable
from penstock.fs import clock
from penstock.target import accounts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.core.errors import PenstockError


LIVES = clock.BOUND  # seconds without a sign of life after which such a process is dead


def _states(folder: Path) -> tuple[dict[Path, os.stat_result], float]:
    states: dict[Path, os.stat_result] = {}
    try:
        names = sorted(os.listdir(folder))
        now = clock.now(folder) if names else 0.0
    except OSError:
        return {}, 0.0
    for path in (folder / name for name in names):
        with contextlib.suppress(OSError):
            if stat.S_ISREG((status := path.lstat()).st_mode):
                states[path] = status
    return states, now


def refuse(folder: Path, error: type[PenstockError], counts: Callable[[int], bool] = lambda _: True) -> None:
    """Raise `error` while a process of an older version, of an account that counts, gives a sign of life."""
    states, now = _states(folder)
    for path, status in states.items():
        if abs(now - status.st_ctime) <= LIVES and counts(status.st_uid):
            raise error(
                "an older penstock is at work, and what it takes is not known here",
                where=printable(str(path)),
                why=f"{accounts.in_words([str(status.st_uid)])} was at work within {LIVES:.0f} s",
                hint="wait until it has ended, or have its owner end it (`penstock cancel`). Where no older "
                f"penstock runs, the owner of {printable(str(folder))}, or root, may remove that folder",
            )


def remove_dead(folder: Path) -> None:
    """Remove this account's files, and the empty folder, once no process of this account lives. Most files of
    a live process are old, so a single file's age says nothing. Raises nothing."""
    states, now = _states(folder)
    own = {path: status for path, status in states.items() if status.st_uid == os.geteuid()}
    if any(abs(now - status.st_ctime) <= LIVES for status in own.values()):
        return
    for path in own:
        with contextlib.suppress(OSError):
            path.unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()
