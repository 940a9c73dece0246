"""Signatures by the real ssh-keygen: what holds, what does not, and which keys are refused."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.support import ssh_keys

from penstock.core.errors import PreflightError
from penstock.host.ssh_keygen import NAMESPACE, SignatureError, sign, sign_verified, verified_signer

if TYPE_CHECKING:
    from pathlib import Path

AT = "2026-03-14T08:05:09Z"
SEAL = b'{"a": 1}\n'


@pytest.fixture
def key(tmp_path: Path) -> ssh_keys.Key:
    return ssh_keys.key(tmp_path)


def signers(folder: Path, *lines: str) -> Path:
    path = folder / "signers"
    path.write_text("".join(lines))
    path.chmod(0o644)
    return path


def test_a_signature_holds_by_the_name_of_its_signer(tmp_path: Path, key: ssh_keys.Key) -> None:
    other = ssh_keys.key(tmp_path, "other")
    file = signers(tmp_path, "# who signs\n", other.line("other@example.org"), key.line("a@example.org,b@x"))
    assert verified_signer(file, SEAL, sign(key.private, SEAL), AT) == "a@example.org"
    assert verified_signer(file, SEAL, sign(other.private, SEAL), AT) == "other@example.org"


def test_ssh_keygen_alone_verifies_it(tmp_path: Path, key: ssh_keys.Key) -> None:
    file = signers(tmp_path, key.line())
    signature = tmp_path / "sig"
    signature.write_bytes(sign(key.private, SEAL))
    words = ("ssh-keygen", "-Y", "verify", "-f", file, "-I", "data@example.org", "-n", NAMESPACE)
    subprocess.run((*words, "-s", signature), input=SEAL, check=True)


@pytest.mark.parametrize(
    ("line", "content", "at", "why"),
    [
        ("", SEAL, AT, "none of"),
        ("d@x {key}", b'{"a": 2}\n', AT, "incorrect signature"),
        ('d@x namespaces="file" {key}', SEAL, AT, "namespace|none of|not permitted"),
        ('d@x valid-before="20260101" {key}', SEAL, AT, "none of|expired"),
        ("d@x {key}", b"\xff", AT, "no text"),
    ],
)
def test_what_does_not_hold(
    tmp_path: Path, key: ssh_keys.Key, line: str, content: bytes, at: str, why: str
) -> None:
    made = sign(key.private, SEAL)
    public = " ".join(key.public.read_text().split()[:2])
    with pytest.raises(SignatureError, match=why):
        verified_signer(signers(tmp_path, line.format(key=public) + "\n"), content, made, at)


def test_a_key_that_ended_holds_for_what_it_signed_before(tmp_path: Path, key: ssh_keys.Key) -> None:
    file = signers(tmp_path, key.line(options='valid-before="20270101"'))
    made = sign(key.private, SEAL)
    assert verified_signer(file, SEAL, made, AT)
    with pytest.raises(SignatureError):
        verified_signer(file, SEAL, made, "2028-01-01T00:00:00Z")


@pytest.mark.parametrize("content", [b"", b"nonsense", b"-----BEGIN SSH SIGNATURE-----\n" + b"A" * 99999])
def test_what_is_no_signature_is_none(tmp_path: Path, key: ssh_keys.Key, content: bytes) -> None:
    with pytest.raises(SignatureError, match="no signature of OpenSSH"):
        verified_signer(signers(tmp_path, key.line()), SEAL, content, AT)


def test_files_that_others_may_change_are_refused(tmp_path: Path, key: ssh_keys.Key) -> None:
    file = signers(tmp_path, key.line())
    made = sign(key.private, SEAL)
    file.chmod(0o664)
    with pytest.raises(PreflightError, match="others may change who signs"):
        verified_signer(file, SEAL, made, AT)
    key.private.chmod(0o640)
    with pytest.raises(PreflightError, match="others may read or replace the key"):
        sign(key.private, SEAL)
    with pytest.raises(PreflightError, match="cannot be read"):
        sign(tmp_path / "nothing", SEAL)


def test_a_passphrase_is_never_asked_for_and_an_agent_signs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    key = ssh_keys.key(tmp_path, passphrase="open sesame")
    with pytest.raises(PreflightError, match="the key cannot sign") as error:
        sign(key.private, SEAL)
    assert "ssh-add" in error.value.hint
    with ssh_keys.agent(tmp_path, key, "open sesame") as socket:
        monkeypatch.setenv("SSH_AUTH_SOCK", socket)
        file = signers(tmp_path, key.line())
        for path in (key.private, key.public):
            assert sign_verified(path, file, SEAL, AT)


def test_a_signature_that_readers_would_refuse_is_not_handed_out(tmp_path: Path, key: ssh_keys.Key) -> None:
    other = ssh_keys.key(tmp_path, "other")
    with pytest.raises(PreflightError, match=r"not those that `target\.signers` asks for"):
        sign_verified(key.private, signers(tmp_path, other.line()), SEAL, AT)


def test_without_ssh_keygen_nothing_is_judged(
    tmp_path: Path, key: ssh_keys.Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = signers(tmp_path, key.line())
    made = sign(key.private, SEAL)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PreflightError, match="ssh-keygen, which is not there"):
        verified_signer(file, SEAL, made, AT)
