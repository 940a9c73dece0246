"""The table of findings: bounded, marked, and no name steers a terminal."""

from __future__ import annotations

from typing import Any

from penstock.cli.commands import audits
from penstock.core.findings import Finding
from penstock.look.views import text_layout

RESULT: dict[str, Any] = {
    "dataset": "data",
    "release": "r1",
    "status": "FINDINGS",
    "files": 1200,
    "of_files": 1200,
    "bytes": 5 << 20,
    "seconds": 2.0,
    "methods": {"direct": 1198},
    "promise": "every byte is read: any damage is found",
    "counts": {"changed": 1, "extra": 1, "missing": 1},
    "findings": [
        Finding("extra", "x\x1b[31m\n", "a file that was not published"),
        Finding("changed", "g", "read as b", (2, 5)),
        Finding("missing", "gone\udcff", "it is not there"),
    ],
    "all_findings": "/t/findings.jsonl",
    "grade": "cold",
    "skipped": {},
    "all_skipped": "",
}


def test_an_audit() -> None:
    assert audits.render_audit(RESULT) == (
        "data/r1\n"
        "  Read        1,200 of 1,200 files, 5.00 MiB in 2.0 s\n"
        "  How         1,198 read past the page cache by direct I/O\n"
        "  Grade       cold\n"
        "  Means       every byte is read: any damage is found\n"
        "  - gone\\xff  (it is not there)\n"
        "  * g  (parts 2, 5: read as b)\n"
        "  + x\\x1b[31m\\n  (a file that was not published)\n"
        "  All         /t/findings.jsonl\n"
        "  STATUS      FINDINGS (1 missing, 1 changed, 1 extra)\n"
    )


def test_only_the_first_are_shown() -> None:
    found = [Finding("missing", f"f{i}", "w") for i in range(1000)]
    text = audits.render_audit({**RESULT, "findings": found, "counts": {"missing": 123_456}})
    assert text.count("(w)") == text_layout.SHOWN
    assert "and 123,406 more" in text


def test_nothing_found() -> None:
    text = audits.render_audit({**RESULT, "status": "PASSED", "counts": {}, "findings": []})
    assert text.endswith("any damage is found\n  STATUS      PASSED\n")


def test_a_repair() -> None:
    text = audits.render_repair(
        {
            "dataset": "data",
            "release": "r1",
            "audit": "a1",
            "status": "PARTLY",
            "repaired": [["a", "direct"]],
            "unrepairable": [["b\n", "the source changed"]],
            "left": ["c"],
            "also_repaired": {},
            "also_in": {},
            "fetched_bytes": 2048,
            "seconds": 0.5,
        }
    )
    assert text == (
        "data/r1\n"
        "  By audit    a1\n"
        "  ! b\\n  (left as it is: the source changed)\n"
        "  + c  (not published, left for you to remove)\n"
        "  = a  (direct)\n"
        "  Fetched     2.00 KiB in 0.50 s\n"
        "  STATUS      PARTLY (1 repaired, 2 left)\n"
    )
