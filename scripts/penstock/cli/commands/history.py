"""`penstock history`: what was published, repaired and moved of a dataset. Reads only, for any account."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from penstock.cli import dataset_choice, flags
from penstock.cli.command_table import CommandFunctions
from penstock.core import human
from penstock.core.human import brief, printable
from penstock.look.views.result_texts import moment, said
from penstock.look.views.text_layout import COLUMNS, Line, TextColumn, lines

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from penstock.cli.session import Session
    from penstock.core.catalogue_rows import History, HistoryRow

EXAMPLES = ("penstock history imagenet", "penstock history imagenet --all --json")
_HISTORY = (
    TextColumn("TIME"), TextColumn("EVENT", least=10), TextColumn("RELEASE", least=17),
    TextColumn("BY", least=8), TextColumn("WHAT", least=20),
)  # fmt: skip
_SECOND = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def arguments(parser: argparse.ArgumentParser) -> None:
    flags.root(parser)
    flags.json_lines(parser)
    flags.dataset(parser, "name")
    flags.every_row(parser)


def run(parsed: argparse.Namespace, session: Session) -> int:
    from penstock.look import details

    history = details.history(dataset_choice.chosen_datasets(parsed, session).only(parsed.name))
    session.receipt({"datasets": {history["dataset"]: history}})
    rows = ({"dataset": history["dataset"], **row["line"]} for row in history["lines"])
    limit = None if parsed.all else flags.SHOWN_ROWS
    session.show_rows(rows, partial(render, [history], limit))
    return 0


def render(histories: Sequence[History], limit: int | None = None, columns: int = COLUMNS) -> list[Line]:
    """Render a table for each dataset, newest line first; with `limit` so many, and the count of the rest."""
    shown: list[Line] = []
    for history in histories:
        shown.append(Line(printable(history["dataset"]), "bold"))
        if history["problem"]:
            shown += said(f"! no history: {history['problem']}", 2, columns, "yellow")
        rows = history["lines"][:limit]
        table = lines(_HISTORY, [_line(row) for row in rows], columns=columns, indent=2)
        shown += [Line(text, "dim") for text in table[0]] if rows else []
        shown += [Line(text) for texts in table[1:] for text in texts]
        if len(rows) < len(history["lines"]):
            shown.append(
                Line(f"  and {human.counted(len(history['lines']) - len(rows), 'earlier line')} (--all)")
            )
        if history["damaged"]:
            shown.append(Line(f"  {human.counted(history['damaged'], 'damaged line')} passed over", "yellow"))
    return shown


def _line(row: HistoryRow) -> list[str]:
    event = row["event"] if row["known"] else f"{row['event']} (not known to this version)"
    at = brief(_minute(row["at"]), len("2026-03-14 12:03:11.000000+00:00"))
    return [at, brief(event), brief(row["release"], 128), brief(row["by"]), brief(row["text"], 500)]


def _minute(text: str) -> str:
    """Shorten a time to `2026-03-14 12:03Z`; leave other texts."""
    return moment(text)[:16] + "Z" if _SECOND.fullmatch(text) else moment(text)


HISTORY = CommandFunctions(arguments, run, EXAMPLES)
