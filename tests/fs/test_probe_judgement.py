"""What follows from a probe: a test for each row of the tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.core.run_documents import ABILITIES, ProbeReport, TrialOutcome
from penstock.core.run_steps import gravest
from penstock.fs.capabilities import StorageFacts, facts
from penstock.fs.kinds import Kind
from penstock.fs.probe_judgement import (
    acls,
    differences,
    limited,
    links_work,
)

NO, ERROR = (
    TrialOutcome("no", error="EOPNOTSUPP"),
    TrialOutcome("error", error="EIO", why="Input/output error"),
)
ROW = Kind(
    "labfs",
    direct=True,
    preallocate=True,
    holes_told=True,
    flock="machine",
    folder_over="empty folder",
    links="yes",
    inodes="stable",
)


def seen_with(**over: TrialOutcome) -> ProbeReport:
    good = dict.fromkeys(ABILITIES, TrialOutcome("yes")) | {
        "direct_alignment": TrialOutcome("value", 4096),
        "name_bytes": TrialOutcome("value", 255),
    }
    return ProbeReport(abilities=good | over)


@pytest.fixture
def row() -> StorageFacts:
    return replace(facts(Path("/")), traits=ROW, durability="syncfs")


def test_nothing_is_said_where_all_is_as_the_row_says(row: StorageFacts) -> None:
    assert differences(row, seen_with()) == []
    assert limited(row, seen_with()) == row
    assert links_work(seen_with())


@pytest.mark.parametrize(
    "name", ["rename_over_file", "rename_over_symlink", "exclusive_create", "fsync_file"]
)
@pytest.mark.parametrize("answer", [NO, ERROR])
def test_without_these_no_release_is_staged(row: StorageFacts, name: str, answer: TrialOutcome) -> None:
    found = differences(row, seen_with(**{name: answer}))
    assert (found[0].about, found[0].verdict) == (ABILITIES[name], "stop")
    assert len(found) == 1


@pytest.mark.parametrize(
    "name",
    ["link_between_folders", "inode_stable", "chmod_kept", "owner_kept", "syncfs", "fallocate",
     "direct_alignment"],
)  # fmt: skip
def test_these_are_missed(row: StorageFacts, name: str) -> None:
    (found,) = differences(row, seen_with(**{name: NO}))
    assert (found.about, found.verdict, found.found) == (ABILITIES[name], "warning", "no (EOPNOTSUPP)")
    assert found.mend


@pytest.mark.parametrize("name", ["link_between_folders", "inode_stable"])
def test_what_the_row_does_not_claim_is_not_wanted(row: StorageFacts, name: str) -> None:
    (found,) = differences(row, seen_with(**{name: NO}))
    assert found.wanted == "yes"
    silent = replace(row, traits=ROW._replace(links="since 7.4", inodes=""))
    (found,) = differences(silent, seen_with(**{name: NO}))
    assert (found.verdict, found.wanted) == ("warning", "")


def test_a_large_alignment_is_a_refusal(row: StorageFacts) -> None:
    (found,) = differences(row, seen_with(direct_alignment=TrialOutcome("value", 65536)))
    assert (found.verdict, found.wanted) == ("warning", "at most 4096")


@pytest.mark.parametrize("call", ["link", "rename"])
def test_two_quota_trees_are_named(row: StorageFacts, call: str) -> None:
    report = seen_with(**{f"{call}_between_trees": NO})
    (found,) = differences(row, report)
    assert found.verdict == "warning"
    assert "two quota trees" in found.mend
    assert links_work(report) is (call == "rename")


@pytest.mark.parametrize("name", ["tmpfile", "xattr_bytes", "acl"])
def test_an_errno_that_is_no_refusal_is_a_warning(row: StorageFacts, name: str) -> None:
    (found,) = differences(row, seen_with(**{name: ERROR}))
    assert (found.verdict, found.found) == ("warning", "error (EIO, Input/output error)")
    assert differences(row, seen_with(**{name: NO})) == []


@pytest.mark.parametrize("name", ["rename_over_empty_folder", "flock", "holes", "holes_before_writeback"])
def test_a_row_that_is_wrong_without_harm_is_a_note(row: StorageFacts, name: str) -> None:
    (found,) = differences(row, seen_with(**{name: NO}))
    assert (found.verdict, found.wanted) == ("note", "yes, by the table of file systems")
    nothing = replace(row, traits=ROW._replace(folder_over="nothing", flock="", holes_told=False))
    others = [one.about for one in differences(nothing, seen_with(**{name: NO}))]
    assert others == ([] if name == "rename_over_empty_folder" else [ABILITIES["rename_over_empty_folder"]])


def test_what_was_not_tried_takes_nothing_away(row: StorageFacts) -> None:
    report = ProbeReport(abilities=dict.fromkeys(ABILITIES, TrialOutcome(why="no space or no inodes left")))
    assert limited(row, report) == limited(row, ProbeReport()) == row
    assert links_work(report)
    assert gravest(differences(row, report)) == "note"


def test_abilities_are_taken_away_and_never_given(row: StorageFacts) -> None:
    without = limited(row, seen_with(syncfs=NO, fallocate=NO))
    assert (without.durability, without.traits.preallocate) == ("fsync", False)
    bare = replace(row, traits=Kind("bare"), durability="fsync")
    assert limited(bare, seen_with()) == bare


@pytest.mark.parametrize(("kind", "direct"), [("labfs", False), ("nfs", True), ("", True)])
@pytest.mark.parametrize("answer", [NO, ERROR, TrialOutcome("value", 65536)])
def test_direct_reads_are_not_tried_where_the_same_kind_refused_them(
    row: StorageFacts, kind: str, direct: bool, answer: TrialOutcome
) -> None:
    """A probe of another kind of file system, as of a gateway's mount, says nothing of this one."""
    report = replace(seen_with(direct_alignment=answer), kind=kind)
    assert limited(row, report).direct is direct


@pytest.mark.parametrize(
    ("named", "over", "verdicts"),
    [
        (0, {"acl": NO, "acl_inherited": NO, "xattr_bytes": TrialOutcome("value", 100)}, []),
        (2, {}, []),
        (2, {"xattr_bytes": TrialOutcome("value", 104)}, []),
        (2, {"xattr_bytes": TrialOutcome("value", 103)}, ["stop"]),
        (2, {"acl": NO}, ["stop"]),
        (2, {"acl": ERROR, "xattr_bytes": NO}, ["stop"]),
        (2, {"acl_inherited": NO}, ["warning"]),
    ],
)
def test_s14_acls_that_cannot_be_set_stop_the_run(
    named: int, over: dict[str, TrialOutcome], verdicts: list[str]
) -> None:
    """Two entries: 4 bytes and six times eight, twice for a folder."""
    found = acls(seen_with(**over), named, "mount it with acl")
    assert [one.verdict for one in found] == verdicts
    assert all(one.mend for one in found)
