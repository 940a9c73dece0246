"""Reads ranges of a store's objects, pinned to the listed version, in any dialect. Every GET is conditional.
Some servers ignore the condition, so the answer's version, range and length are compared, too (`answers`)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

from penstock.core.errors import ObjectError, PenstockError, TransientError
from penstock.sources.objects.answers import head_misfit, misfit
from penstock.sources.objects.client import ObjectClient, Request
from penstock.sources.port import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.core.model import Entry, SourceChecksum
    from penstock.sources.http.connection import Connection
    from penstock.sources.objects.client import Judge

BEGIN = 1024  # number of a body's first bytes, by which the body is judged


class HttpBody:
    """See `port.Body`."""

    __slots__ = ("_begin", "_connection", "_judge", "_left", "_where", "checksums")

    def __init__(
        self,
        connection: Connection,
        length: int,
        checksums: Sequence[SourceChecksum],
        where: str,
        judge: Judge | None = None,
    ) -> None:
        """An error from `judge` for the first bytes is raised before the last bytes are returned."""
        self._connection, self._left, self.checksums, self._where = connection, length, checksums, where
        self._judge, self._begin = judge, b""

    def readinto(self, buffer: memoryview) -> int:
        left = self._left
        if not left:
            return 0
        if len(buffer) > left:
            buffer = buffer[:left]
        count = self._connection.readinto(buffer)
        if not count:
            self._connection.abandon()
            raise TransientError("the body ended early", where=self._where, why=f"{left} bytes are missing")
        self._left = left - count
        if self._judge is not None:
            self._begin += buffer[: min(count, BEGIN)]
            if len(self._begin) >= BEGIN or not self._left:
                judge, self._judge = self._judge, None
                if (error := judge(self._begin)) is not None:
                    self._connection.abandon()
                    raise error
        return count

    def read_all(self, buffer: memoryview) -> None:
        at = 0
        while at < len(buffer):
            at += self.readinto(buffer[at:])
        self.close()

    def close(self) -> None:
        connection = self._connection
        if self._left:
            connection.abandon()
            return
        if not connection.ends():
            connection.abandon()
            raise TransientError("the body is longer than the listed size", where=self._where)
        connection.finish()

    def abandon(self) -> None:
        self._connection.abandon()


C = TypeVar("C", bound=ObjectClient)


class ObjectReader(Reader, Generic[C]):
    """A reader for one thread. It has one connection, and a further connection for each prefetched object.
    `credentials` returns the present credentials, which may be renewed at any time."""

    def __init__(self, client: Callable[[], C], credentials: Callable[[], object]) -> None:
        self._make, self._credentials = client, credentials
        self._client = client()
        self._sent: deque[tuple[Entry, C, Request]] = deque()
        self._idle: list[C] = []

    def open(self, entry: Entry, offset: int, length: int) -> HttpBody:
        """See `port.Reader`. Sends one GET. The body occupies the connection until it is closed."""
        client = self._client
        client.renew(self._credentials())
        path, query, lines = client.get(entry)
        if length != entry.size:
            lines = f"Range: bytes={offset}-{offset + length - 1}\r\n{lines}"
        connection = client.request("GET", path, query, lines)
        checksums, judge = self._checked(client, entry, offset, length)
        return HttpBody(connection, length, checksums, client.where(entry.key), None if offset else judge)

    def ahead(self, entry: Entry) -> None:
        """See `port.AheadReader`. Each prefetched object has a connection of its own."""
        client = self._idle.pop() if self._idle else None
        try:
            client = client or self._make()
            client.renew(self._credentials())
            request = client.get(entry)
            client.send("GET", request)
        except PenstockError:
            if client is not None:
                self._idle.append(client)
            return
        self._sent.append((entry, client, request))

    def whole(self, entry: Entry, buffer: memoryview) -> tuple[memoryview, Sequence[SourceChecksum]]:
        """See `port.WholeReader`. One system call reads head and body, if the head is like that of the last
        answer."""
        prefetched = self._prefetched(entry)
        client, request = prefetched or (self._client, None)
        try:
            client.renew(self._credentials())
            connection = client.request("GET", *(request or client.get(entry)), buffer)
            checksums, judge = self._checked(client, entry, 0, entry.size)
            data = connection.take()
            if data is None:
                data = buffer[: entry.size]
                HttpBody(connection, entry.size, checksums, client.where(entry.key), judge).read_all(data)
            elif judge is not None and (error := judge(bytes(data[:BEGIN]))) is not None:
                raise error
            return data, checksums
        finally:
            if prefetched is not None:
                self._idle.append(client)

    def checksum(self, entry: Entry) -> Sequence[SourceChecksum]:
        """Query the checksums by a HEAD."""
        client = self._client
        client.renew(self._credentials())
        headers, length = client.stated(entry)
        version = client.version(headers, entry.size)
        client.judge(entry, headers)
        if (error := head_misfit(length, headers, version, entry, client.where(entry.key))) is not None:
            raise error
        return self._checksums(client, entry, headers, whole=True)

    def close(self) -> None:
        for client in (self._client, *self._idle, *(client for _, client, _ in self._sent)):
            client.close()
        self._idle.clear()
        self._sent.clear()

    def _prefetched(self, entry: Entry) -> tuple[C, Request] | None:
        """Return the client and request that prefetched this object, or None. Objects that were prefetched
        earlier, but not fetched by `whole`, are dropped."""
        sent = self._sent
        if not any(queued == entry for queued, _, _ in sent):
            return None
        while True:
            first, client, request = sent.popleft()
            if first == entry:
                return client, request
            client.close()
            self._idle.append(client)

    def _checked(
        self, client: C, entry: Entry, offset: int, length: int
    ) -> tuple[Sequence[SourceChecksum], Judge | None]:
        """Return the answer's checksums, and a judge of its first bytes. Raises an error if the answer does
        not fit the request and the listing."""
        connection = client.connection
        whole, status, headers = length == entry.size, connection.status, connection.headers
        if status != (200 if whole else 206):
            raise self._refused(client, entry)
        try:
            judge = client.judge(entry, headers)
        except PenstockError:
            connection.abandon()
            raise
        version = client.version(headers, entry.size)
        # Most answers pass these comparisons; `misfit` judges any other answer by its table.
        if (
            not whole
            or version != entry.token
            or connection.length != length
            or b"content-encoding" in headers
        ):
            where, span = client.where(entry.key), (offset, length)
            error = misfit(status, connection.length, headers, version, entry, span, where)
            if error is not None:
                connection.abandon()
                raise error
        return self._checksums(client, entry, headers, whole=whole), judge

    def _checksums(
        self, client: C, entry: Entry, headers: Mapping[bytes, bytes], *, whole: bool
    ) -> Sequence[SourceChecksum]:
        del entry  # a dialect that needs further requests overrides this method and uses it
        return client.checksums(headers, whole=whole)

    def _refused(self, client: C, entry: Entry) -> PenstockError:
        connection, where = client.connection, client.where(entry.key)
        if connection.status == 200:
            connection.abandon()
            return ObjectError("the server ignores ranges", where=where, why="status 200, not 206")
        if connection.status == 206:
            connection.abandon()
            return ObjectError("the server sent a range where the whole object was requested", where=where)
        return client.failure(entry.key)
