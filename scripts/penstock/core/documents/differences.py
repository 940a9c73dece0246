"""Differences between a tree that penstock did not write and its source, with marks as in `diff`; for
`penstock adopt`.

| mark | kind     | means                                                                          |
|------|----------|--------------------------------------------------------------------------------|
| -    | missing  | the source has it, the tree does not                                           |
| *    | size     | it has another size                                                            |
| *    | content  | it has the same size and other bytes, by a checksum or by reading the source   |
| *    | replaced | a link, folder or special file stands in its place                             |
| +    | extra    | the tree has it, the source does not                                           |
| +    | link     | a symbolic link that the source does not have                                  |
| +    | special  | a FIFO, socket or device                                                       |
| !    | unread   | it could not be read in the tree: nothing is known of its bytes                |
| !    | source   | the source could not be compared: it changed, is gone or refuses               |
| !    | moving   | it was written to while it was compared                                        |
| ~    | time     | same size, another time; its bytes were not compared with anything             |
| ?    | excluded | the tree has it, and `include` or `exclude` leave it out of the dataset        |
| ?    | folder   | a folder in which no file of the source lies                                   |
| ?    | unlinked | a symbolic link or special file, where those of the source are left out too    |
| ?    | away     | its data lies in an archive or a lower tier: it was not read                   |

Kinds marked `~` and `?` are reported, but are no difference: the exit status does not count them.
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Mapping
from typing import NamedTuple

from penstock.core.documents import typed_json
from penstock.core.text import in_quotes

MARKS = {
    "missing": "-",
    "size": "*",
    "content": "*",
    "replaced": "*",
    "extra": "+",
    "link": "+",
    "special": "+",
    "unread": "!",
    "source": "!",
    "moving": "!",
    "time": "~",
    "excluded": "?",
    "folder": "?",
    "unlinked": "?",
    "away": "?",
}
KINDS = tuple(MARKS)
TOLD = frozenset(kind for kind, mark in MARKS.items() if mark in "~?")  # kinds that are no difference
# Kinds of what the tree has and the listing does not.
NOT_LISTED = frozenset({"extra", "link", "special", "excluded", "folder", "unlinked"})
# Kinds of listed files whose bytes a release would have to get from the source.
TO_FETCH = frozenset({"missing", "size", "content", "replaced", "unread", "moving", "away"})

SAME, UNLIKE, OTHER, UNREAD, SOURCE, AWAY, STALE = (
    "same", "unlike", "other", "unread", "source", "away", "stale",
)  # fmt: skip
# Of a surveyed row. `unlike`: no regular file of the listed size; `other`: other bytes; `stale`: seen, and to
# be read again.
STATES = (SAME, UNLIKE, OTHER, UNREAD, SOURCE, AWAY, STALE)

CHECKSUM, READ, SIZE = "checksum", "source", "size"
# what a tree's bytes are compared by: the source's checksum, its bytes, or only the size
PROOFS = (CHECKSUM, READ, SIZE)


class Difference(NamedTuple):
    """A difference: a line of `differences.jsonl`, and part of a comparison's result."""

    kind: str
    path: str  # bytes that are not UTF-8 stay as \udcXX escapes, which JSON carries
    size: int  # bytes of the listed file, or of what the tree has if nothing is listed
    why: str
    how: str = ""  # of `content`: one of `PROOFS`

    @property
    def mark(self) -> str:
        return MARKS[self.kind]

    def derived(self) -> Mapping[str, object]:
        """Return the further JSON fields."""
        return {"mark": self.mark}


def from_json(line: bytes) -> Difference:
    """Parse a line of `differences.jsonl`. Raises ValueError."""
    difference = typed_json.read(Difference, typed_json.loads(line))
    if difference.kind not in MARKS:
        raise ValueError(f"{in_quotes(difference.kind)} is no kind of difference")
    return difference
