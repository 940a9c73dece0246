"""One thread's connection to one store, and the base of the stores' dialects."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Generic, NamedTuple, TypeVar

from penstock.core.errors import FailedError, PenstockError, TransientError
from penstock.sources.backoff import TRIES, retrying
from penstock.sources.http.connection import Connection
from penstock.sources.http.values import HeaderNames, quoted
from penstock.sources.objects.answers import refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from penstock.core.errors import ExpiredCredentialsError
    from penstock.core.model import Entry, SourceChecksum
    from penstock.sources.http.endpoint import Endpoint

    # called with the first `reader.BEGIN` bytes of a body; returns the body's error
    Judge = Callable[[bytes], PenstockError | None]

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
