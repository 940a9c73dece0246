"""`penstock history`: each line of the history is a row, whichever version wrote it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from tests.support.commands import penstock
from tests.support.forked import NOBODY, forked

from penstock.cli.commands import releases
from penstock.core import dataset_documents
from penstock.core.dataset_documents import (
    Author,
    HistoryLine,
    Removal,
    Repair,
    RepairCounts,
    Unpinning,
)
from penstock.look import details

if TYPE_CHECKING:
    from penstock.core.catalogue_rows import History
    from penstock.core.layout import DatasetLayout


def text(found: History, limit: int | None = None) -> str:
    return "".join(f"{line.text}\n" for line in releases.render_history([found], limit))


def append(layout: DatasetLayout, *lines: object) -> None:
    with layout.history.open("ab") as file:
        for line in lines:
            file.write((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")


def test_publications_are_rows_the_newest_first(layout: DatasetLayout) -> None:
    found = details.history(layout)
    assert [one["event"] for one in found["lines"]] == ["publish", "publish"]
    newest, oldest = found["lines"]
    assert newest["text"].startswith("5 files, ")
    assert newest["line"]["previous"] == oldest["release"]
    assert all(one["known"] and one["by"] and one["host"] for one in found["lines"])
    assert "publish" in text(found)


def test_removals_and_pins_that_were_taken_back_are_said_in_words(layout: DatasetLayout) -> None:
    removal = Removal(at="t", dataset="data", release="r", why="no rule keeps it", files=3, bytes=2048)
    unpinned = Unpinning(at="t", dataset="data", release="r", pin="7-c-1", of=7, told="pin 7-c-1: alice")
    append(layout, dataset_documents.line_to_json(removal), dataset_documents.line_to_json(unpinned))
    took, removed = details.history(layout)["lines"][:2]
    assert (removed["event"], removed["text"]) == ("remove", "3 files, 2.00 KiB: no rule keeps it")
    assert (took["event"], took["text"]) == ("unpin", "pin 7-c-1: alice")


def test_repairs_and_rollbacks_are_said_in_words(layout: DatasetLayout) -> None:
    repair = Repair(
        at="2026-01-01T00:00:00Z", dataset="data", release="r", author=Author("me", 7, "n1"),
        counts=RepairCounts(3, 1), fetched_bytes=2048,
    )  # fmt: skip
    rollback = {
        "format": 1, "event": "rollback", "at": "2026-01-02T00:00:00Z", "release": "a",
        "from": "b", "by": "me",
    }  # fmt: skip
    append(layout, dataset_documents.line_to_json(repair), rollback)
    back, repaired = details.history(layout)["lines"][:2]
    assert repaired["text"] == "3 files repaired, 1 could not be; 2.00 KiB fetched"
    assert (back["text"], back["release"]) == ("from b", "a")


def test_audits_and_what_was_overruled_are_said_in_words(layout: DatasetLayout) -> None:
    """As `audit_step` writes them: without a format."""
    audit = {"event": "audit", "at": "t", "choice": "whole", "status": "FINDINGS", "counts": {"changed": 1}}
    overrule = {"event": "overrule", "at": "t", "why": "a test", "counts": {"changed": 1}}
    layout.audit_history.write_text(f"{json.dumps(audit)}\n{json.dumps(overrule)}\n")
    overruled, audited = details.audits(layout)["lines"]
    assert (audited["known"], audited["text"]) == (True, "whole: FINDINGS (1 changed)")
    assert (overruled["known"], overruled["text"]) == (True, "findings overruled: a test")


@pytest.mark.parametrize(
    "line",
    [document.kind() for document in dataset_documents.LINE_KINDS.values()],
    ids=lambda line: line.event,
)
def test_every_event_that_this_version_writes_is_known_to_it(
    layout: DatasetLayout, line: HistoryLine
) -> None:
    append(layout, dataset_documents.line_to_json(line))
    assert all(row["known"] for row in details.history(layout)["lines"])


@pytest.mark.parametrize("number", [1, 99])
def test_an_event_of_a_newer_version_is_shown_by_its_name(layout: DatasetLayout, number: int) -> None:
    line = {
        "format": number, "event": "teleport", "at": "2027-01-01T00:00:00Z", "release": "r", "by": "me",
        "where": "the moon\x1b[2J", "counts": {"a": 1},
    }  # fmt: skip
    append(layout, line)
    row = details.history(layout)["lines"][0]
    assert (row["event"], row["known"], row["release"]) == ("teleport", False, "r")
    assert row["line"] == line
    shown = text(details.history(layout))
    assert "teleport" in shown
    assert "moon" in shown
    assert "\x1b" not in shown


def test_a_known_event_of_a_newer_format_is_shown_too(layout: DatasetLayout) -> None:
    append(layout, {"format": 99, "event": "publish", "files": "many", "release": "r", "at": "t"})
    row = details.history(layout)["lines"][0]
    assert (row["event"], row["known"], row["text"]) == ("publish", False, "files: many")


def test_fields_of_other_types_are_no_traceback(layout: DatasetLayout) -> None:
    append(layout, {"event": ["x"], "at": 7, "release": None, "by": {"a": 1}, "format": "one"}, {})
    rows = details.history(layout)["lines"]
    assert (rows[0]["event"], rows[1]["event"]) == ("?", "['x']")
    assert text(details.history(layout))


def test_damaged_lines_are_counted_and_passed_over(layout: DatasetLayout) -> None:
    append(layout, b'{"event": "pub', b"\xff\xfe", b"[]")
    found = details.history(layout)
    assert (len(found["lines"]), found["damaged"]) == (2, 3)
    assert "3 damaged lines passed over" in text(found)


def test_a_limit_shows_the_newest_lines_and_counts_the_others(layout: DatasetLayout) -> None:
    shown = text(details.history(layout), 1)
    assert "and 1 earlier line (--all)" in shown
    assert "earlier" not in text(details.history(layout), 2)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another account")
def test_a_reader_is_told_that_the_history_is_the_owners(layout: DatasetLayout) -> None:
    found = forked(lambda: details.history(layout), uid=NOBODY)
    assert (found["lines"], found["problem"]) == ([], details.OWNERS_ALONE)


def test_json_has_the_fields_of_each_line(layout: DatasetLayout) -> None:
    done = penstock("history", "data", "--json", "--root", str(layout.root), cwd=layout.root)
    assert done.returncode == 0, done
    written = [json.loads(line) for line in layout.history.read_bytes().splitlines()]
    # When penstock linked what is asked for by verify alone.
    told = [line for line in written[::-1] if line["event"] != "interval"]
    assert [json.loads(line) for line in done.stdout.splitlines()] == told
    assert len(told) < len(written)
