"""A cluster whose elements end as a test's script says, and a run's folder to use it in."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tests.support.staging_runs import context_for, events_of

from penstock.cluster.port import Cluster, State, Status
from penstock.config.settings import ClusterConfig, JobOptions
from penstock.core.documents.element_outcome import ElementOutcome
from penstock.core.documents.element_receipt import ElementReceipt
from penstock.core.errors import TransientError
from penstock.core.layout import RunLayout
from penstock.dataset import outcomes, receipts
from penstock.jobs.arrays.array_runner import run_array

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from penstock.cluster.port import ArraySpec
    from penstock.dataset.context import Context

DONE, RUNNING, FAILED, LOST = State.DONE, State.RUNNING, State.FAILED, State.LOST


@dataclass
class ScriptedCluster(Cluster):
    """A faithful cluster whose elements end as they are told to, one query after another.

    `script(index, try)` says how an element ends, and may leave a receipt or an outcome. Tries of
    an index are counted over all arrays. An index in two live arrays at once is an error here.
    """

    script: Callable[[int, int], State | Status]
    kind: str = "slurm"
    way: str = "commands"
    most: int = 1000
    tasks: int = 0
    """The most elements of an array; 0: `most`."""
    reason: str = "so"
    exit_code: int | None = None
    """Of every element that ended."""
    out_of_memory: bool = False
    """Whether elements that fail ran out of it."""
    silent: int = 0
    """So many queries fail before one is answered."""
    queries_until_end: int = 2
    arrays: dict[str, ArraySpec] = field(default_factory=dict)
    ended: dict[str, dict[int, Status]] = field(default_factory=dict)
    tries: dict[int, int] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    cancelled: list[str] = field(default_factory=list)
    started: dict[str, set[int]] = field(default_factory=dict)
    throttles: list[tuple[str, int]] = field(default_factory=list)
    lasts: Callable[[int, int], int] | None = None
    """So many queries of its array until an element (index, try) has ended; None: `queries_until_end`,
    all of them at once."""
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
        live = {
            i + s.base for a, s in self.arrays.items() for i in s.indices if i not in self.ended.get(a, {})
        }
        assert not live & {i + spec.base for i in spec.indices}, "one index in two live arrays"
        assert len(spec.indices) <= self.max_elements()
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
        asked = self.asked[array] = self.asked.get(array, 0) + 1
        ended = self.ended.setdefault(array, {})
        for number in self.arrays[array].indices:
            index = number + self.arrays[array].base
            count = self.tries.get(index, 0) + 1
            last = self.lasts(index, count) if self.lasts else self.queries_until_end
            if number in ended or asked < last:
                continue
            self.tries[index] = count
            ended[number] = self.end(index, count)
        return {i: ended.get(i, self.waits(array, i)) for i in indices}

    def end(self, index: int, count: int) -> Status:
        """How an element's try ended."""
        ended = self.script(index, count)
        if isinstance(ended, Status):
            return ended
        short = self.out_of_memory and ended is FAILED
        return Status(ended, self.reason, f"n{index}", exit_code=self.exit_code, out_of_memory=short)

    def states_of(self, arrays: Mapping[str, Sequence[int]]) -> Mapping[str, Mapping[int, Status]]:
        self.queries += 1
        return {array: self.states(array, indices) for array, indices in arrays.items()}

    def waits(self, array: str, index: int) -> Status:
        """Of the elements that have not ended as many run as may; what runs is not stopped."""
        lowered = [n for a, n in self.throttles if a == array]
        at_once = lowered[-1] if lowered else self.arrays[array].at_once or self.slot_count
        alive = [i for i in self.arrays[array].indices if i not in self.ended[array]]
        started = self.started.setdefault(array, set())
        running = [i for i in alive if i in started]
        started.update([i for i in alive if i not in started][: max(0, at_once - len(running))])
        if index in started:
            return Status(RUNNING, node=f"n{index}")
        return Status(State.PENDING, "JobArrayTaskLimit")

    def cancel(self, array: str, indices: Sequence[int] | None = None) -> None:
        self.cancelled.append(array)
        ended = self.ended.setdefault(array, {})
        for index in self.arrays[array].indices:
            ended.setdefault(index, Status(State.CANCELLED, "CANCELLED", f"n{index}"))

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


class Stage:
    """A run's folder, a cluster that follows `how`, and receipts that count when they are there."""

    def __init__(self, tmp_path: Path, how: Callable[[int, int], State | Status], **cluster: Any) -> None:
        self.run = RunLayout(tmp_path / "runs" / "0123456789abcdef")
        self.run.folder.mkdir(parents=True)
        self.widen: Callable[[int], None] = lambda _: None
        self.cluster = ScriptedCluster(how, **cluster)
        self.context: Context = context_for(tmp_path, "/nowhere")
        self.context.cluster = self.cluster

    def retries(self, count: int, **options: Any) -> None:
        cluster = ClusterConfig(retries=count, options=JobOptions(**options))
        self.context.config = replace(self.context.config, cluster=cluster)

    def receipt(self, index: int) -> None:
        receipts.write_element(self.run, ElementReceipt("copy", index, files=1, bytes=10))

    def outcome(self, index: int, **what: Any) -> None:
        outcomes.write(self.run, "copy", index, ElementOutcome(**what))

    def has(self, index: int) -> bool:
        return self.run.receipt("copy", index).exists()

    def go(self, indices: Sequence[int], **more: Any) -> Mapping[int, Status]:
        return run_array(
            self.context, "data", self.run, "copy", indices, self.has, **{"widen": self.widen, **more}
        )

    def texts(self, kind: str) -> list[str]:
        return [e.data["text"] for e in events_of(self.context) if e.kind == kind]


def good(stage: list[Stage]) -> Callable[[int, int], State]:
    def how(index: int, _: int) -> State:
        stage[0].receipt(index)
        return DONE

    return how


def staged(tmp_path: Path, **cluster: Any) -> Stage:
    """Every element does its work at once."""
    box: list[Stage] = []
    box.append(Stage(tmp_path, good(box), **cluster))
    return box[0]
