"""Real pages of Apache, nginx, Caddy and lighttpd: what is published is, byte by byte, what lies in the
folder that the server shows, or it is refused by name."""

from __future__ import annotations

import gzip
import hashlib
import json
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.support.go_servers import UnavailableError
from tests.support.web_servers import DebianServer
from tests.support.whole_way import content, go, staging

from penstock.config.settings import SourceConfig
from penstock.core.errors import PenstockError, PreflightError
from penstock.sources.web_client import BY_LINKS

if TYPE_CHECKING:
    from pathlib import Path

FILES = {
    "a.txt": b"text\n" * 400,
    "b.tar.gz": gzip.compress(b"archive", mtime=0),
    "empty": b"",
    "page.html": b"<html>a page of the data</html>",
    "sub/no extension": b"\0\1",
    "sub/deep/\u00fc &%41#+.txt": b"odd",
    "sub/semi;colon=,@!$'()*~": b"odd",
    "sub/what?x=1": b"odd",
    "sub/" + "long" * 50: b"long",
    "a:b": b"odd",
    '"quoted" <b>': b"odd",
}


class Case(NamedTuple):
    program: str
    lines: str
    folder: str = "2026-11/"
    """The source, below the server's root."""


SHOWN = {
    "apache-plain": Case("apache2", ""),
    "apache-table": Case(
        "apache2", "IndexOptions FancyIndexing HTMLTable XHTML NameWidth=20\nAddEncoding x-gzip .gz"
    ),
    "apache-prefix-redirect": Case(
        "apache2", "IndexOptions FancyIndexing\nAddEncoding x-gzip .gz\nRedirect /latest /2026-11", "latest/"
    ),
    "apache-exact-redirect": Case(
        "apache2", "RedirectMatch ^/latest/$ /newest/\nRedirectMatch ^/newest/$ /2026-11/", "latest/",
    ),
    "nginx": Case("nginx", "autoindex_exact_size off;"),
    "nginx-exact-redirect": Case("nginx", "location = /latest/ { return 302 /2026-11/; }", "latest/"),
    "nginx-alias": Case("nginx", "location /latest/ { alias ROOT/2026-11/; }", "latest/"),
    "nginx-no-slash": Case("nginx", "location = /latest/ { return 301 URL/2026-11; }", "latest/"),
    "caddy": Case("caddy", "encode gzip"),
    "caddy-exact-redirect": Case("caddy", "redir /latest/ /2026-11/", "latest/"),
    "lighttpd": Case("lighttpd", 'dir-listing.encoding = "utf-8"'),
    "lighttpd-redirect": Case("lighttpd", 'url.redirect = ("^/latest/(.*)" => "/2026-11/$1")', "latest/"),
    "lighttpd-alias": Case("lighttpd", 'alias.url = ("/latest/" => "ROOT/2026-11/")', "latest/"),
}  # fmt: skip


def served(case: Case) -> DebianServer:
    try:
        return DebianServer(case.program, case.lines)
    except UnavailableError as error:
        pytest.skip(str(error))


def fill(root: Path, files: dict[str, bytes] = FILES) -> None:
    for name, data in files.items():
        path = root / "2026-11" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


@pytest.mark.parametrize("name", SHOWN)
def test_w6_what_is_published_of_a_real_page_is_what_the_server_holds(name: str, tmp_path: Path) -> None:
    case = SHOWN[name]
    with served(case) as server:
        fill(server.root)
        with staging(tmp_path, f"{server.url}{case.folder}") as context:
            go(context)
            published = content(context.layout("data").current / "data")
        assert published == content(server.root / "2026-11")


LOGIN = "<html><form>who are you?</form></html>"
REFUSED = {
    "apache-login": (Case("apache2", "Redirect /2026-11/b.tar.gz /login.html"), "b.tar.gz"),
    "nginx-login": (Case("nginx", "location = /2026-11/b.tar.gz { return 302 /login.html; }"), "b.tar.gz"),
    "nginx-gzip-static": (Case("nginx", "gzip_static always;"), "a.txt"),
    "nginx-other-host": (
        Case("nginx", "location = /latest/ { return 302 http://other.example/; }", "latest/"), "latest/",
    ),
    "nginx-no-pages": (Case("nginx", "location /2026-11/ { autoindex off; }"), "2026-11/"),
    "caddy-login": (Case("caddy", "redir /2026-11/b.tar.gz /login.html"), "b.tar.gz"),
    "lighttpd-login": (
        Case("lighttpd", 'url.redirect = ("^/2026-11/b.tar.gz" => "/login.html")'), "b.tar.gz",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_w6_what_a_real_server_sends_in_place_of_a_file_or_folder_is_refused_by_name(
    name: str, tmp_path: Path
) -> None:
    case, refused = REFUSED[name]
    with served(case) as server:
        fill(server.root)
        (server.root / "2026-11/a.txt.gz").write_bytes(gzip.compress(b"other text"))
        (server.root / "login.html").write_text(LOGIN)
        with staging(tmp_path, f"{server.url}{case.folder}") as context:
            with pytest.raises(PenstockError) as caught:
                go(context)
            assert not context.layout("data").current.exists()
        assert refused in str(caught.value)


@pytest.mark.parametrize("program", ["apache2", "nginx", "caddy", "lighttpd"])
def test_w4_w5_a_single_file_of_a_real_server_is_taken_as_it_lies_there(program: str, tmp_path: Path) -> None:
    case = Case(program, "AddEncoding x-gzip .gz" if program == "apache2" else "")
    with served(case) as server:
        fill(server.root)
        with staging(tmp_path, f"{server.url}2026-11/b.tar.gz") as context:
            go(context)
            assert content(context.layout("data").current / "data") == {b"b.tar.gz": FILES["b.tar.gz"]}


def test_a_folder_that_caddy_cuts_is_refused_with_the_number(tmp_path: Path) -> None:
    """Caddy reads 10,000 entries of a folder, and says nothing of the others."""
    with served(Case("caddy", "")) as server:
        fill(server.root, {"a": b"1"} | {f"big/{n:05d}": b"" for n in range(10_050)})
        with staging(tmp_path, f"{server.url}2026-11/") as context:
            with pytest.raises(PreflightError, match="Caddy reads 10,000 of a folder") as caught:
                go(context)
            assert not context.layout("data").current.exists()
        assert caught.value.where == f"{server.url}2026-11/big/"
        assert "`list_from`" in caught.value.hint


HIDES = {
    "apache2": ("IndexIgnore .??* *~ *# RCS CVS *,v *,t", [".zgroup", "x.csv~", "RCS/v"]),
    "nginx": ("", [".zgroup"]),
}


@pytest.mark.parametrize("program", HIDES)
def test_what_a_server_hides_and_a_checksum_file_names_is_refused_by_name(
    program: str, tmp_path: Path
) -> None:
    lines, hidden = HIDES[program]
    files = {name: name.encode() for name in ("a.txt", ".zgroup", "x.csv~", "RCS/v")}
    sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in files.items())
    with served(Case(program, lines)) as server:
        fill(server.root, files | {"SHA256SUMS": sums.encode()})
        with (
            staging(tmp_path, f"{server.url}2026-11/", checksums=("SHA256SUMS",)) as context,
            pytest.raises(PreflightError, match="that the source does not list") as caught,
        ):
            go(context)
        assert {name for name in files if f'"{name}" is not listed' in str(caught.value)} == set(hidden)


@pytest.mark.parametrize(
    ("program", "lines"),
    [
        ("apache2", "<Directory ROOT/2026-11>\nDirectoryIndex index.html\n</Directory>"),
        ("nginx", "location /2026-11/ { index index.html; }"),
        ("caddy", ""),
    ],
    ids=["apache", "nginx", "caddy"],
)
@pytest.mark.parametrize("how", ["known", "links"])
def test_an_index_page_in_a_listings_place_is_refused_or_taken_by_its_links(
    program: str, lines: str, how: str, tmp_path: Path
) -> None:
    with served(Case(program, lines)) as server:
        fill(server.root, {"a.txt": b"1", "s/b": b"22", "s/c": b"333"})
        (server.root / "2026-11/s/index.html").write_text("<html><h1>My data</h1><a href=b>b</a></html>")
        url = f"{server.url}2026-11/"
        sources = (SourceConfig(url, storage_options={"listing": how}),)
        with staging(tmp_path, "", sources=sources) as context:
            current = context.layout("data").current
            if how == "known":
                with pytest.raises(PreflightError, match="no listing that is known") as caught:
                    go(context)
                assert caught.value.where == f"{url}s/"
                assert not current.exists()
                return
            go(context)
            assert content(current / "data") == {b"a.txt": b"1", b"s/b": b"22"}
            assert json.loads((current / "release.json").read_text())["ignored"][BY_LINKS] == 1
