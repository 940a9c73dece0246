"""The result of a check of preflight, plan or selftest.

A check is a pure function from typed facts to results; its caller decides what follows: preflight exits with
3 where a result stops the run. Audits have findings instead (`core.documents.findings`).
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Iterable
from typing import Literal, NamedTuple

Verdict = Literal["ok", "note", "warning", "stop"]
VERDICTS: tuple[Verdict, ...] = ("ok", "note", "warning", "stop")  # from the lightest to the gravest
ADMINISTRATOR = "ask the file system's administrator"  # ends advice to people without the rights


class CheckResult(NamedTuple):
    """A checked thing. All texts are for people, safe on a terminal (`core.text.printable`)."""

    about: str  # the thing: `BeeGFS storage target 104`, `mount /mnt/weka`
    found: str  # what was seen, with units, or "not known"
    # `note`: good to know; `warning`: the run may suffer; `stop`: the run cannot be right
    verdict: Verdict = "ok"
    wanted: str = ""  # what would be in order; "": nothing to compare with
    mend: str = ""  # what to do, by whom: a command or configuration key to paste; "" for `ok`


def gravest(results: Iterable[CheckResult]) -> Verdict:
    """Return the gravest verdict; `ok` without results."""
    return max((result.verdict for result in results), key=VERDICTS.index, default="ok")


def sentence(result: CheckResult) -> str:
    """Return a sentence for a warning or a note: the thing, what was seen, and what to do."""
    return f"{result.about}: {result.found}" + (f"; {result.mend}" if result.mend else "")
