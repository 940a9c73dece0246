"""What claims of shards promise (`jobs.shard_claims`): with processes that are killed, halted and started
anew, on each file system that the machine can give.

Checked behind the workers' backs: by what they note outside that file system, and by the stored files.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import select
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pytest
from tests.support.commands import until
from tests.support.one_shard import outcome_of

from penstock.core.element_documents import ElementOutcome, ElementReceipt, ShardClaim
from penstock.core.errors import TransientError
from penstock.core.layout import RunLayout
from penstock.dataset import documents, receipts
from penstock.fs import small_files
from penstock.host import waits
from penstock.jobs.shard_claims import Claim, ClaimLostError, ShardClaims, read

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

SHARDS, ROWS, WORKERS = 60, 3, 4
RUN = "0123456789abcdef"
HEARTBEAT = 0.1


class ClaimsPlace(NamedTuple):
    """A folder as nodes see it, and where it is stored."""

    nodes: list[Path]
    stored: Path


def holds(run: RunLayout, index: int) -> bool:
    receipt = receipts.element(run, "copy", index)
    return receipt is not None and receipt.run == RUN


def receipt_of(claim: Claim) -> ElementReceipt:
    return ElementReceipt(step="copy", index=claim.index, run=RUN, attempt=claim.content.worker)


def row(index: int, number: int) -> tuple[str, bytes]:
    return f"rows/{index}.{number}", f"{index} {number}\n".encode() * 100


class Worker:
    """Does shards until none is open: a process that this one forks. It takes a token for each row."""

    numbers = itertools.count()

    def __init__(self, folder: Path, notes: Path, tokens: tuple[int, int], **more: Any) -> None:
        self.number = next(self.numbers)
        ready = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(tokens[1])
                os.write(ready[1], b".")
                for fd in ready:
                    os.close(fd)
                _Work(RunLayout(folder), self.number, notes, tokens[0]).work(**more)
                os._exit(0)
            except BaseException:  # noqa: BLE001 (it is shown)
                sys.excepthook(*sys.exc_info())
                os._exit(1)
        # Halted before it closed its end of the tokens, it would keep all others waiting for more of them.
        os.close(ready[1])
        os.read(ready[0], 1)
        os.close(ready[0])

    def ended(self) -> bool:
        """Raises where it ended by itself, and not well."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        assert os.waitstatus_to_exitcode(status) == 0
        return pid != 0

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


class _Work:
    def __init__(self, run: RunLayout, number: int, notes: Path, tokens: int) -> None:
        self._run, self._number, self._tokens = run, number, tokens
        self._notes = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._names = itertools.count()

    def work(self, call: str = "c") -> None:
        place = self._number * SHARDS // WORKERS % SHARDS
        claims = ShardClaims(
            self._run, "copy", ShardClaim(call=call, number=self._number), range(SHARDS), place,
            self._holds, lambda: f"w{self._number}.{next(self._names)}", retries=1000,
        )  # fmt: skip
        while (claim := claims.next()) is not None or claims.waits():
            if claim is None:
                waits.pause(HEARTBEAT / 2)
                continue
            self._note("claimed", claim.index, claim.generation, claim.content.worker)
            try:
                self._do(claim)
            except ClaimLostError:
                pass
            except TransientError as error:
                self._end(claim, error=str(error))

    def _holds(self, index: int) -> bool:
        return holds(self._run, index)

    def _do(self, claim: Claim) -> None:
        for number in range(ROWS):
            while not select.select([self._tokens], [], [], HEARTBEAT / 2)[0]:
                claim.beat()
                claim.require()
            os.read(self._tokens, 1)
            name, content = row(claim.index, number)
            small_files.write_file(self._run.folder / name, content)
            claim.beat()
            claim.look()
        if random.random() < 0.1:
            self._end(claim, free=True)
            return
        claim.prove(receipt_of(claim), self._holds)
        proven = receipts.element(self._run, "copy", claim.index)
        self._note("proven", claim.index, claim.generation, proven.attempt if proven else "-")

    def _end(self, claim: Claim, **how: Any) -> None:
        ended = ElementOutcome(attempt=claim.content.worker, generation=claim.generation, **how)
        documents.write_outcome(self._run, "copy", claim.index, ended)
        self._note("ended", claim.index, claim.generation, claim.content.worker)

    def _note(self, *words: object) -> None:
        os.write(self._notes, (" ".join(map(str, words)) + "\n").encode())


class ClaimsContract:
    """A subclass has the fixture `claims_place`: a ClaimsPlace whose folders are empty."""

    @pytest.fixture
    def notes(self, tmp_path: Path) -> Path:
        path = tmp_path / "notes"
        path.touch()
        return path

    @pytest.mark.parametrize("moments", [12, pytest.param(60, marks=pytest.mark.thorough)])
    def test_each_shard_is_proven_once_whoever_is_killed_or_halted(
        self, claims_place: ClaimsPlace, notes: Path, moments: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(waits, "HEARTBEAT", HEARTBEAT)
        monkeypatch.setattr(waits, "PATIENCE", 12 * HEARTBEAT)
        stored = RunLayout(claims_place.stored)
        small_files.make_dirs(claims_place.stored / "rows")
        small_files.make_dirs(stored.receipt("copy", 0).parent)
        for index, damaged in ((1, b""), (7, b'{"run": '), (30, b'{"format": 1, "run": "older"}')):
            stored.receipt("copy", index).write_bytes(damaged)
        seed = random.randrange(1 << 30)
        print("seed", seed)
        with _Team(claims_place, notes) as team:
            team.disturb(random.Random(seed), moments)
            team.finish()
        self._judge(stored, notes.read_text(), team.proven)

    def _judge(self, stored: RunLayout, notes: str, proven: dict[int, bytes]) -> None:
        for index in range(SHARDS):
            assert holds(stored, index)
            for number in range(ROWS):
                name, content = row(index, number)
                assert (stored.folder / name).read_bytes() == content
        names = os.listdir(stored.receipt("copy", 0).parent)
        assert sorted(n for n in names if not n.endswith(".tmp")) == [f"{i:05d}.json" for i in range(SHARDS)]
        assert {index: stored.receipt("copy", index).read_bytes() for index in proven} == proven
        held: dict[tuple[int, int], str] = {}
        for line in notes.splitlines():
            word, index, generation, attempt = line.split()
            key = int(index), int(generation)
            if word == "claimed":
                assert held.setdefault(key, attempt) == attempt, f"two workers held {key}"
                assert read(stored, "copy", *key).worker == attempt
            elif word == "ended":
                ended = documents.find_outcome(stored, "copy", *key)
                assert ended is not None
                assert ended.attempt == attempt == held[key]
            elif attempt != "-":
                standing = receipts.element(stored, "copy", key[0])
                assert standing is not None
                assert standing.attempt == attempt, f"the receipt of {key[0]} was replaced"

    @pytest.mark.parametrize("damaged", [False, True])
    def test_a_worker_that_wakes_at_any_line_replaces_nothing(
        self, claims_place: ClaimsPlace, damaged: bool, every: int
    ) -> None:
        """It is halted while it proves its shard; another one takes that and proves it."""
        here, there = (RunLayout(claims_place.nodes[number]) for number in (0, -1))
        small_files.make_dirs(here.receipt("copy", 0).parent)
        overtakes: list[bytes] = []

        def frozen(index: int) -> bool:
            claim = taken(here, index, "first")
            if damaged:
                here.receipt("copy", index).write_bytes(b'{"run": ')

            def prove() -> None:
                with contextlib.suppress(ClaimLostError):
                    claim.prove(receipt_of(claim), lambda i: holds(here, i))

            def overtake() -> None:
                end(there, claim, free=True)
                if second := take(there, index, "second"):
                    second.prove(receipt_of(second), lambda i: holds(there, i))
                    proven.append(there.receipt("copy", index).read_bytes())

            proven: list[bytes] = []
            halted = halted_at_line(prove, overtake, index + 1)
            stored = RunLayout(claims_place.stored)
            assert holds(stored, index)
            assert proven in ([], [stored.receipt("copy", index).read_bytes()])
            overtakes.extend(proven)
            return halted

        assert self._frozen(frozen, every) > 20
        assert len(overtakes) > 3

    def test_a_worker_that_wakes_at_any_line_has_its_own_outcome(
        self, claims_place: ClaimsPlace, every: int
    ) -> None:
        here, there = (RunLayout(claims_place.nodes[number]) for number in (0, -1))
        stored = RunLayout(claims_place.stored)

        def frozen(index: int) -> bool:
            claim = taken(here, index, "first")

            def overtake() -> None:
                end(there, claim, free=True)
                end(there, taken(there, index, "second"), error="the second's")

            halted = halted_at_line(lambda: write_end(here, claim), overtake, index + 1)
            assert outcome_of(stored, index).error == ("the second's" if halted else "its own")
            first = documents.find_outcome(stored, "copy", index, 1)
            assert first is not None
            assert first.error == "its own"
            return halted

        assert self._frozen(frozen, every) > 10

    @pytest.fixture
    def every(self) -> int:
        """Of so many lines a worker is halted at one."""
        return 1

    def _frozen(self, frozen: Callable[[int], bool], every: int) -> int:
        """Until a worker ended before it was halted: the line."""
        return next(index for index in itertools.count(0, every) if not frozen(index))


def taken(run: RunLayout, index: int, name: str) -> Claim:
    claim = take(run, index, name)
    assert claim is not None
    return claim


def take(run: RunLayout, index: int, name: str) -> Claim | None:
    return ShardClaims(
        run,
        "copy",
        ShardClaim(call="c"),
        (),
        0,
        lambda i: holds(run, i),
        lambda: f"{name}.{index}",
        retries=2,
    ).take(index)


def end(run: RunLayout, claim: Claim, **how: Any) -> None:
    """As the controller says that a worker ended."""
    documents.create_outcome(
        run, "copy", claim.index, ElementOutcome(claim.content.worker, claim.generation, **how)
    )


def write_end(run: RunLayout, claim: Claim) -> None:
    outcome = ElementOutcome(claim.content.worker, claim.generation, error="its own")
    documents.write_outcome(run, "copy", claim.index, outcome)


FILES = (
    "fs/small_files.py",
    "fs/small_files.py",
    "jobs/shard_claims.py",
    "dataset/receipts.py",
    "dataset/documents.py",
)


def halted_at_line(function: Callable[[], None], meanwhile: Callable[[], None], line: int) -> bool:
    """Run `function` in a child that is halted before its `line`-th line in FILES; then `meanwhile` here, and
    the child goes on to its end. False: it ended before so many lines, and `meanwhile` was not called."""
    pid = os.fork()
    if pid == 0:
        left = line

        def trace(frame: FrameType, event: str, _: object) -> object:
            nonlocal left
            if not frame.f_code.co_filename.endswith(FILES):
                return None
            if event == "line":
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGSTOP)
            return trace

        try:
            sys.settrace(trace)  # type: ignore[arg-type]
            function()
            os._exit(0)
        except BaseException:  # noqa: BLE001 (it is shown)
            sys.excepthook(*sys.exc_info())
            os._exit(1)
    try:
        _, status = os.waitpid(pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            pid = 0
        else:
            meanwhile()
            os.kill(pid, signal.SIGCONT)
            _, status = os.waitpid(pid, 0)
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    assert os.waitstatus_to_exitcode(status) == 0
    return pid != 0


class _Team:
    """Workers on all nodes, and what becomes of them."""

    def __init__(self, place: ClaimsPlace, notes: Path) -> None:
        self._place, self._notes = place, notes
        self._stored = RunLayout(place.stored)
        self._tokens = os.pipe()
        self._running: list[Worker] = []
        self._halted: list[Worker] = []
        self.proven: dict[int, bytes] = {}
        """The receipts that held when they were first read."""

    def __enter__(self) -> Self:
        for _ in range(WORKERS):
            self._start()
        return self

    def __exit__(self, *_: object) -> None:
        for worker in (*self._running, *self._halted):
            worker.kill()
        for fd in self._tokens:
            with contextlib.suppress(OSError):
                os.close(fd)

    def _start(self) -> None:
        nodes = self._place.nodes
        folder = nodes[len(self._running) % len(nodes)]
        call = "cd"[len(self._running) % 2]
        self._running.append(Worker(folder, self._notes, self._tokens, call=call))

    def disturb(self, chance: random.Random, moments: int) -> None:
        for _ in range(moments):
            os.write(self._tokens[1], b"." * (SHARDS * ROWS // moments))
            time.sleep(chance.random() * 0.02)  # a random moment of their work
            worker = chance.choice(self._running)
            self._running.remove(worker)
            if chance.random() < 0.5:
                worker.kill()
            else:
                os.kill(worker.pid, signal.SIGSTOP)
                self._halted.append(worker)
            self._start()
            if self._halted and chance.random() < 0.4:
                self._wake(chance.choice(self._halted))
            self._read()

    def _wake(self, worker: Worker) -> None:
        os.kill(worker.pid, signal.SIGCONT)
        self._halted.remove(worker)
        self._running.append(worker)

    def finish(self) -> None:
        """Tokens for all; who is halted wakes when everything is proven."""
        os.close(self._tokens[1])
        until(self._all_ended, "all running workers ended")
        self._read()
        assert len(self.proven) == SHARDS
        for worker in list(self._halted):
            self._wake(worker)
        until(self._all_ended, "all workers that were halted ended")

    def _all_ended(self) -> bool:
        self._running = [worker for worker in self._running if not worker.ended()]
        self._read()
        return not self._running

    def _read(self) -> None:
        """A receipt that held stays as it is."""
        for index in range(SHARDS):
            with contextlib.suppress(FileNotFoundError):
                content = self._stored.receipt("copy", index).read_bytes()
                if index in self.proven:
                    assert content == self.proven[index], f"the receipt of {index} was replaced"
                elif RUN.encode() in content and content.endswith(b"}\n"):
                    self.proven[index] = content
