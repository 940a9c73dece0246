"""Lines of /proc/<pid>/stat, as the kernel writes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.host.kernel_facts import ProcessStat, process_stat

REST = "1 4242 4242 0 -1 4194304 120 0 0 0 31 7 0 0 20 0 1 0 987654 2500000 300 18446744073709551615"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"77 (python3) S {REST}\n", ProcessStat(77, "python3", "S", 1, 38, "987654")),
        (f"77 (a) S 9 (b)) Z {REST}\n", ProcessStat(77, "a) S 9 (b)", "Z", 1, 38, "987654")),
        ("77 (python3) S 1 4242\n", None),
        ("", None),
        ("77 python3 S\n", None),
    ],
)
def test_a_line(tmp_path: Path, line: str, expected: ProcessStat | None) -> None:
    (tmp_path / "77").mkdir()
    (tmp_path / "77/stat").write_text(line)
    assert process_stat(77, tmp_path) == expected
    assert process_stat(78, tmp_path) is None
    if expected:
        assert expected.ended is (expected.state == "Z")


def test_this_process() -> None:
    seen = process_stat("self")
    assert seen is not None
    assert (seen.pid, seen.parent, seen.ended) == (os.getpid(), os.getppid(), False)
    assert process_stat(os.getpid()) is not None
    assert seen.start.isdecimal()


def test_nobody_else_reads_a_process_or_the_mounts() -> None:
    package = Path(__file__).parents[2] / "scripts/penstock"
    for words in ('/stat"', "/stat'", "mountinfo"):
        found = {path.name for path in package.rglob("*.py") if words in path.read_text()}
        assert found <= ({"kernel_facts.py", "pool.py"} if "stat" in words else {"kernel_facts.py"}), words
