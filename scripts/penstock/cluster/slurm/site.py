"""Checks the limits and settings of the site's SLURM before anything is submitted, also by a job of a second
on a node, and chooses the options of a new configuration by the same checks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import re
import secrets
import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.cluster.port import VISIT_FAILED, State, VisitAnswer
from penstock.cluster.slurm import core_settings
from penstock.cluster.slurm import facts as placement
from penstock.cluster.slurm.answers import STATES
from penstock.cluster.slurm.client import SAID, advice, advised, say
from penstock.cluster.slurm.commands import SlurmCommands
from penstock.cluster.slurm.facts import Node, fits, spread
from penstock.cluster.slurm.submission import Account
from penstock.config.settings import AUTO_CORES
from penstock.core.errors import FailedError, PreflightError, QueueFullError, TransientError, all_of
from penstock.core.layout import ANSWER
from penstock.host import interpreter, waits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.cluster.port import Visit
    from penstock.cluster.slurm.facts import Facts, Partition, SlurmSettings
    from penstock.config.settings import ClusterConfig, JobOptions


# Preflight's probe: a job of a second that checks whether a node has all that an element needs.
#
# Several nodes get a probe, and each answer is judged. Jobs that do not start in time are cancelled. A job
# writes at most one small file, its answer, which this module removes. As its last check a job may run a
# visit, a command of penstock (`port.Visit`).

PROBE_WITHIN = 60.0  # seconds that preflight waits for the probe; a full cluster is no reason to stop

# Exit statuses with which the probe's script reports what the node lacks. No shell (126, 127) uses them, nor
# SLURM itself.
NO_INTERPRETER, NO_PACKAGE, NO_TARGET, NOT_WRITABLE = 81, 82, 83, 84
MEMORY = 512 << 20  # bytes that the probe's job asks for
FURTHER_WITHIN = 10.0  # seconds that preflight waits for further nodes once a node has answered
ANSWER_GRACE = 10.0  # seconds in which an answer written on a node must become visible here
NO_ANSWER = "its answer did not come; the target's folder there may be another one than here"


class Lack(NamedTuple):
    """An obstacle to the run on a node."""

    node: str
    what: str
    why: str = ""
    where: str = ""
    hint: str = ""


class ProbeOutcome(NamedTuple):
    """How a probe ended."""

    warnings: Sequence[str] = ()
    lack: Lack | None = None
    ran: bool = True  # False if the job had not started in time
    # Whether the job itself ended abnormally (it was cancelled, or SLURM could not start it). That is no
    # reason to stop if another node answered.
    broken: bool = False


class Probe(NamedTuple):
    """The checks to make on a node."""

    config: ClusterConfig
    # The root, or the folder above a root that is still to be made, which must exist and be writable. None:
    # no folder is checked.
    target: Path | None
    visit: Visit | None  # the command that the job runs at the end; None for no command

    @property
    def interpreter(self) -> str:
        return self.config.python or sys.executable

    def answer(self, job: str) -> Path | None:
        """The file in which this job reports why its visit failed."""
        return None if self.visit is None else self.visit.answers / f"{ANSWER}{job}"


def script(probe: Probe) -> str:
    """Write the probe's batch script, which leaves at most its answer behind."""
    python = shlex.quote(probe.interpreter)
    isolated = shlex.join(interpreter.isolated(probe.config.python))
    lines = [
        "#!/bin/sh",
        *Account.own().exports(),
        f"[ -x {python} ] || exit {NO_INTERPRETER}",
        f"{isolated} -c 'import penstock, xxhash, pyarrow' || exit {NO_PACKAGE}",
    ]
    if probe.target is not None:
        # If the first run is still to make the root, the root's parent counts. A root that exists here must
        # exist on the node.
        here = probe.visit is not None and probe.visit.answers == probe.target
        parent = "" if here else '; [ -d "$place" ] || place=$(dirname "$place")'
        lines += [
            f"place={shlex.quote(str(probe.target))}{parent}",
            f'[ -d "$place" ] || exit {NO_TARGET}',
            f'[ -w "$place" ] || exit {NOT_WRITABLE}',
        ]
    if probe.visit is not None:
        answer = f'{shlex.quote(f"{probe.visit.answers}/{ANSWER}")}"$SLURM_JOB_ID"'
        words = shlex.join([*interpreter.command("penstock", probe.config.python), *probe.visit.words])
        lines += [f"exec {words} --answer {answer} <<'PENSTOCK'", probe.visit.stdin, "PENSTOCK"]
    return "\n".join([*lines, "exit 0", ""])


def run(slurm: SlurmCommands, probe: Probe, asked: Sequence[tuple[JobOptions, Sequence[str]]]) -> list[str]:
    """Run a small job with each of these options on each of its nodes (none: a node of SLURM's choice);
    return warnings. Warnings say that no job ran soon or ended in time, that a job broke off while another
    node answered, or what visits report. Raises PreflightError naming nodes and what they lack. In the end
    all jobs are cancelled, as far as SLURM answers, and their answers removed."""
    jobs: list[tuple[str, JobOptions]] = []
    full: list[str] = []
    try:
        for options, nodes in asked:
            try:
                jobs += [(job, options) for job in _submitted(slurm, probe, options, nodes)]
            except QueueFullError as error:
                warning = (
                    f"preflight's probe was not sent: this account has as many jobs as it may ({error.why})"
                )
                full.append(warning)
        outcomes = _outcomes(slurm, probe, jobs)
        answered = any(outcome.ran and outcome.lack is None for outcome in outcomes)
        lacks = [(outcome.lack, outcome.broken and answered) for outcome in outcomes if outcome.lack]
        _refuse([lack for lack, spared in lacks if not spared])
        spared = [f"on the node {lack.node}, {lack.what}: {lack.why}" for lack, spared in lacks if spared]
        return list(
            dict.fromkeys([*full, *spared, *(text for outcome in outcomes for text in outcome.warnings)])
        )
    finally:
        for job, _ in jobs:
            with contextlib.suppress(TransientError, FailedError), waits.tidying():
                slurm.cancel(job)
            if (answer := probe.answer(job)) is not None:
                answer.unlink(missing_ok=True)


def _outcomes(
    slurm: SlurmCommands, probe: Probe, jobs: Sequence[tuple[str, JobOptions]]
) -> list[ProbeOutcome]:
    """Wait for these probes. A probe that has not started in time counts only if no other probe with its
    options ran."""
    began = time.monotonic()
    deadlines = {options: began + PROBE_WITHIN for _, options in jobs}
    waiting, outcomes, delay = list(jobs), list[ProbeOutcome](), 0.2
    late: dict[JobOptions, ProbeOutcome] = {}
    said = False
    while waiting:
        if not said and time.monotonic() - began > SAID:
            said = True
            numbers = ", ".join(job for job, _ in waiting)
            say(f"preflight waits for its probe on nodes, up to {PROBE_WITHIN:.0f} s: job {numbers}")
        for job, options in list(waiting):
            over = time.monotonic() > deadlines[options]
            try:
                outcome = _outcome(slurm, job, options, probe, over=over)
            except TransientError as error:
                text = f"preflight's probe, job {job}, was not followed to its end: {error.reason}"
                outcome = ProbeOutcome([text], ran=False) if over else None
            if outcome is None:
                continue
            waiting.remove((job, options))
            if outcome.ran:
                outcomes.append(outcome)
                deadlines[options] = min(deadlines[options], time.monotonic() + FURTHER_WITHIN)
                late[options] = ProbeOutcome(ran=False)
            else:
                late.setdefault(options, outcome)
        if waiting:
            waits.pause(delay)
            delay = min(2.0, delay * 1.5)
    return [*outcomes, *late.values()]


def _submitted(slurm: SlurmCommands, probe: Probe, options: JobOptions, nodes: Sequence[str]) -> list[str]:
    """Submit the probe to each node; return the jobs' ids. If SLURM accepts only some of these jobs, they are
    enough. If it accepts none, submit a job that names no node. Raises PreflightError if SLURM refuses that
    job, too."""
    # The probe shares a node if possible. With core-spec it would ask for a whole, free node.
    light = dataclasses.replace(options, core_spec=None, memory=MEMORY, cpus=1, licenses=(), time=60)
    jobs: list[str] = []
    for node in [*nodes, ""]:
        if jobs and not node:
            break
        try:
            with advised():
                name = f"penstock-probe-{secrets.token_hex(4)}"
                jobs.append(slurm.submit_job(name, light, script(probe), node=node))
        except FailedError as error:
            if jobs:
                break
            if isinstance(error, QueueFullError):
                raise
            if not node:
                raise PreflightError(
                    "SLURM refuses preflight's probe", where="cluster", why=error.why, hint=error.hint
                ) from error
    return jobs


def _refuse(lacks: Sequence[Lack]) -> None:
    """Raise PreflightError for these obstacles; nodes with the same obstacle are named together."""
    same: dict[tuple[str, ...], list[str]] = {}
    for lack in lacks:
        same.setdefault(lack[1:], []).append(lack.node)
    errors = []
    for (what, why, where, hint), nodes in same.items():
        place = f"on the node {nodes[0]}" if len(nodes) == 1 else f"on the nodes {', '.join(sorted(nodes))}"
        errors.append(PreflightError(f"{place}, {what}", where=where, why=why, hint=hint))
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise all_of(f"{len(errors)} things on nodes stop the run", errors)


def _answered(probe: Probe, job: str) -> VisitAnswer | None:
    """Read the visit's answer; None if none came in time."""
    answer = probe.answer(job)
    deadline = time.monotonic() + ANSWER_GRACE
    while answer is not None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), answer.open(encoding="utf-8", errors="replace") as stream:
            if text := stream.read().strip():
                status = os.fstat(stream.fileno())
                return VisitAnswer(text, status.st_uid, status.st_gid)
        waits.pause(0.2)
    return None


def _outcome(
    slurm: SlurmCommands, job: str, options: JobOptions, probe: Probe, *, over: bool
) -> ProbeOutcome | None:
    """Judge a probe; None if it has not ended, and its time is not `over`."""
    interpreter, target = probe.interpreter, probe.target
    state, status, node, reason = slurm.job(job)
    if not state:
        return ProbeOutcome(["preflight's probe ended, and SLURM forgot how before it was asked"])
    if not STATES.get(state, State.RUNNING).ended:
        if not over:
            return None
        if state == "RUNNING":
            return ProbeOutcome([f"preflight's probe did not end in time on the node {node}"])
        place = options.partition or "the default partition"
        late = f"preflight's probe did not run within {PROBE_WITHIN:.0f} s on {place}"
        if state == "CONFIGURING":
            return ProbeOutcome([f"{late}: its node {node} is being switched on"], ran=False)
        return ProbeOutcome([f"{late}: {state} ({reason})"], ran=False)
    if probe.visit is not None and (state == "COMPLETED" or status == VISIT_FAILED):
        answer = _answered(probe, job)
        why = probe.visit.read(node, answer) if answer else NO_ANSWER
        if status == VISIT_FAILED:
            what = "what was opened here cannot be opened"
            return ProbeOutcome(lack=Lack(node, what, why, hint=probe.visit.hint))
        return ProbeOutcome([f"on the node {node}: {why}"] if why else [])
    lacking = {
        NO_INTERPRETER: (
            f"the interpreter {interpreter} is not there or cannot be run",
            "install penstock where all nodes see it under this path, or set cluster.python",
        ),
        NO_PACKAGE: (
            f"{interpreter} cannot import penstock and what it needs",
            f"`srun {interpreter} -I -c 'import penstock'` must work: PYTHONPATH does not count",
        ),
        NO_TARGET: (f"the target {target} is not there", "mount it on the nodes, or choose other nodes"),
        NOT_WRITABLE: (f"the target {target} cannot be written", "correct its permissions or its mount"),
    }.get(status)
    if lacking is not None:
        what, hint = lacking
        return ProbeOutcome(lack=Lack(node, what, where="cluster", hint=hint))
    if state != "COMPLETED":
        why = f"{state} {'' if reason == 'None' else reason}".strip() + (f", exit {status}" if status else "")
        hint = "the node's slurmd log says more; cluster.exclude keeps jobs off a node"
        failed = Lack(node or "(none)", "preflight's probe failed", why, "cluster", hint)
        return ProbeOutcome(lack=failed, broken=True)
    return ProbeOutcome()


# Each refusal quotes SLURM's own words and names the key of the configuration to change.

# the most nodes that the probe checks for jobs with the same options; more than one, since mounts may differ
# between nodes
PROBED = 4


def reachable(slurm: SlurmCommands) -> Facts:
    """Read `SlurmCommands.facts`, after a check that SLURM works from here. Raises PreflightError, even if
    the controller is only unresponsive."""
    conf = os.environ.get("SLURM_CONF")
    if conf and not Path(conf).is_file():
        raise PreflightError(
            "SLURM's configuration is not there",
            where=f"SLURM_CONF={conf}",
            hint="unset SLURM_CONF, or let it name the cluster's slurm.conf",
        )
    try:
        slurm.require()
        return slurm.facts()
    except (TransientError, FailedError) as error:
        if "Unable to process configuration file" in error.why:
            raise PreflightError(
                "SLURM cannot read its configuration here",
                where=f"SLURM_CONF={conf}" if conf else "slurm.conf of this machine",
                why=error.why,
                hint=core_settings.misspelling(error.why) or "ask the site to correct the file",
            ) from error
        raise PreflightError(
            "SLURM's controller does not answer",
            where="cluster.backend",
            why=error.why or error.what,
            hint=error.hint
            or "`scontrol ping` says whether slurmctld is up; the same command goes on when it is",
        ) from error


def check(
    slurm: SlurmCommands,
    config: ClusterConfig,
    steps: Sequence[str],
    facts: Facts,
    probe: Probe,
    *,
    met: bool,
) -> list[str]:
    """Check all that can be checked before arrays are submitted; return warnings. If `met`, elements of an
    earlier submission are still running: then refusals become warnings, and no probe is submitted. Raises
    PreflightError and ConfigError."""
    nodes = slurm.nodes()
    warnings = _not_shown(slurm, nodes)
    asked: dict[JobOptions, str] = {}
    for step in steps:
        asked.setdefault(settled(slurm, config.of(step), facts, nodes), step)
    tried: dict[tuple[object, ...], tuple[JobOptions, list[str]]] = {}
    for options, step in asked.items():
        try:
            warnings += _check_options(slurm, options, step, facts, nodes)
            warnings += _gpus(config, options, step, able(slurm, options, nodes))
        except PreflightError as error:
            if not met:
                raise
            warnings.append(f"for elements that are still to be submitted: {error}")
        able_nodes = able(slurm, options, nodes)
        if not nodes or not all(node.away for node in able_nodes):
            place = (options.partition, options.constraint, options.reservation)
            tried.setdefault(place, (options, _probed(options, able_nodes)))
    if config.probe and tried and not met:
        warnings += run(slurm, probe, list(tried.values()))
    return list(dict.fromkeys(warnings))


def _not_shown(slurm: SlurmCommands, nodes: Sequence[Node]) -> list[str]:
    """Warn that PrivateData hides facts from this account, so they cannot be checked."""
    unchecked = {
        "nodes": "" if nodes else "reserved cores, GPUs, features and sizes of the nodes",
        "partitions": "" if slurm.partitions() else "the partitions' time limits",
    }
    return [
        f"this cluster does not show its {what} to this account (PrivateData): {looks} were not checked"
        for what, looks in unchecked.items()
        if looks
    ]


def settled(slurm: SlurmCommands, options: JobOptions, facts: Facts, nodes: Sequence[Node]) -> JobOptions:
    """Settle `core_spec: auto` for the nodes that a job with these options may use."""
    if options.core_spec != AUTO_CORES:
        return options
    return core_settings.settled(options, able(slurm, options, nodes), allowed=facts.allows_core_spec)


def _check_options(
    slurm: SlurmCommands, options: JobOptions, step: str, facts: Facts, nodes: Sequence[Node]
) -> list[str]:
    where = f"cluster, for the step {step}"
    warnings = []
    candidates = able(slurm, options, nodes)
    wanted = options.spec_cores
    if wanted is not None:
        if not facts.allows_core_spec:
            raise PreflightError(
                f"this cluster ignores --core-spec={wanted}",
                where=where,
                why="AllowSpecResourcesUsage=No in its slurm.conf",
                hint="set cluster.core_spec: auto or none (elements then take whole nodes by --exclusive), "
                "or ask the site to allow it",
            )
        _check_core_spec(wanted, where, candidates)
    if options.wckey is not None and not facts.tracks_wckeys:
        warnings.append("this cluster ignores cluster.wckey: TrackWCKey=No in its slurm.conf")
    return [*warnings, *_judged(slurm, options, where, candidates)]


def _check_core_spec(wanted: int, where: str, candidates: Sequence[Node]) -> None:
    below = [node for node in candidates if wanted < node.reserved]
    if below:
        most = max(node.reserved for node in below)
        names = ", ".join(node.name for node in below[:8]) + (", ..." if len(below) > 8 else "")
        raise PreflightError(
            f"--core-spec={wanted} would hand the job cores that the site keeps for itself",
            where=f"{where}: core_spec",
            why=f"it would get {most - wanted} of them: CoreSpecCount={most} on {names}",
            hint="set cluster.core_spec: auto or none (the nodes then keep what they keep), or at least "
            "that number",
        )


def able(slurm: SlurmCommands, options: JobOptions, nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes that a job with these options may use."""
    return placement.able(options, nodes, placement.default(slurm.partitions()))


def _probed(options: JobOptions, able_nodes: Sequence[Node]) -> list[str]:
    """Return the names of the nodes to probe: as many as elements run at once, at most PROBED. [] means that
    SLURM chooses a node, since no node is idle, or the nodes of the job are not known exactly."""
    if not known(options):
        return []
    return spread(able_nodes, min(PROBED, options.max_elements))


def _judged(slurm: SlurmCommands, options: JobOptions, where: str, candidates: Sequence[Node]) -> list[str]:
    """Let SLURM judge partition, account, QOS, reservation, licences and sizes. Raises PreflightError if
    SLURM refuses them. If the job's nodes are all drained or down, only warns: SLURM would queue the job."""
    try:
        words = slurm.trial(options).refusal
    except QueueFullError as error:
        return [f"SLURM did not judge such jobs: this account has as many as it may now ({error.why})"]
    if not words:
        return []
    if not slurm.nodes() and AWAY_WORDS.search(words):
        return [
            f"SLURM has no node for such jobs now, as it says ({_first_reason(words)}): elements may wait"
        ]
    large = [node for node in candidates if fits(options, node)]
    if large and all(node.away for node in large) and AWAY_WORDS.search(words):
        shown = ", ".join(f"{node.name} {node.state}" for node in large[:8])
        reasons = ", ".join(sorted({node.reason for node in large if node.reason}))
        more = ", ..." if len(large) > 8 else ""
        away = f"{shown}{more}: {reasons}" if reasons else f"{shown}{more}"
        return [f"no node for such jobs is available now ({away}): elements wait in the queue until one is"]
    raise PreflightError(
        "SLURM refuses such a job", where=where, why=_first_reason(words), hint=advice(words)
    )


AWAY_WORDS = re.compile(r"node configuration|nodes? .*(unavail|not avail|down|drain)", re.IGNORECASE)


def _gpus(config: ClusterConfig, options: JobOptions, step: str, candidates: Sequence[Node]) -> Iterable[str]:
    """Judge whether elements take whole nodes with GPUs. If they do, training jobs wait for unused GPUs.

    | whole nodes | a candidate has GPUs | all candidates are known | gpu_nodes | then           |
    |-------------|----------------------|--------------------------|-----------|----------------|
    | no          | any                  | any                      | any       | nothing        |
    | yes         | no                   | any                      | any       | nothing        |
    | yes         | yes                  | any                      | allow     | nothing        |
    | yes         | yes                  | yes                      | refuse    | PreflightError |
    | yes         | yes                  | no                       | refuse    | a warning      |
    """
    with_gpus = [node for node in candidates if node.gpus]
    whole = options.whole_nodes or options.spec_cores is not None
    if not with_gpus or not whole or config.gpu_nodes == "allow":
        return []
    others = f" and {len(with_gpus) - 1} more have" if len(with_gpus) > 1 else " has"
    why = f"{with_gpus[0].name}{others} GPUs ({with_gpus[0].gpus}), "
    why += "and core-spec or --exclusive takes whole nodes"
    if not known(options):
        return [f"elements may take whole nodes with all their GPUs: {why}, where the job may run there"]
    raise PreflightError(
        "elements would take whole nodes with all their GPUs",
        where=f"cluster, for the step {step}",
        why=why,
        hint="choose other nodes by cluster.partition or cluster.constraint, or set cluster.gpu_nodes: allow",
    )


def known(options: JobOptions) -> bool:
    """Return whether `able` is exact. With a reservation, or a constraint of several features, the job may
    have fewer nodes."""
    plain = options.constraint is None or placement.PLAIN.fullmatch(options.constraint) is not None
    return options.reservation is None and plain


def shares_memory(settings: SlurmSettings) -> bool:
    """Return whether a job that asks for no memory leaves some of its node's memory to others."""
    by_memory = any("MEMORY" in word.upper() for word in settings.words("SelectTypeParameters"))
    bounds = [settings.values.get(f"DefMemPer{unit}", "UNLIMITED").upper() for unit in ("Node", "CPU", "Cpu")]
    return not by_memory or any(bound not in ("UNLIMITED", "0") for bound in bounds)


def _first_reason(words: str) -> str:
    return words.replace("sbatch: error: ", "").replace("allocation failure: ", "")


# Chooses the job options of a new configuration: preflight's own checks try one choice after another.
#
# | the cluster's default partition | others that take such jobs | the choice                        |
# |---------------------------------|----------------------------|-----------------------------------|
# | takes such jobs                 | not tried                  | the default                       |
# | does not, or there is none      | one                        | the one that does                 |
# | does not, or there is none      | several                    | the one with the longest limit    |
# | does not, or there is none      | none                       | the default; `refused` says why   |
#
# If the site allows only some partitions, the first of its list replaces the default, and only the others of
# its list are tried, in its order. In each partition a job without an account is tried first, then each
# account of this user, with `core_spec: auto` before `none`. `site.check` submits the probe, a job of a
# second.


class NewOptions(NamedTuple):
    """The chosen options. For a partition or an account of None, jobs name none."""

    partition: str | None = None
    default: bool = True  # whether it is the default partition, or the first of the site's list
    others: Sequence[str] = ()  # other partitions that take such jobs; not searched if the default works
    account: str | None = None
    core_spec: str = AUTO_CORES
    refused: str = ""  # why SLURM or preflight refuses such jobs; "" if they accept them


def is_here() -> bool:
    """Return whether this machine has SLURM's commands."""
    return shutil.which("sbatch") is not None


def find(config: ClusterConfig, steps: Sequence[str], allowed: Sequence[str] = ()) -> NewOptions:
    """Choose options for elements of these steps. `allowed` are the partitions of the site's file; () allows
    any. Raises PreflightError if SLURM does not answer."""
    slurm = SlurmCommands()
    facts = reachable(slurm)
    try:
        nodes, partitions = slurm.nodes(), sorted(slurm.partitions(), key=_longest_first)
        trials = _Trials(slurm, config, steps, facts, nodes, partitions, _accounts(slurm, facts))
        # If SLURM shows no partitions (PrivateData), only its default can be tried.
        names = allowed or [partition.name for partition in partitions]
        default = allowed[0] if allowed else placement.default(partitions)
        return choice(default, [name for name in names if name != default], trials.in_partition)
    except (TransientError, FailedError) as error:
        raise PreflightError(
            "SLURM does not answer",
            why=error.why or error.what,
            hint="give `--backend local`, or the same command again when it answers",
        ) from error


class _Trials(NamedTuple):
    slurm: SlurmCommands
    config: ClusterConfig
    steps: Sequence[str]
    facts: Facts
    nodes: Sequence[Node]
    partitions: Sequence[Partition]  # sorted, the longest time limit first
    accounts: Sequence[str]  # this user's accounts, the default first; () if unknown

    def in_partition(self, name: str | None) -> JobOptions | str:
        """Return the first options that SLURM accepts in this partition. If it accepts none, return why it
        refuses the first of them."""
        why = ""
        for options in self._options(name):
            refusal = self._refusal(options)
            if not refusal:
                return options
            why = why or refusal
        return why

    def _refusal(self, options: JobOptions) -> str:
        """Explain why a job with these options is refused, or would never start; "" if neither is known."""
        account = options.account or next(iter(self.accounts), "")
        if any(
            not partition.takes(account)
            for partition in self.partitions
            if partition.name == options.partition
        ):
            return f"the partition {options.partition} takes no jobs of the account {account}"
        tried = dataclasses.replace(self.config, options=options, probe=False)
        try:
            # Preflight's check would only warn of an account that may have no job at all.
            self.slurm.trial(settled(self.slurm, options, self.facts, self.nodes))
            check(self.slurm, tried, self.steps, self.facts, Probe(tried, None, None), met=False)
        except (PreflightError, QueueFullError) as error:
            return error.reason
        return ""

    def _options(self, partition: str | None) -> Iterator[JobOptions]:
        for account in (None, *self.accounts):
            options = dataclasses.replace(self.config.options, partition=partition, account=account)
            yield options
            able_nodes = able(self.slurm, options, self.nodes)
            if not core_settings.against(able_nodes, allowed=self.facts.allows_core_spec):
                yield dataclasses.replace(options, core_spec=None)


def choice(
    default: str | None, others: Sequence[str], tried: Callable[[str | None], JobOptions | str]
) -> NewOptions:
    """Choose by the table above. `default` is the partition to try first (None leaves it to SLURM), `others`
    those to try next. `tried` returns the options that SLURM accepts in a partition, or its refusal."""
    first = tried(default)
    if not isinstance(first, str):
        return _chosen(default, first)
    taking = {name: options for name in others if not isinstance(options := tried(name), str)}
    if not taking:
        return NewOptions(default, refused=first)
    best, *further = taking
    return _chosen(best, taking[best])._replace(default=False, others=further)


def _longest_first(partition: Partition) -> float:
    return -(partition.max_time or math.inf)


def _chosen(partition: str | None, options: JobOptions) -> NewOptions:
    cores = AUTO_CORES if options.core_spec == AUTO_CORES else "none"
    return NewOptions(partition, account=options.account, core_spec=cores)


def _accounts(slurm: SlurmCommands, facts: Facts) -> Sequence[str]:
    """List this user's accounts; () if accounting has none or does not answer, since SLURM judges the jobs
    anyway."""
    if facts.accounting:
        with contextlib.suppress(TransientError, FailedError, PreflightError):
            return slurm.accounts(facts.cluster, Account.own().name)
    return ()
