"""`listing/<listing>/<number>.json`: a stretch of a listing that was broken off, whose rows lie beside it."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.

from typing import NamedTuple

from penstock.core.documents import typed_json

FORMAT = 1


class ListingSegment(NamedTuple):
    """All objects whose keys come behind one key, up to and with another one."""

    after: str
    """Bytes of a key, in hex; "": from the first one on."""
    upto: str
    listed: float
    """When the first of them was listed, in seconds since the epoch."""
    rows: int

    @property
    def begin(self) -> bytes:
        return bytes.fromhex(self.after)

    @property
    def end(self) -> bytes:
        return bytes.fromhex(self.upto)


def to_json(segment: ListingSegment) -> dict[str, object]:
    return typed_json.to_json(segment, FORMAT)


def from_json(content: bytes, where: object) -> ListingSegment:
    """Of the file's bytes, `where` is its path. Raises NewerFormatError, and ValueError for any other
    content."""
    segment = typed_json.parse(ListingSegment, content, "a segment of a listing", FORMAT, where)
    if not segment.begin < segment.end:
        raise ValueError("its keys are in no order")
    return segment
