"""The one reader of files by which an administrator speaks to all that works below a root: `<root>/PAUSE`
(`target.pause`) and `<root>/HOLD` (`target.hold`).

| `<root>/<name>`                                           | counts                                  |
|-----------------------------------------------------------|-----------------------------------------|
| is not there, or there is no root                         | no                                      |
| belongs to another account than uid 0 or the root's owner | no, and is said                         |
| a plain file with one name, of one of these two           | yes, also where its text cannot be read |
| a link, a folder, a FIFO, a file with more names, of one  | yes, without its text: what was meant   |
| of these two                                              | is in doubt, and a doubt closes         |
"""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, NamedTuple

from penstock.fs import plain_files
from penstock.fs.owners import account

if TYPE_CHECKING:
    from pathlib import Path


class RootFile(NamedTuple):
    """A file of that name, as it stands at the root."""

    by: str = ""
    """The account that it belongs to."""
    text: str = ""
    """Its first bytes."""
    unread: str = ""
    """Why `text` is not all of it; "" where it is."""
    ignored: str = ""
    """Why it does not count; "" where it does."""


def look(root: Path, name: str, most: int) -> RootFile | None:
    """The file, of its text at most so many bytes; None where there is none. Raises OSError where the root
    does not answer."""
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
        with plain_files.opened(path) as file:
            content = file.read(most + 1)
    except OSError as error:
        return RootFile(by, unread=f"it cannot be read by this account: {error.strerror}")
    unread = f"it has more than {most} bytes" if len(content) > most else ""
    return RootFile(by, content[:most].decode("utf-8", "replace"), unread)
