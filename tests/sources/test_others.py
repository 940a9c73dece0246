"""Web folders, what fsspec's protocols tell, and checksum files."""

from __future__ import annotations

import base64
import datetime as dt
import functools
import hashlib
import http.server
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.contracts.source_contract import entry_of, listing, read
from tests.sources.conftest import dataset

from penstock.config.settings import SourceConfig
from penstock.core.errors import (
    ExpiredCredentialsError,
    FailedError,
    ObjectError,
    PreflightError,
    SourceChangedError,
    TransientError,
)
from penstock.core.model import SourceChecksum
from penstock.sources import generic_opener as fsspec_info
from penstock.sources import stated_checksums
from penstock.sources.port import open_source
from penstock.sources.web_client import FolderPage, PageHrefs, hrefs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Quiet(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Nothing."""


class QuietServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that hangs up is no news."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    """Python's own web server over a folder: listings, dates, no etags, no ranges."""
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "ü&%41.txt").write_bytes(b"inner")
    (tmp_path / "top").write_bytes(b"top")
    (tmp_path / "zero").write_bytes(b"")
    handler = functools.partial(Quiet, directory=str(tmp_path))
    with QuietServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def web(url: str) -> Any:
    return open_source(SourceConfig(url), dataset(url))


def test_a_folder_of_a_web_server(site: str, tmp_path: Path) -> None:
    source = web(site)
    source.check()
    found = listing(source)
    assert {key: item.size for key, item in found.items()} == {"a b/ü&%41.txt": 5, "top": 3, "zero": 0}
    assert list(found) == sorted(found, key=str.encode)
    assert found["top"].modified_ns == int((tmp_path / "top").stat().st_mtime) * 10**9
    reader = source.reader()
    assert read(reader, entry_of(found["a b/ü&%41.txt"])) == b"inner"
    assert read(reader, entry_of(found["zero"])) == b""
    with pytest.raises(ObjectError, match="ranges"):
        read(reader, entry_of(found["top"]), 1, 1)
    (tmp_path / "top").write_bytes(b"other")
    with pytest.raises((SourceChangedError, TransientError)):
        read(reader, entry_of(found["top"]))
    (tmp_path / "top").unlink()
    with pytest.raises(SourceChangedError):
        read(reader, entry_of(found["top"]))
    reader.close()


def test_one_file_of_a_web_server(site: str) -> None:
    source = web(f"{site}a%20b/%C3%BC%26%2541.txt")
    source.check()
    assert [(item.key, item.size) for batch in source.list() for item in batch] == [("ü&%41.txt", 5)]
    reader = source.reader()
    assert read(reader, entry_of(listing(source)["ü&%41.txt"])) == b"inner"
    reader.close()
    with pytest.raises(PreflightError):
        web(f"{site}nothing").check()


def linked(page: str, url: str) -> PageHrefs:
    """What a page of this URL links to."""
    content = FolderPage()
    content.add(page.encode())
    return hrefs(content.links, url, content.base_of(url))


def test_links_of_a_page() -> None:
    page = """<a href="../">up</a> <a href="?C=N;O=D">by name</a> <A class=x HREF='b%20c'>b</a>
      <a href=plain>p</a> <a href="/base/dir/">d</a> <a href="http://else/x">x</a> <a href="deep/er">n</a>
      <a href="a%2Fb">hidden slash</a> <a href="&amp;amp">e</a> <a href="#top">t</a> <a href="./dot">.</a>
      <a href="mailto:x@y">m</a> <a href="/other">o</a> <a href="%2e%2e">up</a>"""
    found = linked(page, "http://h/base/")
    assert found.names == {"b c", "plain", "dir/", "&amp", "dot"}
    assert set(found.left_out) == {"a%2Fb", "deep/er", "http://else/x", "http://h/other"}


MD5 = hashlib.md5(b"x").hexdigest()
TIME = dt.datetime(2024, 1, 2, 3, 4, 5, 678000, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("info", "token"),
    [
        ({"etag": '"0x8D"', "size": 1}, "0x8D"),
        ({"ETag": '"abc"', "generation": "17", "size": 1}, "17"),
        ({"size": 5, "last_modified": TIME}, "5-1704164645678000000"),
        ({"size": 5, "mtime": 1704164645.678}, "5-1704164645678000000"),
        ({"size": 5, "modify": "20240102030405"}, "5-1704164645000000000"),
        ({"size": 5, "updated": "2024-01-02T03:04:05.678Z"}, "5-1704164645678000000"),
        ({"size": 5, "modified": "once upon a time"}, ""),
        ({"size": 5}, ""),
    ],
)
def test_tokens(info: dict[str, Any], token: str) -> None:
    assert fsspec_info.token_of(info) == token


def test_checksums_of_azure_and_google() -> None:
    raw = bytes.fromhex(MD5)
    text = base64.b64encode(raw).decode()
    expected = [SourceChecksum("md5", "full", MD5)]
    assert fsspec_info.checksums_of({"content_settings": {"content_md5": bytearray(raw)}}) == expected
    assert fsspec_info.checksums_of({"content_settings": {"content_md5": None}}) == []
    assert fsspec_info.checksums_of({"md5Hash": text}) == expected
    assert fsspec_info.checksums_of({"crc32c": "AAAAAQ=="}) == [SourceChecksum("crc32c", "full", "00000001")]
    assert fsspec_info.checksums_of({"md5Hash": "nonsense"}) == []


def test_one_file_of_a_protocol() -> None:
    import fsspec

    fs = fsspec.filesystem("memory")
    fs.pipe_file("/single/file.bin", b"content")
    source: Any = open_source(SourceConfig("memory://single/file.bin"), dataset("m"))
    source.check()
    found = listing(source)
    assert list(found) == ["file.bin"]
    assert read(source.reader(), entry_of(found["file.bin"]), 2, 3) == b"nte"
    other: Any = open_source(SourceConfig("memory://single/file.bin"), dataset("m"))
    assert read(other.reader(), entry_of(found["file.bin"])) == b"content"


SHA = hashlib.sha256(b"x").hexdigest()


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("SHA256SUMS", f"{SHA}  a b\n{SHA} *c/d\n", {"a b": ("sha256", SHA), "c/d": ("sha256", SHA)}),
        ("sub/md5sums.txt", f"{MD5}  ./x\r\n# note\n\n", {"sub/x": ("md5", MD5)}),
        ("x.xxh128", f"{MD5.upper()}  x\n", {"x": ("xxh3_128", MD5)}),
        ("f.tar.sha256", f"{SHA}\n", {"f.tar": ("sha256", SHA)}),
        ("d/f.tar.md5", MD5, {"d/f.tar": ("md5", MD5)}),
        ("S", f"\\{SHA}  a\\nb\\\\c\\rd\n", {"a\nb\\c\rd": ("sha256", SHA)}),
        (
            "S",
            f"SHA256 (a (1)) = {SHA}\nXXH128 (y) = {MD5}\n",
            {"a (1)": ("sha256", SHA), "y": ("xxh3_128", MD5)},
        ),
        ("S", f"\\MD5 (n\\nl) = {MD5}\n", {"n\nl": ("md5", MD5)}),
        ("S", f"{SHA}  name\x85with\u2028separators\n", {"name\x85with\u2028separators": ("sha256", SHA)}),
        ("sums.crc32c", "0000abcd  z\n", {"z": ("crc32c", "0000abcd")}),
        (
            "d/S",
            f"{MD5}  a/./b\n{MD5}  .//c\n{MD5}  .x\n",
            {f"d/{n}": ("md5", MD5) for n in ("a/b", "c", ".x")},
        ),
        ("d/S", f"{MD5}  ../e/f\n{MD5}  /abs\n", {"e/f": ("md5", MD5), "/abs": ("md5", MD5)}),
    ],
)
def test_checksum_files(key: str, text: str, expected: dict[str, tuple[str, str]]) -> None:
    found = stated_checksums.parse(text, key)
    assert found == {
        name: SourceChecksum(algorithm, "full", value) for name, (algorithm, value) in expected.items()
    }


@pytest.mark.parametrize("text", ["hello\n", f"{SHA}\n{SHA}\n", "abcdef0123  x\n", "<html>\n"])
def test_what_is_no_checksum_file(text: str) -> None:
    with pytest.raises(ObjectError):
        stated_checksums.parse(text, "SUMS")


SIGNED = (
    "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n{}"
    "-----BEGIN PGP SIGNATURE-----\n\niQEz=\n-----END PGP SIGNATURE-----\n"
)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("form", ["{}", SIGNED, SIGNED.replace("\n", "\r\n")])
def test_a_checksum_file_with_a_mark_or_a_signature_is_read(encoding: str, form: str) -> None:
    lines = f"# of x\n{SHA}  x\n{SHA} *\u00fc\n"
    content = form.format(lines.replace("\n", "\r\n") if "\r" in form else lines).encode(encoding)
    checksum = SourceChecksum("sha256", "full", SHA)
    assert stated_checksums.joined([("SHA256SUMS", content)]) == {"x": checksum, "\u00fc": checksum}


def test_a_signed_line_that_begins_with_a_dash_is_unescaped() -> None:
    content = SIGNED.format(f"- --- x\n{SHA}  x\n").encode()
    assert stated_checksums.text_of(content, "S") == f"--- x\n{SHA}  x\n"


@pytest.mark.parametrize(
    "content",
    [
        f"{SHA}  y\n{SIGNED.format(f'{SHA}  x{chr(10)}')}".encode(),
        SIGNED.format(f"{SHA}  x\n").partition("-----END")[0].encode(),
        f"\ufeff{SHA}  x\n".encode("utf-16-le")[:-1],
        f"{SHA}  x\n".encode("utf-16-le"),
    ],
)
def test_what_is_around_a_signed_text_or_does_not_fit_its_mark_is_refused(content: bytes) -> None:
    with pytest.raises(ObjectError, match="checksum file"):
        stated_checksums.joined([("SHA256SUMS", content)])


def test_several_files_join() -> None:
    found = stated_checksums.joined(
        [("SHA256SUMS", f"{SHA}  x\n{SHA}  y\n".encode()), ("md5sums.txt", f"{MD5}  y\n{MD5}  z\n".encode())]
    )
    told = {name: (checksum.algorithm, checksum.value) for name, checksum in found.items()}
    assert told == {"x": ("sha256", SHA), "y": ("sha256", SHA), "z": ("md5", MD5)}
    other = hashlib.sha256(b"y").hexdigest()
    with pytest.raises(ObjectError, match="contradict"):
        stated_checksums.joined([("A", f"{SHA}  x\n{SHA}  y\n".encode()), ("B", f"{other}  y\n".encode())])


@pytest.mark.parametrize(("status", "kind"), [(401, ExpiredCredentialsError), (407, FailedError)])
def test_credentials_that_a_protocol_refuses_are_no_affair_of_one_object(status: int, kind: type) -> None:
    error = OSError("Unauthorized")
    error.status = status  # type: ignore[attr-defined]
    told = fsspec_info.failure(error, "a/b")
    assert type(told) is kind
    assert told.where == "a/b"
