"""Preflight's probe: a job of a second that checks whether a node has all that an element needs.

Several nodes get a probe, and each answer is judged. Jobs that do not start in time are cancelled. A job
writes at most one small file, its answer, which this module removes. As its last check a job may run a visit,
a command of penstock (`port.Visit`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import shlex
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from penstock.cluster.port import VISIT_FAILED, State, VisitAnswer
from penstock.cluster.slurm.answers import STATES
from penstock.cluster.slurm.client import SAID, advised, say
from penstock.cluster.slurm.submission import Account
from penstock.core.errors import FailedError, PreflightError, QueueFullError, TransientError, all_of
from penstock.core.layout import ANSWER
from penstock.host import interpreter, waits

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.cluster.port import Visit
    from penstock.cluster.slurm.command_line import SlurmCommands
    from penstock.config.settings import ClusterConfig, JobOptions

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
