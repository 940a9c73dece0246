"""A part of a selftest: measures when a node sees changes that another node makes. Also has the command that
carries out the selftest's orders on each of the two nodes.
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
from penstock.core.human import printable
from penstock.core.run_steps import CheckResult
from penstock.host import waits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import TextIO

    from penstock.core.run_steps import Verdict
    from penstock.doctor.selftest_measurements import Budget


# The command on each of the two nodes, which carries out orders on files, and replies to each order.
#
# An `Order` is a line of JSON on standard input, and its `PeerAnswer` a line on standard output. `_ORDERS`
# has a function for each kind of order. Both ends run the same release of penstock.

PACE = 0.05  # seconds between two looks at a file, which gives some 60 operations a second
SIZE = 8192  # bytes of each file
FOLDER_WITHIN = 61.0  # seconds within which a node must see a folder made on another node


class Order(NamedTuple):
    """An operation that a node must carry out, with a file."""

    do: str  # a key of `_ORDERS`
    to: str = ""  # the node that carries out the order; "" for all nodes
    name: str = ""  # the file's name in the selftest's folder
    fill: str = ""  # the byte that fills the file, in hexadecimal; for a symbolic link, the destination
    what: str = ""  # what to look for: a key of `looks` in `_look`
    wanted: object = None  # the byte, size or destination that the look waits for
    within: float = 0.0  # seconds after which a look gives up


class PeerAnswer(NamedTuple):
    """The outcome of an order; only the fields that fit the kind of order are set."""

    node: str = ""
    error: str = ""  # name of the errno with which the order failed
    visible: bool = False
    seconds: float = 0.0
    looks: int = 0
    made: bool = False
    given: bool = False


def serve(folder: Path, orders: Iterable[str], answers: TextIO) -> None:
    """Carry out orders until the stream `orders` ends."""
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
    """A node's view of the folder, and the files that the node keeps open."""

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
    """Make a file, filled with a single byte value."""
    _written(peer.path(order), os.O_CREAT | os.O_EXCL, order.fill)


def _overwrite(peer: Peer, order: Order) -> None:
    """Overwrite the file in place with other bytes, without a change of its size."""
    _written(peer.path(order), 0, order.fill)


def _append(peer: Peer, order: Order) -> None:
    _written(peer.path(order), os.O_APPEND, order.fill)


def _replace(peer: Peer, order: Order) -> None:
    """Rename another file over the file."""
    path = peer.path(order)
    _written(path.with_suffix(".new"), os.O_CREAT | os.O_EXCL, order.fill)
    path.with_suffix(".new").rename(path)


def _point(peer: Peer, order: Order) -> None:
    """Make a symbolic link, or replace it with a rename, as publish replaces `current`."""
    path = peer.path(order)
    path.with_suffix(".new").symlink_to(order.fill)
    path.with_suffix(".new").rename(path)


def _remove(peer: Peer, order: Order) -> None:
    peer.path(order).unlink()


def _hold(peer: Peer, order: Order) -> None:
    fd = peer.held[order.name] = os.open(peer.path(order), os.O_RDONLY | os.O_CLOEXEC)
    os.pread(fd, SIZE, 0)


def _exclusive(peer: Peer, order: Order) -> PeerAnswer:
    """Create the file with O_CREAT and O_EXCL; report whether the name was new."""
    try:
        os.close(os.open(peer.path(order), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return PeerAnswer(made=False)
    return PeerAnswer(made=True)


def _lock(peer: Peer, order: Order) -> PeerAnswer:
    """Try to take an exclusive flock, and keep it; report whether it was granted."""
    fd = peer.held[order.name] = os.open(peer.path(order), os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return PeerAnswer(given=False)
    return PeerAnswer(given=True)


def _look(peer: Peer, order: Order) -> PeerAnswer:
    """Look until the file is as wanted; report the number of looks and the time."""
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
            # A name may still be cached although its file is gone, so the loop looks again.
            if error.errno not in (errno.ENOENT, errno.ESTALE):
                raise
        seconds = time.monotonic() - began
        if holding or seconds > within:
            return PeerAnswer(visible=bool(holding), seconds=round(seconds, 3), looks=looks)
        waits.pause(PACE)


def _written(path: Path, how: int, fill: str) -> None:
    """Write SIZE bytes with the same value; sync and close the file."""
    fd = os.open(path, os.O_WRONLY | how | os.O_CLOEXEC, 0o600)
    try:
        whole = memoryview(bytes.fromhex(fill) * SIZE)
        while whole:
            whole = whole[os.write(fd, whole) :]
        os.fsync(fd)
    finally:
        os.close(fd)


# The trials, which measure when a node sees changes that another node makes.
#
# Both nodes run `penstock selftest-peer` (`serve`), and get orders in turn. The reading node measures with
# its own clock, from the moment when it gets the order to look. It gets this order after the other node has
# reported that the file is closed or renamed. So no clocks are compared. An order takes some hundredths of a
# second.

ABOUT = "caches between two nodes"
NODES = 2
SECONDS = 600  # seconds that the job on the nodes may take
FREE_WITHIN = 60.0  # seconds to wait until two nodes are free
# seconds after which a change counts as not seen, since NFS caches a folder for a minute (acdirmax)
SEEN_WITHIN = 61.0
# seconds after which a change in an open file counts as not seen, since a node may never look its bytes up
# again
HELD_WITHIN = 5.0
ANSWER_WITHIN = 30.0  # seconds to wait for an answer, in addition to the order's own `within`
OLD, NEW = "6f", "6e"
PER_LOOK = 3  # number of operations for a look, approximately


class LostError(Exception):
    """The command on the nodes ended, perhaps with a message, or does not respond."""


class Peers:
    """The processes on this machine that run the command on the nodes. Leaving the context ends them."""

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
        """Seconds to wait for the command to end by itself, and then after SIGTERM. Less after a signal."""
        try:
            self._budget.check()
        except InterruptedRunError:
            return 0.5, 1.0
        return 5.0, 15.0

    def meet(self, count: int) -> list[str]:
        """Wait until all nodes see the folder; return their names, sorted. Raises LostError."""
        self._tell(Order("hello"))
        answers = [self._answer(FREE_WITHIN + FOLDER_WITHIN) for _ in range(count)]
        blind = sorted(answer.node for answer in answers if not answer.visible)
        if blind:
            raise LostError(f"the folder is not there on {', '.join(blind)}")
        return sorted(answer.node for answer in answers)

    def ask(self, node: str, order: Order) -> PeerAnswer:
        """Make a node carry out an order, and return its answer. Raises LostError."""
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
        """Return the first line that one of the ended processes printed on standard error."""
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired), waits.interruptible():
                process.wait(ANSWER_WITHIN)
            if process.stderr is not None and process.returncode:
                lines = process.stderr.read().decode("utf-8", "replace").strip().splitlines()
                return lines[0] if lines else f"exit status {process.returncode}"
        return "it ended"


class Trial(NamedTuple):
    """A change by the writing node, and the look with which the reading node waits to see that change."""

    about: str
    name: str
    before: str  # the writing node's order that prepares the file; "" for no file
    # the reading node's first order, which fills its cache; with "held", that node keeps the file open
    warm: str
    change: str  # the writing node's order that makes the change
    what: str  # the kind of look with which the reading node waits
    wanted: object = None
    within: float = SEEN_WITHIN
    late: Verdict = "warning"  # verdict if the change is not seen in time
    then: str = ""  # the consequence of a late change, for the message


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
    """Run each trial. The first node writes, and the second reads."""
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
    """Check O_EXCL, with which penstock makes the locks of datasets."""
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
    """Check flock. The result is only information, since no lock of penstock needs flock between nodes."""
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
