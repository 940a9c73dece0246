"""A selftest's command on one of two nodes: it carries out orders on files, and answers each.

An `Order` is a line of JSON on standard input; its `PeerAnswer` is a line on standard output. Each function
of `_ORDERS` is one order. Both ends are of one release of penstock.
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

PACE = 0.05  # seconds between two looks: some 60 operations a second
SIZE = 8192  # bytes of a file
FOLDER_WITHIN = 61.0  # seconds within which a node must see a folder made on another node


class Order(NamedTuple):
    """What a node is to do, and with which file."""

    do: str  # a key of `_ORDERS`
    to: str = ""  # the node that it is for; "": all
    name: str = ""  # of the file, in the selftest's folder
    fill: str = ""  # a file's byte, in hexadecimal digits; a symbolic link's destination
    what: str = ""  # what to look for: a key of the looks in `_look`
    wanted: object = None  # the byte, size or place to look for
    within: float = 0.0  # seconds to look for it


class PeerAnswer(NamedTuple):
    """What came of an order; each order sets the fields that fit it."""

    node: str = ""
    error: str = ""  # name of the errno that ended the order
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
    """A node's view of the folder, and the files it keeps open."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.node = read_job_environment().node or os.uname().nodename
        self.held: dict[str, int] = {}
        self._last = time.monotonic()

    def path(self, order: Order) -> Path:
        return self.folder / order.name


def _hello(peer: Peer, _: Order) -> PeerAnswer:
    """Wait until the node sees the folder."""
    return _until(peer.folder.is_dir, FOLDER_WITHIN)


def _make(peer: Peer, order: Order) -> None:
    """Make a file, full of one byte."""
    _written(peer.path(order), os.O_CREAT | os.O_EXCL, order.fill)


def _overwrite(peer: Peer, order: Order) -> None:
    """Overwrite with other bytes of the same size."""
    _written(peer.path(order), 0, order.fill)


def _append(peer: Peer, order: Order) -> None:
    _written(peer.path(order), os.O_APPEND, order.fill)


def _replace(peer: Peer, order: Order) -> None:
    """Rename another file over it."""
    path = peer.path(order)
    _written(path.with_suffix(".new"), os.O_CREAT | os.O_EXCL, order.fill)
    path.with_suffix(".new").rename(path)


def _point(peer: Peer, order: Order) -> None:
    """Make a symbolic link, or rename one over it, as publish moves `current`."""
    path = peer.path(order)
    path.with_suffix(".new").symlink_to(order.fill)
    path.with_suffix(".new").rename(path)


def _remove(peer: Peer, order: Order) -> None:
    peer.path(order).unlink()


def _hold(peer: Peer, order: Order) -> None:
    fd = peer.held[order.name] = os.open(peer.path(order), os.O_RDONLY | os.O_CLOEXEC)
    os.pread(fd, SIZE, 0)


def _exclusive(peer: Peer, order: Order) -> PeerAnswer:
    """Create by O_CREAT and O_EXCL; answer whether the name was new."""
    try:
        os.close(os.open(peer.path(order), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return PeerAnswer(made=False)
    return PeerAnswer(made=True)


def _lock(peer: Peer, order: Order) -> PeerAnswer:
    """Take an exclusive flock and hold it; answer whether it was given."""
    fd = peer.held[order.name] = os.open(peer.path(order), os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return PeerAnswer(given=False)
    return PeerAnswer(given=True)


def _look(peer: Peer, order: Order) -> PeerAnswer:
    """Look until it is as wanted; answer how often, and how long that took."""
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
            # A name may be cached while its file is gone: look again.
            if error.errno not in (errno.ENOENT, errno.ESTALE):
                raise
        seconds = time.monotonic() - began
        if holding or seconds > within:
            return PeerAnswer(visible=bool(holding), seconds=round(seconds, 3), looks=looks)
        waits.pause(PACE)


def _written(path: Path, how: int, fill: str) -> None:
    """Write SIZE bytes of one value; sync and close."""
    fd = os.open(path, os.O_WRONLY | how | os.O_CLOEXEC, 0o600)
    try:
        whole = memoryview(bytes.fromhex(fill) * SIZE)
        while whole:
            whole = whole[os.write(fd, whole) :]
        os.fsync(fd)
    finally:
        os.close(fd)
