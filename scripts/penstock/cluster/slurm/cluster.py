"""The cluster port over SLURM, by its commands or pyslurm (`command_line`, `bindings`).

For the controller's process and preflight, by `registry.open_cluster`. Runs SLURM's commands; keeps what it
learns in memory alone.

One query answers for all elements of an array. What the controller no longer knows (a job is purged
MinJobAge after its end) is looked up in accounting where there is slurmdbd, and is LOST where there is
not: its receipt then proves whether it did its work.
"""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.cluster.port import Cause, Cluster, LiveJob, State, Status
from penstock.cluster.slurm import (
    controller_room,
    core_choice,
    core_doctor,
    placement,
    site,
    start_forecast,
    time_limits,
)
from penstock.cluster.slurm.advice import advised
from penstock.cluster.slurm.client import ANSWER_WITHIN, names_queue
from penstock.cluster.slurm.command_line import SlurmCommands
from penstock.cluster.slurm.job_states import PASSING, STATES
from penstock.cluster.slurm.probe_job import Probe
from penstock.cluster.slurm.query_pace import QueryPace
from penstock.cluster.slurm.requeues import Requeues
from penstock.cluster.slurm.submission import Account, script
from penstock.config.settings import AUTO_CORES, AUTO_TIME
from penstock.core import job_time
from penstock.core.errors import FailedError, OverloadedError, PreflightError, QueueFullError, TransientError
from penstock.core.host_lists import host_names
from penstock.host import job_environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from penstock.cluster.port import Accounted, ArraySpec, Visit
    from penstock.cluster.slurm.facts import Facts
    from penstock.cluster.slurm.job_states import SlurmElement
    from penstock.cluster.slurm.time_limits import TimeLimit
    from penstock.config.settings import ClusterConfig, JobOptions
    from penstock.core.checks import CheckResult
    from penstock.core.documents.node_cores import NodeCores

SUBMIT = "submit"
"""The step of a submitted controller's job."""
KILLED_WITHIN = 10.0
"""Seconds in which what was submitting for a controller that was killed has ended, too (a site's own wrapper
of sbatch may take longer than sbatch itself)."""
RENAMED = 60.0
"""Seconds after a submission in which a job of the answered number is that array, whatever its name."""
PARTIAL = 60.0
"""Seconds after which slurmdbd is asked again for limits that it did not say."""
BESIDE = 1
"""Places in the queue that are left to the controller's own job."""
SETTLE = 20.0
"""Seconds that an element may show NODE_FAIL or PREEMPTED before it counts as failed: a requeue
follows within a few."""


class SlurmCluster(Cluster):
    """`penstock.cluster.port.Cluster` by the rules of SLURM: methods without a docstring do what that
    says."""

    kind = "slurm"

    def __init__(
        self, config: ClusterConfig, target: Path | None = None, slurm: SlurmCommands | None = None
    ) -> None:
        self._config = config
        self._slurm = slurm or SlurmCommands()
        self._target = target
        self._facts: Facts | None = None
        self._settled_options: dict[JobOptions, JobOptions] = {}
        self._longest: dict[JobOptions, tuple[TimeLimit | None, float]] = {}
        """With the end of its validity, by the monotonic clock."""
        self._names: dict[str, str] = {}
        """Under which name each array was submitted."""
        self._others: set[str] = set()
        """The ids of arrays that another job has now, as the last look showed."""
        self._fresh: dict[str, float] = {}
        """Arrays that were submitted here and not seen yet, and when."""
        self._recalled: set[str] = set()
        """Arrays of earlier controllers."""
        self._unread: dict[str, int] = {}
        """Arrays whose core-spec has not been read back yet, and what was asked for."""
        self._passing: dict[tuple[str, int], float] = {}
        """When an element was first seen in a state that a requeue may follow."""
        self._requeues = Requeues(self._slurm)
        self._pace = QueryPace(config.poll)
        self._ended: dict[str, dict[int, Status]] = {}
        """The last status of each element that was seen as ended."""
        self._cancelled: dict[str, set[int]] = {}
        """Elements that were cancelled by index: slurmctld drops those that waited, and knows the rest."""

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
            return {}  # SLURM could not be reached: `check` has said so
        nodes = self._slurm.nodes()
        jobs: dict[JobOptions, list[str]] = {}
        autos: list[CheckResult] = []
        for given in dict.fromkeys(map(self._config.of, steps)):
            there = site.able(self._slurm, given, nodes)
            allowed = self._facts.allows_core_spec
            options = core_choice.settled(given, there, allowed=allowed)
            jobs.setdefault(options, [node.name for node in there])
            if given.core_spec == AUTO_CORES:
                autos.append(core_doctor.auto_result(options, core_choice.against(there, allowed=allowed)))
        results = core_doctor.judge(self._slurm.settings(), nodes, list(jobs.items()), cores)
        results[""] = [*dict.fromkeys(autos), *results.get("", [])]
        return results

    def slots(self, step: str) -> int:
        return self._config.of(step).max_elements

    def asks(self, step: str) -> str:
        return placement.asked(self._options(step))

    def max_array(self) -> int:
        return self._known().max_array

    def max_elements(self) -> int:
        known = self._known()
        jobs = None if known.max_jobs is None else known.max_jobs - BESIDE
        return max(1, min(most for most in (known.max_array, known.max_tasks, jobs) if most is not None))

    def submit(self, spec: ArraySpec) -> str:
        """Raises TransientError when nothing is known of the outcome: `find` it first, then
        submit again. Raises FailedError with SLURM's own words when it was refused, and when the
        cluster dropped the core-spec (the array is then cancelled)."""
        options = self._options(spec.step)
        limit = spec.time or options.time
        if limit == AUTO_TIME:
            longest = self.longest(spec.step)
            limit = None if longest is None else job_time.unestimated(longest)
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
        """What a refusal by the limits of QOS and association is. pyslurm names no limit: a trial does.

        | SLURM names a limit of submitted jobs | a trial of one job | error          |
        |---------------------------------------|--------------------|----------------|
        | yes                                   | not asked for      | QueueFullError |
        | no limit at all                       | is refused         | FailedError    |
        | no limit at all                       | any other          | QueueFullError |
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
        """Of the step, as SLURM has to get them: with what `core_spec: auto` comes to. Raises as the port to
        SLURM."""
        given = self._config.of(step)
        if given.core_spec != AUTO_CORES:
            return given
        if given not in self._settled_options:
            nodes = self._slurm.nodes()
            self._settled_options[given] = site.settled(self._slurm, given, self._known(), nodes)
        return self._settled_options[given]

    def find(self, name: str) -> Sequence[str]:
        found = [str(array) for array in self._slurm.find(name)]
        self._names.update(dict.fromkeys(found, name))
        return found

    def recall(self, array: str, name: str, spec_cores: int | None = None) -> None:
        self._names[array] = name
        if spec_cores is not None:
            self._unread.setdefault(array, spec_cores)
            self._recalled.add(array)

    def spec_cores(self, step: str) -> int | None:
        return self._options(step).spec_cores

    def appears_within(self, *, ended: bool) -> float:
        """A request that nobody waits for any more stands in slurmctld's queue for about MessageTimeout."""
        queued = self._known().message_timeout
        return queued if ended else ANSWER_WITHIN + KILLED_WITHIN + queued

    def states(self, array: str, indices: Sequence[int]) -> Mapping[int, Status]:
        return self.states_of({array: indices})[array]

    def states_of(self, arrays: Mapping[str, Sequence[int]]) -> Mapping[str, Mapping[int, Status]]:
        """An element that was seen as ended keeps that status when the controller forgets it: accounting is
        asked for what was never seen to end."""
        elements = self._timed(list(arrays)) if arrays else {}
        for array in arrays:
            self._read_back(array, elements[array])
        return {array: self._statuses(array, elements[array], indices) for array, indices in arrays.items()}

    def _statuses(
        self, array: str, elements: Sequence[SlurmElement], indices: Sequence[int]
    ) -> dict[int, Status]:
        known = {one.element: one for one in elements}
        over = self._ended.setdefault(array, {})
        wanted = set(indices)
        missing = wanted - known.keys() - over.keys()
        if missing and self._known().accounting:
            for element in self._own(array, self._slurm.ended_elements(array)):
                # The controller knows what is alive: RUNNING in accounting alone is a record nobody closed.
                if element.element in missing and element.status.state.ended:
                    known[element.element] = element
        failed = [index for index in wanted & known.keys() if known[index].launch_failed]
        if failed:
            self.cancel(array, failed)
        causes = self._requeues.new(array, known)
        statuses: dict[int, Status] = {}
        for index in indices:
            if index in known:
                status = self._settled(array, known[index])
                before = over.get(index)
                if status.state is State.CANCELLED and before is not None and before.cause is Cause.LAUNCH:
                    status = before  # it was cancelled above, not by a person
                if status.state.ended:
                    over[index] = status
                else:
                    over.pop(index, None)
                if (cause := causes.get(index)) is not None:
                    lost = cause.node if cause.lost or known[index].launch_failed else ""
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
        """The elements that are the array's own, and a note of whether its id is another job's now."""
        own = self._own(array, elements)
        if elements and time.monotonic() - self._fresh.pop(array, -math.inf) < RENAMED and not own:
            # A plugin of the site renames what is submitted: it is known by that name from now on.
            self._names[array] = elements[0].name
            own = list(elements)
        if elements and not own:
            self._others.add(array)
        elif own:
            self._others.discard(array)
        return own

    def _own(self, array: str, elements: Sequence[SlurmElement]) -> list[SlurmElement]:
        """Those whose job has the name under which the array was submitted. slurmctld that lost its state
        counts jobs anew: then the same id is another job's, of the same account or not.

        | the array's name | the element's name | counts as              |
        |------------------|--------------------|------------------------|
        | not known        | any                | the array's            |
        | known            | not read           | the array's            |
        | known            | the same           | the array's            |
        | known            | another            | not known to SLURM     |

        A job that a site's plugin renames as it is submitted has its name from the first answer after that.
        """
        name = self._names.get(array, "")
        return [one for one in elements if not name or one.name in ("", name)]

    def _query(self, array: str) -> None:
        self._read_back(array, self._timed([array])[array])

    def _read_back(self, array: str, elements: Sequence[SlurmElement]) -> None:
        """Read the core-spec back on the first answer. Raises FailedError, where the array is cancelled."""
        wanted = self._unread.get(array)
        if array in self._recalled and all(one.status.state.ended for one in elements):
            return  # it was ended, perhaps for that very reason
        if wanted is not None and elements:
            given = {one.core_spec for one in elements}
            if given != {str(wanted)}:
                # Where SLURM does not answer this, the next look reads it back again.
                self.cancel(array)
            del self._unread[array]
            if given != {str(wanted)}:
                raise FailedError(
                    f"the cluster dropped --core-spec={wanted}: the array was cancelled",
                    where=f"job {array}",
                    why=f"squeue shows core-spec {', '.join(sorted(given))}",
                    hint="AllowSpecResourcesUsage=yes is needed in slurm.conf, "
                    "or set cluster.core_spec: none",
                )

    def _settled(self, array: str, element: SlurmElement) -> Status:
        """The status of an element, where states that a requeue may follow count as running for `SETTLE`
        seconds."""
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
        """As partition, QOS and association say."""
        limit = self._time_limit(self._config.of(step))
        if limit is not None and not limit.shown:
            return None
        return 0.0 if limit is None else float(limit.seconds)

    def longest_anywhere(self) -> float:
        """Of hidden partitions, too."""
        return max((one.max_time or 0.0 for one in self._slurm.partitions()), default=0.0)

    def spares(self, step: str, nodes: Sequence[str]) -> bool:
        """By SLURM's own judgement: nodes that are drained or down now do not count as others."""
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
        """An array counts as alive while an element does, and as of nobody where several accounts have it."""
        living = self._slurm.live_jobs(job)
        if living:
            return living[0] if len({each.uid for each in living}) == 1 else LiveJob(-1)
        hidden = "jobs" in self._slurm.settings().words("PrivateData")
        return LiveJob(None) if hidden else None

    def requeue(self, job: str) -> None:
        self._slurm.requeue(job)

    def start_results(self, steps: Sequence[str]) -> Sequence[CheckResult]:
        if self._facts is None:
            return ()  # SLURM could not be reached: `check` has said so
        asked = list(dict.fromkeys(map(self._options, steps)))
        results: dict[CheckResult, None] = {}
        for options in asked:
            limit = self._time_limit(options)
            stops = time_limits.judged(options, limit)
            longest = 0.0 if limit is None else limit.seconds
            results |= dict.fromkeys(stops or start_forecast.results(self._slurm, options, longest))
        return [*results, *self._beside(asked)]

    def _beside(self, asked: Sequence[JobOptions]) -> Sequence[CheckResult]:
        """What the node of the job that this process is in leaves to elements."""
        own = job_environment.current()
        if not (own.proven and own.node):
            return []
        nodes, default = self._slurm.nodes(), placement.default(self._slurm.partitions())
        shares = site.shares_memory(self._slurm.settings())
        results: dict[CheckResult, None] = {}
        for options in filter(site.known, asked):
            able = placement.able(options, nodes, default)
            results |= dict.fromkeys(
                controller_room.stop_on_only_node(options, able, [own.node], own.memory, shares_memory=shares)
            )
        return list(results)

    def kept_out(self, steps: Sequence[str], arrays: Sequence[str] = ()) -> str:
        nodes, default = self._slurm.nodes(), placement.default(self._slurm.partitions())
        shares = site.shares_memory(self._slurm.settings())
        jobs = self._slurm.jobs() if arrays else []
        controller = self._config.of(SUBMIT)
        place = [node.name for node in placement.able(controller, nodes, default)]
        for step in steps:
            options = self._options(step)
            if not site.known(options):
                continue
            able = placement.able(options, nodes, default)
            if arrays:
                own = job_environment.current()
                why = own.proven and controller_room.why_kept_out(
                    options, able, jobs, arrays, own.job, own.memory, shares_memory=shares
                )
            else:
                stops = controller_room.stop_on_only_node(
                    options, able, place, controller.memory, shares_memory=shares
                )
                why = stops[0].found if stops else ""
            if why:
                return why
        return ""

    def _time_limit(self, options: JobOptions) -> TimeLimit | None:
        """Asked for once. While slurmdbd is away, what slurmctld says, for PARTIAL seconds."""
        limit, until = self._longest.get(options, (None, -math.inf))
        if time.monotonic() < until:
            return limit
        known, user, until = self._known(), Account.own().name, math.inf
        try:
            limit = time_limits.longest(self._slurm, options, known, user)
        except TransientError:
            limit = time_limits.of_partitions(time_limits.partitions(self._slurm.partitions(), options))
            until = time.monotonic() + PARTIAL
        self._longest[options] = limit, until
        return limit

    def _known(self) -> Facts:
        if self._facts is None:
            self._facts = self._slurm.facts()
        return self._facts
