"""`listing/<listing>/<number>.json`: a part of an interrupted listing, which `listing.resumption` resumes."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.

from typing import NamedTuple

from penstock.core.documents.typed_json import Document


class ListingSegment(NamedTuple):
    """All objects with keys behind `after`, up to and with `upto`."""

    after: str  # bytes of a key, in hex; "": from the first
    upto: str
    listed: float  # when the first of them was listed, in seconds since the epoch
    rows: int

    @property
    def begin(self) -> bytes:
        """`after` as bytes."""
        return bytes.fromhex(self.after)

    @property
    def end(self) -> bytes:
        """`upto` as bytes."""
        return bytes.fromhex(self.upto)


LISTING_SEGMENT = Document(ListingSegment, "a segment of a listing")
