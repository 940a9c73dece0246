"""Part of a selftest: when a node sees what another node writes.

Both nodes run `penstock selftest-peer` (`peer`), and get orders in turn. The looking node measures by its own
clock, from the order to look. That order follows the other node's answer that the file is closed or renamed.
So no clocks are compared; an order takes some hundredths of a second.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import time
from typing import TYPE_CHECKING, NamedTuple, Self

from penstock.core import human
from penstock.core.errors import InterruptedRunError
from penstock.core.events import CheckResult
from penstock.core.human import printable
from penstock.doctor.selftest.peer import FOLDER_WITHIN, SIZE, Order, PeerAnswer
from penstock.host import waits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.core.events import Verdict
    from penstock.doctor.selftest.budget import Budget

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
        yield _exclusive(peers, writer, reader, budget)
        yield _lock(peers, writer, reader, budget)
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


def _exclusive(peers: Peers, writer: str, reader: str, budget: Budget) -> CheckResult:
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


def _lock(peers: Peers, writer: str, reader: str, budget: Budget) -> CheckResult:
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
