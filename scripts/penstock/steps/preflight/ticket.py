"""The Kerberos ticket of this account, where a source or the target is an NFS mount with sec=krb5..."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.core.checks import CheckResult
from penstock.core.step_table import RUN_IN_ELEMENTS
from penstock.core.text import printable
from penstock.planning.ticket_life import LONGER, ends, lasts
from penstock.planning.ticket_life import held as held_for
from penstock.steps.preflight.answers import folders
from penstock.views import human

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.config.settings import ClusterConfig, DatasetConfig, TargetConfig
    from penstock.core.documents.node_answer import MountSeen, TicketSeen
    from penstock.state.context import Context
    from penstock.steps.preflight.answers import Answers
    from penstock.steps.preflight.looks import Looks


def check(context: Context, config: DatasetConfig, answers: Answers, looks: Looks) -> None:
    """Reports nothing where no mount is there that wants a ticket."""
    seen = held(mounts(context.config.target, config, answers))
    if seen is not None:
        looks.saw(*judged("ticket", seen, needed(context.config.cluster), time.time()))


def mounts(target: TargetConfig, config: DatasetConfig, answers: Answers) -> list[MountSeen]:
    """Those of this machine that hold the target, and sources that are folders."""
    return [answers.seen(one) for one in (target.root, *folders(config.sources))]


def held(mounts: Iterable[MountSeen]) -> TicketSeen | None:
    """The ticket on this machine; None where none of these mounts wants one."""
    return held_for(mount.options for mount in mounts)


def needed(config: ClusterConfig) -> int | None:
    """Seconds that the elements of a run may take one after the other, by `cluster.time`; None where that
    is not set for each step, or is estimated by the plan."""
    times = [config.of(step).time or None for step in RUN_IN_ELEMENTS]
    return None if None in times else sum(one for one in times if one is not None)


def judged(about: str, ticket: TicketSeen, needed: int | None, now: float) -> list[CheckResult]:
    """`needed` and `now` in seconds. The wait in the queue comes on top of what is needed, and is not known.

    | the ticket                                   | needed  | verdict                        |
    |----------------------------------------------|---------|--------------------------------|
    | nothing is known of it                       | any     | a note                         |
    | there is none                                | any     | a warning                      |
    | ended, and no longer to be renewed           | any     | a warning                      |
    | can be renewed, but not for so long          | known   | a warning                      |
    | ends earlier, and can be renewed for so long | known   | a note: somebody must renew it |
    | lasts for so long                            | known   | ok                             |
    | has not ended                                | unknown | a note                         |
    """
    if ticket.held is None:
        mend = "look at `klist -f` there, and compare until when the ticket can be renewed with the run"
        return [CheckResult(about, f"not known ({printable(ticket.error)})", "note", mend=mend)]
    last = ends(ticket)
    if ticket.expires is None or last is None:
        found = "no ticket of this account: NFS mounts with sec=krb5 refuse it"
        return [CheckResult(about, found, "warning", "a ticket", LONGER)]
    life = lasts(ticket, last)
    if last <= now:
        return [CheckResult(about, f"{life}: it has ended", "warning", "a ticket", LONGER)]
    if needed is None:
        found = f"{life}; how long a run takes is not known (no `cluster.time`)"
        return [CheckResult(about, found, "note")]
    wanted = f"{human.duration(needed)} (`cluster.time` of the steps), and the wait in the queue"
    if last < now + needed:
        return [CheckResult(about, life, "warning", wanted, LONGER)]
    if ticket.expires < now + needed:
        found = f"{life}; without renewals it ends in {human.duration(max(0.0, ticket.expires - now))}"
        mend = "have it renewed while the run lasts (`kinit -R`, krenew, or the site's own service)"
        return [CheckResult(about, found, "note", wanted, mend)]
    return [CheckResult(about, life, wanted=wanted)]
