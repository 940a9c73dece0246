"""What a selftest's command does on one of two nodes: it carries out orders on files, and answers each.

An order (`Order`) is a line of JSON on standard input; its answer (`Answer`) is a line on standard output.
Each function of `_ORDERS` is one order. Both ends are of one release of penstock.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from typing import TYPE_CHECKING, NamedTuple

from penstock.cluster.registry import read_job_environment
from penstock.host import waits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path
    from typing import TextIO

PACE = 0.05
"""Seconds between two looks: some 60 operations a second."""
SIZE = 8192
"""Bytes of the files."""
FOLDER_WITHIN = 61.0
"""Seconds in which a node must see the folder that was just made on another one."""


class Order(NamedTuple):
    """What a node is to do, and with which file."""

    do: str
    """A key of `_ORDERS`."""
    to: str = ""
    """The node that it is for; "" is for all."""
    name: str = ""
    """Of the file, in the folder of the selftest."""
    fill: str = ""
    """The byte of which a file is full, in hexadecimal digits; of a symbolic link where it leads."""
    what: str = ""
    """What is looked for: a key of the looks in `_look`."""
    wanted: object = None
    """The byte, size or place that is looked for."""
    within: float = 0.0
    """Seconds for which it is looked for."""


class PeerAnswer(NamedTuple):
    """What came of an order; each field is of the orders that its name fits."""

    node: str = ""
    error: str = ""
    """The name of the errno that ended the order."""
    visible: bool = False
    seconds: float = 0.0
    looks: int = 0
    made: bool = False
    given: bool = False


def serve(folder: Path, orders: Iterable[str], answers: TextIO) -> None:
    """Carry out orders until there are none."""
    peer = Peer(folder)
    for line in orders:
        order = Order(**json.loads(line))
        if order.to not in ("", peer.node):
            continue
        try:
            answer = _ORDERS[order.do](peer, order) or PeerAnswer()
        except OSError as error:
            answer = PeerAnswer(error=errno.errorcode.get(error.errno or 0, str(error.errno)))
        print(json.dumps(answer._replace(node=peer.node)._asdict()), file=answers, flush=True)


class Peer:
    """One node's view of the folder, and what it keeps open."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.node = read_job_environment().node or os.uname().nodename
        self.held: dict[str, int] = {}
        self._last = time.monotonic()

    def path(self, order: Order) -> Path:
        return self.folder / order.name


def _hello(peer: Peer, _: Order) -> PeerAnswer:
    """The node is there, and sees the folder."""
    return _until(peer.folder.is_dir, FOLDER_WITHIN)


def _make(peer: Peer, order: Order) -> None:
    """A new file, full of one byte."""
    _written(peer.path(order), os.O_CREAT | os.O_EXCL, order.fill)


def _overwrite(peer: Peer, order: Order) -> None:
    """The same size, other bytes."""
    _written(peer.path(order), 0, order.fill)


def _append(peer: Peer, order: Order) -> None:
    _written(peer.path(order), os.O_APPEND, order.fill)


def _replace(peer: Peer, order: Order) -> None:
    """Another file is renamed over it."""
    path = peer.path(order)
    _written(path.with_suffix(".new"), os.O_CREAT | os.O_EXCL, order.fill)
    path.with_suffix(".new").rename(path)


def _point(peer: Peer, order: Order) -> None:
    """A symbolic link is made, or another one is renamed over it, as publish moves `current`."""
    path = peer.path(order)
    path.with_suffix(".new").symlink_to(order.fill)
    path.with_suffix(".new").rename(path)


def _remove(peer: Peer, order: Order) -> None:
    peer.path(order).unlink()


def _hold(peer: Peer, order: Order) -> None:
    """Open it, read it, and keep it open."""
    fd = peer.held[order.name] = os.open(peer.path(order), os.O_RDONLY | os.O_CLOEXEC)
    os.pread(fd, SIZE, 0)


def _exclusive(peer: Peer, order: Order) -> PeerAnswer:
    """O_CREAT and O_EXCL: whether the name was new."""
    try:
        os.close(os.open(peer.path(order), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return PeerAnswer(made=False)
    return PeerAnswer(made=True)


def _lock(peer: Peer, order: Order) -> PeerAnswer:
    """An exclusive flock, held from now on; whether it was given."""
    fd = peer.held[order.name] = os.open(peer.path(order), os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return PeerAnswer(given=False)
    return PeerAnswer(given=True)


def _look(peer: Peer, order: Order) -> PeerAnswer:
    """Look until it is as it should be: how often, and how long that took."""
    path, wanted = peer.path(order), order.wanted
    looks: Mapping[str, Callable[[], object]] = {
        "name": path.exists,
        "gone": lambda: not path.exists(),
        "unlisted": lambda: path.name not in os.listdir(path.parent),
        "listing": lambda: path.name in os.listdir(path.parent),
        "byte": lambda: path.read_bytes()[:1].hex() == wanted,
        "held": lambda: os.pread(peer.held[path.name], SIZE, 0)[:1].hex() == wanted,
        "size": lambda: path.stat().st_size == wanted,
        "pointer": lambda: os.readlink(path) == wanted,
    }
    return _until(looks[order.what], order.within)


_ORDERS: Mapping[str, Callable[[Peer, Order], PeerAnswer | None]] = {
    "hello": _hello, "make": _make, "overwrite": _overwrite, "append": _append, "replace": _replace,
    "point": _point, "remove": _remove, "hold": _hold, "exclusive": _exclusive, "lock": _lock, "look": _look,
}  # fmt: skip


def _until(holds: Callable[[], object], within: float) -> PeerAnswer:
    began, looks = time.monotonic(), 0
    while True:
        looks += 1
        holding: object = False
        try:
            holding = holds()
        except OSError as error:
            # A name that is believed to be there while its file is gone: not as it should be yet.
            if error.errno not in (errno.ENOENT, errno.ESTALE):
                raise
        seconds = time.monotonic() - began
        if holding or seconds > within:
            return PeerAnswer(visible=bool(holding), seconds=round(seconds, 3), looks=looks)
        waits.pause(PACE)


def _written(path: Path, how: int, fill: str) -> None:
    """SIZE bytes of one value, synced and closed."""
    fd = os.open(path, os.O_WRONLY | how | os.O_CLOEXEC, 0o600)
    try:
        whole = memoryview(bytes.fromhex(fill) * SIZE)
        while whole:
            whole = whole[os.write(fd, whole) :]
        os.fsync(fd)
    finally:
        os.close(fd)
