"""Queries a store for the sizes of the parts in which an object was uploaded.

A composite checksum (an S3 multipart etag is one) is computed over the digests of these parts. Two requests
give their size where all but the last are alike. That they are is an assumption: parts of 8, 4, 12 and 8 MiB
pass it. So a composite that does not hold contradicts the bytes only when the size of every part was queried
and is as assumed.

Copying and adopt's reading call `sizes_of_upload` after such a checksum did not hold; copying in parts and
the listing of giants' checksums call the other two. They send requests to the source, and touch nothing else.

| the sizes of all parts | a composite that does not hold |
|---|---|
| as assumed | contradicts the bytes |
| others | is computed anew, by them |
| not stated    | says nothing: the grade is `size` |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.core.errors import IntegrityError
    from penstock.core.model import Entry, SourceChecksum
    from penstock.sources.port import Source


def part_sizes(source: Source, entry: Entry, checksum: SourceChecksum) -> Sequence[int]:
    """The size in bytes of each part behind a composite checksum, in order, by one request for each part; ()
    when the store does not state them. Where the source cannot be queried for parts, or the checksum is no
    composite: the sizes by the checksum's own `part_bytes`, without a request. Raises PenstockError."""
    sizes = source.part_sizes(entry, checksum.parts) if checksum.kind == "composite" else None
    if sizes is None:
        full, rest = divmod(entry.size, checksum.part_bytes) if checksum.part_bytes else (0, 0)
        return (*[checksum.part_bytes] * full, *([rest] if rest else []))
    return sizes if len(sizes) == checksum.parts and sum(sizes) == entry.size else ()


def as_assumed(sizes: Sequence[int], checksum: SourceChecksum) -> bool:
    """Whether all parts but the last are as large as the checksum says, and the last is no larger; False
    where there are no sizes. Pure."""
    if not sizes:
        return False
    *body, last = sizes
    return all(size == checksum.part_bytes for size in body) and last <= checksum.part_bytes


def sizes_of_upload(
    asks: Callable[[], None],
    source: Source,
    entry: Entry,
    failed: SourceChecksum | None,
    error: IntegrityError,
) -> Sequence[int]:
    """Sizes in bytes of the parts in which the object was uploaded, where the checksum `failed` is a
    composite one that was computed with other sizes; () where the store does not state them, so that the
    checksum proves nothing. `asks` is called before the source is queried, and waits until the pace of
    requests allows it. Raises `error` for any other checksum, and where the assumed sizes were right; else
    what `part_sizes` and `asks` raise."""
    if failed is None or failed.kind != "composite" or not failed.part_bytes:
        raise error
    asks()
    sizes = part_sizes(source, entry, failed)
    if as_assumed(sizes, failed):
        raise error
    return sizes
