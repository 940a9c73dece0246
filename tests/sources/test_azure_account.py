"""Azure Blob: which account a URL and its options name, how it is reached, and what keeps its secrets."""

from __future__ import annotations

import base64
import datetime as dt
import pickle
import time
from typing import TYPE_CHECKING, Any

import azure.identity
import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ServiceRequestError
from azure.core.pipeline import PipelineContext, PipelineRequest
from azure.core.pipeline.transport import HttpRequest
from azure.identity import ClientSecretCredential
from azure.storage.blob import ContainerSasPermissions, generate_container_sas
from azure.storage.blob._shared.authentication import SharedKeyCredentialPolicy
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contracts.source_contract import entry_of, listing, read
from tests.sources.conftest import AzuriteStore, dataset
from tests.support.azurite import ACCOUNT, KEY, Azurite
from tests.support.s3server import make_certificates

from penstock.config.settings import SourceConfig
from penstock.core.errors import (
    ConfigError,
    ExpiredCredentialsError,
    FailedError,
    ObjectError,
    PenstockError,
    PreflightError,
    TransientError,
)
from penstock.sources.azure import (
    EARLY,
    IMPATIENT,
    SCOPE,
    VERSION,
    AzureCredentials,
    AzureSource,
    SharedKey,
    Token,
    failure,
    place,
    refused,
    resolve,
)
from penstock.sources.http_values import query_string, quoted
from penstock.sources.port import credentials, open_source

if TYPE_CHECKING:
    from pathlib import Path


# ---- its secrets


def test_no_container_and_wrong_secrets_are_told(azure_store: AzuriteStore) -> None:
    azure_store.put("x", b"1")
    missing = SourceConfig("az://missing", storage_options=azure_store.options)
    with pytest.raises(PreflightError, match="no such container"):
        open_source(missing, dataset("x")).check()
    with pytest.raises(FailedError, match="no such container"):
        listing(open_source(missing, dataset("x")))
    wrong = base64.b64encode(b"wrong, but long enough to be some key").decode()
    azure_store.write_secrets(f"account_key={wrong}\n")
    with pytest.raises(PreflightError, match="refuses the credentials") as caught:
        azure_store.source().check()
    assert wrong not in str(caught.value)
    with pytest.raises(PreflightError) as caught:
        azure_store.source(anon=True).check()
    assert KEY not in str(caught.value)
    azure_store.write_secrets("account_key=this is no base64!\n")
    with pytest.raises(PenstockError) as failed:
        azure_store.source().check()
    assert "no base64" not in str(failed.value)


def sas(azure_store: AzuriteStore, hours: float) -> str:
    now = dt.datetime.now(dt.UTC)
    return generate_container_sas(
        ACCOUNT,
        azure_store.container.container_name,
        KEY,
        permission=ContainerSasPermissions(read=True, list=True),
        start=now - dt.timedelta(hours=9),
        expiry=now + dt.timedelta(hours=hours),
    )


@pytest.mark.parametrize("how", ["connection", "sas", "named"])
def test_every_kind_of_secret(azure_store: AzuriteStore, how: str) -> None:
    azure_store.put("x", b"12345")
    if how == "sas":
        token = sas(azure_store, 1)
        azure_store.write_secrets(f"sas_token=?{token}\n")
    elif how == "connection":
        azure_store.write_secrets(
            f'AZURE_STORAGE_CONNECTION_STRING="{azure_store.server.connection_string}"\n'
        )
        del azure_store.options["account_name"], azure_store.options["endpoint_url"]
    else:
        azure_store.write_secrets(f"# ours\nAZURE_STORAGE_ACCOUNT_NAME={ACCOUNT}\naccount_key={KEY}\n")
        del azure_store.options["account_name"]
    config = SourceConfig(azure_store.url, storage_options=azure_store.options)
    secrets = credentials(config)
    assert KEY not in repr(secrets)
    assert "sig=" not in repr(secrets)
    source = open_source(config, dataset(config.url), credentials=pickle.loads(pickle.dumps(secrets)))
    source.check()
    reader = source.reader()
    assert read(reader, entry_of(listing(source)["x"])) == b"12345"
    reader.close()


def test_a_signature_that_ran_out_is_renewed(azure_store: AzuriteStore) -> None:
    azure_store.put("x", b"12345")
    azure_store.write_secrets(f"sas_token={sas(azure_store, 1)}\n")
    entry = entry_of(listing(azure_store.source())["x"])
    azure_store.write_secrets(f"sas_token={sas(azure_store, -1)}\n")
    source = azure_store.source()
    assert isinstance(source, AzureSource)
    reader = source.reader()
    with pytest.raises((ExpiredCredentialsError, FailedError)) as caught:
        reader.open(entry, 0, 5)
    assert "sig=" not in str(caught.value)
    azure_store.write_secrets(f"sas_token={sas(azure_store, 1)}\n")
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
    assert found == AzureCredentials(endpoint)
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
    assert (resolve(named).account, resolve(named).key) == ("acc", "ZmlsZQ==")
    anon = SourceConfig("az://cont", storage_options={"account_name": "acc", "anon": True})
    assert resolve(anon) == AzureCredentials("https://acc.blob.core.windows.net")
    path.write_text("client_secret=a\nclient_id=b\ntenant_id=c")
    assert (resolve(named).login, resolve(named).key) == (True, "")


def test_no_secret_in_any_message() -> None:
    secrets = AzureCredentials("https://a", key="TOP", signature="sv=1&sig=KEEP")
    answer = HttpResponseError("TOP said https://a/c?sv=2&sig=SECRET&x=1 and sv=1&sig=KEEP")
    text = str(failure(answer, secrets.cleaned, "az://c/x"))
    assert not {"TOP", "SECRET", "KEEP"} & set(text.replace("=", " ").replace("&", " ").split())
    refused = failure(ServiceRequestError("Cannot connect to host"), secrets.cleaned, "az://c/x")
    assert isinstance(refused, TransientError)
    nobody = failure(ClientAuthenticationError("DefaultAzureCredential failed"), secrets.cleaned, "az://c/x")
    assert isinstance(nobody, FailedError)
    untrusted = failure(ServiceRequestError("CERTIFICATE_VERIFY_FAILED"), secrets.cleaned, "az://c/x")
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


# ---- how requests are signed


@given(
    st.sampled_from(["GET", "HEAD"]),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30),
    st.lists(
        st.tuples(st.sampled_from(["comp", "restype", "prefix", "marker"]), st.text(max_size=10)),
        unique_by=lambda pair: pair[0],
        max_size=4,
    ),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_shared_keys_sign_as_the_sdk_does(
    method: str, key: str, pairs: list[tuple[str, str]], pinned: bool, part: bool
) -> None:
    query = query_string([(name, value) for name, value in pairs if value.isprintable() and value])
    path = f"/base/container/{quoted(key)}"
    lines = ("Range: bytes=1-2\r\n" if part else "") + ('If-Match: "0x1"\r\n' if pinned else "")
    ours = SharedKey(ACCOUNT, KEY).canonical(method, path, query, lines, "Wed, 06 May 2026 07:08:09 GMT")

    headers = {"x-ms-date": "Wed, 06 May 2026 07:08:09 GMT", "x-ms-version": VERSION}
    headers |= dict(line.split(": ", 1) for line in lines.split("\r\n") if line)
    # The SDK never sends Range itself; the service signs it where it is sent.
    if part:
        headers["byte_range"] = headers.pop("Range")
    request = HttpRequest(method, f"http://h{path}?{query}", headers=headers)
    signed: list[str] = []
    policy = SharedKeyCredentialPolicy(ACCOUNT, KEY)
    policy._add_authorization_header = lambda _, text: signed.append(text)
    policy.on_request(PipelineRequest(request, PipelineContext(None)))
    assert ours == signed[0]


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (403, "AuthenticationFailed", ExpiredCredentialsError),
        (401, "InvalidAuthenticationInfo", ExpiredCredentialsError),
        (401, "ExpiredAuthenticationToken", ExpiredCredentialsError),
        (401, "", ExpiredCredentialsError),
        (401, "NoAuthenticationInformation", FailedError),
        (403, "AuthorizationFailure", FailedError),
        (403, "AuthorizationPermissionMismatch", ObjectError),
    ],
)
def test_what_refusals_of_credentials_mean(status: int, code: str, kind: type) -> None:
    assert type(refused(status, code, "no", {}, "az://c/x")) is kind


def test_a_token_is_fetched_once_and_again_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, ...]] = []
    now = 1_000_000.0

    class Principal(ClientSecretCredential):
        def __init__(self, **given: Any) -> None:
            assert given["read_timeout"] == 10  # where the SDK waits 300 s, four times
            made.append(tuple(sorted(given.keys() - IMPATIENT.keys())))

        def get_token(self, *scopes: str, **_: Any) -> AccessToken:
            made.append(scopes)
            return AccessToken(f"token{len(made)}", int(now) + 3600)

    monkeypatch.setattr(azure.identity, "ClientSecretCredential", Principal)
    monkeypatch.setattr(time, "time", lambda: now)
    principal = {"client_id": "a", "client_secret": "b", "tenant_id": "c"}
    token = Token(AzureCredentials("https://acc.blob.core.windows.net", principal=principal))
    assert token.sign("GET", "/c/k", "", "")[1].endswith("Authorization: Bearer token2\r\n")
    assert token.sign("GET", "/c/k", "", "")[1].endswith("Authorization: Bearer token2\r\n")
    assert made == [("client_id", "client_secret", "tenant_id"), (SCOPE,)]
    now += 3600 - EARLY
    assert token.sign("GET", "/c/k", "", "")[1].endswith("Authorization: Bearer token3\r\n")


def test_no_token_to_be_had_is_told_without_secrets() -> None:
    principal = {"client_id": "a", "client_secret": "TOPSECRET", "tenant_id": "no tenant at all"}
    token = Token(AzureCredentials("https://acc.blob.core.windows.net", principal=principal))
    with pytest.raises(FailedError) as caught:
        token.sign("GET", "/c/k", "", "")
    assert "TOPSECRET" not in str(caught.value)
