"""What `penstock diff` found, as text. Guarantee: every name is escaped, whatever bytes it holds; a row is
one line, which begins with its mark.

| mark | kind                                                   |
|------|--------------------------------------------------------|
| `*`  | changed                                                |
| `!`  | may have changed: nothing that both sides state proves |
|      | that its bytes are the same                            |
| `>`  | has another path                                       |
| `-`  | removed                                                |
| `+`  | added                                                  |
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.core import human
from penstock.core.text import printable
from penstock.views.aligned_table import Column, lines
from penstock.views.styled_lines import Line

if TYPE_CHECKING:
    from penstock.core.documents.catalogue_rows import DiffResult, DiffRow

MARKS = {"changed": "*", "unproven": "!", "renamed": ">", "removed": "-", "added": "+"}
STYLES = {"changed": "yellow", "unproven": "magenta", "renamed": "cyan", "removed": "red", "added": "green"}
_MEANS = {"unproven": "may have changed"}
_COLUMNS = (
    Column(""),
    Column("FILES", right=True),
    Column("BYTES", right=True),
    Column("BEFORE", right=True),
)


def summary(result: DiffResult) -> list[Line]:
    """Counts by kind, files and bytes; kinds without a file are left out."""
    after = result["after"] or " ".join(result["source"]) + " now"
    told = [Line(printable(f"{result['dataset']}: {result['before']} -> {after}"), "bold")]
    rows = [
        [
            _MEANS.get(kind, kind),
            human.count(count.files),
            human.size(count.bytes),
            human.size(count.bytes_before) if count.bytes_before not in (0, count.bytes) else "",
        ]
        for kind, count in result["counts"].items()
        if count.files
    ]
    for texts in lines(_COLUMNS, rows, indent=2):
        told += map(Line, texts)
    if result["permissions"]:
        told.append(Line(printable(f"  permissions differ: {result['permissions']}"), "yellow"))
    return told


def row(one: DiffRow) -> Line:
    size, before = one.bytes, one.bytes_before
    name = shown(one.path) if one.was is None else f"{shown(one.was)} -> {shown(one.path)}"
    much = human.size((before if size is None else size) or 0)
    if size is not None and before is not None and size != before:
        sizes = (human.size(before), much)
        # Where both round to the same, the bytes are counted out.
        much = " -> ".join(sizes if sizes[0] != sizes[1] else (f"{n:,} B" for n in (before, size)))
    return Line(f"{MARKS[one.kind]} {name}  ({much})", STYLES[one.kind])


def shown(path: bytes) -> str:
    return printable(os.fsdecode(path))


def more(kind: str, count: int) -> Line:
    """In place of the rows that are not shown."""
    return Line(f"  and {human.count(count)} more {_MEANS.get(kind, kind)} (--all)", "dim")
