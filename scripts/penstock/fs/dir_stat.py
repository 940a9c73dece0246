"""One folder's content: its names in order, and the lstat of its files, as columns.

For walks (`tree`, `path_walk`) and for the processes that list ahead of them (`readahead_process`, the
scouts). Reads folders by descriptors; changes nothing. Columns, since they are cheap to hand from one process
to another, and cheaper to work on than many objects. Little is imported here, so that scouts start fast.
"""

from __future__ import annotations

import errno
import os
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    StatAnswer = os.stat_result | OSError

FILE, BELOW, LINK, OTHER, BROKEN = range(5)
"""Kinds by the folder that holds a name. BELOW: a folder. OTHER: neither file nor folder nor link. BROKEN:
names are missing, since listing the folder ended early."""

Row = tuple[int, int, int, int, int, int, int, int, int, int]
"""Of one lstat, in the order of the columns of `Looked`."""
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
    blocks: list[int]
    """Allocated, of 512 bytes."""
    errors: dict[int, int]
    """Index to errno of those that could not be looked at; their columns hold zeros."""


def look(fd: int, names: Sequence[str]) -> list[StatAnswer]:
    """lstat of each name of a folder, or its error."""
    answers: list[StatAnswer] = []
    stat, add = os.stat, answers.append
    for name in names:
        try:
            add(stat(name, dir_fd=fd, follow_symlinks=False))
        except OSError as error:
            add(error)
    return answers


def columns(answers: Sequence[StatAnswer]) -> Looked:
    """What `look` found, column by column. Pure."""
    errors: dict[int, int] = {}
    statuses: list[os.stat_result] = []
    for index, answer in enumerate(answers):
        if isinstance(answer, OSError):
            errors[index] = answer.errno or errno.EIO
            statuses.append(_NOTHING)
        else:
            statuses.append(answer)
    return Looked(
        [one.st_mode for one in statuses],
        [one.st_size for one in statuses],
        [one.st_mtime_ns for one in statuses],
        [one.st_ctime_ns for one in statuses],
        [one.st_ino for one in statuses],
        [one.st_nlink for one in statuses],
        [one.st_uid for one in statuses],
        [one.st_gid for one in statuses],
        [one.st_dev for one in statuses],
        [one.st_blocks for one in statuses],
        errors,
    )


def sliced(looked: Looked, start: int, stop: int) -> Looked:
    """The columns of the names from index `start` up to `stop`. Pure."""
    errors = {index - start: number for index, number in looked.errors.items() if start <= index < stop}
    mode, size, mtime, ctime, inode, links, uid, gid, device, blocks = (
        column[start:stop] for column in looked[:10]
    )
    return Looked(mode, size, mtime, ctime, inode, links, uid, gid, device, blocks, errors)


def failed(number: int) -> OSError:
    """The error of this errno."""
    return OSError(number, os.strerror(number))


def names_of(fd: int) -> tuple[list[str], bytes, OSError | None]:
    """A folder's names in canonical order, the kind of each, and what stopped the listing, if something did.
    The order is that of the bytes of the paths at and below a name: a folder's has a slash after it."""
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
                    # Where the listing states no kinds, one that vanished since is none of them: the lstat of
                    # a file says so again.
                    gone = isinstance(look(fd, [name])[0], FileNotFoundError)
                    add((name, name, FILE if gone else OTHER))
    except OSError as ended:
        error = ended
    # Where a character is a byte, both have the same order.
    keyed.sort(key=None if plain else lambda item: os.fsencode(item[0]))
    return [name for _, name, _ in keyed], bytes([kind for _, _, kind in keyed]), error
