"""The shared reader of objects, and what is S3's own: the sizes of the parts in which an object was uploaded.

S3 states for such an object a checksum of its parts' checksums (composite). Only with these sizes can it be
computed anew.

Sends requests to the bucket and touches nothing else. `s3.source` makes a reader for each thread that copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.errors import ExpiredCredentialsError, PenstockError
from penstock.sources.backoff import asked_for, retry_after
from penstock.sources.checksum_headers import s3_checksums
from penstock.sources.objects.reader import ObjectReader
from penstock.sources.s3.client import S3Client

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.core.model import Entry, SourceChecksum

MOST_PARTS = 10_000
"""Parts that S3 lets an upload have."""


class S3Reader(ObjectReader[S3Client]):
    """The shared reader, with one more connection for queries of part sizes."""

    _side: S3Client | None = None

    def _checksums(
        self, client: S3Client, entry: Entry, headers: Mapping[bytes, bytes], *, whole: bool
    ) -> Sequence[SourceChecksum]:
        checksums = client.checksums(headers, whole=whole)
        if not whole or not checksums or checksums[0].kind == "full":
            return checksums
        # Only composites are stated: they can be computed where the size of the parts is known.
        return s3_checksums(headers, whole=True, part_bytes=self._part_bytes(entry, checksums[0].parts))

    def _part_bytes(self, entry: Entry, parts: int) -> int:
        if self._side is None:
            self._side = self._make()
        self._side.renew(self._credentials())
        try:
            return part_bytes(self._side, entry, parts)
        except ExpiredCredentialsError:
            raise  # with others the size is stated
        except PenstockError:
            return 0  # the size only helps a proof: without it the object is copied unproven

    def close(self) -> None:
        super().close()
        if self._side is not None:
            self._side.close()


def part_bytes(client: S3Client, entry: Entry, parts: int) -> int:
    """The size of a multipart object's parts, 0 when they are not all alike or not known.

    Only the first and the last part are queried. Where a checksum that was computed with this size does not
    hold, `part_sizes` queries all of them.
    """
    size = _part_size(client, entry, 1)
    if not size or -(-entry.size // size) != parts:
        return 0
    if parts > 2 and _part_size(client, entry, parts) != entry.size - size * (parts - 1):
        return 0
    return size


def part_sizes(client: S3Client, entry: Entry, parts: int) -> list[int]:
    """The size of each of so many parts; [] when the store does not state them, or they do not add up to the
    object's size. Raises a PenstockError for an answer that a retry may change."""
    sizes: list[int] = []
    for number in range(1, min(parts, MOST_PARTS) + 1):
        sizes.append(_part_size(client, entry, number, patient=True))
        if not sizes[-1]:
            return []
    return sizes if sum(sizes) == entry.size else []


def _part_size(client: S3Client, entry: Entry, number: int, *, patient: bool = False) -> int:
    """Bytes of one part; 0 when the store does not state them. With `patient` it raises a PenstockError for
    an answer that a retry may change."""
    path, query, lines = client.get(entry)
    query = f"partNumber={number}&{query}".rstrip("&")
    connection = client.request("HEAD", path, query, lines)
    length, status, headers = connection.length, connection.status, connection.headers
    if status in (400, 401, 403):  # keys that ended, or no such part
        error = client.failure(entry.key)
        if isinstance(error, ExpiredCredentialsError) or (patient and status == 403):
            raise error
        return 0
    if patient and (status in (408, 429) or status >= 500):
        where, why = client.where(entry.key), f"status {status}"
        what = "the sizes of the object's parts cannot be queried"
        raise asked_for(what, where, why, status, "", retry_after(headers))
    connection.finish()
    same = client.version(headers, entry.size) == entry.token
    return length if status in (200, 206) and same and length > 0 else 0
