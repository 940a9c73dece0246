"""Parses a web server's folder page into the names that it links to, and the links without a clear name.
Judges whether the page is a known server's complete listing."""

from __future__ import annotations

import codecs
from html.parser import HTMLParser
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import SplitResult, quote, unquote_to_bytes, urljoin, urlsplit

from penstock.sources.http.endpoint import ascii_host, without_user

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# schemes of hrefs that lead to no file
_NO_PLACE = frozenset({"mailto", "javascript", "tel", "data", "irc", "news"})
_FILES = frozenset({"ftp", "ftps", "sftp", "rsync"})  # schemes of hrefs to files on another server
_OWN_PORTS = {"http": 80, "https": 443}

PAGE_HREFS = "page links"  # prefix of the reasons for omitted hrefs, in `port.Source.ignored`
# the reason in `port.Source.ignored` for folders whose pages are no known listings
BY_LINKS = "folders' files that no link of their pages names, if any (`listing: links`)"
NAMELESS = "without a clear name"
QUERY = "with a query"
ELSEWHERE = "out of the folder"
DEEP = "into a folder that the page does not link to"
ITSELF = "to the folder's own page with a query"
# names of query fields with which Apache, nginx and Caddy show the same files in another order or form
_SORTED = frozenset({"C", "O", "F", "V", "P", "sort", "order", "layout"})
KNOWN = "Apache, nginx, lighttpd, Caddy, Python's http.server and Go's net/http"
# beginnings of titles and headings that Apache, nginx, lighttpd and Python's http.server write
_INDEX = ("Index of ", "Directory listing for ")
_ENTRIES = ("file", "director")  # beginnings of the nouns in Caddy's summary
# number of a folder's entries that Caddy reads, at most, including entries that it hides
_CADDY_READS = 10_000
_CADDY_HIDES = 100  # number of entries that Caddy hides, at most; an assumption
LONGEST = 4 << 20  # characters of one tag, comment or script, at most
_SHOWN = frozenset({"title", "h1", "h2"})
_BARE = frozenset({"pre", "ul", "ol", "dl", "table", "div"})


class PageHrefs(NamedTuple):
    """A page's hrefs, each counted once."""

    names: set[str]  # names directly below the folder; names of folders end in a slash
    # {href without a name, as it may be shown: reason}; reasons are NAMELESS, QUERY, ELSEWHERE, DEEP and
    # ITSELF
    left_out: Mapping[str, str]


class FolderPage(HTMLParser):
    """Parses a folder's page piece by piece, as it arrives (`add`). Links are anchors and areas, not text in
    comments, scripts or other attributes. Memory contains the links, and up to LONGEST characters."""

    def __init__(self) -> None:
        super().__init__()
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self.links: list[str] = []
        self._base: str | None = None
        self._texts: dict[str, str] = {}  # the first text of each element in _SHOWN, and of Caddy's summary
        self._inside = ""
        self._tags: set[str] = set()
        self._last = ""  # the last end tag; "" if another element began after it
        self.ended = False  # whether the page's end tag follows its last link

    def add(self, data: bytes) -> None:
        """Parse the page's next bytes. Raises ValueError for a tag longer than LONGEST, which is no HTML."""
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
        """Return whether the page is complete by its tags. An end tag before its last link does not count:
        some servers put a header file with its own tags before the listing."""
        return self.ended or (not self._tags & {"html", "body"} and self._last in _BARE)

    def base_of(self, url: str) -> str:
        """Return the URL that links are relative to: that of `<base href>` or, without one, `url`."""
        try:
            base = urljoin(url, self._base or "")
            return base if urlsplit(base).scheme in _OWN_PORTS else url
        except ValueError:
            return url

    def doubt(self, hrefs: PageHrefs) -> str:
        """Return why the page may lack names of its folder; "" for a known complete listing.

        | page | known by | complete if it has |
        |---|---|---|
        | Apache, nginx, lighttpd, Python | title `Index of ...` (`Directory listing for ...`), and the same \
            heading or Apache's links that sort (a HEADER.html takes the heading's place) | end tag |
        | Caddy | its summary, `3 directories 4 files` | end tag; the stated names; fewer than Caddy reads |
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
    """Sort the page's links into names and others. Links are relative to `base` or, without it, `folder_url`.

    Hosts are compared without case, ports as numbers, paths by their decoded bytes without `.` and `..`; a
    fragment (`#...`) is ignored.

    | href, on a page of http://h/base/ | result |
    |---|---|
    | `b%20c`, `./b`, `/base/b`, `/b%61se/b`, `//H:80/base/b`, `../base/b#top`, `dir/` | a name |
    | `?C=N`, `#top`, `..`, `/`, `/base`, `mailto:x` | none: the folder itself, a folder above it, no file |
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
    """Return whether a link to the folder with this query shows the folder's own files."""
    return {field.partition("=")[0] for field in query.replace(";", "&").split("&") if field} <= _SORTED


def segments(path: str) -> tuple[bytes, ...]:
    """Split a URL's path into decoded segments without `.` and `..`; the last is b"" after a final slash."""
    kept: list[bytes] = []
    name = b""
    for raw in path.split("/")[1:] or [""]:
        name = unquote_to_bytes(plain(raw))
        if name == b"..":
            del kept[-1:]
        elif name != b".":
            kept.append(name)
    # A path that ends in `.` or `..` is a folder's.
    return (*kept, b"") if name in (b".", b"..") else tuple(kept)


def plain(text: str) -> str:
    """Quote, as UTF-8, the characters that a URL cannot contain. Quoted characters stay as they are."""
    return quote(text.encode("utf-8", "surrogateescape"), safe="/%:@!$&'()*+,;=-._~?[]")


def same_server(first: SplitResult, second: SplitResult) -> bool:
    """Return whether hosts and ports are equal. Ports 443 (https) and 80 (http) count as equal, since servers
    behind a proxy link by http. Raises ValueError."""
    if _host(first) != _host(second):
        return False
    ports = [components.port or _OWN_PORTS.get(components.scheme) for components in (first, second)]
    return ports[0] == ports[1] or set(ports) == set(_OWN_PORTS.values())


def same_place(first_url: str, second_url: str) -> bool:
    """Return whether two URLs name the same file or folder of the same server."""
    first, second = urlsplit(first_url), urlsplit(second_url)
    return same_server(first, second) and segments(first.path) == segments(second.path)


def _host(components: SplitResult) -> str:
    return ascii_host(components.hostname or "").lower().rstrip(".")


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
