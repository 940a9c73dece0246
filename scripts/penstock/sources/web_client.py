"""The web's dialect of `object_client`: whole URLs over a few kept connections, redirects, and answers other
than a file's own bytes (a login's HTML page, an encoded file). Also parses a web server's folder page: the
names that it links to, and whether it is a known server's complete listing.
"""

from __future__ import annotations

import codecs
import re
import zlib
from html.parser import HTMLParser
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import SplitResult, quote, unquote_to_bytes, urljoin, urlsplit

from penstock.core.errors import FailedError, ObjectError, PenstockError, SourceChangedError
from penstock.fs.safe_open import printable
from penstock.sources.http_connection import Connection
from penstock.sources.http_endpoint import ascii_host, endpoint, split, without_user
from penstock.sources.http_values import HeaderNames, stated_time
from penstock.sources.object_answers import refusal
from penstock.sources.object_client import ObjectClient
from penstock.sources.stated_checksums import web_checksums

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from penstock.config.settings import Reach
    from penstock.core.model import Entry, SourceChecksum
    from penstock.sources.object_client import Judge, Request


# Parses a web server's folder page into the names that it links to, and the links without a clear name.
# Judges whether the page is a known server's complete listing.

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


# The web's dialect of `object_client`: requests whole URLs over a few kept connections, and follows
# redirects. Refuses answers other than a file's own bytes (a login page, an encoded file).
#
# A redirect is followed within a server, and to the hosts that the option `redirects` of `storage_options`
# lists, but never from https to http. No request contains a secret, but fetched data is published. If all
# redirects were followed, a server could make this machine fetch from its own private network, such as a
# cloud's metadata service.

_PAGES = ("text/html", "application/xhtml+xml")
_PAGE_NAMES = re.compile(r"\.(?:[xs]?html?|xht|shtml|php\d?|aspx?|jspx?|cgi|cfm)\Z", re.IGNORECASE)
_BEGIN = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:\s|<!--.*?-->|<\?xml.*?\?>)*"
    rb"<(?:!--|(?:!doctype\s+html|html|head|body|title|meta|script|style|link|noscript|form|div)\b)",
    re.IGNORECASE | re.DOTALL,
)
BLOCK = 1 << 20  # bytes that are read at once
# {Content-Encoding, without `x-`: suffixes of files that are stored in this encoding}
_STORED = {
    "gzip": (".gz", ".tgz", ".taz", ".svgz", ".bgz"),
    "compress": (".z", ".taz"),
    "bzip2": (".bz2", ".bz", ".tbz", ".tbz2"),
    "xz": (".xz", ".txz"),
    "br": (".br",),
    "zstd": (".zst", ".tzst"),
}


def is_page(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether an answer calls itself an HTML page."""
    stated = headers.get(b"content-type", b"").partition(b";")[0]
    return stated.strip().lower().decode("latin-1") in _PAGES


def page_name(key: str) -> bool:
    """Return whether a file of this name is expected to be an HTML page."""
    return _PAGE_NAMES.search(key) is not None


def encoding_of(headers: Mapping[bytes, bytes]) -> str:
    """Return an answer's Content-Encoding, without the `x-` of older servers; "" if it has none."""
    stated = headers.get(b"content-encoding", b"").decode("latin-1").strip().lower()
    return "" if stated == "identity" else stated.removeprefix("x-")


def stored_in(key: str, encoding: str) -> bool:
    """Return whether, judging by its name, a file is stored in this encoding.

    Apache states the encoding of such files (`AddEncoding x-gzip .gz .tgz`), and sends them as stored. If the
    name has another suffix, the server encodes the file, or has only its encoded form.
    """
    return key.lower().endswith(_STORED.get(encoding, ()))


def decoded(body: Connection, encoding: str) -> Iterator[bytes]:
    """Decode a body in its Content-Encoding (`encoding_of`), in pieces of 1 MiB at most. Raises ValueError
    for an unknown encoding, and for bytes that do not fit it."""
    if encoding not in ("", "gzip", "deflate"):
        raise ValueError(f"it comes in the encoding {encoding[:40]}, although none was asked for")
    unpack = zlib.decompressobj(32 + zlib.MAX_WBITS) if encoding else None
    block = memoryview(bytearray(BLOCK))
    while count := body.readinto(block):
        while count < BLOCK and (more := body.readinto(block[count:])):
            count += more  # chunks may have a single byte, and the parser would restart for each chunk
        data = bytes(block[:count])
        while data and unpack is not None:
            try:
                yield unpack.decompress(data, BLOCK)
            except zlib.error as error:
                raise ValueError(f"it is not in the encoding {encoding} that it states") from error
            if unpack.unused_data:
                raise ValueError(f"something follows its end in {encoding}")
            data = unpack.unconsumed_tail
        yield data
    if unpack is not None:
        yield unpack.flush()
    if unpack is not None and not unpack.eof:
        raise ValueError(f"it ends within its encoding {encoding}")


def begins_as_page(data: bytes) -> bool:
    """Return whether bytes begin an HTML page."""
    return _BEGIN.match(data) is not None


_PORT = re.compile(r"[^:\]]:[0-9]{1,5}$|\]:[0-9]{1,5}$")
CONNECTIONS = 4  # kept connections of one client, at most
NO_HEAD = (400, 403, 404, 405, 406, 410, 501)  # statuses by which servers refuse HEAD, but not GET


def token_of(headers: Mapping[bytes, bytes], size: int) -> str:
    """Return the version's token: the etag; without an etag, date and size; without a date, ""."""
    etag = headers.get(b"etag", b"").decode("latin-1")
    if etag:
        return etag if etag.startswith("W/") else etag.strip('"')
    date = headers.get(b"last-modified", b"").decode("latin-1")
    return f"{size} {date}" if date else ""


def weakened(token: str) -> str:
    """Make the strong etag of a file without a stated size weak. Then no ranges are requested, since a server
    could not serve them."""
    return token if not token or " " in token or token.startswith("W/") else f'W/"{token}"'


def modified(headers: Mapping[bytes, bytes]) -> int:
    """Return the file's time in nanoseconds since the epoch; 0 if not stated. An invalid date is ignored, as
    a recipient must (RFC 9110, 8.8.2)."""
    try:
        return stated_time(headers.get(b"last-modified", b"").decode("latin-1"), "")
    except FailedError:
        return 0


def may_follow(old: SplitResult, new: SplitResult, named: Sequence[str]) -> bool:
    """Return whether a redirect from one URL to another is followed.

    | the new URL | answer |
    |---|---|
    | http after https | no |
    | the same host and port | yes |
    | the same host, https after http, both at their own ports | yes |
    | a host in `named`: `host` (at ports 80 and 443), `host:port`, `*.domain` (below the domain) | yes |
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
    """Return the place, for `Listed.version`, of a file whose URL `url` is not the one below the source's URL
    `root`. On the source's server, the place is the path alone."""
    components, source = urlsplit(url), urlsplit(root)
    if same_server(components, source):
        return components._replace(scheme="", netloc="", query="", fragment="").geturl()
    return without_user(url)


def is_place(version: str) -> bool:
    """Return whether a version is a result of `place_of`, and not another store's version."""
    return version.startswith(("/", "http://", "https://"))


def _port(components: SplitResult) -> int:
    return components.port or (443 if components.scheme == "https" else 80)


def _path(url: str) -> tuple[bytes, ...]:
    return segments(urlsplit(url).path)


class WebClient(ObjectClient):
    """The `ObjectClient` of the web, whose paths are whole URLs. Keeps up to CONNECTIONS connections, and
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
        self, url_of: Callable[[str], str], options: Mapping[str, object], reach: Reach, *, listing: bool
    ) -> None:
        """`url_of` returns the URL of a key. For a folder's key ("" or ending in a slash), it returns the URL
        of the folder's page. `listing` means that the objects to request are not listed yet."""
        super().__init__(without_user(url_of("")))
        self._url_of, self._reach = url_of, reach
        self._lists = listing
        named = options.get("redirects")
        self._named = [str(host) for host in named] if isinstance(named, (list, tuple)) else []
        self._connections: dict[tuple[str, int, bool], Connection] = {}
        self._asked = ""
        self.landed = ""  # the last answer's URL, after all redirects
        self._weak = False  # whether the object of the last `get` has a weak token
        # Whether the last answer redirects to the requested path with a slash appended. This means a folder;
        # the redirect is not followed.
        self.folder = False

    def get(self, entry: Entry) -> Request:
        token = entry.token
        self._weak = token.startswith("W/")
        strong = token and " " not in token and not token.startswith("W/")
        return self._url(entry), "", f'If-Match: "{token}"\r\n' if strong else ""

    def _url(self, entry: Entry) -> str:
        """Return the URL of the listed file. Raises ObjectError for a listed place to which the source may
        not redirect."""
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
        self._asked = self.landed = path
        self.folder = False
        return super().request(method, path, query, lines, room)

    @property
    def led_to(self) -> str:
        """The URL to which redirects of the last request led, if the path changed; if not, ""."""
        if self.landed == self._asked or _path(self.landed) == _path(self._asked):
            return ""
        return self.landed

    def judge(self, entry: Entry, headers: Mapping[bytes, bytes]) -> Judge | None:
        if (error := self.encoded(entry.key, headers)) is not None:
            raise error
        return self.page_instead if is_page(headers) and not page_name(entry.key) else None

    def page_instead(self, begin: bytes) -> ObjectError | None:
        """Return the error of an answer that calls itself a page, if its first bytes also begin a page.
        Servers call files of unknown types text/html."""
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
        """Return the error of an answer whose Content-Encoding does not fit its file's name. If it fits, as
        do length and version, the file comes as stored, since no request accepts an encoding."""
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
            server = endpoint(url, self._reach)
            connection = self._connections[place] = Connection(server, names=self.NAMES)
        return connection

    def moved(self, path: str) -> str | None:
        """Return the URL of a redirect; None without a redirect, or if the redirect means a folder. Raises
        ObjectError for a redirect that is not followed."""
        connection = self.connection
        location = connection.headers.get(b"location", b"").decode("latin-1")
        if connection.status not in (301, 302, 303, 307, 308) or not location:
            return None
        components = split(path)
        try:
            # Headers are Latin-1 by the standard; servers write file names in UTF-8.
            target = urljoin(path, location.encode("latin-1").decode("utf-8", "surrogateescape"))
            new = urlsplit(target)
            valid = new.scheme in ("http", "https") and bool(new.hostname) and new.port != 0
        except ValueError:
            valid = False
        if valid and _path(target) == (*_path(self._asked), b""):
            self.folder = True
            return None
        connection.abandon()
        if not valid:
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
        self.landed = target
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
        del body  # the body is a page for people
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
