"""Google Cloud Storage: who is let in, what hostile answers mean, generations, on a server of its API."""

from __future__ import annotations

import http.server
import json
import os
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.contracts.source_contract import content, drain, entry_of, listing, read, sums
from tests.sources.conftest import GcsStore
from tests.support.hostile_gcs import HostileGcs

from penstock.config.settings import SourceConfig
from penstock.config.source_kinds import of_url
from penstock.core.errors import (
    ExpiredCredentialsError,
    FailedError,
    ObjectError,
    OverloadedError,
    PenstockError,
    PreflightError,
    SourceChangedError,
    TransientError,
)
from penstock.sources import gcs, port
from penstock.sources.gcs import SCOPE, GcsSource, resolve
from penstock.sources.http_values import document
from penstock.sources.object_client import AccessToken

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.fake_gcs import FakeGcs

DATA = content("x", 100_000)
WHOLE, PART = (0, len(DATA)), (1000, 50_000)
KEYS = {f"p/{number:03d}": b"x" * number for number in range(40)}


@pytest.fixture
def store(fake_gcs: FakeGcs) -> GcsStore:
    return GcsStore(fake_gcs, f"b{uuid.uuid4().hex}")


def hostile(server: HostileGcs, prefix: str = "", token: str = "", timeout: float = 20.0) -> GcsSource:
    options = {"endpoint_url": server.endpoint}
    config = SourceConfig(f"gs://{server.bucket}/{prefix}", storage_options=options, timeout=timeout)
    return GcsSource(config, AccessToken(token))


# ---- reading


@pytest.mark.parametrize("span", [WHOLE, PART])
@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        ("shortlen", TransientError),
        ("nolen", TransientError),
        ("badchunk", TransientError),
        ("cut", TransientError),
        ("reset", TransientError),
        ("long", TransientError),
        ("slowdown", OverloadedError),
        ("error500", TransientError),
        ("drip", TransientError),
        ("silent", TransientError),
        ("gzip", ObjectError),
        ("errhtml200", ObjectError),
        ("denied", ObjectError),
        ("changed", SourceChangedError),
        ("404", SourceChangedError),
        ("expired", ExpiredCredentialsError),
        ("redirect", ObjectError),
        ("redirectother", ObjectError),
    ],
)
def test_answers(mode: str, kind: type[PenstockError], span: tuple[int, int]) -> None:
    with HostileGcs({"p/x": DATA, "p/y": DATA}, {"p/x": mode}) as server:
        source = hostile(server, "p/", "token", 1.0 if mode in ("drip", "silent") else 20.0)
        found = {key: entry_of(item) for key, item in listing(source).items()}
        reader = source.reader()
        with pytest.raises(kind) as caught:
            read(reader, found["x"], *span)
        assert type(caught.value) is kind
        assert read(reader, found["y"], *span) == DATA[span[0] : span[0] + span[1]]
        reader.close()


@pytest.mark.parametrize("mode", ["rangeignored", "wrongrange"])
def test_ranges_that_are_not_the_ones_asked_for(mode: str) -> None:
    with HostileGcs({"x": DATA}, {"x": mode}) as server:
        source = hostile(server)
        entry = entry_of(listing(source)["x"])
        reader = source.reader()
        with pytest.raises(ObjectError):
            read(reader, entry, *PART)
        reader.close()


def test_a_404_is_looked_at_again() -> None:
    """Google answers 404 to a generation that is no longer there, whether the object is or not."""
    with HostileGcs({"x": DATA, "y": DATA}) as server:
        source = hostile(server)
        found = {key: entry_of(item) for key, item in listing(source).items()}
        server.now.add("x")
        del server.objects["y"]
        reader = source.reader()
        with pytest.raises(SourceChangedError, match="its version is another one now"):
            read(reader, found["x"])
        with pytest.raises(SourceChangedError, match="gone since it was listed"):
            read(reader, found["y"])
        reader.close()


def test_a_generation_that_is_stated_and_not_found_may_pass() -> None:
    with HostileGcs({"x": DATA}) as server:
        source = hostile(server)
        entry = entry_of(listing(source)["x"])
        server.lost.add("x")
        reader = source.reader()
        with pytest.raises(TransientError, match="does not find it"):
            read(reader, entry)
        reader.close()


def test_a_change_between_two_ranges_is_seen(store: GcsStore) -> None:
    store.put("x", DATA)
    source = store.source()
    entry = entry_of(listing(source)["x"])
    reader = source.reader()
    assert read(reader, entry, 0, 1000) == DATA[:1000]
    store.put("x", DATA)  # the same bytes, another generation
    with pytest.raises(SourceChangedError, match="its version is another one now"):
        read(reader, entry, 1000, 1000)
    with pytest.raises(SourceChangedError):
        source.checksum(entry)
    reader.close()


@pytest.mark.parametrize("span", [WHOLE, PART])
def test_checksums_are_those_of_the_whole_object(store: GcsStore, span: tuple[int, int]) -> None:
    store.put("x", DATA)
    source = store.source()
    entry = entry_of(listing(source)["x"])
    reader = source.reader()
    body = reader.open(entry, *span)
    stated = {checksum.algorithm: checksum for checksum in body.checksums}
    assert drain(body) == DATA[span[0] : span[0] + span[1]]
    # Of a part only the sum is stated that can be joined from those of the parts.
    assert stated.keys() == ({"crc32c", "md5"} if span == WHOLE else {"crc32c"})
    assert all(checksum.value == sums(DATA)[checksum.algorithm] for checksum in stated.values())
    assert {checksum.kind for checksum in (*stated.values(), *source.checksum(entry))} == {"full"}
    reader.close()


def test_a_proven_object_may_be_split(store: GcsStore) -> None:
    store.put("x", DATA)
    source = store.source()
    token = listing(source)["x"].token
    assert token.isdigit()
    assert port.pinned(source.url, token)
    assert port.may_be_split(source.url, token)
    assert not of_url(source.url).blocks
    assert of_url(source.url).states_checksums


# ---- listing


def test_pages_are_one_stream(store: GcsStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gcs.GcsSource, "PAGE", 7)
    keys = sorted([f"{a}{b}{c}" for a in ("a", "a-", "b") for b in "/.0" for c in range(5)] + ["a//x"])
    for number, key in enumerate(keys):
        store.put(key, b"x" * number)
    store.put("", b"")  # the marker of the prefix
    batches = [[item.key for item in batch] for batch in store.source().list()]
    assert len(batches) == 7
    assert [key for batch in batches for key in batch] == keys


@pytest.mark.parametrize("mode", ["slowdown*2", "cut*2", "truncated*2", "honest"])
def test_listings_that_come_in_the_end(mode: str) -> None:
    with HostileGcs(KEYS | {"p/": b"", "q": b""}, listing=mode, page=7) as server:
        found = listing(hostile(server, "p/"))
        assert {f"p/{key}": item.size for key, item in found.items()} == {k: len(v) for k, v in KEYS.items()}
        assert {item.modified_ns for item in found.values()} == {1714979289_123000000}


@pytest.mark.parametrize("mode", ["repeated", "outside", "unsorted", "html"])
def test_listings_that_cannot_be_trusted(mode: str) -> None:
    with HostileGcs(KEYS, listing=mode, page=7) as server, pytest.raises(FailedError):
        listing(hostile(server, "p/"))


def test_an_object_that_is_listed_twice_and_alike_is_one() -> None:
    with HostileGcs(KEYS, listing="duplicate", page=7) as server:
        source = hostile(server, "p/")
        assert sum(len(batch) for batch in source.list()) == len(KEYS)
        assert source.ignored == {"named twice": 1}


@pytest.mark.parametrize("kind", ["", "storage#bucket", None])
def test_json_that_is_no_listing_is_not_an_empty_one(kind: str | None) -> None:
    with HostileGcs({}) as server:
        assert listing(hostile(server)) == {}
        server.kind = kind  # type: ignore[assignment]
        with pytest.raises(FailedError, match="no listing"):
            listing(hostile(server))


@pytest.mark.parametrize("text", [b"[]", b"17", b"null", b"<html>", b""])
def test_an_answer_that_is_no_json_object_is_refused(text: bytes) -> None:
    with pytest.raises(FailedError, match="no JSON object"):
        document(text, "gs://b/")
    with pytest.raises(TransientError):
        document(b'{"items": [', "gs://b/")


def test_a_description_of_no_object_is_refused() -> None:
    with HostileGcs({"x": DATA}) as server:
        source = hostile(server)
        entry = entry_of(listing(source)["x"])
        server.described = {"kind": "storage#bucket"}
        with pytest.raises(FailedError, match="describes no object"):
            source.checksum(entry)


def test_without_its_bucket_no_object_is_gone(store: GcsStore) -> None:
    """A 404 to an object's name is no evidence while its prefix cannot be listed."""
    source = store.source()
    assert source.list_one("x") is None
    store.bucket = "nosuchbucket"
    with pytest.raises(FailedError, match="no such bucket"):
        store.source().list_one("x")


def test_check(fake_gcs: FakeGcs) -> None:
    store = GcsStore(fake_gcs, f"b{uuid.uuid4().hex}")
    store.source().check()
    store.bucket = "nosuchbucket"
    with pytest.raises(PreflightError, match="no such bucket"):
        store.source().check()


def test_who_pays_is_named_in_every_request() -> None:
    with HostileGcs({"x": DATA}) as server:
        how = {"endpoint_url": server.endpoint, "project": "p&q"}
        source = GcsSource(SourceConfig(f"gs://{server.bucket}/", storage_options=how), AccessToken())
        reader = source.reader()
        assert read(reader, entry_of(listing(source)["x"])) == DATA
        reader.close()
        assert all("&userProject=p%26q" in asked.query for asked in server.asked)


# ---- credentials


class Tokens(http.server.BaseHTTPRequestHandler):
    """Google's token server and a metadata server: hands out what the test says."""

    asked: list[tuple[str, dict[str, str], str]]
    answers: list[tuple[int, Any]]

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        self.asked.append((self.path, dict(self.headers), body))
        status, told = self.answers.pop(0)
        text = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def tokens(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """Address; what was asked, as (path, headers, body); answers to come, as (status, JSON)."""
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    handler = type("OneTest", (Tokens,), {"asked": [], "answers": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}", handler.asked, handler.answers
        server.shutdown()
        thread.join()


KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def account(folder: Path, address: str, **over: Any) -> Path:
    pem = KEY.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    text = {
        "type": "service_account",
        "client_email": "reader@p.iam.gserviceaccount.com",
        "private_key": pem.decode(),
        "private_key_id": "k1",
        "token_uri": f"http://{address}/token",
        **over,
    }
    path = folder / "account.json"
    path.write_text(json.dumps(text))
    path.chmod(0o600)
    return path


def config(**options: Any) -> SourceConfig:
    return SourceConfig("gs://bucket/x", storage_options=options)


@pytest.mark.parametrize("way", ["file", "line", "environment"])
def test_a_service_account_gets_a_token_by_a_signed_checksum(
    way: str, tokens: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, asked, answers = tokens
    path = account(tmp_path, address)
    options = {"credentials_file": str(path)}
    if way == "line":
        named = tmp_path / "named"
        named.write_text(f"token={path}\n")
        named.chmod(0o600)
        options = {"credentials_file": str(named)}
    elif way == "environment":
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
        options = {}
    answers += [(503, {}), (200, {"access_token": "ya29.secret", "expires_in": 3599})]
    found = port.credentials(config(**options))
    assert isinstance(found, AccessToken)
    assert found.text == "ya29.secret"
    assert abs((port.expires(found) or 0) - time.time() - 3599) < 60
    assert "secret" not in repr(found)
    where, headers, body = asked[-1]
    assert (where, headers["Content-Type"]) == ("/token", "application/x-www-form-urlencoded")
    form = parse_qs(body)
    assert form["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
    said = jwt.decode(form["assertion"][0], KEY.public_key(), ["RS256"], audience=f"http://{address}/token")
    assert said["iss"] == "reader@p.iam.gserviceaccount.com"
    assert said["scope"] == SCOPE
    assert 0 < said["exp"] - said["iat"] <= 3600
    assert jwt.get_unverified_header(form["assertion"][0])["kid"] == "k1"


def test_the_metadata_server_is_asked_where_that_is_said(
    tokens: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, asked, answers = tokens
    monkeypatch.setenv("GCE_METADATA_HOST", address)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert resolve(config()) == AccessToken()
    assert resolve(config(anon=True, instance_metadata=True)) == AccessToken()
    assert not asked
    answers.append((200, {"access_token": "of the machine", "expires_in": 100}))
    assert resolve(config(instance_metadata=True)).text == "of the machine"
    path, headers, _ = asked[0]
    assert headers["Metadata-Flavor"] == "Google"
    assert urlsplit(path).path == "/computeMetadata/v1/instance/service-accounts/default/token"
    assert parse_qs(urlsplit(path).query) == {"scopes": [SCOPE]}


def test_what_is_no_account_is_told(tokens: Any, tmp_path: Path) -> None:
    address, _, answers = tokens
    path = account(tmp_path, address)
    os.chmod(path, 0o644)
    with pytest.raises(PreflightError, match="not kept safely"):
        resolve(config(credentials_file=str(path)))
    for wrong in ({"private_key": "no key"}, {"client_email": None, "private_key": None}):
        path = account(tmp_path, address, **wrong)
        with pytest.raises(PreflightError, match="no service account"):
            resolve(config(credentials_file=str(path)))
    path.write_text(json.dumps({"type": "authorized_user", "refresh_token": "geheim"}))
    with pytest.raises(PreflightError, match="reader: fsspec") as caught:
        resolve(config(credentials_file=str(path)))
    assert "geheim" not in str(caught.value)
    path = account(tmp_path, address)
    for status, told in ((400, {"error": "invalid_grant", "error_description": "iat is late"}), (200, [])):
        answers.append((status, told))
        with pytest.raises(FailedError, match="gives none") as refused:
            resolve(config(credentials_file=str(path)))
        assert ("status 400 invalid_grant iat is late" in str(refused.value)) == bool(told)


def test_a_token_that_ran_out_is_renewed() -> None:
    with HostileGcs({"x": DATA}, {"x": "expired"}) as server:
        source = hostile(server, token="old")
        entry = entry_of(listing(source)["x"])
        reader = source.reader()
        with pytest.raises(ExpiredCredentialsError):
            read(reader, entry)
        server.modes.clear()
        source.renew(AccessToken("new"))
        assert read(reader, entry) == DATA
        sent = [asked.headers.get("authorization") for asked in server.asked]
        assert sent[0] == "Bearer old"
        assert sent[-1] == "Bearer new"
        reader.close()
    with HostileGcs({"x": DATA}, {"x": "expired"}) as server:
        nobody = hostile(server)
        entry = entry_of(listing(nobody)["x"])
        reader = nobody.reader()
        with pytest.raises(FailedError, match="no credentials"):
            read(reader, entry)
        reader.close()
