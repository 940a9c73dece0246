"""How the last command that staged a dataset ended, where that was no success: a note, for `penstock status`.

    <state>/ended.json       `core.documents.marks.LastEnd`, in SIZE bytes
    <state>/.ended.room      the same file while there is nothing to say: room for the next note, one of whose
                             reasons is a full file system

A step that begins takes the note back, by a rename, and so leaves no older reason standing where it is killed
itself. Notes are for people: what cannot be written is left out, and stops nothing.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from penstock.core.documents import marks
from penstock.core.errors import NewerFormatError, PenstockError
from penstock.dataset import orders
from penstock.fs import durable, plain_files
from penstock.target import dataset_folders, state_marker

if TYPE_CHECKING:
    from penstock.core.documents.marks import LastEnd
    from penstock.core.layout import DatasetLayout

SIZE = 4096
"""Bytes of the note, filled up with blanks: one block of most file systems."""
_LONGEST = 600
"""Characters of the note's reason, and of its hint: the rest is cut off."""
_OPEN = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def begin(layout: DatasetLayout, *, reserve: bool) -> None:
    """A step begins: take an earlier note back. `reserve`: make the room for the next one. By the holder of
    the dataset's lock. Raises no OSError."""
    with contextlib.suppress(OSError):
        try:
            os.rename(layout.ended, layout.ended_room)
        except FileNotFoundError:
            if reserve and not os.path.lexists(layout.ended_room):
                durable.create_file(layout.ended_room, b" " * SIZE)


def note(layout: DatasetLayout, end: LastEnd) -> None:
    """Leave this note, durably, where this account stages the dataset. The note of a first run makes the
    dataset's folders where the root is there; but a state below `target.state_root` is made by list alone,
    and until then no note is left. Raises neither OSError nor PenstockError."""
    try:
        if not dataset_folders.owns(layout):
            return
        if not state_marker.check_marker(layout):
            if layout.state_root is not None or not layout.root.is_dir():
                return
            dataset_folders.prepare(layout)
    except (PenstockError, OSError):
        return
    told = end._replace(why=end.why[:_LONGEST], hint=end.hint[:_LONGEST], given=orders.given())
    content = durable.json_line(marks.LAST_END.to_json(told)).ljust(SIZE)
    with contextlib.suppress(OSError):
        try:
            fd = os.open(layout.ended_room, _OPEN)
        except FileNotFoundError:
            durable.write_file(layout.ended, content)
            return
        try:
            os.pwrite(fd, content, 0)
            os.fsync(fd)
        finally:
            os.close(fd)
        durable.rename(layout.ended_room, layout.ended)


def find(layout: DatasetLayout) -> LastEnd | None:
    """The note that stands; None where there is none, or it cannot be read."""
    try:
        return marks.LAST_END.from_json(plain_files.read(layout.ended, SIZE), layout.ended)
    except (OSError, ValueError, NewerFormatError):
        return None
