"""A part of a selftest: what one node writes, and when another node sees it; and the orders that the command
on one of two nodes carries out.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import select
import subprocess
import time
from typing import TYPE_CHECKING, NamedTuple, Self

from penstock.cluster.registry import read_job_environment
from penstock.core import human
from penstock.core.errors import InterruptedRunError
from penstock.core.events import CheckResult
from penstock.core.human import printable
from penstock.host import waits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import TextIO

    from penstock.core.events import Verdict
    from penstock.doctor.selftest.measurements import Budget


# A selftest's command on one of two nodes: it carries out orders on files, and answers each.
#
# An `Order` is a line of JSON on standard input; its `PeerAnswer` is a line on standard output. Each function
# of `_ORDERS` is one order. Both ends are of one release of penstock.

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


# Part of a selftest: when a node sees what another node writes.
#
# Both nodes run `penstock selftest-peer` (`peer`), and get orders in turn. The looking node measures by its
# own clock, from the order to look. That order follows the other node's answer that the file is closed or
# renamed. So no clocks are compared; an order takes some hundredths of a second.

ABOUT = "caches between two nodes"
NODES = 2
SECONDS = 600  # of the job on the nodes, at most
FREE_WITHIN = 60.0  # seconds to wait for two nodes
SEEN_WITHIN = 61.0  # seconds after which it counts as not seen: NFS caches a folder for a minute (acdirmax)
HELD_WITHIN = 5.0  # for a file that stays open, whose bytes need never be looked up again
ANSWER_WITHIN = 30.0  # seconds for an order beyond what it may wait
OLD, NEW = "6f", "6e"
PER_LOOK = 3  # operations, about


class LostError(Exception):
    """The nodes' command ended, or does not answer; the message is its own."""


class Peers:
    """The command on the nodes, as processes of this machine; a context manager that ends it."""

    def __init__(self, processes: Sequence[subprocess.Popen[bytes]], budget: Budget) -> None:
        self._processes, self._budget = processes, budget
        self._read: dict[int, bytes] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            if process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.close()
            for seconds, end in zip(self._patience(), (process.terminate, process.kill), strict=True):
                try:
                    process.wait(seconds)
                except subprocess.TimeoutExpired:
                    end()
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()

    def _patience(self) -> tuple[float, float]:
        """Seconds to wait for the command's own end, and for SIGTERM; less after a signal."""
        try:
            self._budget.check()
        except InterruptedRunError:
            return 0.5, 1.0
        return 5.0, 15.0

    def meet(self, count: int) -> list[str]:
        """Return the names of the nodes, sorted, once all see the folder. Raises LostError."""
        self._tell(Order("hello"))
        answers = [self._answer(FREE_WITHIN + FOLDER_WITHIN) for _ in range(count)]
        blind = sorted(answer.node for answer in answers if not answer.visible)
        if blind:
            raise LostError(f"the folder is not there on {', '.join(blind)}")
        return sorted(answer.node for answer in answers)

    def ask(self, node: str, order: Order) -> PeerAnswer:
        """Have a node carry out an order. Raises LostError."""
        self._tell(order._replace(to=node))
        answer = self._answer(order.within + ANSWER_WITHIN)
        if answer.error:
            raise LostError(f"{order.do} failed on {node}: {answer.error}")
        return answer

    def _tell(self, order: Order) -> None:
        line = json.dumps(order._asdict()).encode() + b"\n"
        for process in self._processes:
            assert process.stdin is not None
            try:
                process.stdin.write(line)
                process.stdin.flush()
            except BrokenPipeError:
                raise LostError(self._words()) from None

    def _answer(self, within: float) -> PeerAnswer:
        deadline = time.monotonic() + within
        streams = {
            process.stdout.fileno(): process for process in self._processes if process.stdout is not None
        }
        while True:
            for fd, read in self._read.items():
                line, newline, rest = read.partition(b"\n")
                if newline:
                    self._read[fd] = rest
                    return PeerAnswer(**json.loads(line))
            if time.monotonic() > deadline:
                raise LostError(f"no answer within {human.duration(within)}")
            self._budget.check()
            for fd in select.select(list(streams), [], [], 0.1)[0]:
                more = os.read(fd, 1 << 16)
                if not more:
                    raise LostError(self._words())
                self._read[fd] = self._read.get(fd, b"") + more

    def _words(self) -> str:
        """Return what an ended process printed last."""
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired), waits.interruptible():
                process.wait(ANSWER_WITHIN)
            if process.stderr is not None and process.returncode:
                lines = process.stderr.read().decode("utf-8", "replace").strip().splitlines()
                return lines[0] if lines else f"exit status {process.returncode}"
        return "it ended"


class Trial(NamedTuple):
    """A row: what the looking node sees first, what the writing node does then, and what is waited for."""

    about: str
    name: str
    before: str  # an order of the writing node
    warm: str  # what the looking node caches; "held": it opens it and keeps it open
    change: str  # an order of the writing node
    what: str  # what the looking node waits for
    wanted: object = None
    within: float = SEEN_WITHIN
    late: Verdict = "warning"  # verdict where it is not seen in time
    then: str = ""  # what follows from that


TRIALS = (
    Trial("a new name", "new", "", "gone", "make", "name",
          then="a run on one node does not see for so long what one on another made"),
    Trial("a new name in a listing", "listed", "", "unlisted", "make", "listing",
          then="a run on one node does not see for so long what one on another made"),
    Trial("a removed name", "removed", "make", "name", "remove", "gone", late="note"),
    Trial("other bytes, opened again", "bytes", "make", "byte", "overwrite", "byte", NEW,
          then="files that are changed in place are read as they were"),
    Trial("other bytes, kept open", "held", "make", "held", "overwrite", "held", NEW, HELD_WITHIN, "ok"),
    Trial("a larger size", "size", "make", "size", "append", "size", 2 * SIZE, late="note"),
    Trial("a rename over a file", "renamed", "make", "byte", "replace", "byte", NEW,
          then="a run on one node acts for so long on what one on another has replaced"),
    Trial("a link that names another release", "pointer", "point", "pointer", "point", "pointer", NEW,
          then="jobs take for so long the release before"),
)  # fmt: skip


def caches(peers: Peers, budget: Budget) -> Iterator[CheckResult]:
    """Run each trial: the first node writes, the second looks."""
    try:
        writer, reader = peers.meet(NODES)
        yield CheckResult(ABOUT, f"{printable(writer)} writes, {printable(reader)} reads")
        for trial in TRIALS:
            yield _tried(peers, trial, writer, reader, budget)
        yield _try_exclusive(peers, writer, reader, budget)
        yield _try_lock(peers, writer, reader, budget)
    except LostError as error:
        yield CheckResult(ABOUT, f"not tried further: {printable(str(error))}", "note")


def _tried(peers: Peers, trial: Trial, writer: str, reader: str, budget: Budget) -> CheckResult:
    within = min(trial.within, max(1.0, budget.left / 2))
    budget.spend(20, size=3 * SIZE, files=2)
    if trial.before:
        peers.ask(writer, Order(trial.before, name=trial.name, fill=OLD))
    first = {"byte": OLD, "held": OLD, "pointer": OLD, "size": SIZE}.get(trial.warm)
    warm = "byte" if trial.warm == "held" else trial.warm
    peers.ask(reader, Order("look", name=trial.name, what=warm, wanted=first, within=within))
    if trial.warm == "held":
        peers.ask(reader, Order("hold", name=trial.name))
    peers.ask(writer, Order(trial.change, name=trial.name, fill=NEW))
    answer = peers.ask(
        reader, Order("look", name=trial.name, what=trial.what, wanted=trial.wanted, within=within)
    )
    budget.spend(PER_LOOK * answer.looks)
    about = f"{trial.about}, on the other node"
    if not answer.visible:
        return CheckResult(about, f"not seen within {within:.0f} s", trial.late, mend=trial.then)
    if answer.looks == 1:
        return CheckResult(about, "seen at once")
    return CheckResult(about, f"seen after {answer.seconds:.1f} s")


def _try_exclusive(peers: Peers, writer: str, reader: str, budget: Budget) -> CheckResult:
    """Check O_EXCL, which makes the locks of datasets."""
    about = "O_EXCL of a name that the other node made"
    budget.spend(4, files=1)
    peers.ask(reader, Order("look", name="lock", what="gone", within=1.0))
    first, second = (peers.ask(node, Order("exclusive", name="lock")).made for node in (writer, reader))
    if first and not second:
        return CheckResult(about, "no (EEXIST)")
    state = "yes: both nodes made it" if second else "neither node could make it"
    mend = "two runs could hold the dataset's lock at a time: do not stage here"
    return CheckResult(about, state, "stop", "no (EEXIST)", mend)


def _try_lock(peers: Peers, writer: str, reader: str, budget: Budget) -> CheckResult:
    """Check flock, for people: no lock of penstock depends on it between nodes."""
    about = "flock of a file that the other node has locked"
    budget.spend(8, size=SIZE, files=1)
    peers.ask(writer, Order("make", name="flock", fill=OLD))
    peers.ask(reader, Order("look", name="flock", what="name", within=SEEN_WITHIN))
    if not peers.ask(writer, Order("lock", name="flock")).given:
        return CheckResult(about, "not known: it was not given to the first", "note")
    locked = peers.ask(reader, Order("lock", name="flock")).given
    return CheckResult(
        about, "given: locks hold on one node alone" if locked else "refused, as on one machine"
    )
