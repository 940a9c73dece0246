"""This account's Kerberos ticket, as MIT's `klist -f` shows it in the C locale and in UTC.

The format was read from klist of krb5 1.20.1 with credential caches made for it. Heimdal's klist prints
another one, and shows no renewable life: then nothing is known.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime

from penstock.core.documents.node_answer import TicketSeen
from penstock.core.text import printable
from penstock.vendors import command

DEADLINE = 5.0
"""Seconds: a cache may lie with a daemon (KCM) or in the kernel."""
_TIME = r"(\d\d/\d\d/\d\d \d\d:\d\d:\d\d)"
_TICKET = re.compile(rf"^{_TIME}  {_TIME}  krbtgt/([^@\s]+)@\3$\n(?:\trenew until {_TIME})?", re.MULTILINE)
_PRINCIPAL = re.compile(r"^Default principal: (.+)$", re.MULTILINE)


def ticket() -> TicketSeen:
    """The ticket-granting ticket in the default cache of this process, or why nothing is known of it. Never
    raises."""
    given = {"TZ": "UTC"}
    if cache := os.environ.get("KRB5CCNAME"):
        given["KRB5CCNAME"] = cache
    answer = command.run(["klist", "-f"], deadline=DEADLINE, more=given)
    if not answer.ok:
        held = False if answer.code is not None and "No credentials cache" in answer.err else None
        return TicketSeen(held, error=f"klist: {answer.words}".replace("klist: klist: ", "klist: "))
    return parse(answer.out)


def parse(text: str) -> TicketSeen:
    """What klist printed. Of several tickets of a realm for itself the one counts that lasts longest."""
    principal = _PRINCIPAL.search(text)
    if principal is None:
        return TicketSeen(None, error="klist's output is not of MIT's form")
    found = [
        (_seconds(end), _seconds(renew) if renew else None) for _, end, _, renew in _TICKET.findall(text)
    ]
    name = printable(principal[1])
    if not found:
        # klist may print tickets, and none of this form.
        return TicketSeen(
            None if "krbtgt/" in text else False, name, error="klist shows no ticket of its realm"
        )
    expires, until = max(found, key=lambda one: max(one[0], one[1] or 0))
    return TicketSeen(True, name, expires, until)


def _seconds(text: str) -> int:
    return int(datetime.strptime(text, "%m/%d/%y %H:%M:%S").replace(tzinfo=UTC).timestamp())
