"""One thread's connection to one store, and what its dialect has to say of requests and answers.

`objects.reader` and the listings use a client; it sends requests to the store, and touches nothing else. An
`Entry` is one planned copy: its key, its size in bytes, and the token (version) that the listing stated.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Generic, NamedTuple, TypeVar

from penstock.core.errors import FailedError, PenstockError, TransientError
from penstock.sources.backoff import TRIES, retrying
from penstock.sources.http.connection import Connection
from penstock.sources.http.response_template import HeaderNames
from penstock.sources.http.values import quoted
from penstock.sources.objects.answers import refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from penstock.core.errors import ExpiredCredentialsError
    from penstock.core.model import Entry, SourceChecksum
    from penstock.sources.http.endpoint import Endpoint

    Judge = Callable[[bytes], PenstockError | None]
    """What is wrong with a body, by its first `reader.BEGIN` bytes."""

ERROR_LIMIT = 1 << 16
"""Bytes of an error's body, at most."""
PAGE_LIMIT = 64 << 20
"""Bytes of a page of a listing, at most."""


Request = tuple[str, str, str]
"""A request but for its method: path (quoted, below `ObjectClient.root`), query, whole header lines."""


class Described(NamedTuple):
    """What the answer to a HEAD says of an object, beside its size and version."""

    folder: bool = False  # it stands for a folder, and is no object
    archived: str = ""  # `Listed.archived`
    time: int = 0  # that its metadata states, in nanoseconds since the epoch; 0: none that can be read


class ObjectClient:
    """Base of the dialects. A subclass calls `go_to` when it is made; of the rest it gives what differs in
    its store, such as `renew` and `signed` where requests carry a signature."""

    NAMES: ClassVar[HeaderNames] = HeaderNames()
    """The headers that `version`, `checksums` and `refusal` read: only these are kept of small objects."""
    REDIRECTS: ClassVar[int] = 4  # requests that one call of `request` makes at most, the first one included
    CIRCLE: ClassVar[type[PenstockError]] = FailedError
    """What a redirect in a circle raises: FailedError where it is the whole store's."""
    VERSION: ClassVar[bytes] = b"etag"  # the header that states an object's version
    connection: Connection  # after `request`: it holds the answer's head

    def __init__(self, url: str, prefix: str = "", single: str = "") -> None:
        """`url` is the source's, for people: with the prefix, without secrets. `prefix`: "" or ending in a
        slash. `single`: the key by which the object is known that the URL names without a slash at its end;
        "" where it has that slash."""
        self.url, self.prefix, self.single = url, prefix, single
        self.root = ""
        self._sent = b""
        self._error: bytes | None = None

    # ---- what a dialect says

    def renew(self, credentials: object) -> None:
        """Sign with these from the next request on. Called before every request: cheap for the same ones."""

    def signed(self, method: str, path: str, query: str, lines: str) -> tuple[str, str]:  # noqa: ARG002
        """Query and header lines of a request to `path`, which begins at the server's own root, with what
        shows now whose request it is."""
        return query, lines

    def get(self, entry: Entry) -> Request:
        """The GET of the listed version of an object: all of it, on the condition that it is the same."""
        condition = f'If-Match: "{entry.token}"\r\n' if entry.token else ""
        return f"/{quoted(self.name_in(self.prefix, entry.key))}", "", condition

    def version(self, headers: Mapping[bytes, bytes], size: int) -> str | None:  # noqa: ARG002 (the web's)
        """The version that an answer states, as the listing's `token` has it. None where every object of
        this store states one, and the answer does not: it is something else's."""
        stated = headers.get(self.VERSION)
        return None if stated is None else stated.strip(b'"').decode("latin-1")

    def checksums(self, headers: Mapping[bytes, bytes], *, whole: bool) -> Sequence[SourceChecksum]:  # noqa: ARG002
        """The checksums that an answer states; `whole`: its body is the whole object."""
        return ()

    def judge(self, entry: Entry, headers: Mapping[bytes, bytes]) -> Judge | None:  # noqa: ARG002
        """What judges the first bytes of an object whose answer has these headers; None: nothing needs to.
        Raises the error of an answer that is not the store's."""
        return None

    def refusal(self, status: int, headers: Mapping[bytes, bytes], body: bytes, key: str) -> PenstockError:  # noqa: ARG002
        """The error of an answer that was not wanted; `key` "" is the listing."""
        return refusal(status, headers, self.where(key), codes={}, listing=not key)

    def moved(self, path: str) -> str | None:  # noqa: ARG002
        """After an answer other than 200 and 206: follow the store to where it says (`go_to`). The path to
        ask for there; None where nothing is to be followed."""
        return None

    def where(self, key: str) -> str:
        """An object, for people."""
        return self.url.removesuffix("/") if key == self.single != "" else self.url + key

    def described(self, headers: Mapping[bytes, bytes]) -> Described:  # noqa: ARG002 (of stores that do)
        """What the answer to a HEAD describes."""
        return Described()

    def name_in(self, prefix: str, key: str) -> str:
        """The whole name of an object, below a prefix that ends in a slash."""
        return prefix.removesuffix("/") if key == self.single != "" else prefix + key

    # ---- what all have

    def head(self, method: str, path: str, query: str, lines: str) -> bytes:
        """The whole head of a request to `root` and `path`, signed now."""
        path, server = self.root + path, self.connection.endpoint
        query, lines = self.signed(method, path, query, lines)
        takes = "" if "Accept-Encoding:" in lines else "Accept-Encoding: identity\r\n"
        target = f"{server.origin}{path}{'?' if query else ''}{query}"
        own = f"Host: {server.authority}\r\n{takes}{server.proxy_lines}"
        return f"{method} {target} HTTP/1.1\r\n{own}{lines}\r\n".encode("latin-1")

    def go_to(self, server: Endpoint, root: str) -> None:
        """Requests go to this server from now on; `root`, quoted, stands before each path."""
        self.connection = Connection(server, names=self.NAMES)
        self.root = root

    def send(self, method: str, request: Request) -> None:
        """Ask ahead of time; the next `request` must be for the same, or `close` or `send` come before it."""
        if self._sent:  # its answer is still to come, and must not be taken for the next one's
            self.close()
        self._sent = self.head(method, *request)
        self.connection.send(self._sent)

    def request(
        self, method: str, path: str, query: str = "", lines: str = "", room: memoryview | None = None
    ) -> Connection:
        """Ask for `path`; the connection holds the answer's head, and in `room` perhaps its body too.

        Any status but a redirect that the dialect follows is handed to the caller. Raises `CIRCLE` for more
        redirects than `REDIRECTS`, TransientError for a connection that breaks.
        """
        for _ in range(self.REDIRECTS):
            self._error = None
            anew = partial(self.head, method, path, query, lines)
            head, self._sent = self._sent or anew(), b""
            connection = self.connection
            status = connection.request(head, bodyless=method == "HEAD", room=room, anew=anew)
            if status in (200, 206) or (there := self.moved(path)) is None:
                return connection
            path = there
        self.connection.abandon()
        raise self.CIRCLE("the server redirects in a circle", where=self.url)

    def fetched(self, path: str, query: str, key: str = "") -> bytes:
        """The body of an answer that is no object's: a page of a listing (`key` ""), a description. Raises
        the refusal."""
        connection = self.request("GET", path, query)
        if connection.status != 200:
            raise self.failure(key)
        return connection.read_all(PAGE_LIMIT)

    def stated(self, entry: Entry, gone: Container[int] = ()) -> tuple[Mapping[bytes, bytes], int]:
        """Headers and length of the answer to a HEAD of the listed version; ({}, -1) after a status in
        `gone`. Raises any other refusal."""
        connection = self.request("HEAD", *self.get(entry))
        status, headers, length = connection.status, connection.headers, connection.length
        if status != 200 and status not in gone:
            raise self.failure(entry.key)
        connection.finish()
        return (headers, length) if status == 200 else ({}, -1)

    def body_of_error(self) -> bytes:
        """The body of an answer that is an error; may be read again. b"" where it does not come."""
        if self._error is None:
            try:
                self._error = self.connection.read_all(ERROR_LIMIT)
            except TransientError:
                self._error = b""
        return self._error

    def failure(self, key: str = "") -> PenstockError:
        """The error of an answer other than the wanted one. Reads the answer's body."""
        connection = self.connection
        return self.refusal(connection.status, connection.headers, self.body_of_error(), key)

    def close(self) -> None:
        """Close the connection, and drop what was sent ahead. A later request opens a new one."""
        self._sent = b""
        self.connection.close()


C = TypeVar("C", bound=ObjectClient)
T = TypeVar("T")


class Requests(Generic[C]):
    """Requests that may be made from many threads at once. `renew` gets new credentials for all, as that of
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
        """What `ask` gives, called with this thread's client, `tries` times at most. Raises the last error.
        `failed`: see `backoff.retrying`."""
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
        """No further try, and no further pause."""
        self._stop.set()

    def close(self) -> None:
        """Ends all connections; called when no thread uses them any more."""
        self.stop()
        with self._lock:
            for client in self._clients:
                client.close()
            self._clients.clear()
