"""Asks web servers for what lies behind a URL, over kept connections, and says what they answered.

A redirect is followed within its server, and to the hosts that `redirects` of storage_options names; from
https never to http. Nothing secret is sent, but what a server may make this machine fetch is published:
by default it cannot point at another machine, such as a cloud's metadata service.
"""

from __future__ import annotations

import email.utils
import re
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from penstock.errors import ObjectError, PenstockError, SourceChangedError
from penstock.filesystem.errno_map import printable
from penstock.sources.backoff import asked_for, retry_after
from penstock.sources.http.connection import Connection
from penstock.sources.http.endpoint import endpoint, split, without_user

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

REDIRECTS = 6
_PORT = re.compile(r"[^:\]]:[0-9]{1,5}$|\]:[0-9]{1,5}$")
CONNECTIONS = 4


def token_of(headers: Mapping[bytes, bytes], size: int) -> str:
    """What tells this version from another: the etag, else date and size, else ""."""
    etag = headers.get(b"etag", b"").decode("latin-1")
    if etag:
        return etag if etag.startswith("W/") else etag.strip('"')
    date = headers.get(b"last-modified", b"").decode("latin-1")
    return f"{size} {date}" if date else ""


def modified(headers: Mapping[bytes, bytes]) -> int:
    """Nanoseconds since the epoch, 0 when not stated."""
    try:
        parsed = email.utils.parsedate_tz(headers.get(b"last-modified", b"").decode("latin-1"))
        return email.utils.mktime_tz(parsed) * 1_000_000_000 if parsed else 0
    except (ValueError, OverflowError):  # a date that no calendar has
        return 0


def plain(text: str) -> str:
    """A part of a URL as it may stand in a request: what is neither a URL's character nor quoted yet is
    quoted, as the UTF-8 that it is."""
    return quote(text.encode("utf-8", "surrogateescape"), safe="/%:@!$&'()*+,;=-._~?[]")


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


def _port(parts: SplitResult) -> int:
    return parts.port or (443 if parts.scheme == "https" else 80)


class WebClient:
    """For one thread: a few kept connections, redirects followed."""

    def __init__(self, options: Mapping[str, object], timeout: float) -> None:
        self._options, self._timeout = options, timeout
        named = options.get("redirects")
        self._named = [str(one) for one in named] if isinstance(named, (list, tuple)) else []
        self._connections: dict[tuple[str, int, bool], Connection] = {}

    def request(self, method: str, url: str, lines: str = "") -> Connection:
        """The answer's head, after redirects. Raises ObjectError for one that is not followed."""
        for _ in range(REDIRECTS):
            parts = split(url)
            tls = parts.scheme == "https"
            place = (parts.hostname or "", parts.port or (443 if tls else 80), tls)
            connection = self._connections.get(place)
            if connection is None:
                if len(self._connections) >= CONNECTIONS:
                    self._connections.pop(next(iter(self._connections))).close()
                connection = Connection(endpoint(url, self._options, timeout=self._timeout))
                self._connections[place] = connection
            server = connection.endpoint
            target = plain(parts.path or "/") + (f"?{plain(parts.query)}" if parts.query else "")
            head = (
                f"{method} {server.origin}{target} HTTP/1.1\r\nHost: {server.authority}\r\n"
                f"Accept-Encoding: identity\r\nUser-Agent: penstock\r\n{server.proxy_lines}{lines}\r\n"
            )
            status = connection.request(head.encode("latin-1"), bodyless=method == "HEAD")
            location = connection.headers.get(b"location", b"").decode("latin-1")
            if status not in (301, 302, 303, 307, 308) or not location:
                return connection
            connection.abandon()
            url = self._redirected(parts, url, location)
        raise ObjectError("the server redirects in a circle", where=without_user(url))

    def _redirected(self, parts: SplitResult, url: str, location: str) -> str:
        """Where a redirect leads. Raises ObjectError when it is not followed."""
        try:
            # A header's bytes are Latin-1 by the book, and UTF-8 where somebody put a name in.
            target = urljoin(url, location.encode("latin-1").decode("utf-8", "surrogateescape"))
            new = urlsplit(target)
            known = new.scheme in ("http", "https") and bool(new.hostname) and new.port != 0
        except ValueError:
            known = False
        if not known:
            why = f"to {printable(location[:200])}"
            raise ObjectError(
                "the server redirects to what is no web address", where=without_user(url), why=why
            )
        if parts.scheme == "https" and new.scheme != "https":
            raise ObjectError("the server redirects from https to http", where=without_user(target))
        if not may_follow(parts, new, self._named):
            raise ObjectError(
                "the server redirects to another server, which is not followed",
                where=without_user(url),
                why=f"to {printable(new.netloc.rpartition('@')[2])}",
                hint="if that server is to be trusted, name it: `redirects: [HOST]` in storage_options",
            )
        return target

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()


def refused(connection: Connection, where: str) -> PenstockError:
    """What a status other than the wanted one means for one object."""
    status, headers = connection.status, connection.headers
    connection.abandon()
    why = f"status {status}"
    if status in (401, 407):
        return ObjectError(
            "the server asks for a name and a password",
            where=where,
            why=why,
            hint="web sources are read without any: name a place that needs none, or another protocol",
        )
    if status == 403 and where.endswith("/"):
        return ObjectError(
            "the server does not show this folder",
            where=where,
            why=f"{why}: it has no listing of its files (nginx: `autoindex off`, Apache: no `Indexes`)",
            hint="have the listing switched on, or give single files as `sources`, each with its URL",
        )
    if status in (408, 429) or status >= 500:
        return asked_for("the server asks for patience", where, why, status, "", retry_after(headers))
    if status in (404, 410, 412, 416):
        return SourceChangedError("the file is not there as it was listed", where=where, why=why)
    return ObjectError("the server refuses the file", where=where, why=why)
