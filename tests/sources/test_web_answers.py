"""How web servers state the size, the encoding and the place of what they hold: in a HEAD, in a range, in a
redirect, or not at all."""

from __future__ import annotations

import gzip
import threading
import zlib
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote

import pytest
import xxhash
from tests.contracts.source_contract import entry_of, listing, read
from tests.sources.test_others import Quiet, QuietServer
from tests.sources.test_web_pages import web
from tests.support.whole_way import content, go, records, staging

from penstock.config.settings import SourceConfig
from penstock.core.errors import (
    IntegrityError,
    ObjectError,
    PenstockError,
    PreflightError,
    SourceChangedError,
    TransientError,
)
from penstock.core.model import Entry
from penstock.engine.checksums import Sums
from penstock.sources import backoff
from penstock.sources.port import pinned

if TYPE_CHECKING:
    import http.server
    from collections.abc import Mapping
    from pathlib import Path


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "FIRST_PAUSE", 0.001)


@dataclass
class Held:
    """A file of the scripted server, and how it is served."""

    data: bytes
    head: int = 200
    """Status of HEAD."""
    headless: bool = False
    """HEAD states a length of 0."""
    sized: str = "HG"
    """Which answers state the length: H(EAD), G(ET)."""
    ranges: str = "yes"
    """Ranges are served (`yes`), with an unknown total (`*`), refused by 416 with (`416`) or without
    (`bare416`) `Content-Range`, or passed over (`no`)."""
    headers: Mapping[str, str] = field(default_factory=dict)
    got: Mapping[str, str] = field(default_factory=dict)
    """Headers of GET alone."""
    wire: bytes | None = None
    """What GET sends in place of `data`."""
    ends: str = "chunked"
    """How a body without a length ends: `chunked`, `cut` (within the chunks), `close`."""


Answer = Held | str | list[Held]
"""A file, a redirect, or what each further GET of all of a file finds."""


class Answering(Quiet):
    held: Mapping[str, Answer]
    asked: list[tuple[str, str, str]]

    def do_HEAD(self) -> None:  # noqa: N802 (as the base class calls it)
        self.answer("HEAD")

    def do_GET(self) -> None:  # noqa: N802
        self.answer("GET")

    def answer(self, method: str) -> None:
        wanted = self.headers.get("Range", "")
        self.asked.append((method, self.path, wanted))
        held = self.held.get(unquote(self.path))
        if isinstance(held, list):  # one after another, a whole GET each
            held = held.pop(0) if len(held) > 1 and method == "GET" and not wanted else held[0]
        if held is None or isinstance(held, str):
            self.send_response(302 if held else 404)
            if held:
                self.send_header("Location", held)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        data, status = held.data if held.wire is None else held.wire, 200
        more = {"Last-Modified": "Sun, 01 Nov 2026 10:00:00 GMT", **held.headers}
        if method == "HEAD":
            status, data = held.head, b"" if held.headless else held.data
        else:
            more |= held.got
        if wanted and held.ranges != "no":
            first, last = wanted.removeprefix("bytes=").split("-")
            total = "*" if held.ranges == "*" else str(len(held.data))
            if held.ranges.endswith("416") or int(first) >= len(held.data):
                status, data = 416, b""
                more |= {} if held.ranges == "bare416" else {"Content-Range": f"bytes */{total}"}
            else:
                status, data = 206, data[int(first) : int(last) + 1]
                more["Content-Range"] = f"bytes {first}-{first if not data else last}/{total}"
        self.send_response(status)
        for name, value in more.items():
            self.send_header(name, value)
        if method[0] in held.sized or status in (206, 416):
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if method == "GET":
                self.wfile.write(data)
            return
        if held.ends == "close":
            self.send_header("Connection", "close")
        else:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if method == "GET" and held.ends == "close":
            self.close_connection = True
            self.wfile.write(data)
        elif method == "GET":
            length = max(7, len(data) // 50)
            for start in range(0, len(data), length):
                piece = data[start : start + length]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            if held.ends == "cut":
                self.close_connection = True
            else:
                self.wfile.write(b"0\r\n\r\n")


class Server:
    """A scripted web server: files by their paths, redirects as text."""

    def __init__(self, held: Mapping[str, Answer]) -> None:
        self.asked: list[tuple[str, str, str]] = []
        handler = type("Handler", (Answering,), {"held": held, "asked": self.asked})
        self.server: http.server.ThreadingHTTPServer = QuietServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


def page(*links: str, base: str = "") -> Held:
    head = f'<head><base href="{base}"></head>' if base else ""
    text = (
        f"<html>{head}<title>Index of /</title><h1>Index of /</h1>"
        + "".join(f'<a href="{link}">x</a>' for link in links)
        + "</html>"
    )
    return Held(text.encode(), headers={"Content-Type": "text/html"})


def fetched(url: str, **options: Any) -> dict[str, bytes]:
    """All that a source lists, as its reader reads it."""
    source = web(url, **options)
    reader = source.reader()
    try:
        return {key: read(reader, entry_of(item)) for key, item in listing(source).items()}
    finally:
        reader.close()


ETAG = {"ETag": '"1d-6539"'}
IN_GZIP = {"Content-Encoding": "gzip"}
GZIP = b"\x1f\x8b\x08 twenty-nine bytes of gzip"


@pytest.mark.parametrize(
    ("name", "encoding"),
    [
        ("a.gz", "x-gzip"),
        ("a.tar.gz", "gzip"),
        ("a.tgz", "X-GZIP"),
        ("a.Z", "x-compress"),
        ("a.bz2", "x-bzip2"),
        ("a.xz", "xz"),
        ("a.br", "br"),
        ("a.zst", "zstd"),
        ("a.txt", "identity"),
    ],
)
@pytest.mark.parametrize("version", [ETAG, {}])
def test_w4_a_file_that_is_stored_in_the_encoding_that_its_name_says_is_taken_as_stored(
    name: str, encoding: str, version: dict[str, str]
) -> None:
    """Apache's `AddEncoding x-gzip .gz`: HEAD and GET agree in length, and in etag or date."""
    with Server({f"/{name}": Held(GZIP, headers={"Content-Encoding": encoding, **version})}) as server:
        assert fetched(f"{server.url}{name}") == {name: GZIP}


@pytest.mark.parametrize(
    ("name", "held", "why"),
    [
        ("a.gz", Held(GZIP, headers=ETAG, got=IN_GZIP, wire=GZIP[:9]), "9 bytes where 29"),
        ("a.gz", Held(GZIP, headers=ETAG, got=IN_GZIP, sized="H"), "no stated length where 29"),
        ("a.gz", Held(GZIP, headers=ETAG, got={"Content-Encoding": "br"}), "Content-Encoding br"),
        ("a.gz", Held(GZIP, headers={"Content-Encoding": "gzip, gzip"} | ETAG), "gzip, gzip"),
        ("a.txt", Held(GZIP, headers=IN_GZIP | ETAG), "Content-Encoding gzip"),
        ("a", Held(GZIP, headers=ETAG, got={"Content-Encoding": "x-gzip"}), "Content-Encoding gzip"),
    ],
)  # fmt: skip
def test_w4_a_file_that_is_encoded_on_the_way_is_refused_by_name(name: str, held: Held, why: str) -> None:
    """`gzip_static always` sends a.txt.gz for a.txt: what the server holds by that name is not known."""
    with Server({f"/{name}": held}) as server, pytest.raises(ObjectError, match=why) as caught:
        fetched(f"{server.url}{name}")
    assert str(caught.value).count(name)


def test_w4_an_encoded_file_whose_etag_is_another_one_at_the_copy_has_changed() -> None:
    held = Held(GZIP, headers=IN_GZIP | {"ETag": '"a"'}, got={"ETag": '"b"'})
    with Server({"/a.gz": held}) as server, pytest.raises(PenstockError, match="changed"):
        fetched(f"{server.url}a.gz")


@pytest.mark.parametrize(
    ("held", "asked"),
    [
        (Held(b"data", sized="G"), 3),
        (Held(b"data", sized=""), 3),
        (Held(b"data", head=405), 3),
        (Held(b"data", head=403), 3),
        (Held(b"data", head=501), 3),
        (Held(b"data", head=404), 3),
        (Held(b"data", head=400), 3),
        (Held(b"data", headless=True), 3),
        (Held(b"", headless=True), 4),
        (Held(b"data", head=405, ranges="no"), 3),
        (Held(b"data", head=405, ranges="416"), 4),
        (Held(b"", head=405), 4),
        (Held(b"", sized=""), 4),
        (Held(b"", sized="G", ranges="bare416"), 4),
        (Held(b"", sized="G", ranges="no"), 3),
        (Held(b"data", sized="G", ranges="*"), 4),
    ],
)
@pytest.mark.parametrize("version", [ETAG, {}])
def test_w5_where_head_states_no_size_a_range_does(held: Held, asked: int, version: dict[str, str]) -> None:
    """By Content-Range, also that of the answer 416 of an empty file; the request has the range in its head,
    and no query."""
    held.headers = version
    with Server({"/d/": page("a"), "/d/a": held}) as server:
        assert fetched(f"{server.url}d/") == {"a": held.data}
        of_file = [one for one in server.asked if one[1].startswith("/d/a")]
        assert len(of_file) == asked
        assert of_file[1] == ("GET", "/d/a", "bytes=0-0")
        assert all("?" not in path for _, path, _ in server.asked)


@pytest.mark.parametrize("status", [404, 405])
def test_a_single_file_of_a_server_that_knows_no_head_is_reached(status: int) -> None:
    with Server({"/a": Held(b"data", head=status)}) as server:
        web(f"{server.url}a").check()
        with pytest.raises(PreflightError, match="cannot be reached"):
            web(f"{server.url}b").check()


@pytest.mark.parametrize("held", [Held(b"data", head=404), Held(b"data", headless=True)])
def test_the_checksum_of_a_file_that_head_does_not_know_is_not_stated(held: Held) -> None:
    with Server({"/a": held}) as server:
        source = web(f"{server.url}a")
        assert source.checksum(entry_of(listing(source)["a"])) == ()


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "deflate"])
def test_a_folder_page_in_an_encoding_that_it_states_is_read(encoding: str) -> None:
    text = page("a", "s/").data
    packed = zlib.compress(text) if encoding == "deflate" else gzip.compress(text, mtime=0)
    held = {"/": Held(packed, headers={"Content-Type": "text/html", "Content-Encoding": encoding})}
    held |= {"/s/": page("b"), "/a": Held(b"1"), "/s/b": Held(b"22")}
    with Server(held) as server:
        assert fetched(server.url) == {"a": b"1", "s/b": b"22"}


@pytest.mark.parametrize(
    ("data", "encoding", "why"),
    [
        (b"anything", "br", "it comes in the encoding br"),
        (page("a").data, "gzip", "it is not in the encoding gzip"),
        (gzip.compress(page("a").data, mtime=0)[:-9], "gzip", "it ends within its encoding gzip"),
        (gzip.compress(page("a").data, mtime=0) * 2, "gzip", "something follows its end in gzip"),
        (
            gzip.compress(b"<!-- " + b"x" * (8 << 20), mtime=0),
            "gzip",
            "one tag, comment or script has more than",
        ),
    ],
    ids=["unknown", "not packed", "cut", "doubled", "bomb"],
)
def test_a_folder_page_in_another_encoding_is_refused_by_name(data: bytes, encoding: str, why: str) -> None:
    held = Held(data, headers={"Content-Type": "text/html", "Content-Encoding": encoding})
    with Server({"/": held}) as server, pytest.raises(PreflightError, match="page cannot be read") as caught:
        fetched(server.url)
    assert why in caught.value.why


@pytest.mark.parametrize("held", [Held(b"data", sized="", ranges="*"), Held(b"data", sized="", ranges="no")])
def test_w5_a_size_that_no_answer_states_is_refused_by_name(held: Held) -> None:
    with (
        Server({"/a": held}) as server,
        pytest.raises(PreflightError, match="does not state the file's size"),
    ):
        fetched(f"{server.url}a")


LOGIN = Held(b"<html><form action=x>login</form></html>", headers={"Content-Type": "text/html"})
MONTH = {"/2026-11/a": Held(b"1", headers=ETAG), "/2026-11/s/b c": Held(b"22", headers=ETAG)}
FILES = {"a": b"1", "s/b c": b"22"}


@pytest.mark.parametrize("place", ["/", "http://HOST/", ""])
@pytest.mark.parametrize("files_redirect", [True, False])
@pytest.mark.parametrize("chain", [(), ("/new/",), ("/new/", "/newest/", "/2026/"), ("latest.php?m=11",)])
def test_w6_the_files_of_a_folder_that_redirects_lie_where_its_page_is(
    place: str, files_redirect: bool, chain: tuple[str, ...]
) -> None:
    """`latest/` leads to `2026-11/`, whose links are relative, absolute, or have the host; below `latest/`
    there may be nothing else."""
    held: dict[str, Answer] = dict(MONTH)
    with Server(held) as server:
        top = place.replace("HOST/", server.url[7:]) + ("2026-11/" if place else "")
        held["/2026-11/"], held["/2026-11/s/"] = page(f"{top}a", f"{top}s/", "../"), page("b%20c")
        hops = ["/latest/", *chain, "/2026-11/"]
        held |= {f"/latest/{hop}" if hop.startswith("latest") else hop: to for hop, to in pairwise(hops)}
        if files_redirect:
            held |= {
                f"/latest/{name}": f"/2026-11/{name.replace(' ', '%20')}" for name in ("a", "s/", "s/b c")
            }
        source = web(f"{server.url}latest/")
        source.check()
        assert fetched(f"{server.url}latest/") == FILES
        stated = {key: item.version for key, item in listing(source).items()}
        places = {"a": "/2026-11/a", "s/b c": "/2026-11/s/b%20c"}
        assert stated == (dict.fromkeys(places, "") if files_redirect else places)
        assert source.ignored == {}


@pytest.mark.parametrize("base", ["/2026-11/", "../2026-11/", "HOST2026-11/", "/2026-11/index.html"])
def test_w6_links_are_relative_to_the_base_that_a_page_states(base: str) -> None:
    held: dict[str, Answer] = dict(MONTH)
    with Server(held) as server:
        held["/latest/"] = page("a", "s/", base=base.replace("HOST", server.url))
        held["/2026-11/s/"] = page("s/b%20c", base="/2026-11/")
        assert fetched(f"{server.url}latest/") == FILES


def test_w6_a_base_above_the_folder_leaves_its_files_in_it() -> None:
    held = {
        "/2026-11/": page("2026-11/a", "/2026-11/s/", "x", base="/"),
        "/2026-11/s/": page("b%20c"),
        **MONTH,
    }
    with Server(held) as server:
        source = web(f"{server.url}2026-11/")
        assert {key: item.version for key, item in listing(source).items()} == dict.fromkeys(FILES, "")
        assert source.ignored == {f"page links out of the folder, such as {server.url}x": 1}


def test_w6_a_file_below_the_old_url_that_is_not_the_linked_one_is_not_taken() -> None:
    held: dict[str, Answer] = {"/latest/": "/2026-11/", "/2026-11/": page("a"), **MONTH}
    held["/latest/a"] = Held(b"of last year")
    with Server(held) as server:
        assert fetched(f"{server.url}latest/") == {"a": b"1"}
        source = web(f"{server.url}latest/")
        assert source.list_one("a") == listing(source)["a"]
        assert source.list_one("b") is None


def test_w6_a_file_of_a_folder_by_its_base_is_listed_again_as_it_was() -> None:
    held: dict[str, Answer] = {"/latest/": page("a", "s/", base="/2026-11/"), **MONTH}
    held["/2026-11/s/"] = page("b%20c")
    with Server(held) as server:
        source = web(f"{server.url}latest/")
        assert {key: source.list_one(key) for key in FILES} == listing(source)
        held["/2026-11/s/b c"] = Held(b"333", headers={"ETag": '"new"'})
        assert source.list_one("s/b c").size == 3


@pytest.mark.parametrize(
    ("held", "error", "what"),
    [
        ({"/latest/": "http://other.example/2026-11/"}, ObjectError, "another server, which is not followed"),
        ({"/latest/": "/2026-11/", "/2026-11/": "//169.254.169.254/"}, ObjectError, "another server"),
        ({"/latest/": "/login/", "/login/": page("a"), "/login/a": page("x")}, ObjectError, "HTML page"),
        ({"/latest/": "/login/", "/login/": LOGIN}, PreflightError, "to .*/login/.* no listing .* links to"),
        ({"/latest/": "/latest/a/", "/latest/a/": "/latest/"}, ObjectError, "in a circle"),
    ],
)  # fmt: skip
def test_w6_a_folder_that_leads_elsewhere_is_refused_by_name(
    held: dict[str, Answer], error: type[PenstockError], what: str
) -> None:
    with Server(held) as server, pytest.raises(error, match=what) as caught:
        fetched(f"{server.url}latest/")
    assert server.url in str(caught.value)


def test_w6_a_place_in_a_list_of_keys_is_followed_no_further_than_a_redirect() -> None:
    with Server(MONTH) as server:
        reader = web(f"{server.url}latest/").reader()
        entry = Entry("a", "a", 1, "1d-6539", 0, version="/2026-11/a", length=1)
        assert read(reader, entry) == b"1"
        for place in ("http://other.example/a", "https://other.example/a", "http://[x/a"):
            with pytest.raises(ObjectError, match="a server that is not followed to"):
                read(reader, entry._replace(version=place))
        with pytest.raises(SourceChangedError):
            read(reader, entry._replace(version="3sL4kqtJlcpXroDTDmJ"))
        reader.close()


MADE = b"an archive that is made when it is asked for"


@pytest.mark.parametrize(
    "held", [Held(MADE, sized=""), Held(MADE, sized="", ranges="no"), Held(MADE, head=405, sized="")]
)
def test_w7_a_file_without_a_size_is_refused_with_the_key_that_takes_it(held: Held) -> None:
    held.ranges = "no"
    with Server({"/d/": page("main"), "/d/main": held}) as server:
        with pytest.raises(PreflightError, match="does not state the file's size") as caught:
            fetched(f"{server.url}d/")
        assert "`unsized: true`" in caught.value.hint
        assert f"{server.url}d/main" in str(caught.value)


@pytest.mark.parametrize("data", [MADE, b"", b"\0" * (1 << 20), b"z" * 3_000_001])
@pytest.mark.parametrize("headers", [ETAG, {"ETag": 'W/"7"'}, {}])
def test_w7_with_the_key_it_is_read_to_its_end_twice_and_proves_no_more(
    data: bytes, headers: dict[str, str]
) -> None:
    """It is never pinned, so that no part of it is requested by a range."""
    held = Held(data, sized="", ranges="no", headers=headers)
    with Server({"/d/": page("main"), "/d/main": held}) as server:
        source = web(f"{server.url}d/", unsized=True)
        (item,) = listing(source).values()
        assert item.size == len(data)
        assert item.checksum == f"xxh3_128:read:{xxhash.xxh3_128_hexdigest(data)}"
        assert not pinned(source.url, item.token)
        assert fetched(f"{server.url}d/", unsized=True) == {"main": data}
        assert source.list_one("main") == item
        entry = entry_of(item)
        for sums in (Sums(entry, ()), Sums(entry, (), policy="fast")):
            sums.update(data)
            assert sums.judge() == ("size", item.checksum)
            assert not sums.proves
        wrong = Sums(entry, ())
        wrong.update(data + b"x")
        with pytest.raises(IntegrityError, match="not those that came when the object was listed"):
            wrong.judge()


@pytest.mark.parametrize(
    ("ends", "error", "what"),
    [
        ("cut", TransientError, "within the body"),
        ("close", ObjectError, "the end of the file cannot be known"),
    ],
)
def test_w7_a_body_without_a_proper_end_is_refused(ends: str, error: type[PenstockError], what: str) -> None:
    held = Held(MADE, sized="", ranges="no", ends=ends)
    with Server({"/main": held}) as server, pytest.raises(error, match=what):
        fetched(f"{server.url}main", unsized=True)
    held = Held(MADE, sized="", ranges="no")
    with Server({"/main": held}) as server:
        (item,) = listing(web(f"{server.url}main", unsized=True)).values()
        held.ends = ends
        reader = web(f"{server.url}main", unsized=True).reader()
        if ends == "cut":
            with pytest.raises(TransientError):
                read(reader, entry_of(item))
        else:
            assert read(reader, entry_of(item)) == MADE  # its length is known by now
        reader.close()


def test_w7_a_body_that_is_cut_once_is_read_again() -> None:
    whole = Held(MADE, sized="", ranges="no")
    with Server({"/main": [Held(MADE, sized="", ranges="no", ends="cut"), whole]}) as server:
        assert fetched(f"{server.url}main", unsized=True) == {"main": MADE}


def made(data: bytes, **more: Any) -> Held:
    return Held(data, sized="", ranges="no", **more)


def test_a_checksum_file_that_the_server_does_not_give_comes_with_the_way_to_leave_it_out(
    tmp_path: Path,
) -> None:
    held = {"/d/": page("a", "s/"), "/d/a": Held(b"1"), "/d/s/": page("SHA256SUMS")}
    held["/d/s/SHA256SUMS"] = Held(b"sums", got={"Content-Encoding": "br"})
    with (
        Server(held) as server,
        staging(tmp_path, f"{server.url}d/", checksums=("SHA256SUMS",)) as context,
        pytest.raises(PreflightError, match="a checksum file cannot be used") as caught,
    ):
        go(context, upto="list")
    assert caught.value.where == f"{server.url}d/s/SHA256SUMS"
    assert caught.value.hint.endswith("['!/s/SHA256SUMS']")


def sources_of(url: str) -> tuple[SourceConfig, ...]:
    return (SourceConfig(url, storage_options={"unsized": True}),)


@pytest.mark.parametrize("headers", [{"ETag": '"1"'}, {"ETag": 'W/"1"'}, {}])
def test_w7_files_without_a_size_are_staged_as_they_were_read_and_again_where_their_bytes_are_others(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    """Every step: the plan has their sizes; one above `plan.giant_bytes` is not divided. What the server
    sends later under the same etag and size is found, and not taken for what lies there."""
    held: dict[str, Answer] = {"/d/": page("main", "large", "sized"), "/d/sized": Held(b"s", headers=ETAG)}
    held |= {"/d/main": made(MADE, headers=headers), "/d/large": made(b"l" * 300_000, headers=headers)}
    with (
        Server(held) as server,
        staging(tmp_path, server.url, sources=sources_of(f"{server.url}d/")) as context,
    ):
        planned = go(context, upto="plan")
        assert planned["bytes"] == len(MADE) + 300_001
        go(context, after="plan")
        data = context.layout("data").current / "data"
        assert content(data) == {b"main": MADE, b"large": b"l" * 300_000, b"sized": b"s"}
        record = records(context)["main"]
        digest = xxhash.xxh3_128_hexdigest(MADE)
        assert (record.source_grade, record.source_proof) == ("size", f"xxh3_128:read:{digest}")
        assert record.size == len(MADE)
        first = context.layout("data").current.resolve()
        go(context)
        assert context.layout("data").current.resolve() == first

        held["/d/large"] = made(b"m" * 300_000, headers=headers)
        go(context)
        assert content(context.layout("data").current / "data")[b"large"] == b"m" * 300_000
        assert content(first / "data")[b"large"] == b"l" * 300_000


@pytest.mark.parametrize("changed", ["refuse", "follow"])
def test_w7_other_bytes_at_the_copy_are_a_changed_object(tmp_path: Path, changed: str) -> None:
    held: dict[str, Answer] = {"/d/": page("main", "other"), "/d/main": made(MADE), "/d/other": Held(b"o")}
    with (
        Server(held) as server,
        staging(tmp_path, server.url, sources=sources_of(f"{server.url}d/"), changed=changed) as context,
    ):
        go(context, upto="plan")
        held["/d/main"] = made(MADE.upper())
        if changed == "refuse":
            with pytest.raises(
                SourceChangedError, match=r"main.*not those that came when the object was listed"
            ):
                go(context, after="plan")
        else:
            go(context, after="plan")
            assert content(context.layout("data").current / "data") == {b"main": MADE.upper(), b"other": b"o"}


def test_w7_a_proof_that_is_required_is_not_had_by_reading_twice(tmp_path: Path) -> None:
    with (
        Server({"/d/": page("main"), "/d/main": made(MADE)}) as server,
        staging(tmp_path, server.url, sources=sources_of(f"{server.url}d/")) as context,
    ):
        verify = replace(context.config.verify, source_checksum="require")
        context.config = replace(context.config, verify=verify)
        with pytest.raises(PenstockError, match=r"requires one.*states none|states none.*requires"):
            go(context)
