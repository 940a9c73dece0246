"""Reads the files by which an administrator directs all work below a root: `PAUSE` and `HOLD`.

| `<root>/<name>`                                           | counts                                  |
|-----------------------------------------------------------|-----------------------------------------|
| is missing, or the root is                                | no                                      |
| belongs to another account than uid 0 or the root's owner | no, and that is reported                |
| a plain file with one name, of one of these two           | yes, also where its text cannot be read |
| a link, a folder, a FIFO, a file with more names, of one  | yes, without its text: what was meant   |
| of these two                                              | is in doubt, and a doubt closes         |
"""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, NamedTuple

from penstock.fs import small_files
from penstock.fs.owners import account

if TYPE_CHECKING:
    from pathlib import Path


class RootFile(NamedTuple):
    """A file of that name, as it stands at the root."""

    by: str = ""  # the account that owns it
    text: str = ""  # its first bytes
    unread: str = ""  # why `text` is incomplete; "" where it is whole
    ignored: str = ""  # why it does not count; "" where it does


def look(root: Path, name: str, most: int) -> RootFile | None:
    """Read the file, at most `most` bytes of text. Raises OSError where the root does not answer."""
    path = root / name
    try:
        status, owner = path.lstat(), root.stat().st_uid
    except (FileNotFoundError, NotADirectoryError):
        return None
    by = account(status.st_uid)
    if status.st_uid not in (0, owner):
        return RootFile(by, ignored=f"it belongs to {by}, and not to the root's owner or to root")
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        return RootFile(by, unread="it is no plain file with one name")
    try:
        with small_files.opened(path) as file:
            content = file.read(most + 1)
    except OSError as error:
        return RootFile(by, unread=f"it cannot be read by this account: {error.strerror}")
    unread = f"it has more than {most} bytes" if len(content) > most else ""
    return RootFile(by, content[:most].decode("utf-8", "replace"), unread)
