"""The cluster port over SLURM, through its commands or pyslurm (both in `commands`).

One query reports all elements of an array. The controller forgets a job when MinJobAge has passed since its
end. Such elements are looked up in slurmdbd's accounting. Without slurmdbd they are LOST, and only their
receipts prove their work.
"""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.cluster.port import Cause, Cluster, LiveJob, State, Status
from penstock.cluster.slurm import (
    core_doctor,
    core_settings,
    element_times,
    facts,
    site,
)
from penstock.cluster.slurm.answers import PASSING, STATES
from penstock.cluster.slurm.client import ANSWER_WITHIN, advised, names_queue
from penstock.cluster.slurm.commands import SlurmCommands
from penstock.cluster.slurm.element_times import QueryPace, Requeues
from penstock.cluster.slurm.site import Probe
from penstock.cluster.slurm.submission import Account, script
from penstock.config.settings import AUTO_CORES, AUTO_TIME
from penstock.core import estimates
from penstock.core.errors import FailedError, OverloadedError, PreflightError, QueueFullError, TransientError
from penstock.core.range_lists import host_names
from penstock.host import kernel_facts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from penstock.cluster.port import Accounted, ArraySpec, Visit
    from penstock.cluster.slurm.answers import SlurmElement
    from penstock.cluster.slurm.element_times import TimeLimit
    from penstock.cluster.slurm.facts import Facts
    from penstock.config.settings import ClusterConfig, JobOptions
    from penstock.core.node_answer import NodeCores
    from penstock.core.run_steps import CheckResult

SUBMIT = "submit"  # the step of a submitted controller's job
# Seconds until the submission of a killed controller has ended as well. A site's wrapper of sbatch may take
# longer than sbatch.
KILLED_WITHIN = 10.0
RENAMED = 60.0  # seconds after a submission in which the job of its number is ours, whatever the name
PARTIAL = 60.0  # seconds until slurmdbd is queried again for limits that it did not report
BESIDE = 1  # places in the queue that are left to the controller's own job
# Seconds that an element may show NODE_FAIL or PREEMPTED before it counts as failed: SLURM requeues within a
# few seconds.
SETTLE = 20.0


class SlurmCluster(Cluster):
    """The Cluster port with the rules of SLURM."""

    kind = "slurm"

    def __init__(
        self, config: ClusterConfig, target: Path | None = None, slurm: SlurmCommands | None = None
    ) -> None:
        self._config = config
        self._slurm = slurm or SlurmCommands()
        self._target = target
        self._facts: Facts | None = None
        self._settled_options: dict[JobOptions, JobOptions] = {}
        # each limit, with the end of its validity on the monotonic clock
        self._longest: dict[JobOptions, tuple[TimeLimit | None, float]] = {}
        # the name under which each array was submitted
        self._names: dict[str, str] = {}
        # ids of arrays that the last query showed to be another job's
        self._others: set[str] = set()
        # arrays submitted by this process and not queried yet, with the time of their submission
        self._fresh: dict[str, float] = {}
        # arrays of earlier controllers
        self._recalled: set[str] = set()
        # the requested core-spec of each array whose core-spec must still be read back
        self._unread: dict[str, int] = {}
        # when each element was first seen in a state that a requeue may follow
        self._passing: dict[tuple[str, int], float] = {}
        self._requeues = Requeues(self._slurm)
        self._pace = QueryPace(config.poll)
        # the last status of each element that has ended
        self._ended: dict[str, dict[int, Status]] = {}
        # Elements cancelled by index: slurmctld forgets elements that waited, and remembers the others.
        self._cancelled: dict[str, set[int]] = {}

    @property
    def way(self) -> str:
        return self._slurm.way

    def name(self) -> str:
        return self._known().cluster

    def remembers(self) -> float:
        return self._known().min_job_age

    def check(self, steps: Sequence[str], visit: Visit | None = None, *, met: bool = False) -> Sequence[str]:
        self._facts = site.reachable(self._slurm)
        probe = Probe(self._config, self._target, visit)
        return site.check(self._slurm, self._config, steps, self._facts, probe, met=met)

    def core_results(
        self, steps: Sequence[str], cores: Mapping[str, NodeCores | None]
    ) -> Mapping[str, Sequence[CheckResult]]:
        if self._facts is None:
            return {}  # SLURM could not be reached, as `check` has reported
        nodes = self._slurm.nodes()
        jobs: dict[JobOptions, list[str]] = {}
        autos: list[CheckResult] = []
        for asked_options in dict.fromkeys(map(self._config.of, steps)):
            able_nodes = site.able(self._slurm, asked_options, nodes)
            allowed = self._facts.allows_core_spec
            options = core_settings.settled(asked_options, able_nodes, allowed=allowed)
            jobs.setdefault(options, [node.name for node in able_nodes])
            if asked_options.core_spec == AUTO_CORES:
                autos.append(
                    core_doctor.auto_result(options, core_settings.against(able_nodes, allowed=allowed))
                )
        results = core_doctor.judge(self._slurm.settings(), nodes, list(jobs.items()), cores)
        results[""] = [*dict.fromkeys(autos), *results.get("", [])]
        return results

    def slots(self, step: str) -> int:
        return self._config.of(step).max_elements

    def asks(self, step: str) -> str:
        return facts.asked(self._options(step))

    def max_array(self) -> int:
        return self._known().max_array

    def max_elements(self) -> int:
        facts = self._known()
        jobs = None if facts.max_jobs is None else facts.max_jobs - BESIDE
        return max(1, min(most for most in (facts.max_array, facts.max_tasks, jobs) if most is not None))

    def submit(self, spec: ArraySpec) -> str:
        """Submit once. After a TransientError, `find` the array before another `submit`. Raises FailedError
        with SLURM's own words for a refusal, or if the cluster dropped the core-spec. In the second case the
        array is cancelled."""
        options = self._options(spec.step)
        limit = spec.time or options.time
        if limit == AUTO_TIME:
            longest = self.longest(spec.step)
            limit = None if longest is None else estimates.unestimated(longest)
        options = replace(options, time=limit)
        if max(spec.indices) >= self.max_array():
            raise FailedError(
                f"an element's number {max(spec.indices)} is too large for this cluster",
                where=f"MaxArraySize={self.max_array()}",
                hint="plan it anew, for the arrays of this cluster: `penstock run --new-release`",
            )
        at_once = spec.at_once or options.max_elements
        lines = script(spec.command, options, Account.own(), spec.base)
        try:
            with advised():
                array = self._slurm.submit_array(spec, at_once, options, lines)
        except QueueFullError as error:
            raise self._full(options, error) from error
        self._names[array] = spec.name
        self._fresh[array] = time.monotonic()
        if options.spec_cores is not None:
            self._unread[array] = options.spec_cores
            with contextlib.suppress(TransientError):
                self._query(array)
        return array

    def _full(self, options: JobOptions, refused: QueueFullError) -> FailedError:
        """Make the error for a limit of QOS or association. pyslurm names no limit, so a trial job finds it.

        | SLURM names a limit of submitted jobs | a trial of one job | error          |
        |---------------------------------------|--------------------|----------------|
        | yes                                   | is not made        | QueueFullError |
        | no, it names no limit at all          | is refused         | FailedError    |
        | no, it names no limit at all          | has another result | QueueFullError |
        """
        words = ""
        if not names_queue(refused.why):
            with contextlib.suppress(TransientError, QueueFullError):
                words = self._slurm.trial(options).refusal
        if not words:
            return QueueFullError("SLURM takes no more jobs of this account now", why=refused.why)
        return FailedError(
            "SLURM refuses the job by a limit of its QOS or account",
            why=words,
            hint="`sacctmgr show qos` and `sacctmgr show assoc` list the limits of time, memory and nodes",
        )

    def _options(self, step: str) -> JobOptions:
        """Return the step's options for SLURM, with `core_spec: auto` settled."""
        options = self._config.of(step)
        if options.core_spec != AUTO_CORES:
            return options
        if options not in self._settled_options:
            nodes = self._slurm.nodes()
            self._settled_options[options] = site.settled(self._slurm, options, self._known(), nodes)
        return self._settled_options[options]

    def find(self, name: str) -> Sequence[str]:
        arrays = [str(array) for array in self._slurm.find(name)]
        self._names.update(dict.fromkeys(arrays, name))
        return arrays

    def recall(self, array: str, name: str, spec_cores: int | None = None) -> None:
        self._names[array] = name
        if spec_cores is not None:
            self._unread.setdefault(array, spec_cores)
            self._recalled.add(array)

    def spec_cores(self, step: str) -> int | None:
        return self._options(step).spec_cores

    def appears_within(self, *, ended: bool) -> float:
        """slurmctld keeps an abandoned request in its queue for about MessageTimeout."""
        queued = self._known().message_timeout
        return queued if ended else ANSWER_WITHIN + KILLED_WITHIN + queued

    def states(self, array: str, indices: Sequence[int]) -> Mapping[int, Status]:
        return self.states_of({array: indices})[array]

    def states_of(self, arrays: Mapping[str, Sequence[int]]) -> Mapping[str, Mapping[int, Status]]:
        """Query the states of all arrays at once. An ended element keeps its status when the controller
        forgets it. Accounting is queried only for forgotten elements that were never reported as ended."""
        elements = self._timed(list(arrays)) if arrays else {}
        for array in arrays:
            self._read_back(array, elements[array])
        return {array: self._statuses(array, elements[array], indices) for array, indices in arrays.items()}

    def _statuses(
        self, array: str, elements: Sequence[SlurmElement], indices: Sequence[int]
    ) -> dict[int, Status]:
        current = {element.element: element for element in elements}
        over = self._ended.setdefault(array, {})
        wanted = set(indices)
        missing = wanted - current.keys() - over.keys()
        if missing and self._known().accounting:
            for element in self._own(array, self._slurm.ended_elements(array)):
                # If only accounting shows RUNNING, its record was never closed: the controller knows all live
                # jobs.
                if element.element in missing and element.status.state.ended:
                    current[element.element] = element
        failed = [index for index in wanted & current.keys() if current[index].launch_failed]
        if failed:
            self.cancel(array, failed)
        causes = self._requeues.new(array, current)
        statuses: dict[int, Status] = {}
        for index in indices:
            if index in current:
                status = self._settled(array, current[index])
                before = over.get(index)
                if status.state is State.CANCELLED and before is not None and before.cause is Cause.LAUNCH:
                    status = before  # cancelled above, not by a person
                if status.state.ended:
                    over[index] = status
                else:
                    over.pop(index, None)
                if (cause := causes.get(index)) is not None:
                    lost = cause.node if cause.lost or current[index].launch_failed else ""
                    status = replace(status, requeued=cause.why, lost_node=lost)
                statuses[index] = status
            else:
                gone = Status(State.LOST, reason="SLURM no longer knows it")
                if elements and index in self._cancelled.get(array, ()):
                    gone = Status(State.CANCELLED, reason="cancelled while it waited")
                statuses[index] = over.get(index) or gone
        return statuses

    def _timed(self, arrays: Sequence[str]) -> dict[str, Sequence[SlurmElement]]:
        began = time.monotonic()
        try:
            elements = self._slurm.elements_of(arrays)
        except OverloadedError:
            self._pace.refused()
            raise
        self._pace.answered(time.monotonic() - began)
        return {array: self._checked(array, elements[array]) for array in arrays}

    def _checked(self, array: str, elements: Sequence[SlurmElement]) -> Sequence[SlurmElement]:
        """Return the elements that belong to the array. Notes whether its id now belongs to another job."""
        own = self._own(array, elements)
        if elements and time.monotonic() - self._fresh.pop(array, -math.inf) < RENAMED and not own:
            # A site's plugin renames submitted jobs: keep that name from now on.
            self._names[array] = elements[0].name
            own = list(elements)
        if elements and not own:
            self._others.add(array)
        elif own:
            self._others.discard(array)
        return own

    def _own(self, array: str, elements: Sequence[SlurmElement]) -> list[SlurmElement]:
        """Return the elements whose job has the array's name. A slurmctld that lost its state numbers jobs
        from the start again, so the id may belong to another job, of this or another account.

        | the array's name | the element's name | the element counts as  |
        |------------------|--------------------|------------------------|
        | not known        | any                | the array's            |
        | known            | not read           | the array's            |
        | known            | the same           | the array's            |
        | known            | another            | not known to SLURM     |

        If a site's plugin renames jobs on submission, the first answer afterwards supplies the array's name.
        """
        name = self._names.get(array, "")
        return [element for element in elements if not name or element.name in ("", name)]

    def _query(self, array: str) -> None:
        self._read_back(array, self._timed([array])[array])

    def _read_back(self, array: str, elements: Sequence[SlurmElement]) -> None:
        """Read the core-spec back on the first answer. On a difference, cancel the array and raise
        FailedError."""
        wanted = self._unread.get(array)
        if array in self._recalled and all(element.status.state.ended for element in elements):
            return  # the array was cancelled, perhaps because its core-spec differed
        if wanted is not None and elements:
            core_specs = {element.core_spec for element in elements}
            if core_specs != {str(wanted)}:
                # If SLURM does not answer, the next query reads the core-spec back again.
                self.cancel(array)
            del self._unread[array]
            if core_specs != {str(wanted)}:
                raise FailedError(
                    f"the cluster dropped --core-spec={wanted}: the array was cancelled",
                    where=f"job {array}",
                    why=f"squeue shows core-spec {', '.join(sorted(core_specs))}",
                    hint="AllowSpecResourcesUsage=yes is needed in slurm.conf, "
                    "or set cluster.core_spec: none",
                )

    def _settled(self, array: str, element: SlurmElement) -> Status:
        """Return an element's status. For SETTLE seconds a state before a requeue counts as running."""
        key = (array, element.element)
        if element.word not in PASSING:
            self._passing.pop(key, None)
            return element.status
        first = self._passing.setdefault(key, time.monotonic())
        if time.monotonic() - first > SETTLE:
            return element.status
        return Status(
            State.RUNNING,
            reason=f"{element.word}: waiting for its requeue",
            node=element.status.node,
            started=element.status.started,
            restarts=element.status.restarts,
        )

    def accounting(self, array: str) -> Sequence[Accounted]:
        return self._slurm.accounting(array) if self._known().accounting else ()

    def cancel(self, array: str, indices: Sequence[int] | None = None) -> None:
        if array not in self._others:
            self._slurm.cancel(array, indices)
            self._cancelled.setdefault(array, set()).update(indices or ())

    def throttle(self, array: str, at_once: int) -> None:
        if array not in self._others:
            self._slurm.throttle(array, at_once)

    def longest(self, step: str) -> float | None:
        """Return the limit that partition, QOS and association set together."""
        limit = self._time_limit(self._config.of(step))
        if limit is not None and not limit.shown:
            return None
        return 0.0 if limit is None else float(limit.seconds)

    def longest_anywhere(self) -> float:
        """Return the longest limit of any partition, including hidden partitions."""
        return max((partition.max_time or 0.0 for partition in self._slurm.partitions()), default=0.0)

    def spares(self, step: str, nodes: Sequence[str]) -> bool:
        """Let SLURM judge a trial job. Other nodes do not count while they are drained or down."""
        try:
            return not self._slurm.trial(self._options(step), exclude=nodes).refusal
        except FailedError:
            return False

    def keep_off(self, array: str, step: str, nodes: Sequence[str]) -> None:
        if array in self._others:
            return
        configured = host_names(self._options(step).exclude or "")
        with contextlib.suppress(FailedError):
            self._slurm.keep_off(array, sorted({*nodes, *configured}))

    def interval(self, waited: float) -> float:
        return self._pace.interval(waited)

    def holder_ended(self, job: str) -> bool | None:
        if not job.replace("_", "", 1).isdigit():
            return None
        try:
            words = self._slurm.job_states(job)
            if words is None and self._known().accounting:
                words = self._slurm.ended_states(job)
        except (TransientError, FailedError, PreflightError):
            return None
        if not words:
            return None
        return all(STATES.get(word, State.RUNNING).ended for word in words)

    def live_job(self, job: str) -> LiveJob | None:
        """Query a job. An array is alive while one of its elements is. If several accounts have a job of this
        number, the uid is -1."""
        living = self._slurm.live_jobs(job)
        if living:
            return living[0] if len({each.uid for each in living}) == 1 else LiveJob(-1)
        hidden = "jobs" in self._slurm.settings().words("PrivateData")
        return LiveJob(None) if hidden else None

    def requeue(self, job: str) -> None:
        self._slurm.requeue(job)

    def start_results(self, steps: Sequence[str]) -> Sequence[CheckResult]:
        if self._facts is None:
            return ()  # SLURM could not be reached, as `check` has reported
        asked = list(dict.fromkeys(map(self._options, steps)))
        results: dict[CheckResult, None] = {}
        for options in asked:
            limit = self._time_limit(options)
            stops = element_times.judged(options, limit)
            longest = 0.0 if limit is None else limit.seconds
            results |= dict.fromkeys(stops or element_times.results(self._slurm, options, longest))
        return [*results, *self._beside(asked)]

    def _beside(self, asked: Sequence[JobOptions]) -> Sequence[CheckResult]:
        """Report whether this process's own job leaves elements enough of its node."""
        own = kernel_facts.current_job()
        if not (own.proven and own.node):
            return []
        nodes, default = self._slurm.nodes(), facts.default(self._slurm.partitions())
        shares = site.shares_memory(self._slurm.settings())
        results: dict[CheckResult, None] = {}
        for options in filter(site.known, asked):
            able = facts.able(options, nodes, default)
            results |= dict.fromkeys(
                facts.stop_on_only_node(options, able, [own.node], own.memory, shares_memory=shares)
            )
        return list(results)

    def kept_out(self, steps: Sequence[str], arrays: Sequence[str] = ()) -> str:
        nodes, default = self._slurm.nodes(), facts.default(self._slurm.partitions())
        shares = site.shares_memory(self._slurm.settings())
        jobs = self._slurm.jobs() if arrays else []
        controller = self._config.of(SUBMIT)
        place = [node.name for node in facts.able(controller, nodes, default)]
        for step in steps:
            options = self._options(step)
            if not site.known(options):
                continue
            able = facts.able(options, nodes, default)
            if arrays:
                own = kernel_facts.current_job()
                why = own.proven and facts.why_kept_out(
                    options, able, jobs, arrays, own.job, own.memory, shares_memory=shares
                )
            else:
                stops = facts.stop_on_only_node(options, able, place, controller.memory, shares_memory=shares)
                why = stops[0].found if stops else ""
            if why:
                return why
        return ""

    def _time_limit(self, options: JobOptions) -> TimeLimit | None:
        """Return the time limit, which is queried once. While slurmdbd is away, slurmctld's limit counts for
        PARTIAL seconds."""
        limit, until = self._longest.get(options, (None, -math.inf))
        if time.monotonic() < until:
            return limit
        facts, user, until = self._known(), Account.own().name, math.inf
        try:
            limit = element_times.longest(self._slurm, options, facts, user)
        except TransientError:
            limit = element_times.of_partitions(element_times.partitions(self._slurm.partitions(), options))
            until = time.monotonic() + PARTIAL
        self._longest[options] = limit, until
        return limit

    def _known(self) -> Facts:
        if self._facts is None:
            self._facts = self._slurm.facts()
        return self._facts
