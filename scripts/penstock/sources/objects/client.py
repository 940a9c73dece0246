"""One thread's connection to one store, and what its dialect has to say of requests and answers.

`objects.reader` and the listings use a client; it sends requests to the store, and touches nothing else. An
`Entry` is one planned copy: its key, its size in bytes, and the token (version) that the listing stated.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

from penstock.core.errors import FailedError, PenstockError, TransientError
from penstock.sources.http.connection import Connection
from penstock.sources.http.response_template import HeaderNames

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.core.model import Entry, SourceChecksum
    from penstock.sources.http.body import Judge
    from penstock.sources.http.endpoint import Endpoint

ERROR_LIMIT = 1 << 16
"""Bytes of an error's body, at most."""
PAGE_LIMIT = 64 << 20
"""Bytes of a page of a listing, at most."""


Request = tuple[str, str, str]
"""A request but for its method: path (quoted, below `ObjectClient.root`), query, whole header lines."""


class ObjectClient:
    """Base of the dialects. A subclass calls `go_to` when it is made, and gives `head`, `get` and `refusal`;
    the rest where its store differs from what stands here."""

    NAMES: ClassVar[HeaderNames] = HeaderNames()
    """The headers that `version`, `checksums` and `refusal` read: only these are kept of small objects."""
    REDIRECTS: ClassVar[int] = 4
    """Requests that one call of `request` makes at most, the first one included."""
    CIRCLE: ClassVar[type[PenstockError]] = FailedError
    """What a redirect in a circle raises: FailedError where it is the whole store's."""
    VERSION: ClassVar[bytes] = b"etag"
    """The header that states an object's version."""
    connection: Connection
    """After `request`: it holds the answer's head."""

    def __init__(self, url: str, single: str = "") -> None:
        """`url` is the source's, for people: with the prefix, without secrets. `single`: the key by which the
        object is known that the URL names without a slash at its end; "" where it has that slash."""
        self.url, self.single = url, single
        self.root = ""
        self._sent = b""
        self._error: bytes | None = None

    # ---- what a dialect says

    def renew(self, credentials: object) -> None:
        """Sign with these from the next request on. Called before every request: cheap for the same ones."""

    def head(self, method: str, path: str, query: str, lines: str) -> bytes:
        """The whole head of a request to `root` and `path`, signed now."""
        raise NotImplementedError

    def get(self, entry: Entry) -> Request:
        """The GET of the listed version of an object: all of it, on the condition that it is the same."""
        raise NotImplementedError

    def version(self, headers: Mapping[bytes, bytes], size: int) -> str | None:  # noqa: ARG002 (the web's)
        """The version that an answer states, as the listing's `token` has it. None where every object of
        this store states one, and the answer does not: it is something else's."""
        stated = headers.get(self.VERSION)
        return None if stated is None else stated.strip(b'"').decode("latin-1")

    def checksums(self, headers: Mapping[bytes, bytes], *, whole: bool) -> Sequence[SourceChecksum]:  # noqa: ARG002
        """The checksums that an answer states; `whole`: its body is the whole object."""
        return ()

    def foreign(self, entry: Entry, headers: Mapping[bytes, bytes]) -> PenstockError | None:  # noqa: ARG002
        """What is wrong with whoever answered a request for an object, if anything."""
        return None

    def judge(self, entry: Entry, headers: Mapping[bytes, bytes]) -> Judge | None:  # noqa: ARG002
        """What judges the first bytes of an object whose answer has these headers; None: nothing needs to."""
        return None

    def refusal(self, status: int, headers: Mapping[bytes, bytes], body: bytes, key: str) -> PenstockError:
        """The error of an answer that was not wanted (`refusals.refusal`); `key` "" is the listing."""
        raise NotImplementedError

    def moved(self, path: str) -> str | None:  # noqa: ARG002
        """After an answer other than 200 and 206: follow the store to where it says (`go_to`). The path to
        ask for there; None where nothing is to be followed."""
        return None

    def where(self, key: str) -> str:
        """An object, for people."""
        return self.url.removesuffix("/") if key == self.single != "" else self.url + key

    def is_folder(self, headers: Mapping[bytes, bytes]) -> bool:  # noqa: ARG002 (of stores with such objects)
        """Whether what a HEAD describes stands for a folder, and is no object."""
        return False

    def archived(self, headers: Mapping[bytes, bytes]) -> str:  # noqa: ARG002 (of stores with archives)
        """`Listed.archived`, as the answer to a HEAD states it."""
        return ""

    def metadata_time(self, headers: Mapping[bytes, bytes]) -> int:  # noqa: ARG002 (of stores with metadata)
        """The time that the object's metadata states in the answer to a HEAD, in nanoseconds since the epoch;
        0 where it states none that can be read."""
        return 0

    def name_in(self, prefix: str, key: str) -> str:
        """The whole name of an object, below a prefix that ends in a slash."""
        return prefix.removesuffix("/") if key == self.single != "" else prefix + key

    # ---- what all have

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
