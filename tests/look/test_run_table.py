"""The end of a run of several datasets."""

from __future__ import annotations

import calendar

import pytest
from tests.support.terminal import plain

from penstock.core.grades import audit_grade
from penstock.core.seal import (
    Amount,
    Seal,
    SealedCarried,
    SealedEvidence,
)
from penstock.look.views import run_summary
from penstock.look.views.run_summary import (
    DAMAGED,
    FAILED,
    READY,
    STOPPED,
    Row,
)

GB = 1 << 30
NOW = calendar.timegm((2026, 11, 27, 12, 0, 0))
FOUR = [
    Row("a", READY, "published", "", 310 * GB, 1229 * GB, 840, "cold; carried: oldest 19 d"),
    Row("b", READY, "unchanged", carried=49 * GB, seconds=3.0, proof="of 14 Nov"),
    Row("c", FAILED, "FAILED", why="there is no such bucket", seconds=2.0),
    Row("d", READY, "published", copied=8 * GB, seconds=51.0, proof="cold, another node"),
]  # fmt: skip


def ending(rows: list[Row], code: int, **more: str) -> str:
    given = {"again": "", "report": ""} | more
    lines = run_summary.ending(rows, code, again=given["again"], report=given["report"])
    return "\n".join(line.text for line in lines)


def test_four_datasets_of_which_one_failed() -> None:
    again = "penstock --config my.yaml run c"
    assert ending(FOUR, 3, again=again, report="results/*/*/report.html") == (
        "  DATASET  RESULT       COPIED   CARRIED    TIME  PROOF\n"
        "! c        FAILED            -         -   2.0 s  -\n"
        "  a        published   310 GiB  1.20 TiB  14 min  cold; carried: oldest 19 d\n"
        "  b        unchanged         -  49.0 GiB   3.0 s  of 14 Nov\n"
        "  d        published  8.00 GiB         -    51 s  cold, another node\n"
        "\n"
        "3 of 4 are ready, 1 failed: c (there is no such bucket). Exit status 3.\n"
        "again:  penstock --config my.yaml run c\n"
        "report: results/*/*/report.html"
    )


def test_what_no_row_has_is_left_out_and_so_is_an_exit_status_of_0() -> None:
    assert ending([FOUR[1], FOUR[1]._replace(dataset="e")], 0) == (
        "  DATASET  RESULT      CARRIED   TIME  PROOF\n"
        "  b        unchanged  49.0 GiB  3.0 s  of 14 Nov\n"
        "  e        unchanged  49.0 GiB  3.0 s  of 14 Nov\n"
        "\n"
        "2 of 2 are ready."
    )


def test_a_row_that_needs_a_person_is_red() -> None:
    styles = {line.text[:3]: line.style for line in run_summary.table(FOUR)}
    assert styles["! c"] == "bold red"
    assert styles["  a"] == styles["  b"] == ""


def test_datasets_that_failed_for_one_reason_stand_together() -> None:
    rows = [Row(f"s{n}", FAILED, "FAILED", why="no space is left") for n in range(7)]
    rows += [Row("x", DAMAGED, "DAMAGED", why="3 changed"), Row("y", STOPPED, "stopped"), FOUR[0]]
    assert run_summary.sentence(rows, 6) == (
        "1 of 10 is ready, 7 failed: s0, s1, s2, s3, s4 and 2 more (no space is left), 1 is damaged: x "
        "(3 changed), 1 stopped (what was done is kept): y. Exit status 6."
    )
    rows = [Row(f"s{n}", FAILED, "FAILED", why=f"reason {n}") for n in range(5)]
    assert run_summary.sentence(rows, 1) == (
        "0 of 5 are ready, 5 failed: s0 (reason 0), s1 (reason 1), s2 (reason 2), and 2 for other reasons. "
        "Exit status 1."
    )


def test_no_line_is_longer_than_the_screen_and_names_are_escaped() -> None:
    rows = [
        Row("n" * 64, FAILED, "FAILED", "\x1b[2J" + "long " * 40, 1023 << 30, 1 << 60, 1e6),
        FOUR[0],
    ]
    text = ending(rows, 3)
    assert "\x1b" not in text
    assert max(map(len, text.split("\n"))) <= 80
    assert text == plain(text)


SEEN = {"cold": Amount(9, 9), "cold-other-node": Amount(0, 0), "carried": Amount(3, 3)}
OLD = SealedCarried(3, 3, "2026-11-08T11:00:00Z")


@pytest.mark.parametrize(
    ("storage", "carried", "sealed", "fresh", "expected"),
    [
        ({"cold": Amount(9, 9)}, None, "", True, "cold"),
        ({"cold-other-node": Amount(9, 9)}, None, "", True, "cold, another node"),
        ({"cold": Amount(9, 9), "reread": Amount(1, 1)}, None, "", True, "reread"),
        (SEEN, OLD, "", True, "cold; carried: oldest 19 d"),
        ({"carried": Amount(3, 3)}, OLD, "", True, "carried: oldest 19 d"),
        ({}, None, "", True, ""),
        ({"cold": Amount(9, 9)}, None, "2026-11-14T01:02:03Z", False, "of 14 Nov"),
        ({"cold": Amount(9, 9)}, None, "2025-01-02T01:02:03Z", False, "of 2 Jan 2025"),
    ],
)
def test_proof(
    storage: dict[str, Amount], carried: SealedCarried | None, sealed: str, *, fresh: bool, expected: str
) -> None:
    evidence = SealedEvidence({}, storage, {}, "", "")
    fields = dict.fromkeys(Seal._fields) | {"evidence": evidence, "carried": carried, "sealed": sealed}
    assert run_summary.proof(Seal(**fields), NOW, fresh=fresh, servers=False) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("grade", "methods", "expected"),
    [
        ("cold", ("disk",), "cold"),
        ("cold", ("disk", "dropped"), "cold, perhaps from the servers' memory"),
        ("cold", ("direct", "carried"), "cold, perhaps from the servers' memory"),
        ("cold-other-node", ("dropped",), "cold, another node, perhaps from the servers' memory"),
        ("reread", ("cached",), "reread"),
    ],
)
def test_the_proof_has_the_words_of_an_audit(grade: str, methods: tuple[str, ...], expected: str) -> None:
    """On a file system with servers."""
    amounts = dict.fromkeys(methods, Amount(9, 9)) | {"reflinked": Amount(0, 0)}
    evidence = SealedEvidence({}, {grade: Amount(9, 9)}, amounts, "", "")
    seal = Seal(**(dict.fromkeys(Seal._fields) | {"evidence": evidence}))  # type: ignore[arg-type]
    assert run_summary.proof(seal, NOW, fresh=True, servers=True) == expected
    whole = audit_grade(set(methods) - {"carried"}, whole=True, servers=True)
    assert whole == expected.replace(", another node", "")
