"""Parses the lines of squeue and sacct into a `Status` for each element."""

from __future__ import annotations

import re
import signal as signals
from typing import TYPE_CHECKING, NamedTuple

from penstock.cluster.port import Cause, State, Status
from penstock.cluster.slurm.answer_lines import job_rows
from penstock.cluster.slurm.submission import expanded

if TYPE_CHECKING:
    from collections.abc import Iterator

SQUEUE_FIELDS = (
    "ArrayJobID:|,ArrayTaskID:|,State:|,exit_code:|,RestartCnt:|,CoreSpec:|,StartTime:|,EndTime:|"
    ",NodeList:|,Reason:|,Name:|"
)
SACCT_FIELDS = "JobID,State,ExitCode,Start,End,NodeList,JobName"

# SLURM's state      what it means for an element
# COMPLETED          its process ended with 0
# COMPLETING         its processes may still be there: not ended
# CONFIGURING        its node is being switched on or prepared: it has no process yet
# REQUEUED, .._FED   will run again
# REQUEUE_HOLD,
# RESV_DEL_HOLD,
# SPECIAL_EXIT       held until somebody releases it, as PENDING with a reason of HELD is
# PREEMPTED,
# NODE_FAIL          ended, unless it is requeued within seconds (`PASSING`)
STATES = {
    "PENDING": State.PENDING,
    "REQUEUED": State.PENDING,
    "REQUEUE_FED": State.PENDING,
    "RESV_DEL_HOLD": State.PENDING,
    "CONFIGURING": State.RUNNING,
    "RUNNING": State.RUNNING,
    "SUSPENDED": State.RUNNING,
    "STOPPED": State.RUNNING,
    "RESIZING": State.RUNNING,
    "SIGNALING": State.RUNNING,
    "STAGE_OUT": State.RUNNING,
    "COMPLETING": State.RUNNING,
    "COMPLETED": State.DONE,
    "CANCELLED": State.CANCELLED,
    "FAILED": State.FAILED,
    "TIMEOUT": State.FAILED,
    "OUT_OF_MEMORY": State.FAILED,
    "NODE_FAIL": State.FAILED,
    "BOOT_FAIL": State.FAILED,
    "DEADLINE": State.FAILED,
    "PREEMPTED": State.FAILED,
    "REVOKED": State.FAILED,
    "REQUEUE_HOLD": State.PENDING,
    "SPECIAL_EXIT": State.PENDING,
}
CAUSES = {
    "TIMEOUT": Cause.TIME,
    "NODE_FAIL": Cause.NODE,
    "BOOT_FAIL": Cause.NODE,
    "PREEMPTED": Cause.PREEMPTED,
}
# a requeue may follow these states within seconds
PASSING = frozenset({"NODE_FAIL", "PREEMPTED", "BOOT_FAIL"})


# reasons of a job that waits until a person releases it
HELD = re.compile(
    r"^job ?held|requeued in held|held state|^jobholdmaxrequeue|^reservation ?deleted|^bad ?constraints"
    r"|^dependency ?never ?satisfied",
    re.IGNORECASE,
)
# Reasons of a job that asks for more than its QOS or association allows a single job: `AssocMaxMemPerJob`,
# `QOSMaxCpuPerJobLimit`.
PER_JOB = re.compile(r"^(?:QOS|Assoc)\w*PerJob", re.IGNORECASE)
LAUNCH_FAILED = re.compile(r"launch.failed.requeued.held", re.IGNORECASE)


NO_ELEMENT = -1  # the number of a job that is no array


class SlurmElement(NamedTuple):
    """An element as SLURM shows it."""

    element: int
    word: str  # SLURM's own word for its state
    # held by SLURM after a failed launch: no person will release it, so it counts as failed
    launch_failed: bool
    core_spec: str
    status: Status
    name: str = ""  # of its job; "": not read


def read_squeue(text: str) -> Iterator[tuple[str, SlurmElement]]:
    """Read the elements of `squeue --array -h -O SQUEUE_FIELDS` (times as seconds since the epoch), each with
    its array. A job that is no array is NO_ELEMENT. Raises ValueError for a job's line of another form."""
    for line in job_rows(text):
        fields = [field.strip() for field in line.split("|", 10)]
        array, task, word, code, restarts, core_spec, began, ended, node, reason = fields[:10]
        name = fields[10].rstrip("|").strip() if len(fields) > 10 else ""
        status = wait_status(code)
        for index in [NO_ELEMENT] if task == "N/A" else expanded(task):
            element = _element(index, word, status, reason, began, ended, node, _number(restarts), core_spec)
            yield array, element._replace(name=name)


def read_sacct(text: str, array: str) -> Iterator[SlurmElement]:
    """Read the elements of this array in `sacct -X -P -n -j ARRAY -o SACCT_FIELDS`. sacct also shows another
    array's element whose own job id is this number."""
    for line in job_rows(text):
        job, state, code, began, ended, node, *name = line.split("|", 6)
        owner, _, task = job.partition("_")
        if owner != array or not task:
            continue
        status = wait_status(code)
        for index in expanded(task):
            # `CANCELLED by 1000`, and `CANCELLED+` where a column was too narrow
            words = state.rstrip("+").split()
            element = _element(index, words[0] if words else "", status, "", began, ended, node, 0, "")
            yield element._replace(name="".join(name))


def _element(
    index: int,
    word: str,
    code: int,
    reason: str,
    began: str,
    ended: str,
    node: str,
    restarts: int,
    core_spec: str,
) -> SlurmElement:
    state = STATES.get(word, State.RUNNING)
    launch_failed = state is State.PENDING and LAUNCH_FAILED.search(reason) is not None
    if launch_failed:
        state = State.FAILED
    held = state is State.PENDING and (
        word in ("REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD") or HELD.search(reason) is not None
    )
    exit_code, signal = _end(word, code)
    status = Status(
        state=state,
        reason=_why(state, word, exit_code, signal, reason),
        node="" if node in ("None assigned", "(null)", "n/a", "N/A") else node,
        started=_time(began) if state is not State.PENDING else 0.0,
        ended=_time(ended) if state.ended else 0.0,
        restarts=restarts,
        starting=word == "CONFIGURING",
        completing=word == "COMPLETING",
        held=held,
        beyond_limit=state is State.PENDING and PER_JOB.search(reason) is not None,
        # For some seconds after a requeue SLURM still reports the last start here.
        expected=_time(began) if state is State.PENDING and not held else 0.0,
        exit_code=exit_code,
        signal=signal,
        out_of_memory=word == "OUT_OF_MEMORY",
        cause=Cause.LAUNCH if launch_failed else _cause(word, signal),
    )
    return SlurmElement(index, word, launch_failed, core_spec, status)


def _cause(word: str, number: int | None) -> Cause:
    """Return why SLURM ended the element. SIGUSR1 announces the end of its time
    (`submission.array_arguments`): it kills an element whose interpreter is so slow that it has no handler
    yet."""
    return Cause.TIME if number == signals.SIGUSR1 else CAUSES.get(word, Cause.NONE)


def _end(word: str, code: int) -> tuple[int | None, int | None]:
    """Return the exit status and the signal of an element's process; at least one is None.

    With any other word SLURM's code is not the process's own: it writes 0:125 for an element out of memory.

    | word      | code            | exit status | signal |
    |-----------|-----------------|-------------|--------|
    | COMPLETED | any             | 0           | None   |
    | FAILED    | with a signal   | None        | it     |
    | FAILED    | with a status   | it          | None   |
    | FAILED    | neither         | None        | None   |
    | any other | any             | None        | None   |
    """
    if word == "COMPLETED":
        return 0, None
    if word != "FAILED":
        return None, None
    if number := code & 0x7F:
        return None, number
    return code >> 8 or None, None


def _why(state: State, word: str, exit_code: int | None, signal: int | None, reason: str) -> str:
    """Name why: `exit 1`, `signal 9`, `OUT_OF_MEMORY`, `JobArrayTaskLimit`; "": nothing to report."""
    said = "" if reason in ("None", "N/A", "") else reason
    if state is State.FAILED and signal is not None:
        return f"signal {signal}"
    if state is State.FAILED and exit_code is not None:
        return f"exit {exit_code}"
    if state in (State.FAILED, State.CANCELLED):
        return f"{word}: {said}" if said and said.upper() != word else word
    return said


def wait_status(text: str) -> int:
    """Return how a process ended, as wait(2) gives it, from `3:0` (status and signal: sacct, and squeue of
    later releases) or `768` (squeue of 22.05)."""
    status, colon, number = text.partition(":")
    return _number(status) << 8 | _number(number) if colon else _number(status)


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return 0


def _time(text: str) -> float:
    try:
        return max(0.0, float(text))
    except ValueError:
        return 0.0
