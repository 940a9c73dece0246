"""Until when this account's Kerberos ticket can be renewed, beside the time that a copy takes.

An NFS mount with sec=krb5... refuses an account whose ticket has ended: its calls fail in the middle of a
copy.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.config.source_kinds import FOLDER_SCHEMES, scheme
from penstock.core.checks import CheckResult
from penstock.core.text import printable
from penstock.filesystem.watched_facts import network_mount
from penstock.runtime.proc import PROC
from penstock.sources.registry import folder
from penstock.vendors import kerberos

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence

    from penstock.core.documents.node_answer import TicketSeen

LONGER = (
    "make a ticket with a longer renewable life (`kinit -r 7d`, as far as the realm allows) and have it "
    "renewed; where the site brings tickets to the nodes and renews them itself, this does not count"
)


def held(options: Iterable[str]) -> TicketSeen | None:
    """The ticket on this machine; None where no mount with these options wants one."""
    wanted = any(one.startswith("sec=krb5") for mount in options for one in mount.split(","))
    return kerberos.ticket() if wanted else None


def of_folders(folders: Iterable[Path], proc: str | os.PathLike[str] = PROC) -> TicketSeen | None:
    """The ticket on this machine; None where no network mount on the way to one of these folders wants one.
    No call is made on such a mount: it may hang."""
    mounts = [network_mount(str(one.absolute()), proc) for one in folders]
    return held(one.options for one in mounts if one is not None)


def source_folders(urls: Sequence[str]) -> list[Path]:
    """Those of the sources of a run that are folders."""
    return [Path(folder(url)) for url in urls if scheme(url) in FOLDER_SCHEMES]


def ends(ticket: TicketSeen) -> int | None:
    """Until when it lasts with all renewals, in seconds since 1970; None where that is not known, or where
    there is none."""
    if not ticket.held or ticket.expires is None:
        return None
    return max(ticket.expires, ticket.renewable_until or 0)


def lasts(ticket: TicketSeen, end: int) -> str:
    """For people; `end` as of `ends`."""
    until = f"{datetime.fromtimestamp(end, UTC):%Y-%m-%d %H:%M} UTC"
    renewed = " with renewals" if end > (ticket.expires or 0) else ""
    return f"of {printable(ticket.principal)}, lasts{renewed} until {until}"


def outlasted(ticket: TicketSeen | None, seconds: float, copying: str, now: float) -> list[CheckResult]:
    """Whether the copy takes longer than the ticket of this machine lasts. `seconds` is what the copy alone
    takes as plan forecasts it, `copying` says that for people, `now` is in seconds since 1970.

    | the ticket                                 | the copy        | verdict                              |
    |--------------------------------------------|-----------------|--------------------------------------|
    | none is wanted                             | any             | nothing                              |
    | not known, or there is none                | any             | nothing: preflight has said so       |
    | any                                        | nothing to copy | nothing                              |
    | can be renewed until the copy ends         | any             | nothing                              |
    | ends before that with all renewals         | any             | a warning                            |
    """
    end = ends(ticket) if ticket is not None else None
    if ticket is None or end is None or seconds <= 0 or end >= now + seconds:
        return []
    found = f"{lasts(ticket, end)}, before the copy can end: {copying}"
    return [CheckResult("ticket", found, "warning", "a ticket for the whole copy", LONGER)]
