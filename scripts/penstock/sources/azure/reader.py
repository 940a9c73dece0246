"""Reads ranges of blobs, pinned to the listed version.

Every request carries If-Match, and the answer's own etag, range and length are compared with the
listing. A range is read in blocks, one of them ahead; each block is a request of its own, with
the same condition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from penstock.core.model import Claim
from penstock.errors import ObjectError, PenstockError, SourceChangedError, TransientError
from penstock.sources.checksum_headers import decode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Future

    from penstock.core.model import Entry
    from penstock.sources.azure.account import AzureCredentials, Place
    from penstock.sources.azure.client import Link, Links

BLOCK = 8 << 20
"""Bytes of one request; below what the SDK would split by itself (32 MiB)."""


class Answer(NamedTuple):
    data: bytes
    status: int
    headers: Mapping[str, str]


async def fetch(link: Link, name: str, entry: Entry, offset: int, length: int) -> Answer:
    """One conditional GET, or for no bytes at all one conditional HEAD."""
    from azure.core import MatchConditions

    seen: list[Any] = []
    how: dict[str, Any] = {**link.options, "raw_response_hook": seen.append}
    if entry.token:
        how |= {"etag": f'"{entry.token}"', "match_condition": MatchConditions.IfNotModified}
    blob = link.container.get_blob_client(name)
    if length:
        stream = await blob.download_blob(
            offset=offset, length=length, max_concurrency=1, decompress=False, **how
        )
        data: bytes = await stream.readall()
    else:
        data = b""
        await blob.get_blob_properties(**how)
    answer = seen[-1].http_response
    return Answer(data, answer.status_code, answer.headers)


def claims_of(headers: Mapping[str, str], *, whole_answer: bool) -> list[Claim]:
    """The blob's own MD5, which is of all its bytes whatever the range was."""
    stated = headers.get("x-ms-blob-content-md5") or (headers.get("Content-MD5") if whole_answer else "")
    value = decode(stated, 16) if stated else None
    return [Claim("md5", "full", value)] if value else []


def misfit(answer: Answer, entry: Entry, offset: int, length: int, where: str) -> PenstockError | None:
    """What is wrong with an answer, if anything. No `length`: it answers a HEAD."""
    headers = answer.headers
    etag = headers.get("ETag")
    if entry.token and (etag is None or etag.strip('"') != entry.token):
        if etag is None:
            return ObjectError(
                "what answered is no blob of the store",
                where=where,
                why="no etag",
                hint="a proxy or a login page may stand in between: check the account and endpoint_url",
            )
        return SourceChangedError(
            "the object changed since it was listed", where=where, why=f"etag {entry.token} is now {etag}"
        )
    if not length:
        stated = headers.get("Content-Length", "")
        if stated != str(entry.size):
            why = f"it has {stated} bytes, {entry.size} were listed"
            return SourceChangedError("the object's size changed since it was listed", where=where, why=why)
    else:
        wanted = f"bytes {offset}-{offset + length - 1}/{entry.size}"
        stated = headers.get("Content-Range", "")
        if stated != wanted:
            why = f"{stated!r}, not {wanted!r}"
            if stated.rpartition("/")[2] not in ("", "*", str(entry.size)):
                return SourceChangedError(
                    "the object's size changed since it was listed", where=where, why=why
                )
            return ObjectError("the server answers with another range", where=where, why=why)
    if len(answer.data) != length:
        why = f"{len(answer.data)} bytes where {length} were asked for"
        return TransientError("the answer's length is not the listed one", where=where, why=why)
    return None


class AzureBody:
    """One range of one blob."""

    claims: Sequence[Claim]

    def __init__(self, link: Link, name: str, entry: Entry, offset: int, length: int, where: str) -> None:
        self._link, self._name, self._entry, self._where = link, name, entry, where
        self._asked, self._end = offset, offset + length
        self._ready = memoryview(b"")
        self._ahead: Future[Answer] | None = None
        self._span = (0, 0)
        self._ask()
        first = self._next()
        whole = length == entry.size
        self.claims = claims_of(first.headers, whole_answer=first.status == 200) if whole else []

    def _ask(self) -> None:
        """Send for the next block."""
        size = min(BLOCK, self._end - self._asked)
        self._span = (self._asked, size)
        self._ahead = self._link.submit(fetch(self._link, self._name, self._entry, self._asked, size))
        self._asked += size

    def _next(self) -> Answer:
        """The block that was sent for; the one after it is sent for at once."""
        assert self._ahead is not None
        ahead, self._ahead = self._ahead, None
        answer = self._link.wait(ahead, self._where)
        error = misfit(answer, self._entry, *self._span, self._where)
        if error is not None:
            raise error
        self._ready = memoryview(answer.data)
        if self._asked < self._end:
            self._ask()
        return answer

    def readinto(self, buffer: memoryview) -> int:
        if not self._ready and self._ahead is not None:
            self._next()
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def close(self) -> None:
        self.abandon()

    def abandon(self) -> None:
        self._ready = memoryview(b"")
        if self._ahead is not None:
            self._ahead.cancel()
            self._ahead = None


class Container(Protocol):
    """What a reader needs of its source (`azure.source`)."""

    url: str
    place: Place
    links: Links
    credentials: AzureCredentials
    """Present ones: they may be renewed at any time."""


class AzureReader:
    """For one thread; the client is shared with the source's other readers."""

    def __init__(self, source: Container) -> None:
        self._source = source
        self._link: Link | None = None

    def _connected(self) -> Link:
        credentials = self._source.credentials
        if self._link is None or self._link.credentials is not credentials:
            self.close()
            self._link = self._source.links.take(credentials)
        return self._link

    def open(self, entry: Entry, offset: int, length: int) -> AzureBody:
        name = self._source.place.prefix + entry.key
        return AzureBody(self._connected(), name, entry, offset, length, self._source.url + entry.key)

    def close(self) -> None:
        if self._link is not None:
            link, self._link = self._link, None
            self._source.links.give_back(link)
