"""The shape of a release, looked at by somebody who may not read all of it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.forked import NOBODY, forked
from tests.support.seals import PLAIN
from tests.support.staging_runs import tree

from penstock.core.layout import DatasetLayout
from penstock.core.model import Record
from penstock.keep.audit_tree import tree_findings
from penstock.tables.manifest import Files, ManifestWriter
from penstock.target import tree_removal

if TYPE_CHECKING:
    from collections.abc import Iterator

PATHS = ["a", "b/c", "b/d", "e"]


@pytest.fixture
def layout() -> Iterator[DatasetLayout]:
    """On the disk, where other users can enter."""
    root = Path(tempfile.mkdtemp(prefix="penstock-test-"))
    root.chmod(0o755)
    made = DatasetLayout(root, "data")
    publish(made, PATHS)
    yield made
    tree_removal.remove_tree(root)


def publish(layout: DatasetLayout, paths: list[str]) -> Path:
    """A release `r` of files of two bytes; its `data`."""
    release = layout.release("r")
    tree(release / "data", dict.fromkeys(paths, b"12"))
    rest = (1, "k", "t", "", 0, "size", "", "cold", "direct", "h", "h", "a", 1, 1)
    with ManifestWriter(release / "manifest.parquet", mode=0o644) as writer:
        writer.add(Files.of([Record(path, 2, "xxh3_128:00", *rest) for path in paths]))
        writer.finish()
    return release / "data"


def told(layout: DatasetLayout) -> list[tuple[str, str]]:
    def child() -> list[tuple[str, str]]:
        return [(found.kind, found.path) for found in tree_findings(layout, "r", PLAIN, lambda: None)]

    found: list[tuple[str, str]] = forked(child, uid=NOBODY)
    return found


def test_a_whole_one_is_no_finding(layout: DatasetLayout) -> None:
    assert told(layout) == []


@pytest.mark.parametrize(
    ("dark", "findings"),
    [
        ("b", [("mode", "b"), ("unread", "b")]),
        ("aa", [("extra", "aa"), ("unread", "aa")]),
        ("z", [("extra", "z"), ("unread", "z")]),
    ],
)
def test_a_folder_that_cannot_be_read_is_told_and_extra_where_it_is(
    layout: DatasetLayout, dark: str, findings: list[tuple[str, str]]
) -> None:
    folder = layout.release("r") / "data" / dark
    folder.mkdir(exist_ok=True)
    folder.chmod(0)
    assert told(layout) == findings


def test_a_file_of_another_size_is_found_among_many(layout: DatasetLayout) -> None:
    names = [f"f{number:04d}" for number in range(1500)]
    data = publish(layout, [*PATHS, *names])
    wrong = [names[0], names[511], names[700], names[701], names[-1]]
    for name in wrong:
        (data / name).write_bytes(b"123")
    assert told(layout) == [("changed", name) for name in wrong]
