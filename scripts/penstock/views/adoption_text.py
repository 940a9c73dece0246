"""What a comparison of a tree with its source found, as text: one line a difference, the mark first.

Guarantee: plain text; every name is escaped; of each kind at most so many names as asked for, then the count
of the others, and the file that has them all.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from penstock.core import human
from penstock.core.documents.differences import CHECKSUM, KINDS, READ, SIZE
from penstock.views.findings_text import METHODS, line, table

if TYPE_CHECKING:
    from penstock.core.documents.step_results import AdoptionResult, Amount, SameJson, SealingResult

SHOWN = 50
"""Names of each kind."""
GRADES = {
    "full": "a checksum that the source states",
    "etag-md5": "an MD5 that is the object's etag",
    "composite": "a checksum over the parts of its upload",
}
BY_READING = "reading the source"
BY_SIZE = "size alone: nothing is known of their bytes"
TITLES = {
    "missing": "missing",
    "size": "of another size",
    "content": "of other bytes",
    "replaced": "replaced by something else",
    "extra": "extra",
    "link": "extra links",
    "special": "special files",
    "unread": "unreadable",
    "source": "not compared, by the source's fault",
    "moving": "written to meanwhile",
    "time": "of another time",
    "excluded": "left out by include and exclude",
    "folder": "folders without a file of the source",
    "unlinked": "links and special files, not compared",
    "away": "not read, since their data is not here",
}


def comparison(result: AdoptionResult, shown: int = SHOWN) -> str:
    """The table of one comparison (`steps.adopt_step.run`); ends in a line feed."""
    lines = [human.printable(f"{result['dataset']}: {result['tree']}")]
    listed = f"{human.counted(result['files'], 'file')}, {human.size(result['bytes'])}"
    lines.append(line("Source", f"{' '.join(result['sources'])}: {listed}"))
    lines += [line("Same", f"{_amount(one)}, by {how}") for how, one in _same(result).items()]
    lines += [
        line("How", f"{human.count(count)} {METHODS.get(name, name)}")
        for name, count in sorted(result["methods"].items())
    ]
    if result["earlier"]:
        told = f"{human.count(result['earlier'])} of them by an earlier command, untouched since"
        lines.append(line("Read", told))
    counts = result["counts"]
    ordered = sorted(result["differences"], key=lambda one: KINDS.index(one.kind))
    for kind, same in groupby(ordered, key=lambda one: one.kind):
        of_kind = list(same)[:shown]
        lines.append(line(_title(of_kind[0].mark), f"{_amount(counts[kind])} {TITLES[kind]}"))
        lines += table((one.mark, one.path, one.why) for one in of_kind)
        if counts[kind]["files"] > len(of_kind):
            lines.append(f"    and {human.count(counts[kind]['files'] - len(of_kind))} more")
    lines += [
        line("Told", f"{_amount(counts[kind])} {TITLES[kind]}")
        for kind in counts
        if kind not in {one.kind for one in ordered}
    ]
    if counts:
        lines.append(line("All", human.printable(result["all_differences"])))
    lines.append(line("Took", human.duration(result["seconds"])))
    by_size = sum(one["files"] for one in result["same"] if one["how"] == SIZE)
    said = [f"{human.count(one['files'])} {kind}" for kind, one in counts.items()]
    told = ", ".join([*said, *([f"{human.counted(by_size, 'file')} by size alone"] if by_size else [])])
    lines.append(line("STATUS", f"{result['status']} ({told})" if told else result["status"]))
    return "".join(f"{one}\n" for one in lines)


def _same(result: AdoptionResult) -> dict[str, Amount]:
    """Files that are the same, by what they were compared with, in words."""
    found: dict[str, Amount] = {}
    for one in result["same"]:
        amount = found.setdefault(by(one), {"files": 0, "bytes": 0})
        amount["files"] += one["files"]
        amount["bytes"] += one["bytes"]
    return found


def by(one: SameJson) -> str:
    """What files that are the same were compared by."""
    if one["how"] == CHECKSUM:
        return GRADES.get(one["grade"], "a checksum")
    return BY_READING if one["how"] == READ else BY_SIZE


def _title(mark: str) -> str:
    return "Told" if mark in "~?" else "Differs"


def _amount(one: Amount) -> str:
    return f"{human.counted(one['files'], 'file')}, {human.size(one['bytes'])}"


def sealed(result: SealingResult) -> str:
    """What became of a tree that is a release now (`steps.adopt_seal.go_on`); ends in a line feed."""
    lines = [
        human.printable(f"{result['dataset']}/{result['release']}"),
        line("Path", result["path"]),
        line("Fetched", human.counted(result["fetched"], "file")),
        *(line("Aside", folder) for folder in result["aside"]),
        line("Undo", result["undo"]),
        line("STATUS", "PUBLISHED" + (", current" if result["current"] == result["release"] else "")),
    ]
    return "".join(f"{one}\n" for one in lines)
