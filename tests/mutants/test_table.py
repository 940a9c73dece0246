"""The table of mutants stays usable: `python -m tests.mutants` runs it."""

from __future__ import annotations

import ast
from functools import cache
from typing import TYPE_CHECKING

import pytest
from tests.mutants import __main__ as command
from tests.mutants.scratch import CHECKOUT, PRODUCT, Outcome, Place, places
from tests.mutants.table import MUTANTS, Mutant

if TYPE_CHECKING:
    from pathlib import Path


def test_each_text_stands_once_in_the_product_and_all_packages_have_a_mutant() -> None:
    found = {one.name: places(one.old) for one in MUTANTS}
    assert {name: where for name, where in found.items() if len(where) != 1} == {}
    assert len(found) == len(MUTANTS) >= 40
    packages = {path.parent.name for path in (CHECKOUT / PRODUCT).glob("*/__init__.py")}
    assert packages - {where[0].package for where in found.values()} == set()


def test_each_mutant_is_another_program_that_can_be_compiled() -> None:
    for one in MUTANTS:
        (place,) = places(one.old)
        before = (CHECKOUT / place.file).read_text(encoding="utf-8")
        assert one.old.strip() != one.new.strip()
        ast.parse(before.replace(one.old, one.new))


def test_each_named_test_is_there() -> None:
    missing = [one.test for one in MUTANTS if not _is_there(one.test)]
    assert missing == []


def _is_there(test: str) -> bool:
    """Whether a file defines the function of this node id. Its parameters are pytest's to know."""
    file, *names = test.partition("[")[0].split("::")
    if not (CHECKOUT / file).is_file() or not names:
        return False
    body = _parsed(file)
    for name in names:
        inner = [one for one in body if isinstance(one, ast.ClassDef | ast.FunctionDef) and one.name == name]
        if not inner:
            return False
        body = inner[0].body
    return True


@cache
def _parsed(file: str) -> list[ast.stmt]:
    return ast.parse((CHECKOUT / file).read_text(encoding="utf-8")).body


TEST = "tests/core/test_keys.py::test_a_doubled_path_is_found"
OLD = next(one.old for one in MUTANTS if one.test == TEST)
PASSED = Outcome(0, [TEST], [], "")


class Ended:
    """In place of a copy of the checkout: pytest ends like this in it."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.changes: list[tuple[Path, str, str]] = []

    def changed(self, file: Path, old: str, new: str) -> Ended:
        self.changes.append((file, old, new))
        return self

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def run(self, tests: list[str]) -> Outcome:
        return self.outcome


@pytest.mark.parametrize(
    ("old", "whole", "ended", "word"),
    [
        (OLD, PASSED, Outcome(1, [], [f"{TEST} - assert 1 == 2"], ""), "killed"),
        (OLD, PASSED, PASSED, "survived"),
        ("no such text", PASSED, PASSED, "its text stands 0 times in the product"),
        ("from __future__", PASSED, PASSED, "times in the product"),
        (OLD, Outcome(1, [], [TEST], ""), PASSED, "its test does not pass without it"),
        (OLD, Outcome(0, [], [], ""), PASSED, "its test does not pass without it"),
        (OLD, PASSED, Outcome(2, [], ["tests/core/test_keys.py"], ""), "no verdict: pytest ended with 2"),
        (OLD, PASSED, Outcome(1, [], ["tests/core/test_keys.py"], ""), "no verdict: pytest ended with 1"),
    ],
    ids=["killed", "survived", "gone", "ambiguous", "fails", "did not run", "collection", "another test"],
)
def test_only_a_failure_of_the_named_test_kills(old: str, whole: Outcome, ended: Outcome, word: str) -> None:
    scratch = Ended(ended)
    verdict = command._judge(Mutant("one", old, "", TEST), scratch, whole)  # type: ignore[arg-type]
    assert verdict.word.endswith(word)
    assert (verdict.word == command.KILLED) == (word == "killed")


def test_the_table_that_is_printed_counts_and_shows_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    place = Place(PRODUCT / "core/layout.py", 7)
    killed = command.Verdict(Mutant("one", OLD, "", TEST), place, command.KILLED)
    survived = command.Verdict(Mutant("two", OLD, "", TEST, "slurm"), place, "survived", "1 passed")
    command.show([killed, survived])
    text = capsys.readouterr().out
    assert "core         survived two" in text
    assert f"{TEST} (outside `make test`: slurm)" in text
    assert "--- two: survived\n1 passed" in text
    assert text.endswith("2 mutants in 1 packages: 1 killed, 1 survived\n")
