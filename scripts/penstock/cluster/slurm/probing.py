"""Preflight's job of one second: what an element will find on a node."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import sys
import time
from typing import TYPE_CHECKING

from penstock.cluster.slurm.call import ask, call
from penstock.cluster.slurm.states import wait_status
from penstock.cluster.slurm.submission import job_arguments
from penstock.errors import FailedError, PreflightError, TransientError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from penstock.config.model import ClusterConfig, JobOptions

PATIENCE = 60.0
"""Seconds that preflight waits for the probe to run; a full cluster is no reason to stop."""

# The probe's exit statuses: apart from what a shell (126, 127) or SLURM itself gives.
NO_INTERPRETER, NO_PACKAGE, NO_TARGET, NOT_WRITABLE = 81, 82, 83, 84
MEMORY = 512 << 20
FIELDS = "State:|,exit_code:|,NodeList:|,Reason:|"


def script(interpreter: str, target: Path | None) -> str:
    """What the probe does. It leaves nothing behind."""
    python = shlex.quote(interpreter)
    lines = [
        "#!/bin/sh",
        f"[ -x {python} ] || exit {NO_INTERPRETER}",
        f"{python} -c 'import penstock, xxhash, pyarrow' || exit {NO_PACKAGE}",
    ]
    if target is not None:
        folder = shlex.quote(str(target))
        lines += [
            # The root may be made by the first run: then its parent counts.
            f'place={folder}; [ -d "$place" ] || place=$(dirname "$place")',
            f'[ -d "$place" ] || exit {NO_TARGET}',
            f'[ -w "$place" ] || exit {NOT_WRITABLE}',
        ]
    return "\n".join([*lines, "exit 0", ""])


def probe(
    config: ClusterConfig,
    asked: Sequence[JobOptions],
    target: Path | None,
    submit: Callable[[Sequence[str], str], str],
) -> list[str]:
    """Run one small job for each of these options. Raises PreflightError that names the node
    and what it lacks; returns warnings where no job could run soon."""
    interpreter = config.python or sys.executable
    jobs = []
    try:
        for options in asked:
            # A probe shares a node where it may: core-spec would ask for a whole, free one.
            light = dataclasses.replace(
                options,
                core_spec=None,
                exclusive=False,
                memory=MEMORY,
                cpus=None,
                licenses=(),
                time=60,
            )
            command = [
                "sbatch", "--parsable", "--job-name=penstock-probe", "--export=ALL", "--chdir=/",
                "--input=/dev/null", "--output=/dev/null", "--no-requeue", *job_arguments(light),
            ]  # fmt: skip
            try:
                jobs.append((submit(command, script(interpreter, target)), options))
            except FailedError as error:
                raise PreflightError(
                    "SLURM refuses preflight's probe", where="cluster", why=error.why, hint=error.hint
                ) from error
        deadline = time.monotonic() + PATIENCE
        return [
            warning
            for job, options in jobs
            if (warning := _outcome(job, options, interpreter, target, deadline))
        ]
    finally:
        for job, _ in jobs:
            with contextlib.suppress(TransientError):
                call("scancel", job)


def _outcome(job: str, options: JobOptions, interpreter: str, target: Path | None, deadline: float) -> str:
    """Wait for one probe and judge it."""
    delay = 0.2
    while True:
        line = ask("squeue", "-h", "--states=all", "-j", job, "-O", FIELDS).strip()
        state, code, node, reason = ([part.strip() for part in line.split("|")] + [""] * 4)[:4]
        if state in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", ""):
            break
        if time.monotonic() > deadline:
            place = options.partition or "the default partition"
            return f"preflight's probe did not run within {PATIENCE:.0f} s on {place}: {state} ({reason})"
        time.sleep(delay)
        delay = min(2.0, delay * 1.5)
    status = wait_status(code) >> 8
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
        NOT_WRITABLE: (f"the target {target} cannot be written", "mend its permissions or its mount"),
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
    return ""
