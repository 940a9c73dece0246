"""The cluster port over SLURM's command line.

One query answers for all elements of an array. What squeue no longer knows (a job is purged MinJobAge after
its end) is looked up by sacct where there is slurmdbd, and is LOST where there is not: its receipt then
proves whether it did its work.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.cluster.abilities import abilities_of
from penstock.cluster.port import State, Status
from penstock.cluster.slurm import site
from penstock.cluster.slurm.client import Answer, ask, call, problem, require
from penstock.cluster.slurm.job_states import (
    PASSING,
    SACCT_FIELDS,
    SQUEUE_FIELDS,
    STATES,
    SlurmElement,
    read_sacct,
    read_squeue,
)
from penstock.cluster.slurm.probe_job import Probe
from penstock.cluster.slurm.requeues import Requeues
from penstock.cluster.slurm.submission import Account, array_arguments, compressed, script, validated
from penstock.errors import FailedError, PreflightError, TransientError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from penstock.cluster.port import ArraySpec, Visit
    from penstock.config.settings import ClusterConfig

EPOCH = {"SLURM_TIME_FORMAT": "%s"}
SETTLE = 20.0
"""Seconds that an element may show NODE_FAIL or PREEMPTED before it counts as failed: a requeue
follows within a few."""


class SlurmCluster:
    """The port of `penstock.cluster.port`, over sbatch, squeue, sacct, scontrol and scancel."""

    kind = "slurm"
    abilities = abilities_of(kind)

    def __init__(self, config: ClusterConfig, target: Path | None = None) -> None:
        self._config = config
        self._target = target
        self._facts: site.Facts | None = None
        self._unread: dict[str, int] = {}
        """Arrays whose core-spec has not been read back yet, and what was asked for."""
        self._passing: dict[tuple[str, int], float] = {}
        """When an element was first seen in a state that a requeue may follow."""
        self._requeues = Requeues()

    def name(self) -> str:
        return self._known().cluster

    def remembers(self) -> float:
        return self._known().min_job_age

    def check(self, steps: Sequence[str], visit: Visit | None = None, *, met: bool = False) -> Sequence[str]:
        require("sbatch", "squeue", "scontrol", "scancel", "sinfo")
        self._facts = site.reachable()
        probe = Probe(self._config, self._target, visit, self.submit_probe)
        return site.check(self._config, steps, self._facts, probe, met=met)

    def slots(self, step: str) -> int:
        return self._config.of(step).max_elements

    def max_array(self) -> int:
        return self._known().max_array

    def submit(self, spec: ArraySpec) -> str:
        """Raises TransientError when nothing is known of the outcome: `find` it first, then
        submit again. Raises FailedError with SLURM's own words when it was refused, and when the
        cluster dropped the core-spec (the array is then cancelled)."""
        options = self._config.of(spec.step)
        command = array_arguments(spec, spec.at_once or options.max_elements, options)
        if max(spec.indices) >= self.max_array():
            raise FailedError(
                f"an element's index {max(spec.indices)} is too large for this cluster",
                where=f"MaxArraySize={self.max_array()}",
                hint="larger plan.shard_bytes and plan.shard_files give fewer elements",
            )
        array = self._sbatch(command, script(spec.command, options, Account.own()))
        if options.core_spec is not None:
            self._unread[array] = options.core_spec
            with contextlib.suppress(TransientError):
                self._query(array)
        return array

    def submit_probe(self, command: Sequence[str], stdin: str) -> str:
        """Submit a single job of preflight's; returns its id."""
        return self._sbatch(command, stdin)

    def _sbatch(self, command: Sequence[str], stdin: str) -> str:
        answer = call(*command, stdin=stdin)
        if answer.code != 0:
            error = problem("sbatch", answer)
            if isinstance(error, FailedError):
                error.hint = site.advice(answer.words)
            raise error
        array = answer.out.strip().partition(";")[0]
        if not array.isdigit():
            raise FailedError("sbatch gave no job id", why=answer.words)
        return array

    def find(self, name: str) -> str | None:
        text = ask(
            "squeue",
            "-h",
            f"--user={os.geteuid()}",
            f"--name={validated('name', name)}",
            "-o",
            "%F",
        )
        found = sorted({int(line) for line in text.split() if line.isdigit()})
        return str(found[0]) if found else None

    def states(self, array: str, indices: Sequence[int]) -> Mapping[int, Status]:
        seen = self._query(array)
        wanted = set(indices)
        missing = wanted - seen.keys()
        if missing and self._known().accounting:
            for one in read_sacct(
                ask("sacct", "-X", "-P", "-n", "-j", array, "-o", SACCT_FIELDS, extra=EPOCH), array
            ):
                # squeue knows what is alive: accounting's RUNNING without it is a record nobody closed
                if one.element in missing and one.status.state.ended:
                    seen[one.element] = one
        failed = [index for index in wanted & seen.keys() if seen[index].launch_failed]
        if failed:
            self.cancel(array, failed)
        causes = self._requeues.seen(array, seen)
        return {
            index: replace(self._settled(array, seen[index]), requeued=causes.get(index, ""))
            if index in seen
            else Status(State.LOST, reason="SLURM no longer knows it")
            for index in indices
        }

    def _query(self, array: str) -> dict[int, SlurmElement]:
        """All elements that squeue knows. Reads the core-spec back on the first answer."""
        answer = call(
            "squeue", "--array", "-h", "--states=all", "-j", array, "-O", SQUEUE_FIELDS, extra=EPOCH
        )
        if answer.code != 0 and "Invalid job id" not in answer.words:
            raise problem("squeue", answer)
        try:
            seen = {one.element: one for one in read_squeue(answer.out)}
        except ValueError as error:
            raise FailedError("squeue's answer cannot be read", why=answer.words) from error
        wanted = self._unread.get(array)
        if wanted is not None and seen:
            del self._unread[array]
            given = {one.core_spec for one in seen.values()}
            if given != {str(wanted)}:
                self.cancel(array)
                raise FailedError(
                    f"the cluster dropped --core-spec={wanted}: the array was cancelled",
                    where=f"job {array}",
                    why=f"squeue shows core-spec {', '.join(sorted(given))}",
                    hint="AllowSpecResourcesUsage=yes is needed in slurm.conf, "
                    "or set cluster.core_spec: none",
                )
        return seen

    def _settled(self, array: str, seen: SlurmElement) -> Status:
        """The status of an element, where states that a requeue may follow count as running for `SETTLE`
        seconds."""
        key = (array, seen.element)
        if seen.word not in PASSING:
            self._passing.pop(key, None)
            return seen.status
        first = self._passing.setdefault(key, time.monotonic())
        if time.monotonic() - first > SETTLE:
            return seen.status
        return Status(
            State.RUNNING,
            reason=f"{seen.word}: waiting for its requeue",
            node=seen.status.node,
            started=seen.status.started,
            restarts=seen.status.restarts,
        )

    def cancel(self, array: str, indices: Sequence[int] | None = None) -> None:
        job = array if indices is None else f"{array}_[{compressed(indices)}]"
        answer = call("scancel", job)
        if answer.code != 0 and not _gone(answer):
            raise problem("scancel", answer)

    def throttle(self, array: str, at_once: int) -> None:
        answer = call("scontrol", "update", f"JobId={array}", f"ArrayTaskThrottle={at_once}")
        # Of an array whose elements have all started, or ended, there is nothing to hold back.
        if answer.code != 0 and not _gone(answer):
            raise problem("scontrol update", answer)

    def interval(self, waited: float) -> float:
        return min(1.0 + waited / 10.0, max(self._config.poll, min(30.0, waited / 60.0)))

    def holder_ended(self, job: str) -> bool | None:
        if not job.replace("_", "", 1).isdigit():
            return None
        try:
            answer = call("squeue", "--array", "-h", "--states=all", "-j", job, "-O", "State:30")
            words = answer.out.split() if answer.code == 0 else []
            if not words and "Invalid job id" in answer.words and self._known().accounting:
                listed = ask("sacct", "-X", "-P", "-n", "-j", job, "-o", "State")
                words = [line.split()[0].rstrip("+") for line in listed.splitlines() if line.strip()]
        except (TransientError, FailedError, PreflightError):
            return None
        if not words:
            return None
        return all(STATES.get(word, State.RUNNING).ended for word in words)

    def _known(self) -> site.Facts:
        if self._facts is None:
            self._facts = site.facts()
        return self._facts


def _gone(answer: Answer) -> bool:
    gone = ("Invalid job id", "already completing or completed", "already finished")
    return any(words in answer.words for words in gone)
