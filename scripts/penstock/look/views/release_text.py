"""Texts common to releases, show and history. Every name is escaped; only paths, digests and URLs exceed the
given columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core import human
from penstock.core.human import TEXT, brief
from penstock.look.views import text_block
from penstock.look.views.styled_lines import Line

if TYPE_CHECKING:
    from penstock.core.catalogue_rows import OwnerJson, PinnedBy, ReleaseRow


def problem(row: ReleaseRow) -> str:
    state = "HELD" if row["state"] == "held" else row["state"]
    return row["problem"] if state == "published" else f"{state}: {row['problem']}"


def said(text: str, indent: int, columns: int, style: str) -> list[Line]:
    wrapped = text_block.wrapped(brief(text, TEXT), columns - indent - 2)
    return [Line(" " * (indent + 2 * (number > 0)) + line, style) for number, line in enumerate(wrapped)]


def moment(text: object) -> str:
    """Format `2026-03-14 12:03:11Z`."""
    return str(text or human.UNKNOWN).replace("T", " ", 1)


def last_pinned(pin: PinnedBy) -> str:
    return f"last pinned by {pin['by']}, {human.age(pin['age'])} ago"


def account(owner: OwnerJson | None) -> str:
    if owner is None:
        return human.UNKNOWN
    return owner["user"] or f"uid {owner['uid']}"
