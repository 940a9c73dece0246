"""Where keys, region and endpoint come from, and that nothing shows them."""

from __future__ import annotations

import os
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from tests.sources.conftest import dataset
from tests.support.hostile import Hostile
from tests.support.s3server import make_certificates

from penstock.config.settings import SourceConfig
from penstock.core.errors import ConfigError, PenstockError, PreflightError
from penstock.sources import port, s3_credentials
from penstock.sources.generic import FsspecSource
from penstock.sources.generic_opener import FsspecCredentials
from penstock.sources.posix import PosixSource
from penstock.sources.s3 import S3Source, bucket_of
from penstock.sources.s3_client import address
from penstock.sources.s3_credentials import S3Credentials, parse, resolve
from penstock.sources.web import WebSource

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "wJalrXUtnFEMI-canary"


def s3(**options: Any) -> SourceConfig:
    return SourceConfig("s3://bucket/prefix", storage_options=options)


def secret_file(path: Path, text: str, mode: int = 0o600) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


PLAIN = f"# keys\nexport AWS_ACCESS_KEY_ID=AKIA\nAWS_SECRET_ACCESS_KEY='{SECRET}'\nAWS_SESSION_TOKEN=t==\n"
INI = (
    f"[default]\naws_access_key_id = OTHER\naws_secret_access_key = o\n\n"
    f"[team]\naws_access_key_id = AKIA\naws_secret_access_key = {SECRET}\naws_session_token = t==\n"
)


@pytest.mark.parametrize(("text", "profile"), [(PLAIN, ""), (PLAIN, "any"), (INI, "team")])
def test_a_file_of_ones_own(tmp_path: Path, text: str, profile: str) -> None:
    path = secret_file(tmp_path / "keys", text)
    found = resolve(s3(credentials_file=path, region="eu-1", **({"profile": profile} if profile else {})))
    assert found.keys is not None
    assert (found.keys.access, found.keys.secret, found.keys.session) == ("AKIA", SECRET, "t==")
    assert found.region == "eu-1"
    assert SECRET not in repr(found)
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_file_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = secret_file(tmp_path / "keys", PLAIN, mode)
    with pytest.raises(PreflightError, match="not kept safely") as caught:
        resolve(s3(credentials_file=path))
    assert "chmod 600" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "profile"),
    [("", ""), ("aws_access_key_id=A\n", ""), (INI, "nobody"), ("[broken\n", ""), ("=\n", "")],
)
def test_a_file_without_keys_is_told(tmp_path: Path, text: str, profile: str) -> None:
    path = secret_file(tmp_path / "keys", text)
    with pytest.raises(PreflightError, match="no access key") as caught:
        resolve(s3(credentials_file=path, **({"profile": profile} if profile else {})))
    assert SECRET not in str(caught.value)


def test_odd_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo", 0o600)
    for path in (tmp_path / "missing", tmp_path, tmp_path / "fifo"):
        with pytest.raises(PreflightError, match="credentials file"):
            resolve(s3(credentials_file=str(path)))
    (tmp_path / "binary").write_bytes(b"\xff")
    (tmp_path / "binary").chmod(0o600)
    with pytest.raises(PreflightError, match="no text"):
        resolve(s3(credentials_file=str(tmp_path / "binary")))


def test_parse_keeps_what_a_secret_may_hold() -> None:
    assert parse("aws_access_key_id=a\naws_secret_access_key=a=b;c#d%e\n") == {
        "access": "a",
        "secret": "a=b;c#d%e",
    }


def test_anon_asks_nobody() -> None:
    assert resolve(s3(anon=True)) == S3Credentials(None, "us-east-1", "")


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REGION", "ap-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://here:1")
    found = resolve(s3())
    assert found.keys is not None
    assert (found.keys.secret, found.region, found.endpoint) == (SECRET, "ap-1", "http://here:1")
    assert found.expires is None
    assert resolve(s3(endpoint_url="http://there:2")).endpoint == "http://there:2"


@pytest.mark.parametrize(
    ("more", "shared", "asked"),
    [
        ({}, "", False),
        ({"AWS_SESSION_TOKEN": "new"}, "", False),
        ({"AWS_SESSION_TOKEN": "new", "AWS_SECURITY_TOKEN": "old"}, "", False),
        ({}, "[default]\nregion = eu-7\nendpoint_url = http://file:1\n", True),
        ({"AWS_REGION": "ap-1"}, "[default]\nregion = eu-7\nendpoint_url = http://file:1\n", True),
        ({"AWS_REGION": "ap-1", "AWS_ENDPOINT_URL": "http://e:1"}, "[default]\nregion = eu-7\n", False),
        ({"AWS_REGION": "ap-1", "AWS_ENDPOINT_URL": "https://e:1"}, "[default]\nca_bundle = /c\n", True),
        ({"AWS_PROFILE": "team"}, "[profile team]\nregion = eu-7\n", True),
        ({"AWS_CREDENTIAL_EXPIRATION": "2099-01-01T00:00:00Z"}, "", True),
    ],
)
def test_keys_of_the_environment_are_those_that_botocore_finds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, more: dict[str, str], shared: str, asked: bool
) -> None:
    (tmp_path / "config").write_text(shared)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / ("config" if shared else "none")))
    given = {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": SECRET, **more}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    sessions = []
    made = s3_credentials.of_profile

    def spied(*given: Any, **more: Any) -> Any:
        sessions.append(given)
        return made(*given, **more)

    monkeypatch.setattr(s3_credentials, "of_profile", spied)
    found = resolve(s3())
    assert bool(sessions) == asked
    # And what botocore itself finds.
    monkeypatch.setattr(s3_credentials, "_of_environment", lambda *_, **__: None)
    assert found == resolve(s3())


def test_a_profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        "[profile team]\nregion = eu-9\nservices = mine\n[services mine]\ns3 =\n  endpoint_url = http://mine:4\n"
        "[profile plain]\nendpoint_url = http://plain:5\n"
    )
    keys = tmp_path / "credentials"
    keys.write_text(f"[team]\naws_access_key_id=A\naws_secret_access_key={SECRET}\n[plain]\n"
                    f"aws_access_key_id=B\naws_secret_access_key={SECRET}\n")  # fmt: skip
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(keys))
    found = resolve(s3(profile="team"))
    assert found.keys is not None
    assert (found.keys.access, found.region, found.endpoint) == ("A", "eu-9", "http://mine:4")
    assert resolve(s3(profile="plain")).endpoint == "http://plain:5"


def test_a_profiles_certificate_authorities_are_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    certificate, key, authority = make_certificates(tmp_path)
    config = tmp_path / "config"
    config.write_text(
        f"[profile team]\naws_access_key_id = A\naws_secret_access_key = {SECRET}\nca_bundle = {authority}\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    with Hostile({"x": b"x"}, certificate=(certificate, key)) as server:
        named = s3(profile="team", endpoint_url=server.endpoint)
        port.open_source(named, dataset(named.url)).check()
        assert server.asked
        missing = s3(profile="team", endpoint_url=server.endpoint, ca_bundle=str(tmp_path / "none"))
        with pytest.raises(PreflightError, match="certificate authorities is not there"):
            port.open_source(missing, dataset(missing.url)).check()


def test_temporary_keys_tell_their_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answer = (
        '{"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "b", "SessionToken": "c", '
        '"Expiration": "2099-01-01T00:00:00Z"}'
    )
    (tmp_path / "answer").write_text(answer)
    config = tmp_path / "config"
    config.write_text(f"[profile process]\ncredential_process = cat {tmp_path / 'answer'}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    found = port.credentials(s3(profile="process"))
    assert port.expires(found) == 4070908800.0
    assert port.expires(None) is None


LEAK = "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"
HANGS = "sh -c 'echo started >&2; exec sleep 1000'"
ROLE = "role_arn = arn:aws:iam::1:role/r"
MFA = f"{ROLE}\nsource_profile = base\nmfa_serial = arn:aws:iam::1:mfa/m"
WEB = f"{ROLE}\nweb_identity_token_file = /no/such/token"
SSO = "sso_start_url = https://s\nsso_region = eu-1\nsso_account_id = 1\nsso_role_name = r"


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        ("credential_process = /no/such/helper", ["credential_process: /no/such/helper: No such file"]),
        (f"credential_process = sh -c 'echo no ticket >&2; echo secret={LEAK} >&2; exit 3'", ["no ticket"]),
        (f"credential_process = echo nonsense {LEAK}", ["credential_process: what it gave is no JSON"]),
        ("credential_process = echo []", ["credential_process: what it gave makes no sense"]),
        ("credential_process = echo '{\"Version\": 1}'", ["AccessKeyId"]),
        (f"credential_process = {HANGS}", ["credential_process: no answer within 2 s"]),
        (MFA, ["one-time code", "get-session-token", "credential_process"]),
        (WEB, ["/no/such/token: No such file"]),
        (SSO, ["sign-on (SSO)", "Token for https://s does not exist", "aws sso login --profile team"]),
        ("region = eu-1", ["neither the environment nor the AWS configuration has keys"]),
        (None, ["could not be found"]),
        ("[broken", ["Unable to parse config file"]),
        ("a folder", ["config: Is a directory"]),
    ],
)
def test_a_profile_that_gives_no_keys_is_said_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, profile: str | None, words: list[str]
) -> None:
    """In time, with the helper's words and without a secret; nothing asks on a terminal."""
    config = tmp_path / "config"
    if profile == "a folder":
        config.mkdir()
    else:
        base = f"[profile base]\naws_access_key_id = A\naws_secret_access_key = {SECRET}\n"
        config.write_text(base + (f"[profile team]\n{profile}\n" if profile is not None else ""))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(s3_credentials, "LIMIT", 2.0 if HANGS in (profile or "") else 30.0)
    with pytest.raises(PreflightError, match='profile "team"') as caught:
        resolve(s3(profile="team"))
    assert caught.value.exit_code == 3
    for word in words:
        assert word in str(caught.value)
    assert LEAK not in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_a_helpers_words_are_kept_for_its_account_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A message has its first line and its exit status."""
    config, state = tmp_path / "config", tmp_path / "state"
    words = f"no ticket\nrequest was signed with {LEAK}\nsession 17 of alice\n"
    (tmp_path / "helper").write_text(f"cat >&2 <<'END'\n{words}END\nexit 3\n")
    config.write_text(f"[profile team]\ncredential_process = sh {tmp_path / 'helper'}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    with pytest.raises(PreflightError) as caught:
        resolve(s3(profile="team"))
    log = state / "penstock/credential_process.log"
    said = "its credential_process: no ticket (exit status 3); all that it said is in"
    assert caught.value.why == f"{said} {log}"
    assert (log.read_text(), log.stat().st_mode & 0o777) == (words, 0o600)


@pytest.mark.parametrize(
    "text",
    [
        f'"SecretAccessKey": "{LEAK}"',
        f"AWS_SESSION_TOKEN={LEAK}",
        f"bad reply {LEAK}",
        "ASIAEXAMPLEEXAMPLE12 is unknown",
        "password = 'hunter two'",
        "eyJhbGciOiJSUzI1NiIsImtpZCI6.abc",
        "0123456789abcdef0123456789abcdef01234567",
    ],
)
def test_words_of_helpers_hold_no_secret(text: str) -> None:
    shown = s3_credentials.cleaned(f"no way\n {text}")
    assert shown.startswith("no way; ")
    assert not any(secret in shown for secret in (LEAK, "EXAMPLE12", "hunter", "eyJ", "abcdef"))
    plain = "token file /usr/local/share/company/helpers/get-aws-keys is missing: status 403"
    assert s3_credentials.cleaned(plain) == plain


@pytest.mark.parametrize(
    ("bucket", "endpoint", "options", "expected"),
    [
        ("b", "", {}, ("https://b.s3.eu-1.amazonaws.com", "/")),
        ("b.c", "", {}, ("https://s3.eu-1.amazonaws.com", "/b.c/")),
        ("b", "http://h:1", {}, ("http://h:1", "/b/")),
        ("b", "http://h:1/base/", {}, ("http://h:1", "/base/b/")),
        ("b", "http://h:1", {"addressing_style": "virtual"}, ("http://b.h:1", "/")),
        ("b", "https://s3.eu-2.amazonaws.com", {}, ("https://b.s3.eu-2.amazonaws.com", "/")),
    ],
)
def test_addresses(bucket: str, endpoint: str, options: dict[str, Any], expected: tuple[str, str]) -> None:
    config = SourceConfig(f"s3://{bucket}/p", storage_options=options)
    server, root = address(bucket_of(config, S3Credentials(None, "eu-1", endpoint)), "eu-1")
    assert (server.url, root) == expected


def test_china_has_its_own_domain() -> None:
    bucket = bucket_of(SourceConfig("s3://b/p"), S3Credentials(None, "cn-north-1", ""))
    assert address(bucket, "cn-north-1")[0].host == "b.s3.cn-north-1.amazonaws.com.cn"


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("/folder", PosixSource),
        ("file:///folder", PosixSource),
        ("s3://b/p", S3Source),
        ("https://h/x", WebSource),
        ("memory://x", FsspecSource),
    ],
)
def test_open_source(url: str, kind: type) -> None:
    config = SourceConfig(url, storage_options={"anon": True})
    assert isinstance(port.open_source(config, dataset(url)), kind)


@pytest.mark.parametrize(
    "url", ["s3://key:hush@b/p", "https://user:hush@h/x", "ftp://u:hush@h/x", "file://x/y"]
)
def test_urls_that_are_refused(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        port.open_source(SourceConfig(url), dataset(url))
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("s3://arn:aws:s3:eu-west-1:123456789012:accesspoint/x", "the access point's alias"),
        ("s3://arn:aws:s3:eu-west-1:123456789012:accesspoint:x/a/", "the access point's alias"),
        ("s3://arn:aws:s3:::bucket/a/b", "write s3://bucket/a/b"),
    ],
)
def test_an_arn_in_a_url_is_named_as_what_it_is(url: str, hint: str) -> None:
    with pytest.raises(ConfigError, match="an ARN where a bucket's name belongs") as caught:
        port.open_source(SourceConfig(url, storage_options={"anon": True}), dataset(url))
    assert hint in caught.value.hint


def test_options_of_other_protocols_may_come_from_a_file(tmp_path: Path) -> None:
    path = secret_file(tmp_path / "sftp", f"username=a\npassword={SECRET}==\n")
    config = SourceConfig("sftp://c/p", storage_options={"credentials_file": path})
    found = port.credentials(config)
    assert isinstance(found, FsspecCredentials)
    assert found.options == {"username": "a", "password": f"{SECRET}=="}
    assert SECRET not in repr(found)


@pytest.mark.parametrize("url", ["nosuch://x", "memory://nothing/here"])
def test_what_fsspec_cannot_open_is_told(url: str) -> None:
    with pytest.raises(PenstockError) as caught:
        port.open_source(SourceConfig(url), dataset(url)).check()
    assert caught.value.exit_code in (2, 3)
