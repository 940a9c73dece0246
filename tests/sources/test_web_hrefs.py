"""Links, redirects and pages of web servers that say something else than they seem to: folders without their
slash, addresses written in another way, a page in a file's place."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contracts.source_contract import entry_of, listing, read
from tests.sources.conftest import dataset
from tests.sources.test_others import linked
from tests.sources.test_web_pages import Site, web

from penstock.config.settings import SourceConfig
from penstock.core.errors import ObjectError, PreflightError, SourceChangedError
from penstock.core.model import Entry
from penstock.sources.port import open_source
from penstock.sources.web_client import (
    BY_LINKS,
    DEEP,
    ELSEWHERE,
    ITSELF,
    LONGEST,
    NAMELESS,
    QUERY,
    FolderPage,
    hrefs,
)


@pytest.mark.parametrize(
    ("link", "name"),
    [
        ("b%20c", "b c"),
        ("./b", "b"),
        ("b#sha256=x", "b"),
        ("./a:b", "a:b"),
        ("/ba%73e%20d/b", "b"),
        ("/base d/b", "b"),
        ("../base%20d/b", "b"),
        ("x/../b", "b"),
        ("%2e/b", "b"),
        ("//H.Example/base%20d/b", "b"),
        ("http://h.example:80/base%20d/b", "b"),
        ("HTTP://H.EXAMPLE./base%20d/./b/", "b/"),
        ("https://h.example/base%20d/b", "b"),
        ("http://u@h.example/base%20d/b", "b"),
        ("a:b", NAMELESS),
        ("a%2Fb", NAMELESS),
        ("/base%20d//b", NAMELESS),
        ("http://[x", NAMELESS),
        ("http://h.example:99999/base%20d/b", NAMELESS),
        ("b?x=1", QUERY),
        ("b/?x=1", QUERY),
        ("deep/er", DEEP),
        ("deep/er/", DEEP),
        ("/other/b", ELSEWHERE),
        ("/base%20db", ELSEWHERE),
        ("http://h.example:8080/base%20d/b", ELSEWHERE),
        ("//else.example/base%20d/b", ELSEWHERE),
        ("ftp://h.example/base%20d/b", ELSEWHERE),
        ("?C=N;O=D", ""),
        ("?sort=size&order=asc", ""),
        ("?page=2", ITSELF),
        ("/base%20d/?file=b&C=N", ITSELF),
        ("#top", ""),
        ("..", ""),
        ("../", ""),
        ("%2e%2e/", ""),
        ("/", ""),
        ("/base%20d", ""),
        ("http://H.example", ""),
        ("mailto:x@y", ""),
        ("javascript:void(0)", ""),
    ],
)
def test_what_a_link_says(link: str, name: str) -> None:
    for base in ("http://h.example/base%20d/", "http://H.Example:80/b%61se d/"):
        found = linked(f'<a href="{link}">x</a>', base)
        assert [*found.names, *found.left_out.values()] == ([name] if name else [])


def test_a_link_with_a_query_or_into_a_folder_that_is_listed_is_not_left_out() -> None:
    page = "".join(f"<a href={link}>x</a>" for link in ("b", "b?x=1", "c/", "c/d", "e", "e/f"))
    assert linked(page, "http://h/base/") == ({"b", "c/", "e"}, {})


def page_of(*names: str) -> bytes:
    links = "".join(f'<a href="{name}">x</a>' for name in names)
    return f"<html><title>Index of /</title><h1>Index of /</h1>{links}</html>".encode()


def test_what_is_left_out_of_pages_is_counted_once_with_one_of_them() -> None:
    foot = ("https://else.example/?key=secret", "/")
    pages: dict[str, Any] = {
        "/d/": page_of("a", "s/", "q?x=1", "r?y", *foot),
        "/d/s/": page_of("b", "t/u", "../", *foot),
        "/d/a": b"1",
        "/d/s/b": b"22",
    }
    with Site(pages) as site:
        source = web(f"{site.url}d/")
        assert list(listing(source)) == ["a", "s/b"]
        assert source.ignored == {
            "page links with a query, such as q": 2,
            "page links out of the folder, such as https://else.example/": 1,
            "page links into a folder that the page does not link to, such as s/t/u": 1,
        }


@pytest.mark.parametrize(
    "redirects",
    [
        {"/d/sub": (301, "/d/sub/")},
        {"/d/sub": (302, "sub/")},
        {"/d/sub": (303, "./sub/?x=1")},
        {"/d/sub": (307, "//127.0.0.1:1/d/sub/")},
        {"/d/sub": (308, "http://localhost/d/s%75b/")},
        {"/d/sub": (302, "/d/hop"), "/d/hop": (302, "/d/sub/")},
        {"/d/sub": (301, "/d/sub/"), "/d/sub/": (302, "/d/sub/index.html")},
    ],
    ids=["absolute", "relative", "query", "elsewhere", "encoded", "chain", "index"],
)
def test_a_redirect_that_adds_the_slash_means_a_folder(redirects: dict[str, Any]) -> None:
    """Its keys come in the order of all keys: `sub-1` and `sub.x` before `sub/`."""
    sub = page_of("y", "deep")
    pages: dict[str, Any] = {
        "/d/": page_of("a", "sub", "sub-1", "sub.x", "sub0", "z"),
        "/d/sub/": sub,
        "/d/sub/index.html": sub,
        "/d/sub/y": b"4444",
        "/d/sub/deep": "/d/sub/deep/",
        "/d/sub/deep/": page_of("x"),
        "/d/sub/deep/x": b"55555",
        **dict.fromkeys(("/d/a", "/d/sub-1", "/d/sub.x", "/d/sub0", "/d/z"), b"1"),
        **redirects,
    }
    with Site(pages) as site:
        source = web(f"{site.url}d/")
        found = listing(source)
        assert list(found) == ["a", "sub-1", "sub.x", "sub/deep/x", "sub/y", "sub0", "z"]
        reader = source.reader()
        assert read(reader, entry_of(found["sub/y"])) == b"4444"
        with pytest.raises(SourceChangedError, match="a folder stands where a file was listed"):
            read(reader, Entry("sub", "sub", 1, "", 0, length=1))
        reader.close()
        assert source.list_one("sub/y") == found["sub/y"]


@pytest.mark.parametrize("root", ["", "/d", "/d?x=1"])
def test_a_source_without_its_slash_is_the_folder_that_the_server_says(root: str) -> None:
    pages: dict[str, Any] = {"/d?x=1": "/d/?x=1", "/d": "/d/"}
    for path in ("/", "/d/"):
        pages |= {path: page_of("a", "s/"), f"{path}a": b"1", f"{path}s/": page_of("b"), f"{path}s/b": b"22"}
    with Site(pages) as site:
        source = web(site.url.rstrip("/") + root)
        source.check()
        found = listing(source)
        assert list(found) == ["a", "s/b"]
        reader = source.reader()
        assert read(reader, entry_of(found["s/b"])) == b"22"
        reader.close()
        assert source.list_one("s/b") == found["s/b"]
        assert source.list_one("gone") is None
        pages |= {"/d/": page_of("a", "d"), "/d/d": b"1"}
        if root:
            with pytest.raises(PreflightError, match="the folder's own name"):
                listing(source)


LOGIN = (b"<!DOCTYPE html><html><form>login</form></html>", "text/html; charset=utf-8")


@pytest.mark.parametrize(
    ("name", "answers", "refused"),
    [
        ("b.tar.gz", {"/b.tar.gz": "/login", "/login": LOGIN}, True),
        ("b", {"/b": (307, "/x"), "/x": "/login", "/login": LOGIN}, True),
        ("b", {"/b": "/login/", "/login/": (LOGIN[0], "application/xhtml+xml")}, True),
        ("b.tar.gz", {"/b.tar.gz": LOGIN}, True),
        ("b.parquet", {"/b.parquet": LOGIN}, True),
        ("b.tar.gz", {"/b.tar.gz": "/b%2Etar.gz?again", "/b.tar.gz?again": LOGIN}, True),
        ("b.tar.gz", {"/b.tar.gz": "/store/1", "/store/1": (b"bytes", "application/gzip")}, False),
        ("b.html", {"/b.html": "/page", "/page": LOGIN}, False),
        ("b", {"/b": LOGIN}, True),
        ("b.what", {"/b.what": LOGIN}, True),
        ("train-00001-of-00002", {"/train-00001-of-00002": LOGIN}, True),
        ("b", {"/b": (b"<!-- checking your browser " + b"x" * 2000, "text/html")}, True),
        ("b", {"/b": (b"# notes <html>", "text/html")}, False),
        ("b", {"/b": (LOGIN[0], "text/plain")}, False),
        ("b.bin", {"/b.bin": (b"\0<html>", "text/html")}, False),
        ("b", {"/b": "/store/1", "/store/1": (b"data of a server that knows no types", "text/html")}, False),
    ],
)
def test_a_page_in_place_of_a_file_is_refused_by_name(
    name: str, answers: dict[str, Any], refused: bool
) -> None:
    with Site({"/": page_of(name), **answers}) as site:
        for url in (site.url, f"{site.url}{name}"):
            if not refused:
                assert list(listing(web(url))) == [name]
                continue
            with pytest.raises(ObjectError, match="an HTML page in place of the file") as caught:
                listing(web(url))
            assert caught.value.where == f"{site.url}{name}"


@pytest.mark.parametrize(
    ("begin", "length", "key", "refused"),
    [
        (LOGIN[0], 9_000, "cells.h5ad", True),
        (b"\n<!-- a check of browsers " + b"x" * 2_000, 9_000, "train-00001-of-00002", True),
        (LOGIN[0], len(LOGIN[0]), "LICENSE", True),
        (LOGIN[0], 9_000, "about.html", False),
        (b"data <html>", 9_000, "LICENSE", False),
    ],
)
def test_a_page_at_the_listed_url_is_refused_while_it_is_copied(
    begin: bytes, length: int, key: str, refused: bool
) -> None:
    """A list of keys stated size and no version: the answer fits, and is a bot check's page."""
    data = begin.ljust(length)
    entry = Entry(key, key, length, "", 0, length=length)
    with Site({f"/{key}": (data, "text/html")}) as site:
        reader = web(site.url).reader()

        def by_pieces() -> bytes:
            body, got = reader.open(entry, 0, length), bytearray(length)
            at = 0
            while at < length and (count := body.readinto(memoryview(got)[at : at + 100])):
                at += count
            body.close()
            return bytes(got)

        for reads in (by_pieces, lambda: bytes(reader.whole(entry, memoryview(bytearray(1 << 16)))[0])):
            if not refused:
                assert reads() == data
                continue
            with pytest.raises(ObjectError, match="an HTML page in place of the file") as caught:
                reads()
            assert caught.value.where == f"{site.url}{key}"
        reader.close()


@pytest.mark.parametrize(
    ("token", "error", "what"),
    [
        ("", ObjectError, "an HTML page in place of the file.*redirects to .*/login"),
        ("5 Mon, 01 Jan 2024 00:00:00 GMT", SourceChangedError, "changed"),
    ],
)
def test_a_login_page_that_answers_while_it_is_copied_is_refused(
    token: str, error: type[Exception], what: str
) -> None:
    """The listing saw the file."""
    with Site({"/b.gz": "/login", "/login": LOGIN}) as site:
        reader = web(site.url).reader()
        size = len(LOGIN[0])
        entry = Entry("b.gz", "b.gz", size, token, 0, length=size)
        with pytest.raises(error, match=what):
            read(reader, entry)
        with pytest.raises(error, match=what):
            reader.whole(entry, memoryview(bytearray(1 << 16)))
        reader.close()


def test_links_are_those_that_html_has() -> None:
    """The page of wpull#48 and Norconex/crawler#291, and attributes that a browser reads in another way."""
    page = """<a data-href="x" href="y">1</a><a title="a > b" href='z'>2</a><a\nhref=w/>3</a>
      <!-- <a href="comment">4</a> --><script>document.write('<a href="script">5</a>')</script>
      <a name="no link">6</a><a href=first href=second>7</a><area href="area"><link href="style.css">
      <A HREF = "&uuml;&amp;b">8</A>"""
    assert linked(page, "http://h/d/") == ({"y", "z", "w/", "first", "area", "\u00fc&b"}, {})


@pytest.mark.parametrize(
    ("page", "why"),
    [
        (b"<html><body><ul><li><a href=b>b</a></ul></body></html>", "it is no listing of Apache"),
        (b"<html><script src=app.js></script><div id=app></div></html>", "it is no listing of Apache"),
        (page_of("b", "?page=2"), "it links to further pages of itself"),
        (page_of("b").removesuffix(b"</html>"), "it is cut off"),
        (b"<html><div id=summary><b>1</b> directory <b>2</b> files</div><a href=b>b</a></html>",
         "it states 3 names and links to 1"),
        (b"<pre><a href=b>b</a></pre><img src=x>", "it is no listing of Apache"),
        (b"\x1f\x8b\x08 gzip that nobody states", "it is no listing of Apache"),
        (b"", "it is no listing of Apache"),
    ],
)  # fmt: skip
def test_a_page_that_is_not_known_to_be_a_whole_listing_is_refused_by_its_address(
    page: bytes, why: str
) -> None:
    pages = {"/": page_of("a", "s/"), "/a": b"1", "/s/": (page, "text/html"), "/s/b": b"22"}
    with Site(pages) as site:
        with pytest.raises(PreflightError, match="no listing that is known to be complete") as caught:
            listing(web(site.url))
        assert caught.value.where == f"{site.url}s/"
        assert why in caught.value.why
        assert "`list_from`" in caught.value.hint
        assert "`listing: links`" in caught.value.hint
        without = open_source(
            SourceConfig(site.url), dataset(site.url), keep=lambda key: not key.startswith("s/")
        )
        assert list(listing(without)) == ["a"]
        assert without.ignored["filtered"] == 1
        source = web(site.url, listing="links")
        if b"href=" not in page:
            with pytest.raises(PreflightError, match="it links to nothing in the folder"):
                listing(source)
            return
        assert list(listing(source)) == ["a", "s/b"]
        assert source.ignored[BY_LINKS] == 1


def test_a_refused_file_that_is_left_out_does_not_refuse_the_dataset() -> None:
    with Site({"/": page_of("a", "b"), "/a": b"1", "/b": LOGIN}) as site:
        source = open_source(SourceConfig(site.url), dataset(site.url), keep=lambda key: key != "b")
        assert list(listing(source)) == ["a"]
        assert source.ignored == {"filtered": 1}


def test_a_page_of_more_than_64_mib_is_read_as_it_comes() -> None:
    content = FolderPage()
    content.add(page_of("a").removesuffix(b"</html>"))
    for _ in range(65):
        content.add(b"x" * (1 << 20))
    content.add(b"<a href=z>z</a></html>")
    assert content.doubt(hrefs(content.links, "http://h/")) == ""
    assert content.links == ["a", "z"]
    assert len(content.rawdata) < 1 << 10


def test_a_tag_without_an_end_is_refused() -> None:
    content = FolderPage()
    content.add(b"<!-- " + b"x" * (LONGEST - 5))
    with pytest.raises(ValueError, match="one tag, comment or script has more than"):
        content.add(b"x")


@pytest.mark.parametrize("answer", ["/login", (b"[]", "application/json")])
def test_a_folder_whose_page_is_none_is_not_taken_for_empty(answer: Any) -> None:
    pages = {"/": page_of("a", "s/"), "/a": b"1", "/s/": answer, "/login": LOGIN}
    with Site(pages) as site, pytest.raises(PreflightError, match="no listing that is known") as caught:
        listing(web(site.url))
    assert caught.value.where == f"{site.url}s/"
