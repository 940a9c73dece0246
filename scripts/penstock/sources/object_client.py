"""One thread's connection to one store, and the base of the stores' dialects; reads of ranges of an object,
pinned to the listed version, in any dialect; and OAuth 2.0 access tokens for requests.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Generic, NamedTuple, TypeVar
from urllib.parse import urlencode

from penstock.core.errors import (
    ExpiredCredentialsError,
    FailedError,
    ObjectError,
    PenstockError,
    TransientError,
)
from penstock.host import waits
from penstock.sources.backoff import TRIES, retrying
from penstock.sources.http_connection import Connection
from penstock.sources.http_values import HeaderNames, quoted
from penstock.sources.object_answers import head_misfit, misfit, refusal
from penstock.sources.port import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from penstock.core.model import Entry, SourceChecksum
    from penstock.sources.http_endpoint import Endpoint

    # called with the first `BEGIN` bytes of a body; returns the body's error
    Judge = Callable[[bytes], PenstockError | None]


# Requests OAuth 2.0 access tokens from a token server. Requests to a store then contain the token.

ANSWER_LIMIT = 1 << 16  # bytes of a token server's answer, at most
# number of tries, and seconds for each try: an unresponsive server is reported within a minute
TOKEN_TRIES, TIMEOUT = 4, 10.0


@dataclass(frozen=True)
class AccessToken:
    """A token and the time when it expires. Picklable; the representation does not show the token's text."""

    text: str = field(default="", repr=False)  # the token; "" if requests contain no token
    expires: float | None = None  # when the token expires, in seconds since the epoch; None if never
    origin: str = ""  # see `sources.credentials`

    @property
    def line(self) -> str:
        return f"Authorization: Bearer {self.text}\r\n" if self.text else ""

    def lasts(self, seconds: float) -> bool:
        return self.expires is None or time.time() < self.expires - seconds


def jwt_grant(server: str, issuer: str, scope: str, key: str, key_id: str) -> str:
    """Make the body of a request that exchanges a signed claim of identity, valid for an hour, for a token
    (RFC 7523, 2.1). Raises ValueError if `key` is no RSA key."""
    import jwt

    now = int(time.time())
    claims = {"iss": issuer, "scope": scope, "aud": server, "iat": now, "exp": now + 3600}
    try:
        assertion = jwt.encode(claims, key, "RS256", headers={"kid": key_id})
    except (TypeError, jwt.PyJWTError):
        raise ValueError("no RSA key") from None
    return urlencode({"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": assertion})


def requested(
    server: Endpoint, line: str, lines: str = "", body: str = "", *, origin: str, hint: str
) -> AccessToken:
    """Request a token from a token server (RFC 6749, 5.1), with retries.

    `line` is the request's method and target, `lines` are whole header lines, `body` is a form's data. Raises
    the last error when the retries run out, or FailedError with `hint` if the server's answer has no token.
    """
    if body:
        lines += f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\n"
    head = f"{line} HTTP/1.1\r\nHost: {server.authority}\r\n{server.proxy_lines}{lines}\r\n{body}"

    def ask() -> AccessToken:
        connection, answer = Connection(server), {}
        try:
            status = connection.request(head.encode("latin-1"))
            answer = json.loads(connection.read_all(ANSWER_LIMIT))
            if status != 200:
                raise ValueError(status)
            return AccessToken(str(answer["access_token"]), time.time() + float(answer["expires_in"]), origin)
        except (ValueError, KeyError, TypeError):
            error = refusal(status, connection.headers, server.url, message=_stated(answer), codes={})
            if error.retry and not isinstance(error, ExpiredCredentialsError):
                raise error from None
            what = "the server of access tokens gives none"
            raise FailedError(what, where=server.url, why=error.why, hint=hint) from None
        finally:
            connection.close()

    return retrying(ask, TOKEN_TRIES, waits.pause)


def _stated(answer: object) -> str:
    """Return the server's reason for a refusal (RFC 6749, 5.2), such as a wrong clock or a withdrawn key."""
    fields = answer if isinstance(answer, dict) else {}
    return " ".join(str(fields[name]) for name in ("error", "error_description") if name in fields)


ERROR_LIMIT = 1 << 16  # bytes that are read of an error's body, at most
PAGE_LIMIT = 64 << 20  # bytes of a page of a listing, at most


# A request without its method: path (quoted, below the client's `root`), query, and whole header lines.
Request = tuple[str, str, str]


class Described(NamedTuple):
    """The facts about an object in the answer to a HEAD, beside size and version."""

    folder: bool = False  # whether it is a folder's marker, and not an object
    archived: str = ""  # `Listed.archived`
    # the time in the object's metadata, in nanoseconds since the epoch; 0 if missing or unreadable
    time: int = 0


class ObjectClient:
    """Base of the dialects. A subclass calls `go_to` in `__init__`, and overrides the methods that differ for
    its store, such as `renew` and `signed` for signatures."""

    # The headers that `version`, `checksums` and `refusal` read. Of answers with small objects, only these
    # are kept.
    NAMES: ClassVar[HeaderNames] = HeaderNames()
    REDIRECTS: ClassVar[int] = 4  # requests in a call of `request`, at most
    # type of the error for a circle of redirects; FailedError if the circle concerns the whole store
    CIRCLE: ClassVar[type[PenstockError]] = FailedError
    VERSION: ClassVar[bytes] = b"etag"  # the header that states an object's version
    connection: Connection  # the connection of the last `request`, which has read the answer's head

    def __init__(self, url: str, prefix: str = "", single: str = "") -> None:
        """`url` is the source's URL for people, with the prefix and without secrets. `prefix` is "" or ends
        in a slash. `single` is the key of the one object that the URL names, or "" for a prefix."""
        self.url, self.prefix, self.single = url, prefix, single
        self.root = ""
        self._sent = b""
        self._error: bytes | None = None

    # ---- methods for dialects to override

    def renew(self, credentials: object) -> None:
        """Sign with these credentials from the next request on. This is called before every request, so it
        must be cheap if the credentials have not changed."""

    def signed(self, method: str, path: str, query: str, lines: str) -> tuple[str, str]:  # noqa: ARG002
        """Add authentication to a request's query and header lines. `path` begins at the server's root."""
        return query, lines

    def get(self, entry: Entry) -> Request:
        """Make the conditional GET of the whole object, which fails if its version is not the listed one."""
        condition = f'If-Match: "{entry.token}"\r\n' if entry.token else ""
        return f"/{quoted(self.name_in(self.prefix, entry.key))}", "", condition

    def version(self, headers: Mapping[bytes, bytes], size: int) -> str | None:  # noqa: ARG002 (the web's)
        """Return the version that an answer states, in the form of the listing's `token`. Return None if
        something other than the store sent the answer."""
        stated = headers.get(self.VERSION)
        return None if stated is None else stated.strip(b'"').decode("latin-1")

    def checksums(self, headers: Mapping[bytes, bytes], *, whole: bool) -> Sequence[SourceChecksum]:  # noqa: ARG002
        """Return the checksums that an answer states. `whole` means that its body is the whole object."""
        return ()

    def judge(self, entry: Entry, headers: Mapping[bytes, bytes]) -> Judge | None:  # noqa: ARG002
        """Return a judge of an object's first bytes, if the answer's headers call for one. Raises the error
        of an answer that the store did not send."""
        return None

    def refusal(self, status: int, headers: Mapping[bytes, bytes], body: bytes, key: str) -> PenstockError:  # noqa: ARG002
        """Return the error of an unwanted answer. `key` is "" for a listing."""
        return refusal(status, headers, self.where(key), codes={}, listing=not key)

    def moved(self, path: str) -> str | None:  # noqa: ARG002
        """After an answer other than 200 and 206, follow a redirect to another server (`go_to`). Return the
        path to request from that server; None if there is no redirect to follow."""
        return None

    def where(self, key: str) -> str:
        return self.url.removesuffix("/") if key == self.single != "" else self.url + key

    def described(self, headers: Mapping[bytes, bytes]) -> Described:  # noqa: ARG002 (of stores that do)
        return Described()

    def name_in(self, prefix: str, key: str) -> str:
        """Return an object's whole name; `prefix` ends in a slash."""
        return prefix.removesuffix("/") if key == self.single != "" else prefix + key

    # ---- methods of all dialects

    def head(self, method: str, path: str, query: str, lines: str) -> bytes:
        """Return the whole head of a request to `root` and `path`, signed now."""
        path, server = self.root + path, self.connection.endpoint
        query, lines = self.signed(method, path, query, lines)
        takes = "" if "Accept-Encoding:" in lines else "Accept-Encoding: identity\r\n"
        target = f"{server.origin}{path}{'?' if query else ''}{query}"
        own = f"Host: {server.authority}\r\n{takes}{server.proxy_lines}"
        return f"{method} {target} HTTP/1.1\r\n{own}{lines}\r\n".encode("latin-1")

    def go_to(self, server: Endpoint, root: str) -> None:
        """Send requests to this server from now on; `root`, quoted, precedes each path."""
        self.connection = Connection(server, names=self.NAMES)
        self.root = root

    def send(self, method: str, request: Request) -> None:
        """Send a request ahead of time. The next call of `request` must be for this request, unless `close`
        or `send` is called before."""
        if self._sent:  # the answer to an earlier request must not be taken for this one's
            self.close()
        self._sent = self.head(method, *request)
        self.connection.send(self._sent)

    def request(
        self, method: str, path: str, query: str = "", lines: str = "", room: memoryview | None = None
    ) -> Connection:
        """Request `path`. The returned connection has read the answer's head, and perhaps the body into
        `room`.

        Follows the dialect's redirects. Returns after an answer of any other status. Raises `CIRCLE` after
        more than `REDIRECTS` requests, TransientError if the connection breaks.
        """
        for _ in range(self.REDIRECTS):
            self._error = None
            anew = partial(self.head, method, path, query, lines)
            head, self._sent = self._sent or anew(), b""
            connection = self.connection
            status = connection.request(head, bodyless=method == "HEAD", room=room, anew=anew)
            if status in (200, 206) or (redirected := self.moved(path)) is None:
                return connection
            path = redirected
        self.connection.abandon()
        raise self.CIRCLE("the server redirects in a circle", where=self.url)

    def fetched(self, path: str, query: str, key: str = "") -> bytes:
        """Return the body of a listing's page (`key` is "") or an object's description. Raises the
        refusal."""
        connection = self.request("GET", path, query)
        if connection.status != 200:
            raise self.failure(key)
        return connection.read_all(PAGE_LIMIT)

    def stated(self, entry: Entry, gone: Container[int] = ()) -> tuple[Mapping[bytes, bytes], int]:
        """Return headers and length from a HEAD of the listed version, or ({}, -1) if the status is in
        `gone`. Raises any other refusal."""
        connection = self.request("HEAD", *self.get(entry))
        status, headers, length = connection.status, connection.headers, connection.length
        if status != 200 and status not in gone:
            raise self.failure(entry.key)
        connection.finish()
        return (headers, length) if status == 200 else ({}, -1)

    def body_of_error(self) -> bytes:
        """Return an error's body; b"" if it does not arrive. May be called more than once."""
        if self._error is None:
            try:
                self._error = self.connection.read_all(ERROR_LIMIT)
            except TransientError:
                self._error = b""
        return self._error

    def failure(self, key: str = "") -> PenstockError:
        """Read the body of an unwanted answer, and return its error."""
        connection = self.connection
        return self.refusal(connection.status, connection.headers, self.body_of_error(), key)

    def close(self) -> None:
        """Close the connection, and drop a request sent ahead. A later request connects again."""
        self._sent = b""
        self.connection.close()


C = TypeVar("C", bound=ObjectClient)
T = TypeVar("T")


class Requests(Generic[C]):
    """Makes requests from many threads at once. `renew` gets new credentials for all threads, as in
    `backoff.retrying`."""

    def __init__(
        self,
        client: Callable[[], C],
        credentials: Callable[[], object],
        renew: Callable[[ExpiredCredentialsError, bool], None],
    ) -> None:
        self._make, self._credentials, self._renew = client, credentials, renew
        self._mine = threading.local()
        self._clients: list[C] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def do(
        self,
        ask: Callable[[C], T],
        *,
        tries: int = TRIES,
        failed: Callable[[PenstockError], None] | None = None,
    ) -> T:
        """Call `ask` with this thread's client, `tries` times at most, and raise the last error. For `failed`
        see `backoff.retrying`."""
        used: object = None

        def attempt() -> T:
            nonlocal used
            used = self._credentials()
            client = self._client()
            client.renew(used)
            return ask(client)

        def renew(error: ExpiredCredentialsError, last: bool) -> None:
            with self._lock:
                if self._credentials() is used:  # no other thread was faster
                    self._renew(error, last)

        return retrying(attempt, tries, self._stop.wait, renew=renew, failed=failed)

    def _client(self) -> C:
        client: C | None = getattr(self._mine, "client", None)
        if client is None:
            client = self._mine.client = self._make()
            with self._lock:
                self._clients.append(client)
        return client

    def stop(self) -> None:
        self._stop.set()

    def close(self) -> None:
        """Close all connections. No thread may use them any more."""
        self.stop()
        with self._lock:
            for client in self._clients:
                client.close()
            self._clients.clear()


# Reads ranges of a store's objects, pinned to the listed version, in any dialect. Every GET is conditional.
# Some servers ignore the condition, so the answer's version, range and length are compared, too (`answers`).

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
