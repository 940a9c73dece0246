"""`listing/<listing>/<number>.json`: a stretch of a listing that was broken off, whose rows lie beside it.
Pure; `listing.resumption` writes it, and goes on from it when the source is listed again."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.

from typing import NamedTuple

from penstock.core.documents.typed_json import Document


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
        """`after` as bytes."""
        return bytes.fromhex(self.after)

    @property
    def end(self) -> bytes:
        """`upto` as bytes."""
        return bytes.fromhex(self.upto)


LISTING_SEGMENT = Document(ListingSegment, "a segment of a listing")
