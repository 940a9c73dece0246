"""Parses slurmdbd's rows of an array, as sacct prints them, into an `Accounted` for each element."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from penstock.cluster.port import Accounted
from penstock.cluster.slurm.answer_lines import job_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

# Fields of sacct 22.05. Later fields (Restarts) are not asked for: rows count the starts.
USAGE_FIELDS = "JobID,Submit,Start,End,ElapsedRaw,CPUTimeRAW,TotalCPU,MaxRSS"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}


def read_usage(text: str, array: str) -> Sequence[Accounted]:
    """Read the started elements of this array from `sacct --duplicates -P -n -j ARRAY -o USAGE_FIELDS`.

    Times are seconds since the epoch. sacct may show elements of other arrays, too.

    | row                                    | counts as                                                 |
    |----------------------------------------|-----------------------------------------------------------|
    | `77_3`, with a time in Start           | a start of element 3: its times, and its CPU time         |
    | `77_3.batch`, `77_3.extern`, `77_3.0`  | a step of it: its peak of memory                          |
    | `77_[4-9]`, or without a time in Start | an element that waits, or was cancelled before: nothing   |
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
        elif began := _number(started):
            queued = _number(submitted)
            account = account._replace(
                starts=account.starts + 1,
                submitted=min(account.submitted, queued) if account.submitted else queued,
                started=max(account.started, began),
                ended=_number(ended) if began >= account.started else account.ended,
                waited=account.waited + max(0.0, began - queued),
                seconds=account.seconds + _number(elapsed),
                granted_seconds=account.granted_seconds + _number(granted),
                cpu_seconds=_added(account.cpu_seconds, read_time(used)),
            )
        accounts[index] = account
    return [usage for _, usage in sorted(accounts.items()) if usage.starts]


def _added(sum_so_far: float | None, more: float) -> float | None:
    """Add CPU time. SLURM writes 0 where it gathers none (JobAcctGatherType=jobacct_gather/none)."""
    return sum_so_far if not more else (sum_so_far or 0.0) + more


def _number(text: str) -> float:
    """Read a number; 0 for `Unknown`, `None` and an empty field."""
    with contextlib.suppress(ValueError):
        return max(0.0, float(text))
    return 0.0


def read_time(text: str) -> float:
    """Read seconds from SLURM's `[days-][hours:]minutes:seconds`, also with fractions; 0 for `infinite` and
    such.

    >>> read_time("1-02:03:04"), read_time("02:03.500"), read_time("infinite"), read_time("")
    (93784.0, 123.5, 0.0, 0.0)
    """
    days, dash, clock = text.rpartition("-")
    seconds = 0.0
    for field in clock.split(":"):
        seconds = seconds * 60 + _number(field)
    return seconds + (_number(days) * 86400 if dash else 0.0)


def _bytes(text: str) -> int | None:
    """Read bytes from a number with SLURM's unit; None for an empty field or 0: nothing was sampled.
    >>> _bytes("1536K"), _bytes("1.5M"), _bytes("100"), _bytes(""), _bytes("0")
    (1572864, 1572864, 100, None, None)
    """
    unit = text[-1:].upper() if text[-1:].isalpha() else ""
    value = _number(text[: len(text) - len(unit)])
    return round(value * _UNITS[unit]) if value and unit in _UNITS else None
