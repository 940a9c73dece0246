"""What an audit found: one line a deviation, marked as people know it from `diff`. Pure; audits write it,
repair and reports read it.

| mark | kind     | means                                                                     |
|------|----------|---------------------------------------------------------------------------|
| -    | missing  | the manifest has it, the tree does not                                    |
| -    | folder   | an empty folder of the source that was kept is not there                  |
| +    | extra    | the tree has it, the manifest does not                                    |
| *    | changed  | its bytes are not those that were published (parts: which, of a giant)    |
| *    | replaced | a link, folder or special file stands in its place                        |
| !    | mode     | mode, owner, group or ACL is not as published                             |
| !    | unread   | it could not be read: nothing is known of its bytes                       |
| !    | manifest | the manifest or the seal itself is damaged                                |
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.core import human
from penstock.core.documents import typed_json
from penstock.core.text import in_quotes

EMPTY_FOLDER = "folder"

MARKS = {
    "missing": "-",
    EMPTY_FOLDER: "-",
    "extra": "+",
    "changed": "*",
    "replaced": "*",
    "mode": "!",
    "unread": "!",
    "manifest": "!",
}
REPAIRABLE = frozenset({"missing", "changed", "replaced", "unread"})
"""Kinds of which a repair makes the file anew from its source."""
OF_A_FILE = frozenset({"missing", "changed", "replaced"})
"""Kinds whose path is a record's: a comparison of the tree finds them in the manifest's order."""


class Finding(NamedTuple):
    """One deviation: a line of `findings.jsonl`, and a part of an audit's result."""

    kind: str
    path: str
    """One that is not UTF-8 keeps its bytes as \\udcXX escapes, which JSON carries."""
    why: str
    parts: Sequence[int] = ()
    """Of a giant: the numbers of the parts that are damaged."""

    @property
    def mark(self) -> str:
        return MARKS[self.kind]

    def derived(self) -> Mapping[str, object]:
        """What JSON has beside the fields."""
        return {"mark": self.mark}


def from_json(line: bytes) -> Finding:
    """The finding in a line of `findings.jsonl`. Raises ValueError for what is no finding."""
    finding = typed_json.read(Finding, typed_json.loads(line))
    if finding.kind not in MARKS:
        raise ValueError(f"{in_quotes(finding.kind)} is no kind of finding")
    return finding


def also_repaired(release: str, count: int) -> str:
    """The sentence for a release that shared damaged files with the repaired one, and was repaired, too."""
    them = "1 file is" if count == 1 else f"{human.count(count)} files are"
    return f"{them} the same in release {release}, and repaired there, too"


def also_in(release: str, count: int) -> str:
    """The sentence for a release that shared damaged files with the repaired one, and still has them."""
    them = "1 damaged file is" if count == 1 else f"{human.count(count)} damaged files are"
    return f"{them} the same in release {release}, and not repaired there"
