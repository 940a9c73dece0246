"""A scout: `python -m penstock.fs.readahead_process <socket> <folder's descriptor> <threads>`.

Lists folders that its parent names, by path below the inherited descriptor, reads their files' lstat, and
answers in the order of requests. It ends with its socket.
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

MANY = 50_000  # in a folder with so many files the scout reads no lstat, and sends only names
GROUP = 16  # files of a thread at a time


def answer(root: int, path: str, threads: int) -> tuple[Any, ...]:
    """List a folder; return (errno,) if it cannot be opened. Else its names, their kinds, `look` of its files
    or None, why listing ended early (errno or 0), and its own lstat."""
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
    """`look` by some threads: where calls wait, they wait at the same time."""
    groups = [names[at : at + GROUP] for at in range(0, len(names), GROUP)]
    answers: list[list[StatAnswer]] = [[] for _ in groups]
    left = iter(range(len(groups)))

    def work() -> None:
        for number in left:
            answers[number] = look(fd, groups[number])

    helpers: list[Thread] = []
    # No more threads for this account: the existing ones do all.
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
        # The parent is gone, or needs no more.
        return


if __name__ == "__main__":
    main()
