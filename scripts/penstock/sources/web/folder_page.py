"""What a web server's folder page says: the names that its links lead to, the links that give no name, and
whether it is a known server's listing, and whole. Pure; `web.listing` fetches the pages."""

from __future__ import annotations

import codecs
from html.parser import HTMLParser
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import SplitResult, quote, unquote_to_bytes, urljoin, urlsplit

from penstock.sources.http.endpoint import ascii_host, without_user

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_NO_PLACE = frozenset({"mailto", "javascript", "tel", "data", "irc", "news"})
"""Schemes of hrefs that are about something else than a file."""
_FILES = frozenset({"ftp", "ftps", "sftp", "rsync"})
"""Schemes of hrefs that lead to files on another server."""
_OWN_PORTS = {"http": 80, "https": 443}

PAGE_HREFS = "page links"
"""What the names of these begin with in what a listing leaves out (`port.Source.ignored`)."""
BY_LINKS = "folders' files that no link of their pages names, if any (`listing: links`)"
"""Counted in the same way: folders whose pages are no known listings."""
NAMELESS = "without a clear name"
QUERY = "with a query"
ELSEWHERE = "out of the folder"
DEEP = "into a folder that the page does not link to"
ITSELF = "to the folder's own page with a query"
_SORTED = frozenset({"C", "O", "F", "V", "P", "sort", "order", "layout"})
"""Fields of queries by which Apache, nginx and Caddy show the same files in another order or form."""
KNOWN = "Apache, nginx, lighttpd, Caddy, Python's http.server and Go's net/http"
_INDEX = ("Index of ", "Directory listing for ")
"""What titles and headings begin with: of Apache, nginx and lighttpd; of Python's http.server."""
_ENTRIES = ("file", "director")
"""What the nouns of Caddy's summary begin with."""
_CADDY_READS = 10_000
"""Entries of a folder that Caddy reads, and no more; those that it hides count."""
_CADDY_HIDES = 100
LONGEST = 4 << 20
"""Characters of one tag, comment or script, at most."""
_SHOWN = frozenset({"title", "h1", "h2"})
_BARE = frozenset({"pre", "ul", "ol", "dl", "table", "div"})


class PageHrefs(NamedTuple):
    """A page's hrefs, each counted once."""

    names: set[str]  # directly below the folder; those of folders end in a slash
    left_out: Mapping[str, str]
    """Hrefs that give no name, as they may be shown, and why: one of NAMELESS, QUERY, ELSEWHERE, DEEP,
    ITSELF."""


class FolderPage(HTMLParser):
    """A folder's page, as it comes: `add` takes its bytes. Anchors and areas are links, as HTML has them:
    nothing in comments, scripts or other attributes is one. Memory: the links, and LONGEST characters."""

    def __init__(self) -> None:
        super().__init__()
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self.links: list[str] = []
        self._base: str | None = None
        self._texts: dict[str, str] = {}
        """Of the elements of _SHOWN and of Caddy's summary, each of the first."""
        self._inside = ""
        self._tags: set[str] = set()
        self._last = ""  # the end tag behind which neither a link nor another element came
        self.ended = False  # whether a tag that ends the whole page stands behind its last link

    def add(self, data: bytes) -> None:
        """The page's next bytes. Raises ValueError for what is no HTML: one tag of more than LONGEST."""
        self.feed(self._decoder.decode(data))
        if len(self.rawdata) > LONGEST:
            raise ValueError(f"one tag, comment or script has more than {LONGEST:,} characters")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._tags.add(tag)
        self._last = ""
        first = dict(reversed(attrs))
        href = first.get("href")
        if tag == "base" and href is not None and self._base is None:
            self._base = href.strip()
        elif tag in ("a", "area") and href is not None:
            self.links.append(href.strip())
            self.ended = False
        name = "summary" if first.get("id") == "summary" else tag
        if name in (*_SHOWN, "summary") and name not in self._texts:
            self._inside, self._texts[name] = name, ""

    def handle_endtag(self, tag: str) -> None:
        self._last = tag
        self.ended = self.ended or tag in ("html", "body")
        if tag == self._inside or (tag == "div" and self._inside == "summary"):
            self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside and len(self._texts[self._inside]) < 1000:
            self._texts[self._inside] += data

    def closed(self) -> bool:
        """Whether it is complete by its tags. An end tag of the whole page before its last link does not
        count: some servers put a header file with tags of its own before the listing."""
        return self.ended or (not self._tags & {"html", "body"} and self._last in _BARE)

    def base_of(self, url: str) -> str:
        """The URL against which the links are resolved: that of its `<base href>`, where it has one, else its
        own."""
        try:
            base = urljoin(url, self._base or "")
            return base if urlsplit(base).scheme in _OWN_PORTS else url
        except ValueError:
            return url

    def doubt(self, hrefs: PageHrefs) -> str:
        """Why it is not known that the page has all names of its folder; "" of a known listing.

        | page | known by | whole by |
        |---|---|---|
        | Apache, nginx, lighttpd, Python | title `Index of ...` (`Directory listing for ...`), and the same \
            heading or Apache's links that sort (a HEADER.html takes the heading's place) | end tag |
        | Caddy | its summary, `3 directories 4 files` | end tag; as many names; less than it reads |
        | Go | a `<pre>` with links, and nothing else | end tag |
        | any | | no link to itself with a query, such as a further page's |
        """
        title, summary = self._texts.get("title", "").strip(), self._texts.get("summary", "").split()
        counts = [
            int(count) for count, kind in pairwise(summary) if count.isdecimal() and kind.startswith(_ENTRIES)
        ]
        headings = [self._texts[tag].strip() for tag in ("h1", "h2") if tag in self._texts]
        sorts = any(link.startswith("?C=") for link in self.links)
        index = title.startswith(_INDEX) and (title in headings or sorts)
        if not (index or len(counts) == 2 or self._tags - {"a", "meta"} == {"pre"}):
            return f"it is no listing of {KNOWN}"
        if not self.closed():
            return "it is cut off: no tag ends it"
        if ITSELF in hrefs.left_out.values():
            return "it links to further pages of itself"
        if len(counts) == 2 and sum(counts) != len(hrefs.names):
            return f"it states {sum(counts):,} names and links to {len(hrefs.names):,}"
        if len(counts) == 2 and _CADDY_READS - _CADDY_HIDES <= sum(counts) <= _CADDY_READS:
            return f"it has {sum(counts):,} names, and Caddy reads {_CADDY_READS:,} of a folder and no more"
        return ""


def hrefs(links: Iterable[str], folder_url: str, base: str = "") -> PageHrefs:
    """The links of a folder's page, of which `folder_url` is the URL, resolved against `base` (by default the
    same). Hosts are compared without regard to case, ports as numbers, paths by their decoded bytes without
    `.` and `..`; what follows a `#` does not count.

    | href, on a page of http://h/base/ | answer |
    |---|---|
    | `b%20c`, `./b`, `/base/b`, `/b%61se/b`, `//H:80/base/b`, `../base/b#top`, `dir/` | a name |
    | `?C=N`, `#top`, `..`, `/`, `/base`, `mailto:x` | the folder itself, one above it, no file |
    | `?page=2`, `?file=b` | ITSELF |
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
    for href in links:
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
            if path in (folder, (*folder, b"")) and not _sorting(components.query):
                left_out[f"?{components.query}"] = ITSELF
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


def _sorting(query: str) -> bool:
    """Whether a link to the folder with this query leads to the same files."""
    return {field.partition("=")[0] for field in query.replace(";", "&").split("&") if field} <= _SORTED


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
