"""Azure Blob: pins, proofs, errors and secrets, on a real server of it; and what a URL means."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import http.server
import pickle
import random
import socket
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ServiceRequestError
from azure.storage.blob import ContainerSasPermissions, ContentSettings, generate_container_sas
from tests.contracts.source_contract import content, drain, entry_of, listing, read, sums
from tests.sources.conftest import AzuriteStore, dataset
from tests.support.azurite import ACCOUNT, KEY, Azurite
from tests.support.s3server import make_certificates

from penstock.config.model import SourceConfig
from penstock.core.model import Listed
from penstock.errors import (
    ConfigError,
    ExpiredCredentialsError,
    FailedError,
    ObjectError,
    OverloadedError,
    PenstockError,
    PreflightError,
    SourceChangedError,
    TransientError,
)
from penstock.sources import azure, azure_reader
from penstock.sources.azure import AzureSource
from penstock.sources.azure_account import AzureCredentials, place, resolve
from penstock.sources.azure_link import failure
from penstock.sources.opening import credentials, open_source
from penstock.sources.ordering import in_order, order

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

MIB = 1 << 20


@pytest.fixture
def store(azurite: Azurite, tmp_path: Path) -> Iterator[AzuriteStore]:
    made = AzuriteStore(azurite, tmp_path, f"c{uuid.uuid4().hex}")
    yield made
    made.close()


# ---- listing


def test_pages_are_one_stream_in_byte_order(store: AzuriteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(azure, "PAGE", 7)
    keys = [f"{a}{b}{c}" for a in ("a", "a-", "b") for b in "/.0" for c in range(5)]
    for number, key in enumerate(keys):
        store.put(key, b"x" * number)
    batches = [[item.key for item in batch] for batch in store.source().list()]
    assert len(batches) == 7
    assert [key for batch in batches for key in batch] == sorted(keys)
    found = listing(store.source())
    assert {key: item.size for key, item in found.items()} == {key: n for n, key in enumerate(keys)}
    assert list(listing(store.source(hierarchical=True)).items()) == list(found.items())
    assert all(item.token and item.modified_ns > 1_600_000_000 * 10**9 for item in found.values())


def test_markers_are_no_objects(store: AzuriteStore) -> None:
    store.put("a/x", b"1")
    store.put("a", b"", metadata={"hdi_isfolder": "true"})
    store.put("b", b"", metadata={"other": "true"})
    store.put("", b"")
    source = store.source()
    assert list(listing(source)) == ["a/x", "b"]
    assert source.ignored == {"markers": 1}


def test_other_prefixes_are_others(store: AzuriteStore) -> None:
    store.put("x", b"1")
    store.container.upload_blob("pre fixed", b"no")
    assert list(listing(store.source())) == ["x"]


def test_a_listing_in_another_order_is_sorted_on_disk_or_refused() -> None:
    keys = [f"{n:03x}\udcff" for n in range(500)] + ["a/b", "a-b", "a.b"]
    random.Random(7).shuffle(keys)
    items = [Listed(key, 1, "t", 0) for key in keys]
    batches: list[Sequence[Listed]] = [items[at : at + 30] for at in range(0, len(items), 30)]
    found = [item for batch in in_order(iter(batches), run=100) for item in batch]
    assert found == sorted(items, key=order)
    source = AzureSource(SourceConfig("az://some/x", storage_options={"anon": True, "account_name": "a"}))
    with pytest.raises(FailedError, match="hierarchical: true"):
        list(source._checked(iter(batches)))
    with pytest.raises(FailedError, match="twice"):
        list(source._checked(iter([items[:1], items[:1]])))


# ---- reading


def test_each_block_is_pinned(store: AzuriteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A blob that changes between two blocks of one body is never spliced."""
    monkeypatch.setattr(azure_reader, "BLOCK", 1000)
    store.put("x", content("x", 10_000))
    source = store.source()
    reader = source.reader()
    entry = entry_of(listing(source)["x"])
    assert read(reader, entry) == content("x", 10_000)
    assert read(reader, entry, 1500, 2700) == content("x", 10_000)[1500:4200]
    body = reader.open(entry, 0, entry.size)
    assert body.readinto(memoryview(bytearray(1000))) == 1000
    store.put("x", content("y", 10_000))
    with pytest.raises(SourceChangedError):
        drain(body)
    body.abandon()
    reader.close()


def test_the_stored_md5_is_a_claim_of_the_whole(store: AzuriteStore) -> None:
    data = content("x", 70_000)
    store.put("x", data, content_settings=ContentSettings(content_md5=bytearray(hashlib.md5(data).digest())))
    source = store.source()
    reader = source.reader()
    entry = entry_of(listing(source)["x"])
    body = reader.open(entry, 0, entry.size)
    assert [(c.algorithm, c.kind, c.value) for c in body.claims] == [("md5", "full", sums(data)["md5"])]
    assert drain(body) == data
    assert list(source.checksum(entry)) == list(body.claims)
    part = reader.open(entry, 5, 10)
    assert list(part.claims) == []
    assert drain(part) == data[5:15]
    reader.close()


def test_an_encoding_is_left_as_it_is_stored(store: AzuriteStore) -> None:
    data = content("x", 5000)
    store.put("x", data, content_settings=ContentSettings(content_encoding="gzip"))
    source = store.source()
    reader = source.reader()
    assert read(reader, entry_of(listing(source)["x"])) == data
    reader.close()


def test_what_is_gone_or_changed_is_told(store: AzuriteStore) -> None:
    store.put("x", b"12345")
    store.put("empty", b"")
    source = store.source()
    reader = source.reader()
    found = listing(source)
    entry, empty = entry_of(found["x"]), entry_of(found["empty"])
    with pytest.raises(SourceChangedError):
        reader.open(entry._replace(token="0x1"), 0, 5)
    with pytest.raises(SourceChangedError):
        reader.open(empty._replace(token="0x1"), 0, 0)
    with pytest.raises(SourceChangedError, match="size changed"):
        reader.open(entry._replace(size=7), 0, 5)
    with pytest.raises(SourceChangedError):
        reader.open(entry._replace(size=7), 5, 2)
    with pytest.raises(SourceChangedError):
        source.checksum(entry._replace(size=7))
    with pytest.raises(SourceChangedError):
        source.checksum(entry._replace(token="0x1"))
    store.remove("x")
    with pytest.raises(SourceChangedError, match=r"gone|changed"):
        reader.open(entry, 0, 5)
    reader.close()


class Stubborn(http.server.BaseHTTPRequestHandler):
    """A proxy that ignores conditions, or answers what it likes: `answer` of the server."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        status, headers, body = self.server.answer  # type: ignore[attr-defined]
        self.server.asked.append(dict(self.headers))  # type: ignore[attr-defined]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 (the library's name)

    def log_message(self, *_: object) -> None:
        """Quiet."""


GOOD = {"ETag": '"0x1"', "Content-Range": "bytes 0-4/9", "x-ms-blob-type": "BlockBlob"}


@pytest.mark.parametrize(
    ("status", "headers", "body", "kind"),
    [
        (206, GOOD, b"12345", None),
        (206, {**GOOD, "ETag": '"0x2"'}, b"12345", SourceChangedError),
        (206, {**GOOD, "Content-Range": "bytes 0-4/10"}, b"12345", SourceChangedError),
        (206, {**GOOD, "Content-Range": "bytes 1-5/9"}, b"12345", ObjectError),
        (206, {**GOOD, "Content-Range": "bytes 0-4/9"}, b"1234", TransientError),
        (206, {"Content-Range": "bytes 0-4/9"}, b"12345", ObjectError),
        (200, {"ETag": '"0x1"'}, b"123456789", ObjectError),
        (503, {"x-ms-error-code": "ServerBusy", "Retry-After": "7"}, b"", OverloadedError),
        (500, {}, b"oops", TransientError),
        (409, {"x-ms-error-code": "BlobArchived"}, b"", ObjectError),
        (403, {"x-ms-error-code": "AuthorizationFailure"}, b"", FailedError),
        (412, {"x-ms-error-code": "ConditionNotMet"}, b"", SourceChangedError),
        (302, {"Location": "http://127.0.0.1:1/"}, b"", ObjectError),
    ],
)
def test_answers_of_a_stubborn_server(
    status: int, headers: dict[str, str], body: bytes, kind: type[PenstockError] | None
) -> None:
    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stubborn)
    server.daemon_threads = True
    server.answer, server.asked = (status, headers, body), []
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/acc"
        config = SourceConfig("az://some/x", storage_options={"anon": True, "endpoint_url": url})
        reader = open_source(config, dataset(config.url), timeout=20).reader()
        entry = entry_of(Listed("k", 9, "0x1", 0))
        if kind is None:
            assert read(reader, entry, 0, 5) == body
        else:
            with pytest.raises(kind) as caught:
                reader.open(entry, 0, 5)
            assert type(caught.value) is kind
            if "Retry-After" in headers:
                assert caught.value.after == 7  # type: ignore[attr-defined]
        reader.close()
        assert {asked["If-Match"] for asked in server.asked} == {'"0x1"'}
        assert len(server.asked) <= 4
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# ---- reaching it


def test_a_refused_connection_is_told_at_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = {"anon": True, "endpoint_url": f"http://127.0.0.1:{port}/acc"}
    config = SourceConfig("az://some/x", storage_options=options)
    source = open_source(config, dataset(config.url))
    assert isinstance(source, AzureSource)
    link = source._link()  # adlfs takes its time to be imported
    source.links.give_back(link)
    began = time.monotonic()
    with pytest.raises(PreflightError) as caught:
        source.check()
    assert str(port) in str(caught.value)
    assert "onnect" in str(caught.value)
    assert time.monotonic() - began < 30


def test_no_container_and_wrong_secrets_are_told(store: AzuriteStore) -> None:
    store.put("x", b"1")
    missing = SourceConfig("az://missing", storage_options=store.options)
    with pytest.raises(PreflightError, match="no such container"):
        open_source(missing, dataset("x")).check()
    with pytest.raises(FailedError, match="no such container"):
        listing(open_source(missing, dataset("x")))
    wrong = base64.b64encode(b"wrong, but long enough to be some key").decode()
    store.write_secrets(f"account_key={wrong}\n")
    with pytest.raises(PreflightError, match="refuses the credentials") as caught:
        store.source().check()
    assert wrong not in str(caught.value)
    with pytest.raises(PreflightError) as caught:
        store.source(anon=True).check()
    assert KEY not in str(caught.value)
    store.write_secrets("account_key=this is no base64!\n")
    with pytest.raises(PenstockError) as failed:
        store.source().check()
    assert "no base64" not in str(failed.value)


def sas(store: AzuriteStore, hours: float) -> str:
    now = dt.datetime.now(dt.UTC)
    return generate_container_sas(
        ACCOUNT,
        store.container.container_name,
        KEY,
        permission=ContainerSasPermissions(read=True, list=True),
        start=now - dt.timedelta(hours=9),
        expiry=now + dt.timedelta(hours=hours),
    )


@pytest.mark.parametrize("how", ["connection", "sas", "named"])
def test_every_kind_of_secret(store: AzuriteStore, how: str) -> None:
    store.put("x", b"12345")
    if how == "sas":
        token = sas(store, 1)
        store.write_secrets(f"sas_token=?{token}\n")
    elif how == "connection":
        store.write_secrets(f'AZURE_STORAGE_CONNECTION_STRING="{store.server.connection_string}"\n')
        del store.options["account_name"], store.options["endpoint_url"]
    else:
        store.write_secrets(f"# ours\nAZURE_STORAGE_ACCOUNT_NAME={ACCOUNT}\naccount_key={KEY}\n")
        del store.options["account_name"]
    config = SourceConfig(store.url, storage_options=store.options)
    secrets = credentials(config)
    assert KEY not in repr(secrets)
    assert "sig=" not in repr(secrets)
    source = open_source(config, dataset(config.url), credentials=pickle.loads(pickle.dumps(secrets)))
    source.check()
    reader = source.reader()
    assert read(reader, entry_of(listing(source)["x"])) == b"12345"
    reader.close()


def test_a_signature_that_ran_out_is_renewed(store: AzuriteStore) -> None:
    store.put("x", b"12345")
    store.write_secrets(f"sas_token={sas(store, 1)}\n")
    entry = entry_of(listing(store.source())["x"])
    store.write_secrets(f"sas_token={sas(store, -1)}\n")
    source = store.source()
    assert isinstance(source, AzureSource)
    reader = source.reader()
    with pytest.raises((ExpiredCredentialsError, FailedError)) as caught:
        reader.open(entry, 0, 5)
    assert "sig=" not in str(caught.value)
    store.write_secrets(f"sas_token={sas(store, 1)}\n")
    source.renew(resolve(source._config))
    assert read(reader, entry) == b"12345"
    reader.close()


# ---- what the configuration means


@pytest.mark.parametrize(
    ("url", "options", "endpoint", "prefix"),
    [
        ("az://cont", {"account_name": "acc"}, "https://acc.blob.core.windows.net", ""),
        ("abfs://cont/a/b", {"account_name": "acc"}, "https://acc.blob.core.windows.net", "a/b/"),
        ("abfss://cont@acc.dfs.core.windows.net/a/", {}, "https://acc.blob.core.windows.net", "a/"),
        (
            "az://cont",
            {"account_host": "acc.blob.core.chinacloudapi.cn"},
            "https://acc.blob.core.chinacloudapi.cn",
            "",
        ),
        ("az://cont", {"endpoint_url": "http://127.0.0.1:10000/acc/"}, "http://127.0.0.1:10000/acc", ""),
    ],
)
def test_places(url: str, options: dict[str, Any], endpoint: str, prefix: str) -> None:
    found = resolve(SourceConfig(url, storage_options={**options, "anon": True}))
    assert found == AzureCredentials(endpoint, f"BlobEndpoint={endpoint}")
    assert place(url)[:2] == ("cont", prefix)


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("az://cont", {}),
        ("az://", {"account_name": "a"}),
        ("az://UPPER/x", {"account_name": "a"}),
        ("az://cont@acc:secret/x", {}),
        ("az://cont", {"endpoint_url": "https://me:secret@host/"}),
        ("az://cont", {"endpoint_url": "https://host/?sig=secret"}),
    ],
)
def test_what_makes_no_sense_is_refused(url: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(SourceConfig(url, storage_options={**options, "anon": True}))
    assert "secret@" not in str(caught.value)
    assert "sig=secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("lines", "match"),
    [
        ("nothing=here", "no secret for Azure"),
        ("sas_token=abc", "no signature"),
        ("client_secret=TOPSECRET\nclient_id=a", "without tenant_id"),
        ("connection_string=AccountKey=TOPSECRET", "names no account"),
    ],
)
def test_files_without_a_usable_secret(tmp_path: Path, lines: str, match: str) -> None:
    path = tmp_path / "secrets"
    path.write_text(lines)
    path.chmod(0o600)
    options = {"account_name": "acc", "credentials_file": str(path)}
    with pytest.raises(PreflightError, match=match) as caught:
        resolve(SourceConfig("az://cont", storage_options=options))
    assert "TOPSECRET" not in str(caught.value)
    path.chmod(0o644)
    with pytest.raises(PreflightError, match="not kept safely"):
        resolve(SourceConfig("az://cont", storage_options=options))


def test_the_environment_counts_only_without_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secrets"
    path.write_text("account_key=ZmlsZQ==")
    path.chmod(0o600)
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", "AccountName=env;AccountKey=ZW52")
    plain = SourceConfig("az://cont", storage_options={"account_name": "acc"})
    assert resolve(plain).endpoint == "https://env.blob.core.windows.net"
    named = SourceConfig("az://cont", storage_options={"account_name": "acc", "credentials_file": str(path)})
    assert "AccountKey=ZmlsZQ==" in resolve(named).connection
    assert "ZW52" not in resolve(named).connection
    anon = SourceConfig("az://cont", storage_options={"account_name": "acc", "anon": True})
    assert resolve(anon).connection == "BlobEndpoint=https://acc.blob.core.windows.net"
    path.write_text("client_secret=a\nclient_id=b\ntenant_id=c")
    with pytest.raises(PreflightError, match="contradicts"):
        resolve(named)


def test_no_secret_in_any_message() -> None:
    secrets = AzureCredentials(
        "https://a", "BlobEndpoint=https://a;AccountKey=TOP;SharedAccessSignature=sv=1&sig=KEEP"
    )
    answer = HttpResponseError("TOP said https://a/c?sv=2&sig=SECRET&x=1 and sv=1&sig=KEEP")
    text = str(failure(answer, secrets, "az://c/x"))
    assert not {"TOP", "SECRET", "KEEP"} & set(text.replace("=", " ").replace("&", " ").split())
    refused = failure(ServiceRequestError("Cannot connect to host"), secrets, "az://c/x")
    assert isinstance(refused, TransientError)
    nobody = failure(ClientAuthenticationError("DefaultAzureCredential failed"), secrets, "az://c/x")
    assert isinstance(nobody, FailedError)
    untrusted = failure(ServiceRequestError("CERTIFICATE_VERIFY_FAILED"), secrets, "az://c/x")
    assert "ca_bundle" in str(untrusted)


def test_a_site_s_own_authority_over_tls(tmp_path: Path, azurite: Azurite) -> None:  # skipped without
    certificate, key, authority = make_certificates(tmp_path)
    with Azurite(tls=(certificate, key)) as server:
        secrets = tmp_path / "secrets"
        secrets.write_text(f"account_key={KEY}\n")
        secrets.chmod(0o600)
        options = {"account_name": ACCOUNT, "endpoint_url": server.endpoint, "credentials_file": str(secrets)}
        plain = SourceConfig("az://some", storage_options=options)
        with pytest.raises(PreflightError, match="not trusted"):
            open_source(plain, dataset("x")).check()
        trusting = SourceConfig("az://some", storage_options={**options, "ca_bundle": str(authority)})
        with pytest.raises(PreflightError, match="no such container"):
            open_source(trusting, dataset("x")).check()
