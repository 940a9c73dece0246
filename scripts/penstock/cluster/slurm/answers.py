"""Parsers of SLURM's answers: each element's `Status` from squeue and sacct, partitions, accounts, QOS, and
slurmdbd's accounting of an array. Pure; `commands` runs the commands.
"""

from __future__ import annotations

import contextlib
import re
import signal as signals
from typing import TYPE_CHECKING, NamedTuple

from penstock.cluster.port import Accounted, Cause, State, Status
from penstock.cluster.slurm.facts import Association, Partition, Qos, fields, job_rows
from penstock.cluster.slurm.submission import expanded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


# Fields that sacct 22.05 has. The newer field Restarts is not needed, since each start has its own row.
USAGE_FIELDS = "JobID,Submit,Start,End,ElapsedRaw,CPUTimeRAW,TotalCPU,MaxRSS"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}


def read_usage(text: str, array: str) -> Sequence[Accounted]:
    """Read the started elements of this array from `sacct --duplicates -P -n -j ARRAY -o USAGE_FIELDS`.

    Times are seconds since the epoch. sacct may show elements of other arrays, too.

    | row                                    | counts as                                                 |
    |----------------------------------------|-----------------------------------------------------------|
    | `77_3`, with a time in Start           | a start of element 3: its times and its CPU time          |
    | `77_3.batch`, `77_3.extern`, `77_3.0`  | a step of that start: its peak of memory                  |
    | `77_[4-9]`, or without a time in Start | nothing: the element waits, or was cancelled unstarted    |
    | `78_3`                                 | nothing: another array                                    |
    | another number of fields               | nothing                                                   |
    """
    accounts: dict[int, Accounted] = {}
    for line in job_rows(text):
        fields = line.split("|")
        if len(fields) != 1 + USAGE_FIELDS.count(","):
            continue
        job, submitted, started, ended, elapsed, granted, used, memory = fields
        owner, _, task = job.partition("_")
        task, step, _ = task.partition(".")
        if owner != array or not task.isdecimal():
            continue
        index = int(task)
        account = accounts.get(index, Accounted(index, starts=0))
        if step:
            peak = _bytes(memory)
            if peak is not None:
                account = account._replace(memory_peak=max(peak, account.memory_peak or 0))
        elif began := _usage_number(started):
            queued = _usage_number(submitted)
            account = account._replace(
                starts=account.starts + 1,
                submitted=min(account.submitted, queued) if account.submitted else queued,
                started=max(account.started, began),
                ended=_usage_number(ended) if began >= account.started else account.ended,
                waited=account.waited + max(0.0, began - queued),
                seconds=account.seconds + _usage_number(elapsed),
                granted_seconds=account.granted_seconds + _usage_number(granted),
                cpu_seconds=_added(account.cpu_seconds, read_time(used)),
            )
        accounts[index] = account
    return [usage for _, usage in sorted(accounts.items()) if usage.starts]


def _added(sum_so_far: float | None, more: float) -> float | None:
    """Add CPU time. SLURM writes 0 if it gathers none (JobAcctGatherType=jobacct_gather/none)."""
    return sum_so_far if not more else (sum_so_far or 0.0) + more


def _usage_number(text: str) -> float:
    """Read a number; 0 for `Unknown`, `None` and an empty field."""
    with contextlib.suppress(ValueError):
        return max(0.0, float(text))
    return 0.0


def read_time(text: str) -> float:
    """Read seconds from SLURM's `[days-][hours:]minutes:seconds`, also with fractions; 0 for `infinite` and
    other words.

    >>> read_time("1-02:03:04"), read_time("02:03.500"), read_time("infinite"), read_time("")
    (93784.0, 123.5, 0.0, 0.0)
    """
    days, dash, clock = text.rpartition("-")
    seconds = 0.0
    for field in clock.split(":"):
        seconds = seconds * 60 + _usage_number(field)
    return seconds + (_usage_number(days) * 86400 if dash else 0.0)


def _bytes(text: str) -> int | None:
    """Read bytes from a number with SLURM's unit; None for an empty field or 0, as if nothing was sampled.
    >>> _bytes("1536K"), _bytes("1.5M"), _bytes("100"), _bytes(""), _bytes("0")
    (1572864, 1572864, 100, None, None)
    """
    unit = text[-1:].upper() if text[-1:].isalpha() else ""
    value = _usage_number(text[: len(text) - len(unit)])
    return round(value * _UNITS[unit]) if value and unit in _UNITS else None


ASSOCIATION_FIELDS = ("DefaultAccount", "Account", "Partition", "DefaultQOS", "MaxWall")
QOS_FIELDS = ("Name", "Flags", "MaxWall")
NOTHING = frozenset({"(null)", "N/A", "n/a", "NONE", "None", ""})


def read_partitions(text: str) -> list[Partition]:
    """Parse `scontrol show partition --oneliner`."""
    return [
        Partition(
            name=words["PartitionName"],
            default=words.get("Default") == "YES",
            max_time=read_time(words.get("MaxTime", "")) or None,
            qos="" if words.get("QoS", "") in NOTHING else words["QoS"],
            allowed=_names(words.get("AllowAccounts", "")),
            denied=_names(words.get("DenyAccounts", "")),
        )
        for words in _lines(text, "PartitionName")
    ]


def read_association(text: str, account: str | None, partition: str | None) -> Association:
    """Parse a user's `sacctmgr -nP show user withassoc format=ASSOCIATION_FIELDS`. Takes the row of this
    account (None: the user's default account), preferably the row for this partition."""
    rows = [row for row in _rows(text, ASSOCIATION_FIELDS) if row[1] == (account or row[0])]
    rows = [row for row in rows if row[2] in ("", partition)]
    if not rows:
        return Association()
    _, name, _, qos, wall = max(rows, key=lambda row: row[2])
    return Association(name, qos, int(read_time(wall)))


def read_accounts(text: str) -> list[str]:
    """Return the accounts in the answer that `read_association` parses, each once, the default first."""
    rows = list(_rows(text, ASSOCIATION_FIELDS))
    return list(dict.fromkeys(name for row in rows for name in (row[0], row[1]) if name not in NOTHING))


def read_qos(text: str) -> list[Qos]:
    """Parse `sacctmgr -nP show qos format=QOS_FIELDS`."""
    return [
        Qos(name, frozenset(flags.split(",")) - NOTHING, int(read_time(wall)))
        for name, flags, wall in _rows(text, QOS_FIELDS)
    ]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split(",")) - NOTHING - {"ALL"}


def _lines(text: str, first: str) -> Iterator[Mapping[str, str]]:
    for line in text.splitlines():
        words = fields(line)
        if first in words:
            yield words


def _rows(text: str, fields: Sequence[str]) -> Iterator[list[str]]:
    """Iterate over the rows that have a value for each field, and skip all other rows."""
    for line in text.splitlines():
        values = [value.strip() for value in line.split("|")]
        if len(values) == len(fields):
            yield values


SQUEUE_FIELDS = (
    "ArrayJobID:|,ArrayTaskID:|,State:|,exit_code:|,RestartCnt:|,CoreSpec:|,StartTime:|,EndTime:|"
    ",NodeList:|,Reason:|,Name:|"
)
SACCT_FIELDS = "JobID,State,ExitCode,Start,End,NodeList,JobName"

# SLURM's state      what it means for an element
# COMPLETED          its process ended with 0
# COMPLETING         its processes may still exist, so it has not ended
# CONFIGURING        its node is being switched on or prepared, so it has no process yet
# REQUEUED, .._FED   it will run again
# REQUEUE_HOLD,
# RESV_DEL_HOLD,
# SPECIAL_EXIT       it is held until somebody releases it, as with PENDING for a reason of HELD
# PREEMPTED,
# NODE_FAIL          it has ended, unless SLURM requeues it within seconds (`PASSING`)
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
# states that a requeue may follow within seconds
PASSING = frozenset({"NODE_FAIL", "PREEMPTED", "BOOT_FAIL"})


# reasons of a job that waits until a person releases it
HELD = re.compile(
    r"^job ?held|requeued in held|held state|^jobholdmaxrequeue|^reservation ?deleted|^bad ?constraints"
    r"|^dependency ?never ?satisfied",
    re.IGNORECASE,
)
# Reasons of a job that exceeds its QOS's or association's limit for a single job, such as `AssocMaxMemPerJob`
# and `QOSMaxCpuPerJobLimit`.
PER_JOB = re.compile(r"^(?:QOS|Assoc)\w*PerJob", re.IGNORECASE)
LAUNCH_FAILED = re.compile(r"launch.failed.requeued.held", re.IGNORECASE)


NO_ELEMENT = -1  # the number of a job that is no array


class SlurmElement(NamedTuple):
    """An element as SLURM shows it."""

    element: int
    word: str  # SLURM's own word for its state
    # whether SLURM holds it after a failed launch; nobody will release it, so it counts as failed
    launch_failed: bool
    core_spec: str
    status: Status
    name: str = ""  # name of the element's job; "" if not read


def read_squeue(text: str) -> Iterator[tuple[str, SlurmElement]]:
    """Read the elements of `squeue --array -h -O SQUEUE_FIELDS` (times as seconds since the epoch), each with
    its array's id. A single job has the number NO_ELEMENT. Raises ValueError for a job's malformed line."""
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
            # `CANCELLED by 1000`, or `CANCELLED+` if the column was too narrow
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
        # For some seconds after a requeue SLURM still reports the last start in this field.
        expected=_time(began) if state is State.PENDING and not held else 0.0,
        exit_code=exit_code,
        signal=signal,
        out_of_memory=word == "OUT_OF_MEMORY",
        cause=Cause.LAUNCH if launch_failed else _cause(word, signal),
    )
    return SlurmElement(index, word, launch_failed, core_spec, status)


def _cause(word: str, number: int | None) -> Cause:
    """Return why SLURM ended the element. SIGUSR1 means the time limit, whose approach it announces
    (`submission.array_arguments`). It kills an element whose interpreter started so slowly that no handler
    was installed."""
    return Cause.TIME if number == signals.SIGUSR1 else CAUSES.get(word, Cause.NONE)


def _end(word: str, code: int) -> tuple[int | None, int | None]:
    """Return the exit status and the signal of an element's process; at least one is None.

    For other words, SLURM's code is not the process's: an element that ran out of memory has 0:125.

    | word      | code            | exit status | signal      |
    |-----------|-----------------|-------------|-------------|
    | COMPLETED | any             | 0           | None        |
    | FAILED    | with a signal   | None        | that signal |
    | FAILED    | with a status   | that status | None        |
    | FAILED    | neither         | None        | None        |
    | any other | any             | None        | None        |
    """
    if word == "COMPLETED":
        return 0, None
    if word != "FAILED":
        return None, None
    if number := code & 0x7F:
        return None, number
    return code >> 8 or None, None


def _why(state: State, word: str, exit_code: int | None, signal: int | None, reason: str) -> str:
    """Return the reason for the state: `exit 1`, `signal 9`, `OUT_OF_MEMORY`, `JobArrayTaskLimit`, or ""."""
    said = "" if reason in ("None", "N/A", "") else reason
    if state is State.FAILED and signal is not None:
        return f"signal {signal}"
    if state is State.FAILED and exit_code is not None:
        return f"exit {exit_code}"
    if state in (State.FAILED, State.CANCELLED):
        return f"{word}: {said}" if said and said.upper() != word else word
    return said


def wait_status(text: str) -> int:
    """Return a process's wait status, as wait(2) encodes it. The text is `3:0` (exit status and signal, from
    sacct and later releases of squeue) or `768` (squeue 22.05)."""
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
