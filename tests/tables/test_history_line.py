"""Lines of the history as documents: what is written is read back, and lines of later versions."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from penstock.core.dataset_documents import (
    Author,
    HistoryLine,
    Publication,
    Repair,
    RepairCounts,
    Rollback,
)
from penstock.core.errors import NewerFormatError
from penstock.core.layout import DatasetLayout
from penstock.dataset import release_records
from penstock.host import kernel_facts
from penstock.host.kernel_facts import JobEnvironment

if TYPE_CHECKING:
    from pathlib import Path

PUBLISHED = Publication(
    at="2026-01-02T03:04:05Z",
    dataset="data",
    release="v2",
    run="0123456789abcdef",
    claim=3,
    author=Author("anna", 1000, "n1"),
    seal="sha256:aa",
    root="sha256:bb",
    files=2,
    bytes=30,
    previous="v1",
)
REPAIRED = Repair(
    at="2026-01-03T03:04:05Z",
    dataset="data",
    release="v2",
    author=Author("anna", 1000, "n1"),
    audit="a1",
    repaired=("a", "b \udcff"),
    unrepairable=(("c", "the source changed"),),
    counts=RepairCounts(2, 1),
    fetched_bytes=20,
)
LINE = {
    "format": 1, "at": "2026-11-22T13:51:58Z", "by": "root", "bytes": 363338, "dataset": "several",
    "event": "publish",
    "claim": 2, "files": 28, "host": "vm", "previous": None, "release": "r", "root": "sha256:68", "run": "89",
    "seal": "sha256:d3", "uid": 0,
}  # fmt: skip


@pytest.fixture
def layout(tmp_path: Path) -> DatasetLayout:
    found = DatasetLayout(tmp_path, "data")
    found.state.mkdir(parents=True)
    return found


def write(layout: DatasetLayout, *lines: object) -> None:
    layout.history.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def test_what_is_appended_is_read_back_newest_first(layout: DatasetLayout) -> None:
    assert list(release_records.history_lines(layout)) == []
    release_records.append_history(layout, PUBLISHED)
    release_records.append_history(layout, REPAIRED)
    assert list(release_records.history_lines(layout)) == [REPAIRED, PUBLISHED]
    assert {json.loads(line)["format"] for line in layout.history.read_text().splitlines()} == {1}
    assert release_records.published_seal(layout, "v2") == "sha256:aa"
    assert release_records.published_seal(layout, "v1") is None
    assert (release_records.claim_of(layout, PUBLISHED.run), release_records.last_claim(layout)) == (3, 3)


def test_lines_of_later_versions_are_read(layout: DatasetLayout) -> None:
    write(
        layout,
        LINE,
        {"format": 1, "event": "rollback", "from": "r", "release": "q", "later": [1]},
        {"format": 1, "event": "moved", "release": "r", "claim": 9},
        {"format": 1, "event": "repair", "release": "r", "host": "vm"},
    )
    repaired, moved, back, published = release_records.history_lines(layout)
    assert published == Publication(
        at="2026-11-22T13:51:58Z",
        dataset="several",
        release="r",
        run="89",
        claim=2,
        author=Author("root", 0, "vm"),
        seal="sha256:d3",
        root="sha256:68",
        files=28,
        bytes=363338,
    )
    assert back == Rollback(release="q", left="r")
    assert moved == HistoryLine("moved", release="r", claim=9)
    assert repaired == Repair(release="r", author=Author(host="vm"))
    assert (release_records.claim_of(layout, "89"), release_records.last_claim(layout)) == (2, 9)


def test_a_damaged_line_is_passed_over(layout: DatasetLayout) -> None:
    unnumbered = {name: value for name, value in LINE.items() if name != "format"}
    write(
        layout, LINE, [1], unnumbered, {**LINE, "event": 7}, {**LINE, "claim": "1"}, {**LINE, "files": "28"}
    )
    with layout.history.open("ab") as file:
        file.write(b'\xff\n{"event": "pub')
    (line,) = release_records.history_lines(layout)
    assert line.release == "r"


def test_a_line_of_a_newer_format_is_refused_by_name(layout: DatasetLayout) -> None:
    write(layout, {**LINE, "format": 1 + 1})
    with pytest.raises(NewerFormatError, match="a line of the dataset's history is of a newer") as told:
        list(release_records.history_lines(layout))
    assert told.value.where == str(layout.history)


def test_all_writers_name_the_node_as_the_cluster_does() -> None:
    kernel_facts.enter_job(JobEnvironment(node="n7"))
    assert release_records.this_author() == Author(release_records.user(), os.geteuid(), "n7")
