"""Signed releases: a forged seal and a forged history are found; releases of before are signed; whatever is
killed, the same command ends right."""

from __future__ import annotations

import json
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

from penstock.catalogue import details
from penstock.cluster.local import LocalCluster
from penstock.core.documents import signed_history as document
from penstock.core.documents.history_line import Publication
from penstock.core.layout import NO_SIGNING
from penstock.errors import ConfigError, FailedError, FindingsError, PreflightError
from penstock.state import gate, history, release_signature, signed_history
from penstock.state.context import Context
from penstock.steps import audit_step, preflight_step, repair_step, rollback_step, sign_release
from penstock.storage import durable
from penstock.views import release_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.core.layout import DatasetLayout
    from penstock.state.history import Written

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
    assert isinstance(context.cluster, LocalCluster)
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
    return history.published_seal(context.layout("data"), path.parent.name) or ""


def test_what_publish_signs_passes_gate_path_and_audit_for_owner_and_readers(signed: Context) -> None:
    layout = signed.layout("data")
    passes(signed)
    passes(signing(signed, None))
    assert audit_step.run(signed, "data")["status"] == "PASSED"
    found = data_of(signed).parent / "release.json.sig"
    assert found.stat().st_mode & 0o777 == 0o440
    (line,) = history.lines(layout)
    assert line.before == signed_history.digest(b"")


def test_a_forged_seal_is_found_though_the_history_names_it(signed: Context) -> None:
    layout = signed.layout("data")
    real = history.published_seal(layout, data_of(signed).parent.name) or ""
    forge_seal(signed)
    forged = signed_history.digest((data_of(signed).parent / "release.json").read_bytes())
    edit(layout.history, lambda content: content.replace(real.encode(), forged.encode()))
    # Without signatures this passes: who may write below the root can forge both.
    passes(signing(signed, None, signers=False))
    why = refused(signed)
    assert "release.json.sig: Signature verification failed" in why
    assert "history.jsonl: it is not the one that was signed" in why
    found = audit_step.run(signed, "data")
    assert found["status"] == "FINDINGS"
    assert {one["path"] for one in found["findings"]} == {"release.json.sig", "history.jsonl"}
    # A reader who cannot read the history finds it by the seal's signature alone.
    os.rename(layout.history, layout.history.with_name("away"))
    assert "release.json.sig" in refused(signed)


def test_a_forged_history_is_found_and_is_not_signed_by_the_next_publication(signed: Context) -> None:
    layout = signed.layout("data")
    line = next(history.lines(layout))
    forged = {"event": "publish", "release": "forged", "seal": "sha256:0", "at": line.at, "dataset": "data"}
    durable.append_line(layout.history, forged)
    assert refused(signed) == "history.jsonl: its last line is not signed"
    with pytest.raises(FindingsError, match="not the one that was signed"):
        history.append(layout, history_line(line))
    with pytest.raises(FindingsError, match="not the one that was signed"):
        preflight_step.run(signed, "data")
    with pytest.raises(FindingsError, match="not the one that was signed"):
        repair_step.run(signed, "data")
    assert sign_release.accept(signed, "data", "a test wrote it")["signed"]
    passes(signed)
    newest = next(history.lines(layout))
    assert (newest.event, getattr(newest, "reason", "")) == ("sign", "a test wrote it")
    assert not sign_release.accept(signed, "data", "again")["signed"]


def history_line(line: Any) -> Any:
    return replace(line, before="")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            lambda content: content.replace(b'"files": 3', b'"files": 4', 1),
            "before its line 2 is not what stood",
        ),
        (lambda content: content.splitlines(keepends=True)[1], "before its line 1 is not what stood"),
        (lambda content: b"", "is not the one that was signed"),
        (
            lambda content: content + content.splitlines(keepends=True)[0] * 2,
            "its last 2 lines are not signed",
        ),
    ],
)
def test_what_was_changed_in_a_history_is_named(signed: Context, change: Any, why: str) -> None:
    layout = signed.layout("data")
    history.append(layout, history_line(next(history.lines(layout))))
    history.append(layout, history_line(next(history.lines(layout))))
    passes(signed)
    edit(layout.history, change)
    assert why in refused(signed)


def test_an_older_history_with_its_own_signature_lacks_the_release(
    signed: Context, key: ssh_keys.Key, tmp_path: Path
) -> None:
    layout = signed.layout("data")
    kept = [(one, one.read_bytes()) for one in (layout.history, layout.signed_history)]
    tree(tmp_path / "source", {"new": b"new"})
    publish(signed)
    passes(signed)
    for path, content in kept:
        path.write_bytes(content)
    assert "it does not name release" in refused(signed)


def test_the_history_without_its_signature_is_found_and_not_signed_anew(signed: Context) -> None:
    layout = signed.layout("data")
    layout.signed_history.unlink()
    assert "it is not signed" in refused(signed)
    with pytest.raises(FindingsError):
        history.append(layout, history_line(next(history.lines(layout), None)))


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
    assert sign_release.run(signed, "data", second.name)["signed"]
    passes(signed)


@pytest.mark.parametrize("made", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("release.json")])
def test_what_is_no_plain_file_is_no_signature_and_nobody_waits_for_it(signed: Context, made: Any) -> None:
    folder = data_of(signed).parent
    with writable(folder):
        (folder / "release.json.sig").unlink()
        made(folder / "release.json.sig")
    assert refused(signed) == "release.json.sig: it is no plain file"
    assert [one["path"] for one in audit_step.run(signed, "data")["findings"]] == ["release.json.sig"]
    if made is Path.mkdir:
        with pytest.raises(FailedError):
            sign_release.run(signed, "data", None)
    else:
        assert sign_release.run(signed, "data", None)["signed"]


def test_what_to_do_depends_on_what_does_not_hold(signed: Context, key: ssh_keys.Key) -> None:
    layout, release = signed.layout("data"), data_of(signed).parent.name

    def advice(*found: tuple[str, str]) -> str:
        problems = [release_signature.Problem(*one) for one in found]
        return release_signature.refusal(layout, release, problems).hint

    missing = ("release.json.sig", "it is missing")
    unsigned = ("history.jsonl", signed_history.unsigned(layout))
    assert f"its owner signs it by `penstock sign data {release}`" in advice(missing)
    assert f"its owner signs it by `penstock sign data {release}`" in advice(unsigned, missing)
    assert "`penstock sign data --accept REASON`" in advice(unsigned)
    assert "`penstock sign data --accept REASON`" in advice(("history.jsonl", "it was changed"), missing)
    assert "`penstock run --new-release data`" in advice(("release.json.sig", "incorrect signature"))
    named = ("history.jsonl", f"it does not name release {release} with this seal")
    assert "`penstock run data` goes on with it" in advice(named)


def test_show_says_whether_the_signatures_hold(signed: Context) -> None:
    layout, folder = signed.layout("data"), data_of(signed).parent

    def said(one: Context | None = signed) -> str:
        asked = one.layout("data") if one else replace(layout, signing=NO_SIGNING)
        return details.shown(asked, None, lambda _: {})["signature"]

    assert said() == "holds, by `target.signers`"
    assert said(None).startswith("release.json.sig is there, and not verified")
    lines = release_text.shown(details.shown(layout, None, lambda _: {}))
    assert any("Signature" in line.text and "holds" in line.text for line in lines)
    with writable(folder):
        (folder / "release.json.sig").unlink()
    assert said() == "DOES NOT HOLD: release.json.sig: it is missing"
    assert said(None) == ""


def test_a_release_of_before_is_refused_until_it_is_signed(unsigned: Context, key: ssh_keys.Key) -> None:
    publish(unsigned)
    context = signing(unsigned, key)
    layout = context.layout("data")
    assert "release.json.sig: it is missing" in refused(context)
    folder = data_of(context).parent
    before = {one.name: one.stat().st_mode for one in (folder, folder / "release.json", folder / "data")}
    result = sign_release.run(context, "data", None)
    assert (result["release"], result["signed"]) == (folder.name, True)
    assert result["trusted"].startswith("history.jsonl has 1 line that nobody signed; ")
    passes(context)
    assert audit_step.run(context, "data")["status"] == "PASSED"
    after = {one.name: one.stat().st_mode for one in (folder, folder / "release.json", folder / "data")}
    assert after == before
    assert (folder / "release.json.sig").stat().st_mode == (folder / "release.json").stat().st_mode
    assert [line.event for line in history.lines(layout)] == ["sign", "publish"]
    assert not sign_release.run(context, "data", None)["signed"]


def test_a_release_that_is_not_as_it_was_published_is_not_signed(
    unsigned: Context, key: ssh_keys.Key
) -> None:
    publish(unsigned)
    forge_seal(unsigned)
    with pytest.raises(FindingsError, match="not as it was published"):
        sign_release.run(signing(unsigned, key), "data", None)
    with pytest.raises(ConfigError, match="no key is configured"):
        sign_release.run(unsigned, "data", None)


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
    (tmp_path / "keys/signers").write_text(key.line(options='namespaces="penstock-release"'))
    with pytest.raises(PreflightError, match=r"not those that `target\.signers` asks for"):
        preflight_step.run(context, "data")


@pytest.mark.parametrize("torn", [0, 1, 100])
def test_a_kill_between_signature_and_line_leaves_a_history_that_holds(signed: Context, torn: int) -> None:
    """The signature is durable first; of the line nothing, or its beginning, stands there."""
    layout = signed.layout("data")
    content, before = layout.history.read_bytes(), layout.signed_history.read_bytes()
    line = next(history.lines(layout))
    history.append(layout, history_line(line))
    longer = layout.history.read_bytes()
    layout.history.write_bytes(content)
    layout.signed_history.write_bytes(before)
    signed_history.extend(layout, content, longer, line.release)
    layout.history.write_bytes(longer[: len(content) + torn])
    passes(signed)
    history.append(layout, history_line(line))
    passes(signed)
    assert len(list(history.lines(layout))) == 2
    # A line that nobody signed is none that was torn off.
    layout.history.write_bytes(content + b'{"event": "publish"}')
    assert "not" in refused(signed)


def test_the_last_line_of_a_history_cannot_be_taken_away(signed: Context, tmp_path: Path) -> None:
    """That of a rollback, say: `current` may then lead to what was rolled back, and each seal is signed."""
    (tmp_path / "source" / "more").write_bytes(b"more")
    publish(signed)
    rollback_step.run(signed, "data", None)
    layout = signed.layout("data")
    content = layout.history.read_bytes()
    layout.history.write_bytes(b"".join(content.splitlines(keepends=True)[:-1]))
    assert refused(signed) == "history.jsonl: it is not the one that was signed"
    layout.history.write_bytes(content)
    passes(signed)


def test_publish_that_was_killed_before_the_history_is_refused_until_it_ran_again(
    signed: Context, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(release_signature, "LATE", 0.0)
    tree(tmp_path / "source", {"new": b"new"})

    append = history.append

    def stop(layout: DatasetLayout, line: Written) -> None:
        if isinstance(line, Publication):
            raise KeyboardInterrupt
        append(layout, line)

    with monkeypatch.context() as patch:
        patch.setattr(history, "append", stop)
        with pytest.raises(KeyboardInterrupt):
            publish(signed)
    assert "it does not name release" in refused(signed)
    publish(signed)
    passes(signed)


def test_a_rollback_asks_for_the_signature_and_its_line_breaks_none(signed: Context, tmp_path: Path) -> None:
    first = data_of(signed).parent
    (tmp_path / "source" / "more").write_bytes(b"more")
    second = publish(signed)["release"]
    rollback_step.run(signed, "data", None)
    assert data_of(signed).parent == first
    passes(signed)
    rollback_step.run(signed, "data", second)
    passes(signed)
    with writable(first):
        (first / "release.json.sig").unlink()
    with pytest.raises(FindingsError, match="not signed as"):
        rollback_step.run(signed, "data", first.name)
    assert data_of(signed).parent.name == second
    (tmp_path / "source" / "more").write_bytes(b"still more")
    publish(signed)
    passes(signed)


def test_the_statement_of_a_history_is_canonical(signed: Context) -> None:
    layout = signed.layout("data")
    written = json.loads(layout.signed_history.read_bytes())
    found = document.from_json(layout.signed_history.read_bytes(), "")
    assert written.pop("signature") == found.signature
    assert document.statement(found) == json.dumps(written, sort_keys=True).encode() + b"\n"


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
    # A first signature says what it takes as it stands, also where no progress is shown.
    with writable(folder):
        (folder / "release.json.sig").unlink()
    signed.layout("data").signed_history.unlink()
    done = penstock("--config", str(config), "--progress", "off", "sign", "data", folder.name)
    assert done.returncode == 0
    assert "lines that nobody signed; the history of before is trusted as it stands" in done.stderr
    config.write_text(f"{text}, sign_with: {key.private}}}\n")
    done = penstock("--config", str(config), "gate", "data")
    assert done.returncode == 2
    assert "needs `target.signers`" in done.stderr
