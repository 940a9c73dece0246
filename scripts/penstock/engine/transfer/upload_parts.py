"""Queries in which parts an object was uploaded, when a composite checksum does not hold.

A composite (a multipart etag is one) is computed by the size of the parts, which two requests tell where
all but the last are alike. That they are is a guess: parts of 8, 4, 12 and 8 MiB pass it. So a composite
that does not hold contradicts the bytes only when every part was asked for and is as large as was assumed.

| the sizes of all parts | a composite that does not hold |
|---|---|
| as assumed | contradicts the bytes |
| others | is computed anew, by them |
| not stated    | says nothing: the grade is `size` |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.sources.port import Parted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.core.errors import IntegrityError
    from penstock.core.model import Entry, SourceChecksum
    from penstock.sources.port import Source


def part_sizes(source: Source, entry: Entry, checksum: SourceChecksum) -> Sequence[int]:
    """The size of each part behind a composite checksum, in order, one request a part; () when the store
    does not state them. Where a source has no parts, or the checksum says no size, nothing was assumed: as
    they are stated. Raises PenstockError."""
    if checksum.kind != "composite" or not isinstance(source, Parted):
        full, rest = divmod(entry.size, checksum.part_bytes) if checksum.part_bytes else (0, 0)
        return (*[checksum.part_bytes] * full, *([rest] if rest else []))
    sizes = source.part_sizes(entry, checksum.parts)
    return sizes if len(sizes) == checksum.parts and sum(sizes) == entry.size else ()


def as_assumed(sizes: Sequence[int], checksum: SourceChecksum) -> bool:
    """Whether all parts but the last are as large as the checksum says, and the last is no larger."""
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
    """Sizes of the parts in which the object was uploaded, where the checksum `failed` is a composite one
    that was computed with other sizes; () where the store does not state them, so that the checksum proves
    nothing. `asks` is called before the source is. Raises `error` for any other checksum, and where the
    assumed sizes were right."""
    if failed is None or failed.kind != "composite" or not failed.part_bytes:
        raise error
    asks()
    sizes = part_sizes(source, entry, failed)
    if as_assumed(sizes, failed):
        raise error
    return sizes
