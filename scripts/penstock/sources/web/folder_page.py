"""What a web server's folder page says: the names that its anchors lead to, and the hrefs that give no name.
Pure; `web.listing` fetches the pages."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import SplitResult, quote, unquote_to_bytes, urljoin, urlsplit

from penstock.sources.http.endpoint import ascii_host, without_user

if TYPE_CHECKING:
    from collections.abc import Mapping

_HREF = re.compile(r"<a\s[^>]*?href\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s>]+))", re.IGNORECASE)
_BASE = re.compile(r"<base\s[^>]*?href\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s>]+))", re.IGNORECASE)
_CLOSED = re.compile(r"</(?:html|body)\s*>", re.IGNORECASE)
_WHOLE = re.compile(r"<(?:html|body)[\s>]", re.IGNORECASE)
_BARE = re.compile(r"</(?:pre|ul|ol|dl|table|div)\s*>\s*$", re.IGNORECASE)
_NO_PLACE = frozenset({"mailto", "javascript", "tel", "data", "irc", "news"})
"""Schemes of hrefs that are about something else than a file."""
_FILES = frozenset({"ftp", "ftps", "sftp", "rsync"})
"""Schemes of hrefs that lead to files on another server."""
_OWN_PORTS = {"http": 80, "https": 443}

PAGE_HREFS = "page links"
"""What the names of these begin with in what a listing leaves out (`port.Source.ignored`)."""
NAMELESS = "without a clear name"
QUERY = "with a query"
ELSEWHERE = "out of the folder"
DEEP = "into a folder that the page does not link to"


class PageHrefs(NamedTuple):
    """A page's hrefs, each counted once."""

    names: set[str]
    """Directly below the folder; those of folders end in a slash."""
    left_out: Mapping[str, str]
    """Hrefs that give no name, as they may be shown, and why: one of NAMELESS, QUERY, ELSEWHERE, DEEP."""


def base_of(page: str, url: str) -> str:
    """The URL against which a page's hrefs are resolved: that of its `<base href>`, where it has one, else
    its own."""
    tag = _BASE.search(page)
    if tag is None:
        return url
    try:
        base = urljoin(url, html.unescape(tag[1] or tag[2] or tag[3] or "").strip())
        return base if urlsplit(base).scheme in _OWN_PORTS else url
    except ValueError:
        return url


def hrefs(page: str, folder_url: str, base: str = "") -> PageHrefs:
    """The hrefs of a folder's page, of which `folder_url` is the URL, resolved against `base` (by default the
    same). Hosts are compared without regard to case, ports as numbers, paths by their decoded bytes without
    `.` and `..`; what follows a `#` does not count.

    | href, on a page of http://h/base/ | answer |
    |---|---|
    | `b%20c`, `./b`, `/base/b`, `/b%61se/b`, `//H:80/base/b`, `../base/b#top`, `dir/` | a name |
    | `?C=N`, `#top`, `..`, `/`, `/base`, `mailto:x` | the folder itself, one above it, no file |
    | `a:b` | NAMELESS: by the standard `a` is a scheme; servers write `./a:b` or `a%3Ab` |
    | `a%2Fb`, `/base//b`, `http://[x` | NAMELESS |
    | `b?x=1` | QUERY, unless the page links to `b` too: another query may be another file |
    | `deep/er` | DEEP, unless the page links to `deep` or `deep/` too |
    | `/another`, `http://else/x`, `ftp://h/base/b` | ELSEWHERE |
    """
    base = base or folder_url
    own = urlsplit(folder_url)
    folder = segments(own.path)[:-1]
    names: set[str] = set()
    left_out: dict[str, str] = {}
    unsure: dict[str, tuple[str, str]] = {}
    for found in _HREF.findall(page):
        href = html.unescape(found[0] or found[1] or found[2]).strip()
        try:
            components = urlsplit(urljoin(base, href))
            same = same_server(own, components)
        except ValueError:
            left_out[href] = NAMELESS
            continue
        if components.scheme not in _OWN_PORTS:
            if components.scheme in _FILES:
                left_out[without_user(components.geturl())] = ELSEWHERE
            elif components.scheme not in _NO_PLACE and "/" not in href[:-1]:
                left_out[href] = NAMELESS
            continue
        path = segments(components.path)
        if same and path in (folder[: len(path)], (*folder[: len(path) - 1], b"")):
            continue
        if not same or path[: len(folder)] != folder:
            left_out[without_user(components.geturl())] = ELSEWHERE
            continue
        below = path[len(folder) :]
        shown = _text(b"/".join(below))
        if (not below[0] and len(below) > 1) or any(b"/" in name for name in below):
            left_out[href] = NAMELESS
        elif len(below) > 2 or (len(below) == 2 and below[1]):
            unsure[shown] = (_text(below[0]), DEEP)
        elif components.query:
            unsure[f"{shown}?{components.query}"] = (shown.rstrip("/"), QUERY)
        else:
            names.add(shown)
    for shown, (name, why) in unsure.items():
        if name not in names and f"{name}/" not in names:
            left_out[shown] = why
    return PageHrefs(names, left_out)


def segments(path: str) -> tuple[bytes, ...]:
    """A URL's path by its slashes, each segment decoded, without `.` and `..`. The last one is b"" where the
    path ends in a slash."""
    kept: list[bytes] = []
    name = b""
    for raw in path.split("/")[1:] or [""]:
        name = unquote_to_bytes(plain(raw))
        if name == b"..":
            del kept[-1:]
        elif name != b".":
            kept.append(name)
    # A path that ends in dots is a folder's.
    return (*kept, b"") if name in (b".", b"..") else tuple(kept)


def plain(text: str) -> str:
    """A part of a URL as a request may have it: characters that no URL has are quoted, as UTF-8; what is
    quoted already stays."""
    return quote(text.encode("utf-8", "surrogateescape"), safe="/%:@!$&'()*+,;=-._~?[]")


def same_server(first: SplitResult, second: SplitResult) -> bool:
    """Also where a page of https links by http: servers behind a proxy write that. Raises ValueError."""
    if _host(first) != _host(second):
        return False
    ports = [components.port or _OWN_PORTS.get(components.scheme) for components in (first, second)]
    return ports[0] == ports[1] or set(ports) == set(_OWN_PORTS.values())


def same_place(one: str, two: str) -> bool:
    """Whether two URLs name the same file or folder of the same server."""
    first, second = urlsplit(one), urlsplit(two)
    return same_server(first, second) and segments(first.path) == segments(second.path)


def _host(components: SplitResult) -> str:
    return ascii_host(components.hostname or "").lower().rstrip(".")


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def closed(page: str) -> bool:
    """Whether a page is complete: the closing tag of the whole page stands behind its last anchor. Earlier
    closing tags do not count: some servers put a header file with tags of its own before the listing."""
    last = page.lower().rfind("<a ")
    rest = page[max(0, last) :]
    if _CLOSED.search(rest):
        return True
    return _WHOLE.search(page) is None and _BARE.search(rest) is not None
