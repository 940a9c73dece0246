"""A cluster whose workers do shards as a test's script says, and a run's folder to use it in."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.one_shard import write_receipt
from tests.support.staging_runs import context_for, events_of

from penstock.cluster.port import BAD_NODE, ArraySpec, Cluster, State, Status
from penstock.config.settings import ClusterConfig, JobOptions
from penstock.core.element_documents import ElementOutcome, ElementReceipt, ShardClaim
from penstock.core.errors import NoSpaceError, TransientError
from penstock.core.layout import RunLayout
from penstock.dataset import documents
from penstock.dataset.submitted_arrays import ArrayBook
from penstock.jobs import array_runner, shard_claims
from penstock.jobs.array_runner import run_array
from penstock.jobs.shard_claims import Claim, ShardClaims
from penstock.jobs.worker import BAD

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.core.element_documents import ArrayLine
    from penstock.dataset.context import Context

DONE, RUNNING, FAILED, LOST = State.DONE, State.RUNNING, State.FAILED, State.LOST


@dataclass
class Worker:
    """An element of an array, as this cluster plays it."""

    claims: ShardClaims
    claim: Claim | None = None
    since: int = 0
    """The query of its array at which it claimed the shard."""
    idle: int = 0
    """Queries at which it had nothing to take, while others held shards."""
    done: int = 0
    failed: list[Claim] = field(default_factory=list)
    """Claims that failed by what may pass."""
    codes: dict[int, int] = field(default_factory=dict)
    """Exit statuses of shards that failed, and that it did not do after all."""


@dataclass
class ScriptedCluster(Cluster):
    """A faithful cluster: each query lets workers move on that run. They claim shards as real ones do
    (`jobs.shard_claims`), at most one each at a query.

    `script(index, try)` says how a try of a shard ends, and may leave a receipt or an outcome. Tries of a
    shard are counted over all workers.

    | it returns  | and left             | the worker                                                     |
    |-------------|----------------------|----------------------------------------------------------------|
    | DONE        | a receipt            | goes on                                                        |
    | not DONE    | an outcome           | goes on; ends where that says `stopped` (well, where by its    |
    |             |                      | time), or that the target is full, or after two failed shards  |
    |             |                      | and none done on a node                                        |
    | any         | neither              | ended so, while it held the shard                              |
    | not DONE    | a receipt            | ended so, after it                                             |

    A worker ends between shards where none is left, after `idle` queries with nothing to take, and where the
    controller lets it go. A shard that two living workers hold, and a number of two workers, are errors here.
    """

    script: Callable[[int, int], State | Status]
    kind: str = "slurm"
    way: str = "commands"
    most: int = 1000
    tasks: int = 0
    """The most elements of an array; 0: `most`."""
    reason: str = "so"
    exit_code: int | None = None
    """Of every worker that the script ends."""
    out_of_memory: bool = False
    """Whether workers that the script has FAILED ran out of it."""
    silent: int = 0
    """So many queries fail before one is answered."""
    queries_until_end: int = 2
    """Queries that a shard takes, with the one at which it is claimed."""
    idle: int = 4
    holds: Callable[[RunLayout, str], Callable[[int], bool]] | None = None
    """Says which receipts hold; None: all that are there."""
    workers: dict[str, dict[int, Worker]] = field(default_factory=dict)
    """Those that were started, by array and number in it."""
    arrays: dict[str, ArraySpec] = field(default_factory=dict)
    ended: dict[str, dict[int, Status]] = field(default_factory=dict)
    tries: dict[int, int] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    cancelled: list[str] = field(default_factory=list)
    restarts: dict[tuple[str, int], int] = field(default_factory=dict)
    """How often a worker was started again, by array and number in it."""
    throttles: list[tuple[str, int]] = field(default_factory=list)
    lasts: Callable[[int, int], int] | None = None
    """So many queries a try of a shard takes; None: `queries_until_end`."""
    slot_count: int = 2
    on_query: Callable[[], None] = lambda: None
    cluster: str = "alpha"
    queries: int = 0
    time_limit: float = 0.0
    """Of the partition; 0: none."""
    nodes: set[str] = field(default_factory=set)
    """All that there are. Empty: none is spared."""
    kept_off: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    forgets: float = 0.0
    """Seconds after a submission in which a lost element may yet be found."""
    late: float = 0.0
    """Seconds after a submission without an answer in which its array may yet appear."""
    finds: int = 0
    keeps_out: str = ""
    """Why the controller's own job keeps elements from starting."""
    recalled: dict[str, tuple[str, int | None]] = field(default_factory=dict)

    def name(self) -> str:
        return self.cluster

    def remembers(self) -> float:
        return self.forgets

    def slots(self, step: str) -> int:
        return self.slot_count

    def asks(self, step: str) -> str:
        return "a whole node"

    def max_array(self) -> int:
        return self.most

    def max_elements(self) -> int:
        return self.tasks or self.most

    def submit(self, spec: ArraySpec) -> str:
        noted = ArrayBook(RunLayout(spec.logs.parent).arrays).all()
        names = {line.name for line in noted if line.step == spec.step}
        others = [other for other in self.arrays.values() if other.name in names]
        taken = {number + other.base for other in others for number in other.indices}
        assert not taken & {number + spec.base for number in spec.indices}, "one number of two workers"
        assert 0 < len(spec.indices) <= self.max_elements()
        assert 0 <= min(spec.indices) <= max(spec.indices) < self.most
        array = str(len(self.arrays) + 1)
        self.arrays[array] = spec
        return array

    def find(self, name: str) -> Sequence[str]:
        self.finds += 1
        return [array for array, spec in self.arrays.items() if spec.name == name]

    def appears_within(self, *, ended: bool) -> float:
        return self.late if ended else 3 * self.late

    def recall(self, array: str, name: str, spec_cores: int | None = None) -> None:
        self.recalled[array] = (name, spec_cores)

    def spec_cores(self, step: str) -> int | None:
        return 2

    def states(self, array: str, indices: Sequence[int]) -> Mapping[int, Status]:
        self.on_query()
        if self.silent:
            self.silent -= 1
            raise TransientError("slurmctld does not answer")
        if array not in self.arrays:
            return {i: Status(LOST) for i in indices}
        self.asked[array] = self.asked.get(array, 0) + 1
        self.move(array)
        return {i: self.shown(array, i) for i in indices}

    def move(self, array: str) -> None:
        """Let the array's workers go on by one query."""
        ended, workers = self.ended.setdefault(array, {}), self.workers.setdefault(array, {})
        self.asked.setdefault(array, 0)
        self.start(array)
        for number in self.arrays[array].indices:
            if number in workers and number not in ended:
                status = self.work(array, number, workers[number])
                if status is not None:
                    ended[number] = status
        self.start(array)

    def start(self, array: str) -> None:
        """Start as many as may run; what runs is not stopped."""
        spec, workers, ended = self.arrays[array], self.workers[array], self.ended[array]
        lowered = [at_once for name, at_once in self.throttles if name == array]
        at_once = lowered[-1] if lowered else spec.at_once or self.slot_count
        free = at_once - sum(number not in ended for number in workers)
        waiting = [number for number in spec.indices if number not in workers and number not in ended]
        for number in waiting[: max(0, free)]:
            workers[number] = self.worker(array, number)

    def worker(self, array: str, number: int) -> Worker:
        spec = self.arrays[array]
        run, line = RunLayout(Path(word(spec, "--run"))), self.line(array)
        assert line is not None, "a worker has a line in the book"
        own = ShardClaim(
            array=spec.name, number=number + spec.base, call=line.call, host=f"n{number + spec.base}",
            restarts=self.restarts.get((array, number), 0),
        )  # fmt: skip
        holds = self.holds(run, spec.step) if self.holds else _there(run, spec.step)
        place = number * len(line.indices) // line.workers
        claims = ShardClaims(
            run, spec.step, own, line.indices, place, holds,
            lambda: f"{array}_{number}_0-{secrets.token_hex(4)}", retries=int(word(spec, "--retries")),
        )  # fmt: skip
        return Worker(claims)

    def line(self, array: str) -> ArrayLine | None:
        spec = self.arrays[array]
        return ArrayBook(RunLayout(Path(word(spec, "--run"))).arrays).line(word(spec, "--array"))

    def work(self, array: str, number: int, worker: Worker) -> Status | None:
        """What a worker does between two queries; its status where it ended."""
        spec, claimed = self.arrays[array], False
        run, node = RunLayout(Path(word(spec, "--run"))), f"n{number + spec.base}"
        while True:
            if worker.claim is None:
                if claimed:
                    return None
                if number + spec.base in _leaving(run, spec.step):
                    return self.over(worker, node)
                worker.claim, worker.since, claimed = worker.claims.next(), self.asked[array], True
                if worker.claim is None:
                    worker.idle += 1
                    waits = worker.claims.waits() and worker.idle <= self.idle
                    return None if waits else self.over(worker, node)
                self.alone(worker)
            index = worker.claim.index
            count = self.tries.get(index, 0) + 1
            last = self.lasts(index, count) if self.lasts else self.queries_until_end
            if self.asked[array] - worker.since < last - 1:
                return None
            self.tries[index] = count
            ended = self.tried(run, spec.step, worker, self.script(index, count), node)
            if ended is not None:
                return ended
            worker.claim, worker.idle = None, 0

    def alone(self, worker: Worker) -> None:
        """Check that no other living worker holds the same shard."""
        assert worker.claim is not None
        for array, workers in self.workers.items():
            for number, other in workers.items():
                if other is not worker and number not in self.ended[array] and other.claim is not None:
                    assert other.claim.index != worker.claim.index, "a shard is held by two living workers"

    def tried(
        self, run: RunLayout, step: str, worker: Worker, answer: State | Status, node: str
    ) -> Status | None:
        """What follows from how a try ended, by the table above: the worker's end, or None."""
        claim = worker.claim
        assert claim is not None
        status = answer if isinstance(answer, Status) else self.end(answer, node)
        worker.codes.pop(claim.index, None)
        if status.state is DONE and run.receipt(step, claim.index).exists():
            worker.done += 1
            return None
        outcome = documents.find_outcome(run, step, claim.index, 0)
        if outcome is None:
            return status
        run.outcome(step, claim.index, 0).unlink()
        free = bool(outcome.stopped) and (outcome.progress or outcome.paused)
        outcome = outcome._replace(attempt=claim.content.worker, generation=claim.generation, free=free)
        documents.write_outcome(run, step, claim.index, outcome)
        worker.codes[claim.index] = outcome.exit_code or 1
        if outcome.stopped == "time":
            return Status(DONE, self.reason, node, exit_code=0)
        if outcome.stopped:
            return status
        if outcome.exit_code == NoSpaceError.exit_code:
            return self.over(worker, node)
        worker.failed += [claim] if outcome.retry else []
        if len({one.index for one in worker.failed}) >= BAD and not worker.done and self.abilities.has_nodes:
            for failed in worker.failed:
                left = documents.find_outcome(run, step, failed.index, failed.generation)
                if left is not None:
                    documents.write_outcome(run, step, failed.index, left._replace(free=True))
            return Status(FAILED, f"exit {BAD_NODE}", node, exit_code=BAD_NODE)
        return None

    def over(self, worker: Worker, node: str) -> Status:
        """The status of a worker that ended between two shards."""
        code = next(reversed(worker.codes.values()), 0)
        return Status(FAILED if code else DONE, f"exit {code}" if code else self.reason, node, exit_code=code)

    def end(self, state: State, node: str) -> Status:
        """The status of a worker that the script ended."""
        short = self.out_of_memory and state is FAILED
        return Status(state, self.reason, node, exit_code=self.exit_code, out_of_memory=short)

    def shown(self, array: str, number: int) -> Status:
        """The status of one worker at the last query."""
        if ended := self.ended[array].get(number):
            return ended
        restarts = self.restarts.get((array, number), 0)
        if number in self.workers[array]:
            return Status(RUNNING, node=f"n{number + self.arrays[array].base}", restarts=restarts)
        return Status(State.PENDING, "JobArrayTaskLimit", restarts=restarts)

    def requeue(self, array: str, number: int, why: str, node: str = "") -> Status:
        """Start a worker again, as the status at the query that first sees it says; it begins at the next
        one. `node`: it failed under the worker."""
        restarts = self.restarts[array, number] = self.restarts.get((array, number), 0) + 1
        self.workers[array].pop(number, None)
        return Status(State.PENDING, "BeginTime", requeued=why, restarts=restarts, lost_node=node)

    def running(self) -> int:
        """How many workers run, at the last query."""
        return sum(
            number not in self.ended[array] for array, workers in self.workers.items() for number in workers
        )

    def states_of(self, arrays: Mapping[str, Sequence[int]]) -> Mapping[str, Mapping[int, Status]]:
        self.queries += 1
        return {array: self.states(array, indices) for array, indices in arrays.items()}

    def cancel(self, array: str, indices: Sequence[int] | None = None) -> None:
        """What is cancelled ends at once, and leaves its claim."""
        self.cancelled.append(array)
        spec, ended = self.arrays[array], self.ended.setdefault(array, {})
        for number in spec.indices if indices is None else indices:
            ended.setdefault(number, Status(State.CANCELLED, "CANCELLED", f"n{number + spec.base}"))

    def throttle(self, array: str, at_once: int) -> None:
        self.throttles.append((array, at_once))

    def longest(self, step: str) -> float:
        return self.time_limit

    def longest_anywhere(self) -> float:
        return self.time_limit

    def spares(self, step: str, nodes: Sequence[str]) -> bool:
        return not self.nodes <= set(nodes)

    def keep_off(self, array: str, step: str, nodes: Sequence[str]) -> None:
        self.kept_off.append((array, tuple(nodes)))

    def interval(self, waited: float) -> float:
        return 0.001

    def holder_ended(self, job: str) -> bool:
        return False

    def kept_out(self, steps: Sequence[str], arrays: Sequence[str] = ()) -> str:
        return self.keeps_out


def word(spec: ArraySpec, name: str) -> str:
    """What stands behind an option in the command of an array's workers."""
    words = list(spec.command)
    return words[words.index(name) + 1]


def _there(run: RunLayout, step: str) -> Callable[[int], bool]:
    return lambda index: run.receipt(step, index).exists()


def _leaving(run: RunLayout, step: str) -> Sequence[int]:
    try:
        return json.loads(run.leaving(step).read_bytes())  # type: ignore[no-any-return]
    except FileNotFoundError:
        return ()


class Stage:
    """A run's folder, a cluster that follows `how`, and receipts that count when they are there."""

    def __init__(self, tmp_path: Path, how: Callable[[int, int], State | Status], **cluster: Any) -> None:
        self.run = RunLayout(tmp_path / "runs" / "0123456789abcdef")
        self.run.folder.mkdir(parents=True)
        self.cluster = ScriptedCluster(how, **cluster)
        self.context: Context = context_for(tmp_path, "/nowhere")
        self.context.cluster = self.cluster

    def retries(self, count: int, **options: Any) -> None:
        cluster = ClusterConfig(retries=count, options=JobOptions(**options))
        self.context.config = replace(self.context.config, cluster=cluster)

    def receipt(self, index: int) -> None:
        write_receipt(self.run, ElementReceipt("copy", index, files=1, bytes=10))

    def outcome(self, index: int, **what: Any) -> None:
        documents.write_outcome(self.run, "copy", index, ElementOutcome(**what))

    def has(self, index: int) -> bool:
        return self.run.receipt("copy", index).exists()

    def claim(self, index: int) -> ShardClaim:
        """The claim of the shard that stands."""
        generation = shard_claims.standing(self.run, "copy")[index]
        return shard_claims.read(self.run, "copy", index, generation)

    def submitted(
        self, shards: Sequence[int], workers: int, *, name: str = "penstock-data-r-copy-1", base: int = 0,
        at_once: int = 0, noted: bool = True, array: str = "", call: str = "before", time: int = 0,
    ) -> ArraySpec:  # fmt: skip
        """An array that an earlier controller submitted, and noted. `noted`: with its id (`array`, or the one
        that this cluster gives it), else the intent alone."""
        book = ArrayBook(self.run.arrays)
        book.intend(
            name, "copy", self.cluster.kind, shards, self.cluster.cluster,
            workers=workers, call=call, base=base, at_once=at_once, time=time,
        )  # fmt: skip
        command = [*array_runner.element_command(self.context, self.run, "copy"), "--array", name]
        spec = ArraySpec(
            name, "copy", range(workers), command, self.run.logs, at_once=at_once or workers, base=base
        )
        if noted:
            book.submitted(name, array or self.cluster.submit(spec))
        return spec

    def arrays(self) -> list[int]:
        """How many workers each array has."""
        return [len(spec.indices) for spec in self.cluster.arrays.values()]

    def go(self, indices: Sequence[int], **more: Any) -> Mapping[int, Status]:
        return run_array(self.context, "data", self.run, "copy", indices, self.has, **more)

    def texts(self, kind: str) -> list[str]:
        return [e.data["text"] for e in events_of(self.context) if e.kind == kind]


def good(stage: list[Stage]) -> Callable[[int, int], State]:
    def how(index: int, _: int) -> State:
        stage[0].receipt(index)
        return DONE

    return how


def staged(tmp_path: Path, **cluster: Any) -> Stage:
    """Every worker does each shard at once."""
    box: list[Stage] = []
    box.append(Stage(tmp_path, good(box), **cluster))
    return box[0]
