"""Requests the sizes of the parts in which an object was uploaded.

A composite checksum (an S3 multipart etag is one) covers the digests of these parts. Two requests give their
size if all but the last are alike. That is an assumption: parts of 8, 4, 12 and 8 MiB pass it. So a composite
that does not hold contradicts the bytes only when every part's size was queried:

| the sizes of all parts | a composite that does not hold |
|---|---|
| as assumed | contradicts the bytes |
| others | is computed again with them |
| not stated | says nothing: the grade is `size` |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.core.errors import IntegrityError
    from penstock.core.model import Entry, SourceChecksum
    from penstock.sources.port import Source


def part_sizes(source: Source, entry: Entry, checksum: SourceChecksum) -> Sequence[int]:
    """Return the bytes of each part behind a composite, in order, by one request a part; () if the store does
    not state them.

    Where the source has no such request, or the checksum is no composite, the sizes follow from its
    `part_bytes`.
    """
    sizes = source.part_sizes(entry, checksum.parts) if checksum.kind == "composite" else None
    if sizes is None:
        full, rest = divmod(entry.size, checksum.part_bytes) if checksum.part_bytes else (0, 0)
        return (*[checksum.part_bytes] * full, *([rest] if rest else []))
    return sizes if len(sizes) == checksum.parts and sum(sizes) == entry.size else ()


def as_assumed(sizes: Sequence[int], checksum: SourceChecksum) -> bool:
    """Return whether all parts but the last are as large as the checksum says, and the last is no larger."""
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
    """Return the sizes of the parts in which the object was uploaded, if `failed` is a composite computed
    with other sizes.

    Returns () where the store does not state them: the checksum then proves nothing. `asks` waits for the
    pace of requests. Raises `error` for any other checksum, and where the assumed sizes were right; else the
    errors of `part_sizes` and `asks`.
    """
    if failed is None or failed.kind != "composite" or not failed.part_bytes:
        raise error
    asks()
    sizes = part_sizes(source, entry, failed)
    if as_assumed(sizes, failed):
        raise error
    return sizes
