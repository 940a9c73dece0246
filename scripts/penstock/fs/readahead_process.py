"""A scout: `python -m penstock.fs.readahead_process <socket> <folder's descriptor> <threads>`.

A scout lists folders that its parent requests by their paths below the inherited descriptor, and calls lstat
for their files. It answers in the order of the requests, and ends when its socket is closed.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from threading import Thread
from typing import TYPE_CHECKING, Any

from penstock.fs.safe_open import open_dir
from penstock.fs.tree import (
    FILE,
    columns,
    look,
    names_of,
    row,
)
from penstock.host import wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.fs.tree import StatAnswer

MANY = 50_000  # number of a folder's files from which on the scout sends only names, without lstat
GROUP = 16  # number of files that a thread takes at a time


def answer(root: int, path: str, threads: int) -> tuple[Any, ...]:
    """List a folder. Returns (errno,) if it cannot be opened. If it can, returns names, kinds, the files'
    lstat (columns, or None), the errno that ended the listing early (or 0), and the folder's lstat."""
    try:
        fd = open_dir(root, path)
    except OSError as error:
        return (error.errno,)
    try:
        own = row(os.fstat(fd))
        names, kinds, error_of_listing = names_of(fd)
        files = [name for name, kind in zip(names, kinds, strict=True) if kind == FILE]
        looked = None
        if len(files) < MANY:
            looked = tuple(columns(look(fd, files) if threads == 1 else _together(fd, files, threads)))
        number = error_of_listing.errno if error_of_listing else 0
        return names, kinds, looked, number, own
    except OSError as error:
        return (error.errno,)
    finally:
        os.close(fd)


def _together(fd: int, names: Sequence[str], threads: int) -> list[StatAnswer]:
    """Call `look` in several threads, so that several calls wait at the same time."""
    groups = [names[at : at + GROUP] for at in range(0, len(names), GROUP)]
    answers: list[list[StatAnswer]] = [[] for _ in groups]
    left = iter(range(len(groups)))

    def work() -> None:
        for number in left:
            answers[number] = look(fd, groups[number])

    helpers: list[Thread] = []
    # If this account may start no more threads, the existing threads do all the work.
    with contextlib.suppress(RuntimeError):
        while len(helpers) < min(threads, len(groups)) - 1:
            helper = Thread(target=work)
            helper.start()
            helpers.append(helper)
    work()
    for helper in helpers:
        helper.join()
    return [status for group in answers for status in group]


def main() -> None:
    number, root, threads = map(int, sys.argv[1:])
    channel = wire.Channel(socket.socket(fileno=number))
    try:
        while (frames := channel.receive()) is not None:
            for _, path in frames:
                channel.send(wire.LISTED, answer(root, path, threads))
    except ConnectionError:
        # The parent is gone, or needs no more answers.
        return


if __name__ == "__main__":
    main()
