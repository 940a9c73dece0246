from __future__ import annotations

from penstock.core.element_documents import StepUse, Usage, Worst
from penstock.look.views import run_summary

GIB = 1 << 30
PASSED = {
    "dataset": "imagenet",
    "status": "PASSED",
    "release": "2026-11-21-3fa9c1d2",
    "path": "/target/imagenet/releases/2026-11-21-3fa9c1d2/data",
    "scanned": {"files": 20004, "bytes": 4 * GIB},
    "ignored": {"excluded": 2, "markers": 0},
    "unchanged": {"files": 2, "bytes": 100},
    "copied": {"files": 20000, "bytes": 3 * GIB, "seconds": 20.0},
    "verified": {"files": 20002, "bytes": 3 * GIB, "seconds": 4.0},
    "giants": 2,
    "parts": 8,
    "failed": 0,
    "bytes_in": 3 * GIB,
    "bytes_out": 3 * GIB,
    "seconds": 41.0,
    "evidence": {
        "source": {"size": {"files": 2}, "full": {"files": 20000}},
        "storage": {"cold": {"files": 20002}},
    },
}


def test_a_run_that_passed() -> None:
    assert run_summary.render(PASSED) == (
        "imagenet\n"
        "  Scanned       20,004 objects, 4.00 GiB\n"
        "  Left out      2 excluded\n"
        "  Unchanged     2 files, 100 B\n"
        "  Copied        20,000 files, 3.00 GiB in 20 s\n"
        "  Verified      20,002 files, 3.00 GiB in 4.0 s\n"
        "  Giants        2 in 8 parts\n"
        "  Speed         154 MiB/s (3.00 GiB)\n"
        "  Steps took    41 s\n"
        "  Source proof  full 20,000, size 2\n"
        "  Storage proof cold 20,002\n"
        "  Release       2026-11-21-3fa9c1d2\n"
        "  Path          /target/imagenet/releases/2026-11-21-3fa9c1d2/data\n"
        "  STATUS        PASSED\n"
    )


def test_hard_links_are_told_of() -> None:
    linked = PASSED | {"hard_links": {"files": 1234567, "of": 123456, "bytes": 3 * GIB}}
    line = "  Hard links    1,234,567 files are links of 123,456 others, 3.00 GiB more\n"
    assert line in run_summary.render(linked)
    assert len(line) < 80
    one = PASSED | {"hard_links": {"files": 1, "of": 1, "bytes": 5}}
    assert "  Hard links    1 file is a link of 1 other, 5 B more\n" in run_summary.render(one)
    assert "Hard links" not in run_summary.render(PASSED | {"hard_links": {}})


def test_a_source_that_moved_is_told_of() -> None:
    span = {"from": "2026-11-21T10:00:00Z", "until": "2026-11-21T11:30:00Z"}
    told = run_summary.render(PASSED | {"amended": {"listing": "x", "changed": 1200, "gone": 3, **span}})
    assert (
        "  Moving source 1,200 files newer than listed, 3 gone; no one moment: "
        "2026-11-21T10:00:00Z to 2026-11-21T11:30:00Z\n"
    ) in told
    assert "Moving source" not in run_summary.render(PASSED)


def test_what_is_not_known_is_left_out() -> None:
    assert run_summary.render({"dataset": "d"}) == "d\n  STATUS        FAILED\n"


def test_what_a_run_had_none_of_is_left_out() -> None:
    none = {"files": 0, "bytes": 0}
    text = run_summary.render(
        PASSED | {"unchanged": none, "copied": none, "verified": none, "giants": 0, "failed": 0, "retries": 0}
    )
    titles = [line[2:16].strip() for line in text.splitlines()[1:]]
    assert titles == [
        "Scanned", "Left out", "Steps took", "Source proof", "Storage proof", "Release", "Path", "STATUS",
    ]  # fmt: skip


def test_two_speeds_are_shown_where_they_differ() -> None:
    text = run_summary.render(PASSED | {"bytes_out": GIB})
    assert "  Speed in      154 MiB/s (3.00 GiB)\n  Speed out     51.2 MiB/s (1.00 GiB)\n" in text


def test_failures_are_shown_escaped_and_bounded() -> None:
    failures = [{"path": f"\x1b[2J{index}", "why": "gone\n"} for index in range(30)]
    text = run_summary.render({"dataset": "d", "failed": 300, "failures": failures, "why": "300 failed"})
    assert "\x1b" not in text
    assert text.count("\\x1b[2J") == run_summary.SHOWN_FAILURES
    assert "and 290 more, in the report" in text
    assert text.endswith("STATUS        FAILED (300 failed)\n")


def test_what_the_elements_used_is_three_lines() -> None:
    line = StepUse("", 3, 1.52, 9.1, None, 0.63, 412 << 20, 12.0, 184.0, 250.0, 542.0)
    worst = [Worst("queue_wait", "copy", 17, "n1", 184.0)]
    text = run_summary.render(PASSED | {"usage": Usage([line], worst)})
    assert (
        "  Steps took    41 s\n"
        "  Resources     1.52 node-hours, 9.10 core-hours, CPU 63%, memory 412 MiB\n"
        "  Queue wait    median 12 s, longest 3 min 04 s (copy 17)\n"
        "  Run time      median 4 min 10 s, longest 9 min 02 s\n"
    ) in text
    assert max(len(one) for one in text.splitlines()) <= 80
    assert "Queue wait" not in run_summary.render(PASSED | {"usage": Usage([StepUse("copy", 1)])})
    at_once = line._replace(wait_median=0.01, wait_longest=0.02)
    assert "Queue wait" not in run_summary.render(PASSED | {"usage": Usage([at_once], worst)})


def test_a_run_that_passed_in_four_lines() -> None:
    passed = {**PASSED, "files": 20002, "bytes": 3 * GIB + 100, "report": "/r.html", "retries": 3}
    assert run_summary.short(passed) == (
        "imagenet\n"
        "  STATUS        PASSED, 2026-11-21-3fa9c1d2: 20,002 files, 3.00 GiB; "
        "copied 20,000 files, 3.00 GiB in 20 s, 154 MiB/s\n"
        "  Checked       source full 20,000, size 2; storage cold 20,002; tried again: 3\n"
        "  Path          /target/imagenet/releases/2026-11-21-3fa9c1d2/data\n"
        "  Report        /r.html\n"
    )


def test_warnings_follow_the_four_lines_and_names_are_escaped() -> None:
    text = run_summary.short({**PASSED, "why": "nothing was copied", "warnings": ["x\x1b[31m"], "copied": {}})
    assert "  STATUS        PASSED (nothing was copied)\n" in text
    assert text.endswith("  Warning       x\\x1b[31m\n")


def test_a_run_that_failed_is_shown_in_full() -> None:
    failed = {**PASSED, "status": "FAILED", "why": "copy: no space"}
    assert run_summary.short(failed) == run_summary.render(failed)
