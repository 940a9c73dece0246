"""Reads ranges of objects of one bucket, pinned to the listed version.

Every GET carries If-Match, and the answer's own etag, range and length are compared with the
listing, since some servers ignore the condition.
"""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING

from penstock.errors import ObjectError, PenstockError, SourceChangedError, TransientError
from penstock.sources.backoff import asked_for, retry_after
from penstock.sources.checksum_headers import s3_claims
from penstock.sources.http.body import HttpBody
from penstock.sources.s3.client import S3Client
from penstock.sources.s3.sigv4 import quote_path, quote_value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.core.model import Claim, Entry
    from penstock.sources.http.connection import Connection
    from penstock.sources.s3.client import Bucket
    from penstock.sources.s3.credentials import S3Credentials

_Request = tuple[str, str, str]
"""Path, query, headers that need no signature."""
MOST_PARTS = 10_000
"""Parts that S3 lets an upload have."""
_PLAIN = re.compile(r"[A-Za-z0-9/._~-]*")


def quoted(key: str) -> str:
    """A key as it stands in a request's path."""
    return key if _PLAIN.fullmatch(key) else quote_path(key.encode("utf-8", "surrogateescape"))


class S3Reader:
    """For one thread: one connection, further ones for what is asked for ahead, and one to ask for part
    sizes."""

    def __init__(self, bucket: Bucket, credentials: Callable[[], S3Credentials]) -> None:
        self._bucket = bucket
        self._credentials = credentials
        self._client = S3Client(bucket, credentials())
        self._side: S3Client | None = None
        self._sent: deque[tuple[Entry, S3Client, _Request]] = deque()
        self._idle: list[S3Client] = []
        self._prefix = quoted(bucket.prefix)

    def open(self, entry: Entry, offset: int, length: int) -> HttpBody:
        client = self._client
        client.renew(self._credentials())
        lines = "" if length == entry.size else f"Range: bytes={offset}-{offset + length - 1}\r\n"
        connection = client.request("GET", *self._request(entry, lines))
        claims = self._checked(client, entry, offset, length)
        return HttpBody(connection, length, claims, self._where(entry))

    def ahead(self, entry: Entry) -> None:
        """See `port.AheadReader`. One connection for each object that is on its way."""
        try:
            client = self._idle.pop() if self._idle else S3Client(self._bucket, self._credentials())
        except PenstockError:
            return
        client.renew(self._credentials())
        request = self._request(entry, "")
        client.send("GET", *request)
        self._sent.append((entry, client, request))

    def whole(self, entry: Entry, buffer: memoryview) -> tuple[memoryview, Sequence[Claim]]:
        """Head and body in one call of the kernel, where answers are alike. See `port.WholeReader`."""
        asked = self._asked(entry)
        client, request = asked or (self._client, self._request(entry, ""))
        client.renew(self._credentials())
        try:
            connection = client.request("GET", *request, buffer)
            claims = self._checked(client, entry, 0, entry.size)
            data = connection.take()
            if data is None:
                data = buffer[: entry.size]
                HttpBody(connection, entry.size, claims, self._where(entry)).read_all(data)
            return data, claims
        finally:
            if asked is not None:
                self._idle.append(client)

    def _asked(self, entry: Entry) -> tuple[S3Client, _Request] | None:
        """By whom, and how, this object was asked for ahead of time. What was asked for before it, in vain,
        is dropped."""
        sent = self._sent
        if not any(one == entry for one, _, _ in sent):
            return None
        while True:
            first, client, request = sent.popleft()
            if first == entry:
                return client, request
            client.close()
            self._idle.append(client)

    def _request(self, entry: Entry, lines: str) -> _Request:
        """A GET, pinned to the listed version."""
        token = entry.token
        if token and not token.startswith("W/"):
            lines += f'If-Match: "{token}"\r\n'
        query = f"versionId={quote_value(entry.version.encode())}" if entry.version else ""
        return self._prefix + quoted(entry.key), query, lines

    def _checked(self, client: S3Client, entry: Entry, offset: int, length: int) -> Sequence[Claim]:
        """What the answer states of its bytes, when it is the answer that was asked for."""
        connection = client.connection
        whole, token = length == entry.size, entry.token
        if connection.status != (200 if whole else 206):
            raise self._refused(client, entry)
        headers = connection.headers
        if token and headers.get(b"etag", b"").strip(b'"') != token.encode("latin-1", "replace"):
            connection.abandon()
            raise _other_object(headers, token, self._where(entry))
        if connection.length != length or connection.status == 206:
            error = _misfit(connection, entry, offset, length, self._where(entry))
            if error is not None:
                connection.abandon()
                raise error
        return self._claims(entry, connection, whole)

    def _where(self, entry: Entry) -> str:
        return self._bucket.url + entry.key

    def _claims(self, entry: Entry, connection: Connection, whole: bool) -> Sequence[Claim]:
        claims = s3_claims(connection.headers, whole=whole)
        if not whole or not claims or claims[0].kind == "full":
            return claims
        # Only composites: they can be computed when the size of the parts is known.
        part_bytes = self._part_bytes(entry, claims[0].parts)
        return s3_claims(connection.headers, whole=True, part_bytes=part_bytes)

    def _part_bytes(self, entry: Entry, parts: int) -> int:
        if self._side is None:
            self._side = S3Client(self._bucket, self._credentials())
        self._side.renew(self._credentials())
        try:
            return part_bytes(self._side, self._prefix + quoted(entry.key), entry, parts)
        except PenstockError:
            return 0  # a help for proofs, never a reason to fail

    def _refused(self, client: S3Client, entry: Entry) -> PenstockError:
        connection = client.connection
        where, status = self._where(entry), connection.status
        if status == 200:
            connection.abandon()
            return ObjectError("the server ignores ranges", where=where, why="status 200, not 206")
        if status == 206:
            connection.abandon()
            return ObjectError("a range came where all was asked for", where=where)
        return client.failure(connection, self._bucket.prefix + entry.key)

    def close(self) -> None:
        for client in (self._client, self._side, *self._idle, *(client for _, client, _ in self._sent)):
            if client is not None:
                client.close()
        self._idle.clear()
        self._sent.clear()


def _misfit(
    connection: Connection, entry: Entry, offset: int, length: int, where: str
) -> PenstockError | None:
    """What is wrong with the answer's length or range, if anything.

    S3 hands an object's Content-Encoding out with the bytes as they are stored: right when the
    length is. Some proxies encode on the way, which changes or hides the length.
    """
    headers = connection.headers
    if connection.length != length:
        encoding = headers.get(b"content-encoding", b"").decode("latin-1")
        if encoding not in ("", "identity"):
            why = f"Content-Encoding {encoding}, {connection.length} bytes where {length} were asked for"
            return ObjectError("the answer is encoded on the way", where=where, why=why)
        if connection.length >= 0:
            why = f"{connection.length} bytes where {length} were asked for"
            return TransientError("the answer's length is not the listed one", where=where, why=why)
    if connection.status == 206:
        wanted = f"bytes {offset}-{offset + length - 1}/{entry.size}"
        stated = headers.get(b"content-range", b"").decode("latin-1")
        if stated != wanted:
            why = f"{stated!r}, not {wanted!r}"
            if stated.rpartition("/")[2] not in ("", "*", str(entry.size)):
                return SourceChangedError(
                    "the object's size changed since it was listed", where=where, why=why
                )
            return ObjectError("the server answers with another range", where=where, why=why)
    return None


def _other_object(headers: dict[bytes, bytes], token: str, where: str) -> PenstockError:
    etag = headers.get(b"etag")
    if etag is None:
        kind = headers.get(b"content-type", b"no type").decode("latin-1")
        return ObjectError(
            "what answered is no object of the store",
            where=where,
            why=f"no etag, Content-Type {kind}",
            hint="a proxy or a login page may stand in between: check endpoint_url",
        )
    return SourceChangedError(
        "the object changed since it was listed",
        where=where,
        why=f"etag {token} is now {etag.decode('latin-1')}",
    )


def part_bytes(client: S3Client, path: str, entry: Entry, parts: int) -> int:
    """The size of a multipart object's parts, 0 when they are not all alike or not known.

    The first and the last part are asked for; those between them are only when a checksum that was computed
    by this size does not hold (`part_sizes`).
    """
    size = _part_size(client, path, entry, 1)
    if not size or -(-entry.size // size) != parts:
        return 0
    if parts > 2 and _part_size(client, path, entry, parts) != entry.size - size * (parts - 1):
        return 0
    return size


def part_sizes(client: S3Client, path: str, entry: Entry, parts: int) -> list[int]:
    """The size of each of so many parts; [] when they are not told, or do not add up to the object. Raises
    PenstockError for what may pass."""
    sizes: list[int] = []
    for number in range(1, min(parts, MOST_PARTS) + 1):
        sizes.append(_part_size(client, path, entry, number, patient=True))
        if not sizes[-1]:
            return []
    return sizes if sum(sizes) == entry.size else []


def _part_size(client: S3Client, path: str, entry: Entry, number: int, *, patient: bool = False) -> int:
    """0 when it is not told. `patient`: raises PenstockError for an answer that may be another one later."""
    query = f"partNumber={number}"
    if entry.version:
        query += f"&versionId={quote_value(entry.version.encode())}"
    connection = client.request("HEAD", path, query, f'If-Match: "{entry.token}"\r\n')
    length, status, etag = connection.length, connection.status, connection.headers.get(b"etag", b"")
    if patient and (status in (403, 408, 429) or status >= 500):
        # An answer to HEAD does not say why: 403 may be keys that ran out.
        where, asked = client.bucket.url + entry.key, retry_after(connection.headers)
        raise asked_for(
            "the sizes of its parts cannot be asked for", where, f"status {status}", status, "", asked
        )
    connection.finish()
    same = etag.strip(b'"') == entry.token.encode("latin-1", "replace")
    return length if status in (200, 206) and same and length > 0 else 0
