"""Signatures between accounts, by the commands: one stages and signs, another gates and audits what it may
read. A thief has the stager's account below the root, and no key."""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.audit.test_readers import said
from tests.support import ssh_keys, warm
from tests.support.published import writable
from tests.support.staging_runs import tree

from penstock.target import tree_removal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be other accounts")
OWNER, READER, STRANGER = (pwd.getpwnam(name).pw_uid for name in ("daemon", "bin", "nobody"))
"""Accounts that every machine knows by name: ssh-keygen works for no others."""
WHO = "data@example.org"


class Place:
    """A root of OWNER's, whose key signs; every configuration but the owner's has the signers alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.chmod(0o755)
        # Commands work in it: the stager's receipts lie there.
        os.chown(folder, OWNER, OWNER)
        for uid in (OWNER, READER, STRANGER):
            self._owned(f"home-{uid}", uid, 0o700)
        self._owned("own", OWNER, 0o755)
        self.key, self.other = (ssh_keys.key(self._owned(f"keys-{one}", OWNER, 0o700)) for one in "ab")
        for one in (*self.key, *self.other):
            os.chown(one, OWNER, OWNER)
        self.signers = folder / "signers"
        self.trust(self.key.line(WHO))
        tree(folder / "source", {"a": b"aa", "b/c": b"ccc" * 900})
        self.stager, self.reader = self.config("stager.yaml", self.key), self.config("reader.yaml")

    def _owned(self, name: str, uid: int, mode: int) -> Path:
        made = self.folder / name
        made.mkdir(mode=mode)
        os.chown(made, uid, uid)
        return made

    def config(self, name: str, key: ssh_keys.Key | None = None, signers: bool = True) -> str:
        path = self.folder / name
        target = {"root": str(self.folder / "own/target"), "keep_free": 0}
        if signers:
            target["signers"] = str(self.signers)
        if key:
            target["sign_with"] = str(key.private)
        modes = {"file_mode": "0444", "dir_mode": "0555"}
        data = {"source": str(self.folder / "source"), "permissions": modes}
        path.write_text(json.dumps({"target": target, "datasets": {"data": data}}))
        path.chmod(0o644)
        return str(path)

    def trust(self, *lines: str) -> None:
        """The file of signers, as the site's administrator writes it."""
        self.signers.write_text("".join(lines))
        self.signers.chmod(0o644)

    @property
    def release(self) -> Path:
        return (self.folder / "own/target/data/current").resolve()

    @property
    def state(self) -> Path:
        return self.folder / "own/target/data/.penstock"

    def run(self, config: str = "") -> None:
        code, text = said(OWNER, self.folder, "run", "--config", config or self.stager)
        assert code == 0, text

    def asks(self, uid: int, command: str, *words: str) -> tuple[int, str]:
        config = self.stager if uid == OWNER else self.reader
        return said(uid, self.folder, command, "--config", config, *words)

    def edit(self, path: Path, change: Callable[[bytes], bytes]) -> None:
        """As the thief does it."""
        with writable(path.parent):
            mode, before = path.stat().st_mode & 0o7777, path.stat()
            path.chmod(0o600)
            path.write_bytes(change(path.read_bytes()))
            path.chmod(mode)
            os.chown(path, before.st_uid, before.st_gid)


@pytest.fixture(scope="module")
def staged() -> Iterator[Place]:
    """With one release; a copy of all lies beside it."""
    warm.import_all()
    folder = Path(tempfile.mkdtemp(prefix="penstock-signed-"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder / f"home-{OWNER}"))
        made = Place(folder)
        made.run()
    copy = folder.with_name(f"{folder.name}.copy")
    subprocess.run(["cp", "-a", folder, copy], check=True)
    yield made
    tree_removal.remove_tree(folder)
    tree_removal.remove_tree(copy)


@pytest.fixture
def place(staged: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("HOME", str(staged.folder / f"home-{OWNER}"))
    yield staged
    tree_removal.remove_tree(staged.folder)
    subprocess.run(["cp", "-a", f"{staged.folder}.copy", staged.folder], check=True)


@pytest.mark.parametrize("uid", [OWNER, READER, STRANGER])
def test_what_was_signed_passes_for_every_account(place: Place, uid: int) -> None:
    code, text = place.asks(uid, "gate")
    assert code == 0, text
    assert place.asks(uid, "path") == (0, f"{place.release}/data\n")
    code, text = place.asks(uid, "audit")
    assert (code, "PASSED" in text) == (0, True)


def reveal(place: Place) -> None:
    """A seal that says something else, and a line of the history that names it: all that the account can
    write, without the key."""
    seal = place.release / "release.json"
    real = hashlib.sha256(seal.read_bytes()).hexdigest()
    place.edit(seal, lambda content: content.replace(b'"scanned": 2', b'"scanned": 7'))
    forged = hashlib.sha256(seal.read_bytes()).hexdigest()
    assert forged != real
    history = place.state / "history.jsonl"
    place.edit(history, lambda content: content.replace(real.encode(), forged.encode()))
    assert forged.encode() in history.read_bytes()


@pytest.mark.parametrize("uid", [OWNER, READER, STRANGER])
def test_a_forged_seal_is_found_by_every_account(place: Place, uid: int) -> None:
    reveal(place)
    for command in ("gate", "path", "audit"):
        code, text = place.asks(uid, command)
        assert (code, "release.json.sig" in text) == (4, True), f"{command}: {text}"


def test_without_signers_a_forged_seal_with_its_history_passes(place: Place) -> None:
    """What signatures are for."""
    reveal(place)
    plain = place.config("plain.yaml", signers=False)
    assert said(STRANGER, place.folder, "gate", "--config", plain)[0] == 0


def test_a_key_that_was_stolen_is_taken_out_and_its_releases_are_signed_anew(place: Place) -> None:
    place.trust(place.other.line(WHO))
    for uid in (OWNER, READER, STRANGER):
        code, text = place.asks(uid, "gate")
        assert (code, "release.json.sig" in text) == (4, True), text
    # Who has the stolen key alone gets nothing published any more.
    tree(place.folder / "source", {"new": b"n"})
    code, text = place.asks(OWNER, "run")
    assert code in (3, 4), text
    name = place.release.name
    other = place.config("other.yaml", place.other)
    code, text = said(OWNER, place.folder, "sign", "--config", other, "data", name)
    assert code == 0, text
    assert said(OWNER, place.folder, "gate", "--config", other)[0] == 0
    assert place.asks(STRANGER, "gate")[0] == 0
    place.run(other)
    assert place.release.name != name
    assert place.asks(STRANGER, "gate")[0] == 0


def test_a_revoked_key_is_refused_though_its_line_stands(place: Place) -> None:
    """`ssh-keygen` lists several keys of one signer: each line stands for itself."""
    place.trust(place.other.line(WHO), place.key.line("somebody@else.org", 'namespaces="file"'))
    code, text = place.asks(STRANGER, "gate")
    assert (code, "release.json.sig" in text) == (4, True), text


def test_a_signature_by_a_key_that_nobody_trusts_is_none(place: Place) -> None:
    tree(place.folder / "source", {"new": b"n"})
    before = place.release
    code, text = said(OWNER, place.folder, "run", "--config", place.config("other.yaml", place.other))
    assert (code, "signers" in text) == (3, True), text
    assert place.release == before


def test_another_account_can_sign_nothing(place: Place) -> None:
    for uid in (READER, STRANGER):
        code, text = said(uid, place.folder, "sign", "--config", place.stager, "data", place.release.name)
        assert code == 3, text
