"""The findings of an audit, one line a deviation, with marks as in `diff`.

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
# kinds whose file a repair makes anew from its source
REPAIRABLE = frozenset({"missing", "changed", "replaced", "unread"})
# Kinds whose path is a record's: a comparison of the tree finds them in the manifest's order.
OF_A_FILE = frozenset({"missing", "changed", "replaced"})


class Finding(NamedTuple):
    """A deviation: a line of `findings.jsonl`, and part of an audit's result."""

    kind: str
    path: str  # bytes that are not UTF-8 stay as \udcXX escapes, which JSON carries
    why: str
    parts: Sequence[int] = ()  # of a giant: numbers of the damaged parts

    @property
    def mark(self) -> str:
        return MARKS[self.kind]

    def derived(self) -> Mapping[str, object]:
        """Return the further JSON fields."""
        return {"mark": self.mark}


def from_json(line: bytes) -> Finding:
    """Parse a line of `findings.jsonl`. Raises ValueError."""
    finding = typed_json.read(Finding, typed_json.loads(line))
    if finding.kind not in MARKS:
        raise ValueError(f"{in_quotes(finding.kind)} is no kind of finding")
    return finding


def also_repaired(release: str, count: int) -> str:
    """Return the sentence for a release whose shared damaged files were repaired, too."""
    them = "1 file is" if count == 1 else f"{human.count(count)} files are"
    return f"{them} the same in release {release}, and repaired there, too"


def also_in(release: str, count: int) -> str:
    """Return the sentence for a release that still has shared damaged files."""
    them = "1 damaged file is" if count == 1 else f"{human.count(count)} damaged files are"
    return f"{them} the same in release {release}, and not repaired there"
