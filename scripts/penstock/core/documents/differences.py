"""What differs between a tree that penstock did not write and its source, as people know it from `diff`.
Pure; for `penstock adopt`.

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

Those marked `~` and `?` are reported and are no difference: the exit status does not count them.
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
TOLD = frozenset(kind for kind, mark in MARKS.items() if mark in "~?")
"""Kinds that are no difference."""
NOT_LISTED = frozenset({"extra", "link", "special", "excluded", "folder", "unlinked"})
"""Kinds of what the tree has and the listing does not."""
TO_FETCH = frozenset({"missing", "size", "content", "replaced", "unread", "moving", "away"})
"""Kinds of listed files whose bytes a release would have to get from the source."""

SAME, UNLIKE, OTHER, UNREAD, SOURCE, AWAY, STALE = (
    "same", "unlike", "other", "unread", "source", "away", "stale",
)  # fmt: skip
STATES = (SAME, UNLIKE, OTHER, UNREAD, SOURCE, AWAY, STALE)
"""Of a surveyed row. `unlike`: no regular file of the listed size; `other`: other bytes; `stale`: it was
seen, and has to be read again."""

CHECKSUM, READ, SIZE = "checksum", "source", "size"
PROOFS = (CHECKSUM, READ, SIZE)
"""What bytes of a tree are compared by: a checksum that the source states; the source's bytes, read; nothing
but the size."""


class Difference(NamedTuple):
    """One difference: a line of `differences.jsonl`, and a part of a comparison's result."""

    kind: str
    path: str
    """One that is not UTF-8 keeps its bytes as \\udcXX escapes, which JSON carries."""
    size: int
    """Bytes: of the listed file, or of what the tree has where nothing is listed."""
    why: str
    how: str = ""
    """Of `content`: which of `PROOFS` says so."""

    @property
    def mark(self) -> str:
        return MARKS[self.kind]

    def derived(self) -> Mapping[str, object]:
        """What JSON has beside the fields."""
        return {"mark": self.mark}


def from_json(line: bytes) -> Difference:
    """The difference in a line of `differences.jsonl`. Raises ValueError for any other."""
    difference = typed_json.read(Difference, typed_json.loads(line))
    if difference.kind not in MARKS:
        raise ValueError(f"{in_quotes(difference.kind)} is no kind of difference")
    return difference
