"""Trials of names: renames, links, what names may be.

`trials.probe` calls each function by the name of its ability (`core.run_documents`), in its own
empty folder (`work`; some also in `beside`). An OSError counts as an answer (`trials.seen_error`).
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from penstock.core.run_documents import TrialOutcome
from penstock.fs import libc
from penstock.fs.probe.place import answered, valued

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.fs.probe.place import TrialFolders

# bytes of a name: of most, and what encrypting and older file systems leave of them
_LENGTHS = (255, 250, 200, 143, 100)
_TOO_LONG = frozenset({errno.ENAMETOOLONG, errno.EINVAL})
_ALONE = TrialOutcome(why="no folder beside was given")


def rename_over_file(place: TrialFolders) -> TrialOutcome:
    old, new = place.file("old", b"new"), place.file("new", b"old")
    os.rename(old, new)
    return answered(new.read_bytes() == b"new" and not os.path.lexists(old), "the name kept its old content")


def rename_over_symlink(place: TrialFolders) -> TrialOutcome:
    """Try as publish moves `current`."""
    for name in ("one", "two"):
        place.folder(name)
    old, new = place.work / "old", place.work / "new"
    os.symlink("one", new)
    os.symlink("two", old)
    os.rename(old, new)
    return answered(os.readlink(new) == "two", "the link still leads where it led")


def rename_over_empty_folder(place: TrialFolders) -> TrialOutcome:
    old, new = place.folder("old"), place.folder("new")
    (old / "file").touch()
    os.rename(old, new)
    return answered((new / "file").exists(), "the folder is as it was")


def rename_noreplace(place: TrialFolders) -> TrialOutcome:
    old, new = place.file("old", b"new"), place.file("new", b"old")
    try:
        libc.renameat2(old, new, libc.RENAME_NOREPLACE)
    except FileExistsError:
        libc.renameat2(old, place.work / "free", libc.RENAME_NOREPLACE)
        return answered(new.read_bytes() == b"old", "the existing file was changed")
    return answered(False, "it replaced the existing file")


def rename_exchange(place: TrialFolders) -> TrialOutcome:
    first, second = place.file("one", b"1"), place.file("two", b"2")
    libc.renameat2(first, second, libc.RENAME_EXCHANGE)
    return answered((first.read_bytes(), second.read_bytes()) == (b"2", b"1"), "the files were not exchanged")


def rename_between_folders(place: TrialFolders) -> TrialOutcome:
    return _moved(place.file("file", b"x"), place.folder("to") / "file")


def rename_open_between_folders(place: TrialFolders) -> TrialOutcome:
    """Try to rename an open file. On BeeGFS a small open file is in its folder's metadata, and is refused
    with EBUSY."""
    old = place.file("file", b"x")
    with old.open("rb"):
        return _moved(old, place.folder("to") / "file")


def rename_between_trees(place: TrialFolders) -> TrialOutcome:
    return _ALONE if place.beside is None else _moved(place.file("file", b"x"), place.beside / "renamed")


def _moved(old: Path, new: Path) -> TrialOutcome:
    os.rename(old, new)
    if os.path.lexists(old):
        return answered(False, "the old name stayed")
    return answered(new.read_bytes() == b"x", "the content is another one")


def link(place: TrialFolders) -> TrialOutcome:
    return _linked(place.file("file"), place.work / "second")


def link_between_folders(place: TrialFolders) -> TrialOutcome:
    return _linked(place.file("file"), place.folder("to") / "second")


def link_between_trees(place: TrialFolders) -> TrialOutcome:
    return _ALONE if place.beside is None else _linked(place.file("file"), place.beside / "linked")


def _linked(old: Path, new: Path) -> TrialOutcome:
    """Link, and check the new name: BeeGFS with sysCreateHardlinksAsSymlinks silently makes a symbolic
    link."""
    os.link(old, new, follow_symlinks=False)
    if new.is_symlink():
        return answered(False, "a symbolic link was made in its place")
    first, second = os.lstat(old), os.lstat(new)
    if not os.path.samestat(first, second):
        return answered(False, "the two names have different inode numbers")
    return answered(second.st_nlink == 2, f"two names of one file, and st_nlink is {second.st_nlink}")


def exclusive_create(place: TrialFolders) -> TrialOutcome:
    path = place.work / "file"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    os.close(os.open(path, flags, 0o600))
    try:
        os.close(os.open(path, flags, 0o600))
    except FileExistsError:
        return answered(True)
    return answered(False, "a second one was created under the same name")


def open_unlink(place: TrialFolders) -> TrialOutcome:
    path = place.file("file", b"x")
    with path.open("rb") as stream:
        path.unlink()
        if stream.read() != b"x":
            return answered(False, "its content was gone")
        left = os.listdir(place.work)
        return answered(not left, f"the file got another name: {', '.join(left)}")


def inode_stable(place: TrialFolders) -> TrialOutcome:
    path, renamed = place.file("file"), place.work / "renamed"
    with path.open("rb") as stream:
        numbers = {os.fstat(stream.fileno()).st_ino}
    numbers.add(os.lstat(path).st_ino)
    os.rename(path, renamed)
    numbers.add(os.lstat(renamed).st_ino)
    return answered(len(numbers) == 1, "a file showed several inode numbers")


def name_bytes(place: TrialFolders) -> TrialOutcome:
    """Return the longest of `_LENGTHS` that can be created and is listed unchanged."""
    for length in _LENGTHS:
        try:
            place.file("n" * length)
        except OSError as error:
            if error.errno not in _TOO_LONG:
                raise
            continue
        return valued(length)
    return answered(False, f"no name of {_LENGTHS[-1]} bytes can be created")


def name_not_utf8(place: TrialFolders) -> TrialOutcome:
    name = b"\xff\xfe\xe9"
    place.file(os.fsdecode(name))
    listed = os.listdir(os.fsencode(place.work))
    return answered(listed == [name], f"the name was changed, to {listed}")


def case_sensitive(place: TrialFolders) -> TrialOutcome:
    place.file("Name", b"1")
    return answered(
        not (place.work / "name").exists(), "a name in small letters leads to the file in capitals"
    )
