"""Signed releases: a forged seal is found, also where the history names it; releases of before are signed."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import ssh_keys
from tests.support.commands import penstock
from tests.support.published import data_of, publish, writable
from tests.support.staging_runs import context_for, tree

from penstock.cli.commands import releases
from penstock.core.errors import ConfigError, FailedError, FindingsError, PreflightError
from penstock.core.layout import NO_SIGNING
from penstock.dataset import gate, release_records
from penstock.dataset.context import Context
from penstock.doctor import preflight_step
from penstock.keep import audit_step, release_supplements, retention_steps
from penstock.look import details

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES = {"a": b"aa", "b/c": b"ccc", "b/d": b"dddd"}


@pytest.fixture
def key(tmp_path: Path) -> ssh_keys.Key:
    made = ssh_keys.key(tmp_path / "keys")
    signers = tmp_path / "keys/signers"
    signers.write_text(made.line())
    signers.chmod(0o644)
    return made


@pytest.fixture
def unsigned(tmp_path: Path) -> Iterator[Context]:
    context = context_for(tmp_path, tree(tmp_path / "source", FILES))
    yield context
    context.cluster.close()


def signing(context: Context, key: ssh_keys.Key | None, signers: bool = True) -> Context:
    """The same with another section `target`."""
    target = replace(
        context.config.target,
        sign_with=key.private if key else None,
        signers=context.config.target.root.parent / "keys/signers" if signers else None,
    )
    return Context(replace(context.config, target=target), context.cluster, sink=context.sink)


@pytest.fixture
def signed(unsigned: Context, key: ssh_keys.Key) -> Context:
    context = signing(unsigned, key)
    publish(context)
    return context


def passes(context: Context) -> None:
    gate.passed(context.layout("data"))


def refused(context: Context) -> str:
    with pytest.raises(FindingsError, match="not signed as") as error:
        passes(context)
    return error.value.why


def edit(path: Path, change: Any) -> None:
    with writable(path.parent):
        mode = path.stat().st_mode
        path.chmod(0o600)
        path.write_bytes(change(path.read_bytes()))
        path.chmod(mode)


def forge_seal(context: Context) -> str:
    """A seal that says something else, as one writes it who has no key; its digest."""
    path = data_of(context).parent / "release.json"
    edit(path, lambda content: content.replace(b'"scanned": 3', b'"scanned": 9'))
    return release_records.published_seal(context.layout("data"), path.parent.name) or ""


def test_what_publish_signs_passes_gate_path_and_audit_for_owner_and_readers(signed: Context) -> None:
    passes(signed)
    passes(signing(signed, None))
    assert audit_step.run(signed, "data")["status"] == "PASSED"
    found = data_of(signed).parent / "release.json.sig"
    assert found.stat().st_mode & 0o777 == 0o440


def test_a_forged_seal_is_found_though_the_history_names_it(signed: Context) -> None:
    layout = signed.layout("data")
    real = release_records.published_seal(layout, data_of(signed).parent.name) or ""
    forge_seal(signed)
    forged = "sha256:" + hashlib.sha256((data_of(signed).parent / "release.json").read_bytes()).hexdigest()
    edit(layout.history, lambda content: content.replace(real.encode(), forged.encode()))
    # Without signatures this passes: who may write below the root can forge both.
    passes(signing(signed, None, signers=False))
    assert "release.json.sig: Signature verification failed" in refused(signed)
    found = audit_step.run(signed, "data")
    assert found["status"] == "FINDINGS"
    assert [one.path for one in found["findings"]] == ["release.json.sig"]
    # A reader who cannot read the history finds it by the seal's signature alone.
    os.rename(layout.history, layout.history.with_name("away"))
    assert "release.json.sig" in refused(signed)


def test_a_signature_of_another_release_or_dataset_is_none(signed: Context, tmp_path: Path) -> None:
    first = data_of(signed).parent
    tree(tmp_path / "source", {"new": b"new"})
    publish(signed)
    second = data_of(signed).parent
    assert first != second
    with writable(second):
        (second / "release.json.sig").unlink()
        assert refused(signed) == "release.json.sig: it is missing"
        shutil.copy(first / "release.json.sig", second / "release.json.sig")
    assert "incorrect signature" in refused(signed)
    assert release_supplements.sign(signed, "data", second.name)["signed"]
    passes(signed)


@pytest.mark.parametrize("made", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("release.json")])
def test_what_is_no_plain_file_is_no_signature_and_nobody_waits_for_it(signed: Context, made: Any) -> None:
    folder = data_of(signed).parent
    with writable(folder):
        (folder / "release.json.sig").unlink()
        made(folder / "release.json.sig")
    assert refused(signed) == "release.json.sig: it is no plain file"
    assert [one.path for one in audit_step.run(signed, "data")["findings"]] == ["release.json.sig"]
    if made is Path.mkdir:
        with pytest.raises(FailedError):
            release_supplements.sign(signed, "data", None)
    else:
        assert release_supplements.sign(signed, "data", None)["signed"]


def test_what_to_do_depends_on_what_does_not_hold(signed: Context) -> None:
    folder = data_of(signed).parent
    edit(folder / "release.json.sig", lambda content: content.replace(b"A", b"B", 1))
    with pytest.raises(FindingsError) as error:
        passes(signed)
    assert "`penstock run --new-release data`" in error.value.hint
    with writable(folder):
        (folder / "release.json.sig").unlink()
    with pytest.raises(FindingsError) as error:
        passes(signed)
    assert f"its owner signs it by `penstock sign data {folder.name}`" in error.value.hint


def test_show_says_whether_the_signatures_hold(signed: Context) -> None:
    layout, folder = signed.layout("data"), data_of(signed).parent

    def said(one: Context | None = signed) -> str:
        asked = one.layout("data") if one else replace(layout, signing=NO_SIGNING)
        return details.shown(asked, None, lambda _: {})["signature"]

    assert said() == "holds, by `target.signers`"
    assert said(None).startswith("release.json.sig is there, and not verified")
    lines = releases.render_release(details.shown(layout, None, lambda _: {}))
    assert any("Signature" in line.text and "holds" in line.text for line in lines)
    with writable(folder):
        (folder / "release.json.sig").unlink()
    assert said() == "DOES NOT HOLD: it is missing"
    assert said(None) == ""


def test_a_release_of_before_is_refused_until_it_is_signed(unsigned: Context, key: ssh_keys.Key) -> None:
    publish(unsigned)
    context = signing(unsigned, key)
    layout = context.layout("data")
    assert "release.json.sig: it is missing" in refused(context)
    folder = data_of(context).parent
    before = {one.name: one.stat().st_mode for one in (folder, folder / "release.json", folder / "data")}
    result = release_supplements.sign(context, "data", None)
    assert (result["release"], result["signed"]) == (folder.name, True)
    passes(context)
    assert audit_step.run(context, "data")["status"] == "PASSED"
    after = {one.name: one.stat().st_mode for one in (folder, folder / "release.json", folder / "data")}
    assert after == before
    assert (folder / "release.json.sig").stat().st_mode == (folder / "release.json").stat().st_mode
    assert [line.event for line in release_records.history_lines(layout)] == ["sign", "publish"]
    assert not release_supplements.sign(context, "data", None)["signed"]


def test_a_release_that_is_not_as_it_was_published_is_not_signed(
    unsigned: Context, key: ssh_keys.Key
) -> None:
    publish(unsigned)
    forge_seal(unsigned)
    with pytest.raises(FindingsError, match="not as it was published"):
        release_supplements.sign(signing(unsigned, key), "data", None)
    with pytest.raises(ConfigError, match="no key is configured"):
        release_supplements.sign(unsigned, "data", None)


def test_nothing_is_linked_from_a_release_that_is_not_signed(
    unsigned: Context, key: ssh_keys.Key, tmp_path: Path
) -> None:
    publish(unsigned)
    first = data_of(unsigned)
    tree(tmp_path / "source", {"new": b"new"})
    context = signing(unsigned, key)
    publish(context)
    passes(context)
    assert (data_of(context) / "a").stat().st_ino != (first / "a").stat().st_ino


def test_a_key_that_cannot_sign_stops_preflight(unsigned: Context, key: ssh_keys.Key, tmp_path: Path) -> None:
    context = signing(unsigned, key)
    assert any("signs, and" in one for one in preflight_step.run(context, "data")["checked"])
    key.private.chmod(0o644)
    with pytest.raises(PreflightError, match="others may read or replace the key"):
        preflight_step.run(context, "data")
    key.private.chmod(0o600)
    (tmp_path / "keys/signers").write_text(key.line(options='namespaces="file"'))
    with pytest.raises(PreflightError, match=r"not those that `target\.signers` asks for"):
        preflight_step.run(context, "data")


def test_a_rollback_asks_for_the_signature_and_its_line_breaks_none(signed: Context, tmp_path: Path) -> None:
    first = data_of(signed).parent
    (tmp_path / "source" / "more").write_bytes(b"more")
    second = publish(signed)["release"]
    retention_steps.rollback(signed, "data", None)
    assert data_of(signed).parent == first
    passes(signed)
    retention_steps.rollback(signed, "data", second)
    passes(signed)
    with writable(first):
        (first / "release.json.sig").unlink()
    with pytest.raises(FindingsError, match="not signed as"):
        retention_steps.rollback(signed, "data", first.name)
    assert data_of(signed).parent.name == second
    (tmp_path / "source" / "more").write_bytes(b"still more")
    publish(signed)
    passes(signed)


def test_the_commands(signed: Context, key: ssh_keys.Key, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    root, keys = signed.config.target.root, tmp_path / "keys"
    text = f"datasets: {{data: {{source: {tmp_path}/source}}}}\ntarget: {{root: {root}"
    config.write_text(f"{text}, sign_with: {key.private}, signers: {keys}/signers}}\n")
    for words in (("gate", "data"), ("path", "data"), ("sign", "data")):
        done = penstock("--config", str(config), *words)
        assert done.returncode == 0, done.stderr
    assert "was signed already" in done.stdout
    folder = data_of(signed).parent
    with writable(folder):
        (folder / "release.json.sig").unlink()
    for words in (("gate", "data"), ("path", "data"), ("rollback", "data", folder.name)):
        done = penstock("--config", str(config), *words)
        if words[0] != "rollback":
            assert done.returncode == 4
            assert f"sign data {folder.name}" in done.stderr
    assert penstock("--config", str(config), "sign", "data", folder.name).returncode == 0
    assert penstock("--config", str(config), "gate", "data").returncode == 0
    config.write_text(f"{text}, sign_with: {key.private}}}\n")
    done = penstock("--config", str(config), "gate", "data")
    assert done.returncode == 2
    assert "needs `target.signers`" in done.stderr
