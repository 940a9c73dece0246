"""The web's dialect of `objects.client`: requests for whole URLs, over a few kept connections, and which
redirects are followed.

A redirect is followed within the same server, and to the hosts that `redirects` of `storage_options` names;
never from https to http. No request carries a secret. But all that is fetched is published: if any redirect
were followed, a server could have this machine fetch from its private network, such as a cloud's metadata
service.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urljoin, urlsplit

from penstock.core.errors import FailedError, ObjectError, PenstockError, SourceChangedError
from penstock.fs.errno_map import printable
from penstock.sources.checksum_headers import web_checksums
from penstock.sources.http.connection import Connection
from penstock.sources.http.dates import stated_time
from penstock.sources.http.endpoint import endpoint, split, without_user
from penstock.sources.http.response_template import HeaderNames
from penstock.sources.objects.client import ObjectClient
from penstock.sources.objects.refusals import refusal
from penstock.sources.web.folder_page import plain, same_server, segments
from penstock.sources.web.html_answers import begins_as_page, encoding_of, is_page, page_name, stored_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.core.model import Entry, SourceChecksum
    from penstock.sources.http.body import Judge
    from penstock.sources.objects.client import Request

_PORT = re.compile(r"[^:\]]:[0-9]{1,5}$|\]:[0-9]{1,5}$")
CONNECTIONS = 4
"""Kept connections of one client, at most."""
NO_HEAD = (400, 403, 404, 405, 406, 410, 501)
"""Statuses by which servers refuse HEAD of what GET gives."""


def token_of(headers: Mapping[bytes, bytes], size: int) -> str:
    """What tells this version from another: the etag, else date and size, else ""."""
    etag = headers.get(b"etag", b"").decode("latin-1")
    if etag:
        return etag if etag.startswith("W/") else etag.strip('"')
    date = headers.get(b"last-modified", b"").decode("latin-1")
    return f"{size} {date}" if date else ""


def weakened(token: str) -> str:
    """The token of a file whose size is not stated: a strong etag becomes a weak one, so that the file is not
    read by ranges, which a server cannot serve of what has no length yet."""
    return token if not token or " " in token or token.startswith("W/") else f'W/"{token}"'


def modified(headers: Mapping[bytes, bytes]) -> int:
    """Nanoseconds since the epoch, 0 when not stated. A date that is none is ignored, as a recipient has to
    (RFC 9110, 8.8.2)."""
    try:
        return stated_time(headers.get(b"last-modified", b"").decode("latin-1"), "")
    except FailedError:
        return 0


def may_follow(old: SplitResult, new: SplitResult, named: Sequence[str]) -> bool:
    """Whether a redirect from one URL to another is followed.

    | the new URL | answer |
    |---|---|
    | http after https | no |
    | the same host and port | yes |
    | the same host, https after http, both at their own ports | yes |
    | a host that `named` holds: `host` (at ports 80 and 443), `host:port`, `*.domain` (below it) | yes |
    | any other | no |
    """
    if old.scheme == "https" and new.scheme != "https":
        return False
    host = (new.hostname or "").lower()
    if host == (old.hostname or "").lower() and (
        _port(new) == _port(old) or (_port(old), _port(new)) == (80, 443)
    ):
        return True
    for item in named:
        name, _, port = item.lower().rpartition(":") if _PORT.search(item) else (item.lower(), "", "")
        if _port(new) not in ((int(port),) if port else (80, 443)):
            continue
        if host == name.strip("[]") or (name.startswith("*.") and host.endswith(name[1:])):
            return True
    return False


def place_of(url: str, root: str) -> str:
    """How a listing states (as `Listed.version`) where a file lies that is not at its own URL below the
    source's: the path alone on the source's server."""
    components, source = urlsplit(url), urlsplit(root)
    if same_server(components, source):
        return components._replace(scheme="", netloc="", query="", fragment="").geturl()
    return without_user(url)


def is_place(version: str) -> bool:
    """Whether it is what `place_of` gives, and no version of another store in a list of keys."""
    return version.startswith(("/", "http://", "https://"))


def _port(components: SplitResult) -> int:
    return components.port or (443 if components.scheme == "https" else 80)


def _path(url: str) -> tuple[bytes, ...]:
    return segments(urlsplit(url).path)


class WebClient(ObjectClient):
    """The `ObjectClient` of the web. A path is a whole URL here. Keeps up to CONNECTIONS connections, and
    follows redirects."""

    NAMES = HeaderNames(
        values=(
            b"last-modified",
            b"content-md5",
            b"repr-digest",
            b"content-digest",
            b"digest",
            b"x-goog-hash",
            b"content-type",
        )
    )
    REDIRECTS = 6
    CIRCLE = ObjectError

    def __init__(
        self, url_of: Callable[[str], str], options: Mapping[str, object], timeout: float, *, listing: bool
    ) -> None:
        """`url_of` gives the URL of a key; of a folder's key ("" or ending in a slash), its page's.
        `listing`: it asks for what is not listed yet."""
        super().__init__(without_user(url_of("")))
        self._url_of, self._options, self._timeout = url_of, options, timeout
        self._lists = listing
        named = options.get("redirects")
        self._named = [str(one) for one in named] if isinstance(named, (list, tuple)) else []
        self._connections: dict[tuple[str, int, bool], Connection] = {}
        self._asked = self._landed = ""
        self._weak = False
        """Whether the object of the last `get` has a weak token."""
        self.folder = False
        """After `request`: whether the answer is a redirect that adds a slash to the path. By that a server
        says that a folder is there; it is not followed."""

    def get(self, entry: Entry) -> Request:
        token = entry.token
        self._weak = token.startswith("W/")
        strong = token and " " not in token and not token.startswith("W/")
        return self._url(entry), "", f'If-Match: "{token}"\r\n' if strong else ""

    def _url(self, entry: Entry) -> str:
        """The URL of the listed file. Raises ObjectError for one that no redirect of the source could lead
        to."""
        if not is_place(entry.version):
            return self._url_of(entry.key)
        root = self._url_of("")
        try:
            url = urljoin(root, entry.version)
            if may_follow(urlsplit(root), urlsplit(url), self._named):
                return url
        except ValueError:
            pass
        raise ObjectError(
            "the listing has the file on a server that is not followed to",
            where=self.where(entry.key),
            why=f"at {printable(without_user(entry.version))}",
            hint="if that server is to be trusted, name it: `redirects: [HOST]` in storage_options",
        )

    def where(self, key: str) -> str:
        return without_user(self._url_of(key))

    def version(self, headers: Mapping[bytes, bytes], size: int) -> str:
        token = token_of(headers, size)
        return weakened(token) if self._weak else token

    def checksums(self, headers: Mapping[bytes, bytes], *, whole: bool) -> Sequence[SourceChecksum]:
        return web_checksums(headers, whole=whole)

    def request(
        self, method: str, path: str, query: str = "", lines: str = "", room: memoryview | None = None
    ) -> Connection:
        self._asked = self._landed = path
        self.folder = False
        return super().request(method, path, query, lines, room)

    @property
    def landed(self) -> str:
        """After `request`: the URL whose answer this is, at the end of all redirects."""
        return self._landed

    @property
    def led_to(self) -> str:
        """After `request`: the URL to which redirects led, where its path is another one; else ""."""
        if self._landed == self._asked or _path(self._landed) == _path(self._asked):
            return ""
        return self._landed

    def foreign(self, entry: Entry, headers: Mapping[bytes, bytes]) -> PenstockError | None:
        return self.encoded(entry.key, headers)

    def judge(self, entry: Entry, headers: Mapping[bytes, bytes]) -> Judge | None:
        return self.page_instead if is_page(headers) and not page_name(entry.key) else None

    def page_instead(self, begin: bytes) -> ObjectError | None:
        """The error of the last answer, which says that it is a page, where its first bytes are one's, too:
        servers call what they do not know text/html."""
        if not begins_as_page(begin):
            return None
        to = f", and the server redirects to {printable(without_user(self.led_to))}" if self.led_to else ""
        return ObjectError(
            "the server answers with an HTML page in place of the file",
            where=without_user(self._asked),
            why=f"its Content-Type and its first bytes are a page's{to}",
            hint="where that is a login, name a URL that needs none; else leave the file out by `exclude`",
        )

    def encoded(self, key: str, headers: Mapping[bytes, bytes]) -> PenstockError | None:
        """The error of an answer in a Content-Encoding that its file is not stored in, by its name. What has
        the listed length and version beside that is as it is stored: every request asks for no encoding."""
        encoding = encoding_of(headers)
        if not encoding or stored_in(key, encoding):
            return None
        return ObjectError(
            "the server sends the file in an encoding, although none was asked for",
            where=self.where(key),
            why=f"Content-Encoding {printable(encoding[:40])}",
            hint="have the server send it as it is stored, or leave the file out by `exclude`",
        )

    def head(self, method: str, path: str, query: str, lines: str) -> bytes:  # noqa: ARG002 (a URL has its own)
        components = split(path)
        connection = self.connection = self._connection(path, components)
        server = connection.endpoint
        target = plain(components.path or "/") + (f"?{plain(components.query)}" if components.query else "")
        return (
            f"{method} {server.origin}{target} HTTP/1.1\r\nHost: {server.authority}\r\n"
            f"Accept-Encoding: identity\r\nUser-Agent: penstock\r\n{server.proxy_lines}{lines}\r\n"
        ).encode("latin-1")

    def _connection(self, url: str, components: SplitResult) -> Connection:
        place = (components.hostname or "", _port(components), components.scheme == "https")
        connection = self._connections.get(place)
        if connection is None:
            if len(self._connections) >= CONNECTIONS:
                self._connections.pop(next(iter(self._connections))).close()
            server = endpoint(url, self._options, timeout=self._timeout)
            connection = self._connections[place] = Connection(server, names=self.NAMES)
        return connection

    def moved(self, path: str) -> str | None:
        """Where a redirect leads; None where it says that a folder is there. Raises ObjectError when it is
        not followed."""
        connection = self.connection
        location = connection.headers.get(b"location", b"").decode("latin-1")
        if connection.status not in (301, 302, 303, 307, 308) or not location:
            return None
        components = split(path)
        try:
            # By the standard a header's bytes are Latin-1; servers put file names in as UTF-8.
            target = urljoin(path, location.encode("latin-1").decode("utf-8", "surrogateescape"))
            new = urlsplit(target)
            known = new.scheme in ("http", "https") and bool(new.hostname) and new.port != 0
        except ValueError:
            known = False
        if known and _path(target) == (*_path(self._asked), b""):
            self.folder = True
            return None
        connection.abandon()
        if not known:
            why = f"to {printable(location[:200])}"
            raise ObjectError(
                "the server redirects to what is no web address", where=without_user(path), why=why
            )
        if components.scheme == "https" and new.scheme != "https":
            raise ObjectError("the server redirects from https to http", where=without_user(target))
        if not may_follow(components, new, self._named):
            raise ObjectError(
                "the server redirects to another server, which is not followed",
                where=without_user(path),
                why=f"to {printable(new.netloc.rpartition('@')[2])}",
                hint="if that server is to be trusted, name it: `redirects: [HOST]` in storage_options",
            )
        self._landed = target
        return target

    def failure(self, key: str = "") -> PenstockError:
        if not self.folder:
            return super().failure(key)
        self.connection.abandon()
        return SourceChangedError(
            "a folder stands where a file was listed",
            where=self.where(key),
            why="the server redirects to the same path with a slash",
        )

    def refusal(self, status: int, headers: Mapping[bytes, bytes], body: bytes, key: str) -> PenstockError:
        del body  # a page for people
        where, why = self.where(key), f"status {status}"
        if status == 401:
            return ObjectError(
                "the server asks for a name and a password",
                where=where,
                why=why,
                hint="penstock reads web sources without a login: name a URL that needs none",
            )
        if status == 403 and where.endswith("/"):
            return ObjectError(
                "the server does not show this folder",
                where=where,
                why=f"{why}: it has no listing of its files (nginx: `autoindex off`, Apache: no `Indexes`)",
                hint="have the listing switched on, or give single files as `sources`, each with its URL",
            )
        return refusal(status, headers, where, codes={}, listing=self._lists)

    def close(self) -> None:
        self._sent = b""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
