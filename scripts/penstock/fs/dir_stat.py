"""A folder's content: its names in order, and the lstat of its files, as columns.

Columns are cheaper than many objects to pass between processes, and to work on. Few imports, so that scouts
(`readahead_process`) start fast.
"""

from __future__ import annotations

import errno
import os
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    StatAnswer = os.stat_result | OSError

# Kinds by the folder that holds a name. BELOW: a folder. OTHER: neither file nor folder nor link. BROKEN:
# names are missing, since listing the folder ended early.
FILE, BELOW, LINK, OTHER, BROKEN = range(5)

# an lstat, in the order of the columns of `Looked`
Row = tuple[int, int, int, int, int, int, int, int, int, int]
row = attrgetter(
    "st_mode",
    "st_size",
    "st_mtime_ns",
    "st_ctime_ns",
    "st_ino",
    "st_nlink",
    "st_uid",
    "st_gid",
    "st_dev",
    "st_blocks",
)
_NOTHING = os.stat_result((0,) * 19)


class Looked(NamedTuple):
    """lstat of some names of a folder, in their order."""

    mode: list[int]
    size: list[int]
    mtime_ns: list[int]
    ctime_ns: list[int]
    inode: list[int]
    links: list[int]
    uid: list[int]
    gid: list[int]
    device: list[int]
    blocks: list[int]  # allocated, of 512 bytes
    errors: dict[int, int]  # index to errno of failed lstats; their columns hold zeros


def look(fd: int, names: Sequence[str]) -> list[StatAnswer]:
    """lstat each name of a folder; return the result or the error of each."""
    answers: list[StatAnswer] = []
    stat, add = os.stat, answers.append
    for name in names:
        try:
            add(stat(name, dir_fd=fd, follow_symlinks=False))
        except OSError as error:
            add(error)
    return answers


def columns(answers: Sequence[StatAnswer]) -> Looked:
    """Turn the answers of `look` into columns."""
    errors: dict[int, int] = {}
    statuses: list[os.stat_result] = []
    for index, answer in enumerate(answers):
        if isinstance(answer, OSError):
            errors[index] = answer.errno or errno.EIO
            statuses.append(_NOTHING)
        else:
            statuses.append(answer)
    return Looked(
        [status.st_mode for status in statuses],
        [status.st_size for status in statuses],
        [status.st_mtime_ns for status in statuses],
        [status.st_ctime_ns for status in statuses],
        [status.st_ino for status in statuses],
        [status.st_nlink for status in statuses],
        [status.st_uid for status in statuses],
        [status.st_gid for status in statuses],
        [status.st_dev for status in statuses],
        [status.st_blocks for status in statuses],
        errors,
    )


def sliced(looked: Looked, start: int, stop: int) -> Looked:
    """Return the columns of the names from index `start` up to `stop`."""
    errors = {index - start: number for index, number in looked.errors.items() if start <= index < stop}
    mode, size, mtime, ctime, inode, links, uid, gid, device, blocks = (
        column[start:stop] for column in looked[:10]
    )
    return Looked(mode, size, mtime, ctime, inode, links, uid, gid, device, blocks, errors)


def failed(number: int) -> OSError:
    """Make the error of this errno."""
    return OSError(number, os.strerror(number))


def names_of(fd: int) -> tuple[list[str], bytes, OSError | None]:
    """Return a folder's names in canonical order, the kind of each, and the error that ended the listing
    early, if any. The order is that of the bytes of the paths at and below a name: a folder's name ends in a
    slash."""
    keyed: list[tuple[str, str, int]] = []
    add = keyed.append
    error: OSError | None = None
    plain = True
    try:
        with os.scandir(fd) as items:
            for item in items:
                name = item.name
                plain = plain and name.isascii()
                if item.is_dir(follow_symlinks=False):
                    add((name + "/", name, BELOW))
                elif item.is_file(follow_symlinks=False):
                    add((name, name, FILE))
                elif item.is_symlink():
                    add((name, name, LINK))
                else:
                    # Where the listing states no kinds, a vanished entry matches none of them: the lstat of a
                    # file reports it again.
                    gone = isinstance(look(fd, [name])[0], FileNotFoundError)
                    add((name, name, FILE if gone else OTHER))
    except OSError as ended:
        error = ended
    # Where a character is a byte, both orders are the same.
    keyed.sort(key=None if plain else lambda item: os.fsencode(item[0]))
    return [name for _, name, _ in keyed], bytes([kind for _, _, kind in keyed]), error
