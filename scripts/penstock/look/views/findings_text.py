"""What audits, repairs and adoptions have in common as text: one line a finding, the mark first. Guarantee:
plain text; every name is escaped, so that no file can steer a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core import human
from penstock.look.views import text_block

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.core.documents.verdict import AuditShown

SHOWN = 50
WIDTH = 12
METHODS = {
    "disk": "read from the servers' disks by direct I/O",
    "direct": "read past the page cache by direct I/O",
    "dropped": "read after the page cache was emptied of it",
    "cached": "read, perhaps from memory",
}


def last(shown: AuditShown) -> str:
    """The last audit of a release in one line: when, how much, the result, and what closed its findings."""
    audit = shown.audit
    counts = ", ".join(f"{human.count(n)} {kind}" for kind, n in sorted(audit.counts.items()))
    much = f"{human.count(audit.files)} of {human.counted(audit.of_files, 'file')}, {human.size(audit.bytes)}"
    left = ", ".join(f"{human.count(n)} {kind}" for kind, n in sorted(audit.skipped.items()))
    told = ", ".join(filter(None, (counts, left and f"not read: {left}")))
    text = f"{audit.ended}, {audit.choice}, {much}: {audit.status}" + (f" ({told})" * bool(told))
    return f"{text}, {shown.closed}" if shown.closed else text


def table(rows: Iterable[tuple[str, str, str]]) -> list[str]:
    """A line for each (mark, path, why)."""
    return [f"  {mark} {human.printable(path)}  ({human.printable(why)})" for mark, path, why in rows]


def line(title: str, value: object) -> str:
    """A line of a table, with its title."""
    return text_block.field(title, str(value), width=WIDTH)[0]
