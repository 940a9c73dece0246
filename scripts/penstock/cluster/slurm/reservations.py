"""Reservations and maintenance that keep elements from starting, or from ending in time.

SLURM starts no job on a node that a reservation takes before the job's time limit is over: an element of 24 h
waits through a maintenance that begins in 20 h, and then behind everything that waited with it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.cluster.slurm.submission import Account
from penstock.cluster.slurm.times import written
from penstock.config.settings import AUTO_TIME
from penstock.core import job_time
from penstock.core.checks import CheckResult
from penstock.core.host_lists import host_list

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.cluster.slurm.nodes import Node
    from penstock.cluster.slurm.port import Partition, Reservation
    from penstock.config.settings import JobOptions

FLOATS, MAGNETIC = "TIME_FLOAT", "MAGNETIC"
"""Flags of a reservation whose start stays as far ahead as it was, and of one that takes in each job that may
use it, also one that does not name it."""


def judged(
    options: JobOptions,
    candidates: Sequence[Node],
    partitions: Sequence[Partition],
    reservations: Sequence[Reservation],
    now: float,
) -> list[CheckResult]:
    """What reservations mean for such elements. `candidates`: the nodes that they may run on; `partitions`:
    theirs, for the time of elements that ask for none; `now` in seconds since the epoch."""
    seconds = lasts(options, partitions)
    names = {node.name for node in candidates}
    if options.reservation is not None:
        return [
            result
            for name in options.reservation.split(",")
            for result in _own(name, options, seconds, names, reservations, now)
        ]
    others = [one for one in reservations if not _harmless(one, options, candidates)]
    return _others(seconds, names, others, now)


def _harmless(one: Reservation, options: JobOptions, candidates: Sequence[Node]) -> bool:
    """Whether elements start beside it, or in it.

    | it takes                | elements                             | then     |
    |-------------------------|--------------------------------------|----------|
    | whole nodes             | any                                  | no       |
    | some cores of its nodes | take whole nodes                     | no       |
    | some cores of its nodes | share nodes                          | yes      |
    | any; it is MAGNETIC     | are of an account, or user, of it    | yes      |
    """
    if MAGNETIC in one.flags and (
        options.account in one.accounts.split(",") or Account.own().name in one.users.split(",")
    ):
        return True
    free = [node.cores - node.reserved for node in candidates if node.name in one.nodes]
    some = 0 < one.cores < len(one.nodes) * min(free, default=0)
    return some and not options.whole_nodes and options.spec_cores is None


def lasts(options: JobOptions, partitions: Sequence[Partition]) -> float | None:
    """Seconds for which SLURM plans with such an element; None: without end.

    | `time` | the partition's DefaultTime | its MaxTime | planned with                              |
    |--------|-----------------------------|-------------|-------------------------------------------|
    | given  | any                         | any         | `time`                                    |
    | auto   | any                         | any         | what is asked for where nothing was       |
    |        |                             |             | estimated yet (`core.job_time.first`)     |
    | null   | given                       | any         | DefaultTime                               |
    | null   | none                        | given       | MaxTime                                   |
    | null   | none                        | none        | without end                               |
    """
    if options.time == AUTO_TIME:
        bounds = [one.max_time for one in partitions if one.max_time is not None]
        return float(job_time.first(None, max(bounds, default=0.0)))
    if options.time is not None:
        return float(options.time)
    times = [one.max_time if one.default_time is None else one.default_time for one in partitions]
    known = [one for one in times if one is not None]
    return max(known) if known and len(known) == len(times) else None


def _own(
    name: str,
    options: JobOptions,
    seconds: float | None,
    names: set[str],
    reservations: Sequence[Reservation],
    now: float,
) -> list[CheckResult]:
    """The reservation that the configuration names.

    | it                                                   | verdict                                |
    |------------------------------------------------------|----------------------------------------|
    | is not there (SLURM's own refusal follows)           | none                                   |
    | has ended                                            | stop                                   |
    | is for other accounts than `account`                 | stop                                   |
    | has none of the nodes that elements may run on       | stop                                   |
    | begins later                                         | warning                                |
    | begins later, always by the same time (TIME_FLOAT)   | warning: nothing ever starts in it     |
    | ends before an element that starts now would         | warning                                |
    """
    about = f"reservation {name}"
    one = next((one for one in reservations if one.name == name), None)
    if one is None:
        return []
    if one.end and one.end <= now:
        mend = "set cluster.reservation: null, or name one that `scontrol show reservation` lists as ACTIVE"
        return [CheckResult(about, f"it ended at {_clock(one.end)}", "stop", "a reservation of now", mend)]
    accounts = [word for word in one.accounts.split(",") if word]
    if options.account and accounts and not _lets(options.account, accounts):
        mend = "set cluster.account to one of them, or ask for the account to be added"
        return [CheckResult(about, f"it is for {one.accounts}", "stop", options.account, mend)]
    if one.nodes and names and not one.nodes & names:
        found = f"it holds {host_list(one.nodes)}, and elements may run on none of them"
        mend = "cluster.partition, constraint, nodelist, exclude, gres and tmp choose the nodes"
        return [CheckResult(about, found, "stop", "some of the nodes that elements may run on", mend)]
    if one.start > now and FLOATS in one.flags:
        found = f"it stays {written(one.start - now)} ahead ({FLOATS}): no element starts in it"
        return [CheckResult(about, found, "warning", "a reservation of now")]
    if one.start > now:
        found = f"it begins at {_clock(one.start)}: elements wait until then"
        return [CheckResult(about, found, "warning", "a reservation of now")]
    if one.end and (seconds is None or now + seconds > one.end):
        found = f"it ends at {_clock(one.end)}: elements of {_span(seconds)} do not start in it any more"
        wanted = f"elements that end before: cluster.time below {written(one.end - now)}"
        return [CheckResult(about, found, "warning", wanted, _shorter(one.end - now))]
    return []


def _lets(account: str, accounts: Sequence[str]) -> bool:
    """SLURM writes `-a,-b` where all accounts but these may use it."""
    if all(word.startswith("-") for word in accounts):
        return f"-{account}" not in accounts
    return account in accounts


def _others(
    seconds: float | None, names: set[str], reservations: Sequence[Reservation], now: float
) -> list[CheckResult]:
    """Those of others, and maintenance, by which elements that could start now do not.

    | nodes of the candidates that one takes before an element would end | verdict |
    |--------------------------------------------------------------------|---------|
    | none                                                               | none    |
    | some                                                               | note    |
    | all, taken together                                                | warning |
    """
    near = [
        one
        for one in reservations
        if one.nodes & names and one.end > now and (seconds is None or one.start < now + seconds)
    ]
    if not near:
        return []
    taken = names & frozenset[str]().union(*(one.nodes for one in near))
    first = min(near, key=lambda one: one.start)
    kind = "maintenance" if "MAINT" in first.flags else "reservation"
    more = f", and {len(near) - 1} more" if len(near) > 1 else ""
    begins = f"begins at {_clock(first.start)}" if first.start > now else "is under way"
    floats = [one for one in near if FLOATS in one.flags]
    if floats == near:
        # Its start moves with the clock: shorter elements pass it, longer ones wait for ever.
        begins = f"stays {written(first.start - now)} ahead ({FLOATS})"
    until = "do not start" if floats == near else "do not start before its end"
    found = f"{kind} {first.name} {begins}{more}: elements of {_span(seconds)} {until} on "
    if len(taken) < len(names):
        found += f"{len(taken)} of {len(names)} nodes ({host_list(taken)})"
        return [CheckResult("reservations", found, "note", "", _shorter(first.start - now))]
    when = "so never" if _floating(near, names) else f"so before {_clock(_free(near, names))}"
    found += f"any of the {len(names)} nodes that they may run on, {when}"
    wanted, mend = "nodes that are free for so long", _shorter(first.start - now)
    return [CheckResult("reservations", found, "warning", wanted, mend)]


def _floating(near: Sequence[Reservation], names: set[str]) -> bool:
    """Whether each of the nodes has a reservation that stays ahead."""
    return all(any(name in one.nodes and FLOATS in one.flags for one in near) for name in names)


def _free(near: Sequence[Reservation], names: set[str]) -> float:
    """When the first of the nodes has no reservation any more: one of those that have none that stays
    ahead."""
    kept = {name: [one for one in near if name in one.nodes] for name in names}
    ends = [[one.end for one in some] for some in kept.values() if all(FLOATS not in o.flags for o in some)]
    return min(map(max, ends))


def _shorter(left: float) -> str:
    """What a person can do about it: below a minute nothing."""
    if left < 120:
        return ""
    minutes = int(left // 60) - 1
    return f"cluster.time: {minutes}min or less lets elements start before (they go on where they stopped)"


def _span(seconds: float | None) -> str:
    return "no time limit" if seconds is None else written(seconds)


def _clock(when: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(when))
