"""What the last audits said as a document: what is written is read back, and documents of other versions."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from penstock.core import findings as document
from penstock.core.errors import NewerFormatError
from penstock.core.findings import (
    AuditSelection,
    LastAudit,
    LastRepair,
    Overruling,
    ReadBack,
    StandingFindings,
    Verdict,
)
from penstock.dataset import release_records

FULL = Verdict(
    dataset="data",
    release="v1",
    seal="sha256:aa",
    stands=(StandingFindings("a1", "2026-01-01T00:00:00Z", {"changed": 2}),),
    read=ReadBack("2026-01-01T00:00:00Z", {2: {0: "2026-01-02T00:00:00Z", 1: "2026-01-03T00:00:00Z"}}),
    last=LastAudit(
        "a2", "2026-01-03T00:00:00Z", "slice", "FINDINGS", {"changed": 2}, 5, 10, 500, 1.5, "a promise",
        "2026-01-03T00:01:00Z", "anna",
    ),
    repair=LastRepair("2026-01-04T00:00:00Z", "a2", 1, 1),
    overruled=Overruling("2026-01-05T00:00:00Z", "anna", "a note", {"extra": 1}),
)  # fmt: skip
WRITTEN = {
    "format": 1,
    "dataset": "data",
    "release": "v1",
    "seal": "sha256:aa",
    "stands": [{"audit": "a1", "at": "2026-01-01T00:00:00Z", "counts": {"changed": 2}}],
    "read": {
        "whole": "2026-01-01T00:00:00Z",
        "slices": {"2": {"0": "2026-01-02T00:00:00Z", "1": "2026-01-03T00:00:00Z"}},
    },
    "last": {
        "audit": "a2", "began": "2026-01-03T00:00:00Z", "choice": "slice", "status": "FINDINGS",
        "counts": {"changed": 2}, "files": 5, "of_files": 10, "bytes": 500, "seconds": 1.5,
        "promise": "a promise", "ended": "2026-01-03T00:01:00Z", "by": "anna",
        "skipped": {}, "grade": "",
    },
    "repair": {"at": "2026-01-04T00:00:00Z", "audit": "a2", "repaired": 1, "left": 1},
    "overruled": {"at": "2026-01-05T00:00:00Z", "by": "anna", "why": "a note", "counts": {"extra": 1}},
}  # fmt: skip


def read(raw: object) -> Verdict:
    return document.VERDICT.from_json(json.dumps(raw).encode(), "v1.json")


def test_it_is_written_and_read_back() -> None:
    assert document.VERDICT.to_json(FULL) == WRITTEN
    assert read(WRITTEN) == FULL
    first = Verdict("data", "v1", "sha256:aa")
    assert document.VERDICT.to_json(first) == {
        "format": 1, "dataset": "data", "release": "v1", "seal": "sha256:aa", "stands": [],
        "read": {"whole": None, "slices": {}},
    }  # fmt: skip
    assert read(document.VERDICT.to_json(first)) == first


def test_counts_of_an_audit_are_written_as_they_are() -> None:
    last = LastAudit(audit="a", began="2026-01-31T12:00:00Z", counts=Counter({"changed": 3}))
    written = document.VERDICT.to_json(
        release_records.audited(Verdict(), last, AuditSelection(), compared=True)
    )
    found = read(written)
    assert found.last is not None
    assert (found.last.counts, release_records.standing_findings(found)) == ({"changed": 3}, {"changed": 3})


def test_what_is_missing_has_its_default_and_what_is_new_is_passed_over() -> None:
    assert read({"format": 1, "later": 1}) == Verdict()


def test_a_newer_format_is_refused_and_what_is_none_is_damaged() -> None:
    with pytest.raises(NewerFormatError, match="what the last audit said is of a newer format"):
        read({**WRITTEN, "format": 2})
    for raw in ({"stands": {}}, {"read": {"slices": {"many": {}}}}, {"last": {"seconds": "1"}}):
        with pytest.raises(ValueError, match=r"`stands`|`read`|`last`"):
            read({"format": 1, **raw})


def test_s16_what_an_audit_skipped_is_written_where_there_is_any() -> None:
    last = LastAudit(
        audit="a3", status="PARTLY", skipped={"offline": 2}, grade="cold, of the files that were read"
    )
    written = document.VERDICT.to_json(Verdict("d", "r", "s", last=last))
    assert document.VERDICT.from_json(json.dumps(written).encode(), "there").last == last
