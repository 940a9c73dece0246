"""The common text of audits, repairs and adoptions: a line for each finding, the mark first. Every name is
escaped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core import human
from penstock.look.views import text_block

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.core.audit_documents import AuditShown

SHOWN = 50
WIDTH = 12
METHODS = {
    "disk": "read from the servers' disks by direct I/O",
    "direct": "read past the page cache by direct I/O",
    "dropped": "read after the page cache was emptied of it",
    "cached": "read, perhaps from memory",
}


def last(shown: AuditShown) -> str:
    """Describe the last audit of a release in one line: when, how much, the result, and what closed its
    findings."""
    audit = shown.audit
    counts = ", ".join(f"{human.count(n)} {kind}" for kind, n in sorted(audit.counts.items()))
    much = f"{human.count(audit.files)} of {human.counted(audit.of_files, 'file')}, {human.size(audit.bytes)}"
    left = ", ".join(f"{human.count(n)} {kind}" for kind, n in sorted(audit.skipped.items()))
    details = ", ".join(filter(None, (counts, left and f"not read: {left}")))
    text = f"{audit.ended}, {audit.choice}, {much}: {audit.status}" + (f" ({details})" * bool(details))
    return f"{text}, {shown.closed}" if shown.closed else text


def table(rows: Iterable[tuple[str, str, str]]) -> list[str]:
    """Return a line for each (mark, path, why)."""
    return [f"  {mark} {human.printable(path)}  ({human.printable(why)})" for mark, path, why in rows]


def line(title: str, value: object) -> str:
    """Return a line of a table, with its title."""
    return text_block.field(title, str(value), width=WIDTH)[0]
