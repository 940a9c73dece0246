"""Preflight's probe: a job of one second that checks on a node what an element needs there."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from penstock.cluster.port import VISIT_FAILED, Written
from penstock.cluster.slurm.advice import advised
from penstock.cluster.slurm.submission import Account
from penstock.errors import FailedError, PreflightError, TransientError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.cluster.port import Visit
    from penstock.cluster.slurm.port import Slurm
    from penstock.config.settings import ClusterConfig, JobOptions

PROBE_WITHIN = 60.0
"""Seconds that preflight waits for the probe to run; a full cluster is no reason to stop."""

# The probe's exit statuses: apart from what a shell (126, 127) or SLURM itself gives.
NO_INTERPRETER, NO_PACKAGE, NO_TARGET, NOT_WRITABLE = 81, 82, 83, 84
MEMORY = 512 << 20
ANSWER_GRACE = 10.0
"""Seconds in which an answer written on a node must become visible here."""


class Probe(NamedTuple):
    """What is tried on a node."""

    config: ClusterConfig
    target: Path | None
    visit: Visit | None

    @property
    def interpreter(self) -> str:
        return self.config.python or sys.executable

    def answer(self, job: str) -> Path | None:
        """The file in which the job of this id reports why its visit failed."""
        return None if self.visit is None else self.visit.answers / f".penstock-probe-{job}"


def script(probe: Probe) -> str:
    """The probe's batch script. It leaves at most its answer behind."""
    python = shlex.quote(probe.interpreter)
    lines = [
        "#!/bin/sh",
        *Account.own().exports(),
        f"[ -x {python} ] || exit {NO_INTERPRETER}",
        f"{python} -c 'import penstock, xxhash, pyarrow' || exit {NO_PACKAGE}",
    ]
    if probe.target is not None:
        folder = shlex.quote(str(probe.target))
        lines += [
            # The root may be made by the first run: then its parent counts.
            f'place={folder}; [ -d "$place" ] || place=$(dirname "$place")',
            f'[ -d "$place" ] || exit {NO_TARGET}',
            f'[ -w "$place" ] || exit {NOT_WRITABLE}',
        ]
    if probe.visit is not None:
        answer = f'{shlex.quote(f"{probe.visit.answers}/.penstock-probe-")}"$SLURM_JOB_ID"'
        words = shlex.join([probe.interpreter, "-m", "penstock", *probe.visit.words])
        lines += [f"exec {words} --answer {answer} <<'PENSTOCK'", probe.visit.given, "PENSTOCK"]
    return "\n".join([*lines, "exit 0", ""])


def run(slurm: Slurm, probe: Probe, asked: Sequence[JobOptions]) -> list[str]:
    """Run one small job for each of these options. Raises PreflightError that names the node
    and what it lacks; returns warnings where no job could run soon."""
    jobs = []
    try:
        for options in asked:
            # A probe shares a node where it may: core-spec would ask for a whole, free one.
            light = dataclasses.replace(
                options, core_spec=None, exclusive=False, memory=MEMORY, cpus=None, licenses=(), time=60
            )
            try:
                with advised():
                    job = slurm.submit_job("penstock-probe", light, script(probe))
            except FailedError as error:
                raise PreflightError(
                    "SLURM refuses preflight's probe", where="cluster", why=error.why, hint=error.hint
                ) from error
            jobs.append((job, options))
        deadline = time.monotonic() + PROBE_WITHIN
        found = (one for job, options in jobs for one in _outcome(slurm, job, options, probe, deadline))
        return list(dict.fromkeys(found))
    finally:
        for job, _ in jobs:
            with contextlib.suppress(TransientError, FailedError):
                slurm.cancel(job)
            if (answer := probe.answer(job)) is not None:
                answer.unlink(missing_ok=True)


def _answered(probe: Probe, job: str) -> Written | None:
    """What the visit wrote; None where nothing came in time."""
    answer = probe.answer(job)
    deadline = time.monotonic() + ANSWER_GRACE
    while answer is not None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), answer.open(encoding="utf-8", errors="replace") as stream:
            if told := stream.read().strip():
                seen = os.fstat(stream.fileno())
                return Written(told, seen.st_uid, seen.st_gid)
        time.sleep(0.2)
    return None


def _outcome(slurm: Slurm, job: str, options: JobOptions, probe: Probe, deadline: float) -> list[str]:
    """Wait for one probe and judge it: warnings."""
    interpreter, target = probe.interpreter, probe.target
    delay = 0.2
    while True:
        state, status, node, reason = slurm.job(job)
        if state in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", ""):
            break
        if time.monotonic() > deadline:
            place = options.partition or "the default partition"
            if state == "RUNNING":
                return [f"preflight's probe did not end within {PROBE_WITHIN:.0f} s on the node {node}"]
            late = f"preflight's probe did not run within {PROBE_WITHIN:.0f} s on {place}"
            return [f"{late}: {state} ({reason})"]
        time.sleep(delay)
        delay = min(2.0, delay * 1.5)
    if probe.visit is not None and (state == "COMPLETED" or status == VISIT_FAILED):
        answer = _answered(probe, job)
        why = probe.visit.read(node, answer) if answer else "its answer did not come"
        if status == VISIT_FAILED:
            raise PreflightError(
                f"on the node {node}, what was opened here cannot be opened", why=why, hint=probe.visit.hint
            )
        return [f"on the node {node}: {why}"] if why else []
    lacking = {
        NO_INTERPRETER: (
            f"the interpreter {interpreter} is not there or cannot be run",
            "install penstock where all nodes see it under this path, or set cluster.python",
        ),
        NO_PACKAGE: (
            f"{interpreter} cannot import penstock and what it needs",
            "the nodes must see the same virtual environment; `srun` that interpreter to see its words",
        ),
        NO_TARGET: (f"the target {target} is not there", "mount it on the nodes, or choose other nodes"),
        NOT_WRITABLE: (f"the target {target} cannot be written", "correct its permissions or its mount"),
    }.get(status)
    if lacking is not None:
        raise PreflightError(f"on the node {node}, {lacking[0]}", where="cluster", hint=lacking[1])
    if state != "COMPLETED":
        why = f"{state} {reason}".strip() + (f", exit {status}" if status else "")
        raise PreflightError(
            f"preflight's probe failed on the node {node or '(none)'}",
            where="cluster",
            why=why,
            hint="the node's slurmd log tells more; cluster.probe: false leaves the probe out",
        )
    return []
