"""What a check of preflight, plan or selftest saw: one form for all of them. Pure.

A check is a pure function from typed facts to results; who asked for it decides what follows (preflight ends
with exit status 3 where a result stops the run, a table shows them all). What an audit finds is another thing
(`core.documents.findings`).
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Iterable
from typing import Literal, NamedTuple

Verdict = Literal["ok", "note", "warning", "stop"]
VERDICTS: tuple[Verdict, ...] = ("ok", "note", "warning", "stop")
"""From the lightest to the gravest."""
ADMINISTRATOR = "ask the file system's administrator"
"""Ends what people are to do that have not the rights to it."""


class CheckResult(NamedTuple):
    """One thing that was looked at. All texts are for people, safe on a terminal (`core.text.printable`)."""

    about: str
    """What was looked at: `BeeGFS storage target 104`, `mount /mnt/weka`."""
    found: str
    """What was seen, with units; "not known" where it could not be."""
    verdict: Verdict = "ok"
    """`note`: good to know; `warning`: the run may suffer; `stop`: the run cannot be right."""
    wanted: str = ""
    """What would have been in order; "" where there is nothing to compare with."""
    mend: str = ""
    """What to do, by whom: a command or a key of the configuration that can be pasted; "" for `ok`."""


def gravest(results: Iterable[CheckResult]) -> Verdict:
    """The gravest verdict; `ok` of none."""
    return max((one.verdict for one in results), key=VERDICTS.index, default="ok")


def sentence(result: CheckResult) -> str:
    """One sentence for a warning or a note: what it is about, what was found, and what to do."""
    return f"{result.about}: {result.found}" + (f"; {result.mend}" if result.mend else "")
